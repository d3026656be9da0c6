"""Options as frozen dataclasses: each has one definition with its default, and is read from keywords, TOML tables and flags.

A field made by `option` may have a command-line flag. This module does not import torch, so that `--help` is fast.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from foretell.errors import ForetellError
from foretell.wording import did_you_mean

T = TypeVar("T")
MOST_INTEGER = 2**63  # limit of the absolute value of integers in a configuration


class ConfigError(ForetellError):
    """A configuration has invalid keys or values; the message lists all of them."""


# Choices shared by several options and functions.
Impossible = Literal[
    "error", "skip", "exogenous"
]  # what to do with events that are impossible under a program: raise, drop them, or keep them unscored
Integral = Literal["stratified", "uniform", "quadrature"]
NoiseKind = Literal["poisson", "hawkes", "timed"]
Products = Literal[
    "auto", "always", "never"
]  # whether possible events of rules with independent parts are stored as products ("auto": if there are many)
Sight = Literal["causal", "two-sided"]  # which events an event sees: earlier ones, or all others
Undeclared = Literal["error", "exogenous"]  # what to do with events that a program does not declare
Window = Literal["all", "events-2-to-I"]  # which events are scored


@dataclass(frozen=True)
class Flag:
    """The command-line flag of an option."""

    help: str
    name: str = ""  # default: the option's name
    type: type | None = None  # default: the option's type
    choices: bool = False  # True: the parser checks the words of a Literal, so that a wrong one is a usage error


def option(
    default: Any,
    *,
    doc: str = "",
    flag: str | Flag = "",
    least: float | None = None,
    free: bool = False,
    tuned: tuple[Any, ...] = (),
) -> Any:
    """Return a dataclass field with a default.

    doc: the description for docstrings; default: the help of the flag.
    flag: the command-line flag, or its help text; an option without a flag is set in TOML or by `--set`.
    least: the smallest allowed value.
    free: True if a run that starts from another run may change the option, since no tensor depends on it.
    tuned: the values that `foretell tune` tries by default.
    """
    shown = Flag(flag) if isinstance(flag, str) and flag else flag or None
    told = {"doc": doc or (shown.help if shown else ""), "flag": shown, "least": least, "free": free, "tuned": tuned}
    return dataclasses.field(default=default, metadata=told)


def names_of(options: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(options)]


def too_small(options: Any, prefix: str = "") -> list[str]:
    """Return a message for each value below the `least` of its option."""
    found = []
    for field in dataclasses.fields(options):
        least, value = field.metadata.get("least"), getattr(options, field.name)
        if least is not None and value is not None and not value >= least:
            found.append(f"{prefix}{field.name} = {value}: expected {least} or more")
    return found


def changed(options: T, changes: Mapping[str, Any], caller: str) -> T:
    """Return a copy of the options with some changed; raise `ConfigError` for unknown names."""
    unknown = unknown_keys(changes, names_of(options), caller, "")
    if unknown:
        raise ConfigError("\n".join(unknown))
    return replace(options, **changes) if changes else options  # pyright: ignore[reportArgumentType, reportType]


def unknown_keys(given: Iterable[str], known: list[str], source: str, prefix: str) -> list[str]:
    """Return a message for each unknown key."""
    found = []
    for key in given:
        if key not in known:
            hint = did_you_mean(key, known, otherwise=f"known are {', '.join(known)}")
            found.append(f"{source}: unknown key `{prefix}{key}`; {hint}")
    return found


def from_table(cls: type[T], given: Mapping[str, Any], source: str, name: str, problems: list[str]) -> T:
    """Return the options in the TOML table `name`; messages about its mistakes are appended to `problems`."""
    hints = get_type_hints(cls)
    known = names_of(cls)
    problems += unknown_keys(given, known, source, f"{name}.")
    values = {}
    for key in known:
        if key in given:
            value, fine = coerce(given[key], hints[key])
            if fine:
                values[key] = value
            else:
                below = " below 2^63" if type(given[key]) is int and abs(given[key]) >= MOST_INTEGER else ""
                problems.append(f"{source}: {name}.{key} = {given[key]!r}: expected {expected(hints[key])}{below}")
    return cls(**values)


def coerce(value: Any, hint: Any) -> tuple[Any, bool]:
    """Return the value as the annotated type, and whether the value is valid. Integers become floats where the annotation is float,
    and lists become tuples; nothing else is converted."""
    origin = get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        for one in get_args(hint):
            made, fine = coerce(value, one)
            if fine:
                return made, True
        return None, False
    if origin is Literal:
        return value, any(value == one and type(value) is type(one) for one in get_args(hint))
    if hint is type(None):
        return None, value is None
    if hint is float:
        fine = isinstance(value, float) or (type(value) is int and abs(value) < 10**308)
        return (float(value), True) if fine else (None, False)
    if hint is int:
        return value, type(value) is int and abs(value) < MOST_INTEGER
    if hint in (str, bool):
        return value, type(value) is hint
    if origin in (list, tuple) and isinstance(value, list | tuple):
        inner = get_args(hint)[0]
        parts = [coerce(item, inner) for item in value]
        return tuple(part for part, _ in parts), all(fine for _, fine in parts)
    if isinstance(origin, type) and issubclass(origin, Mapping) and isinstance(value, Mapping):
        fine = all(isinstance(key, str) and isinstance(item, str) for key, item in value.items())
        return dict(value), fine
    return None, False


def expected(hint: Any) -> str:
    """Return a description of the values that an annotation allows."""
    origin = get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(expected(one) for one in get_args(hint) if one is not type(None))
    if origin is Literal:
        return " or ".join(json.dumps(one) for one in get_args(hint))
    if origin in (list, tuple):
        return "a list of numbers" if get_args(hint)[0] is float else "a list of strings"
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return "a table of strings"
    return {int: "a whole number", float: "a number", str: "a string", bool: "true or false"}.get(hint, str(hint))


def check_choice(name: str, value: Any, choices: Any, show: Callable[[Any], str] = str) -> None:
    """Raise an error if a word is not one of the choices (a list or a Literal)."""
    known = list(get_args(choices) or choices)
    if value not in known:
        hint = did_you_mean(str(value), known, before="; ")
        raise ConfigError(f"{name} = {show(value)}: expected one of {', '.join(known)}{hint}")
