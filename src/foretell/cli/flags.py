"""Command-line flags from option dataclasses: each field with a `flag` becomes a flag with the field's type and help text."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, fields, replace
from enum import Enum, StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import typer

from foretell.cli.completion import words
from foretell.errors import ForetellError
from foretell.options import Flag


class Impossible(StrEnum):
    """How to treat events that the rules make impossible."""

    error = "error"
    skip = "skip"
    exogenous = "exogenous"


class UndeclaredChoice(StrEnum):
    """How to treat events that the program declares neither `event` nor `exogenous`."""

    error = "error"
    exogenous = "exogenous"


class UnseenChoice(StrEnum):
    """How to treat parameter groups of rules, such as `w(U)`, for values that were not in training."""

    mean = "mean"
    error = "error"


ProgramArgument = Annotated[Path, typer.Argument(help="A program: P.ndtt, or the name of a shipped one (robocup).")]
DataArgument = Annotated[str, typer.Argument(help="A file, a folder, or the name of an embedded data set (robocup).")]
HistoryArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[HISTORY]",
        help="What happened so far: a file, a folder, a name, or - for stdin; --history says it, too.",
    ),
]
HistoryOption = Annotated[
    str | None,
    typer.Option("--history", help="What happened so far: a file, a folder, a name, or - for stdin."),
]
SequenceOption = Annotated[
    str | None, typer.Option("--sequence", help="Only the sequence with this id or place; default: all.")
]
SplitOption = Annotated[str | None, typer.Option("--split", help="train, dev or test; default: all.")]
ImpossibleOption = Annotated[
    Impossible,
    typer.Option("--impossible", help="Events the program makes impossible: an error, left out, or kept unscored."),
]
OtherImpossibleOption = Annotated[
    Impossible | None,
    typer.Option(
        "--impossible",
        help="Events that the rules make impossible: an error, left out, or kept unscored; default: the run's.",
    ),
]
UnseenOption = Annotated[
    UnseenChoice,
    typer.Option(
        "--unseen",
        help="Parameters of rules for values that training never met: the mean of the trained ones, or an error.",
    ),
]
TableOption = Annotated[
    list[str] | None,
    typer.Option(
        "--table", metavar="NAME=FILE", help="Other rows for a table of the rules: user=new.csv; may be repeated."
    ),
]
UndeclaredOption = Annotated[
    UndeclaredChoice,
    typer.Option("--undeclared", help="Events that nothing declares: an error, or taken to be exogenous."),
]
OtherUndeclaredOption = Annotated[
    UndeclaredChoice | None,
    typer.Option(
        "--undeclared",
        help="Events that the rules do not declare: an error, or taken to be exogenous; default: as in training.",
    ),
]
ModelUndeclaredOption = Annotated[
    UndeclaredChoice | None,
    typer.Option(
        "--undeclared",
        help="Events that the rules do not declare: an error, or taken to be exogenous; default: the file's, or an error.",
    ),
]
ColumnsOption = Annotated[
    str, typer.Option("--columns", help="Columns of a long table: sequence=patient,time=when,event=code.")
]
ParticipantsOption = Annotated[
    str,
    typer.Option(
        "--participants", help="Attributes that become arguments of the event: org:resource; OCEL: qualifiers, or none."
    ),
]
SqlOption = Annotated[str, typer.Option("--sql", help="A query whose rows are the events, in place of a file.")]
DatabaseOption = Annotated[
    str,
    typer.Option(
        "--database", help="For --sql: FILE.duckdb, FILE.sqlite or postgresql://…; default: files in the query."
    ),
]
DeviceOption = Annotated[str, typer.Option("--device", help="cpu, cuda or auto.")]
OnOption = Annotated[
    str,
    typer.Option(
        "--on", metavar="PLACE", help="Where: this (process), processes:N, ray, ray:N, or a cluster, ray://HOST:PORT."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]


# The options with a flag that `foretell.train.auto_settings` chooses.
BY_RULE = frozenset(
    {
        "data.window_events",
        "model.dim",
        "model.calendar",
        "train.epochs",
        "train.batch",
        "train.patience",
        "train.lr",
        "train.points",
    }
)

Given = dict[str, dict[str, Any]]  # the values from the command line: section → option → value
SetOption = Annotated[list[str] | None, typer.Option("--set", help="Any key: --set train.clip=1 --set model.bos=true.")]
LogOption = Annotated[
    list[str] | None,
    typer.Option("--log", help="Also send every epoch to tensorboard, mlflow or wandb; may be repeated."),
]
SummaryOption = Annotated[bool, typer.Option("--json", help="Print a summary as JSON on stdout.")]
QuietOption = Annotated[bool, typer.Option("--quiet/--no-quiet", help="No progress.")]
ResumeOption = Annotated[Path | None, typer.Option("--resume", help="A run folder to continue.")]


def with_flags(
    sections: Mapping[str, type],
    *,
    but: Collection[str] = (),
    only: Collection[str] | None = None,
    by_rule: Collection[str] = (),
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that adds a flag for every field with a `flag` in the sections; the command gets the values as `given`.

    Fields in `but`, or not in `only`, get no flag. Fields in `by_rule` are chosen by rule if no kind of model is given.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        made = {
            flag.name or field.name: (
                section,
                field.name,
                _parameter(
                    replace(flag, help=_with_default(flag.help, field.default, f"{section}.{field.name}", by_rule)),
                    field.name,
                    get_type_hints(options)[field.name],
                    field.default,
                ),
            )
            for section, options in sections.items()
            for field in fields(options)
            if (flag := field.metadata.get("flag"))
            and field.name not in but
            and (only is None or f"{section}.{field.name}" in only)
        }

        def run(**values: Any) -> None:
            given: Given = {section: {} for section in sections}
            for name, (section, option, _) in made.items():
                value = values.pop(name)
                if value is not None:
                    value = value.value if isinstance(value, Enum) else value
                    hint = get_type_hints(sections[section])[option]
                    if get_origin(hint) is tuple:
                        value = tuple(part.strip() for part in value.split(","))
                    given[section][option] = str(value) if isinstance(value, Path) else value
            command(**values, given=given)

        hints = get_type_hints(command, include_extras=True)
        own = [
            one.replace(annotation=hints[one.name], kind=inspect.Parameter.KEYWORD_ONLY)
            for one in inspect.signature(command).parameters.values()
            if one.name != "given"
        ]
        at = next((place for place, one in enumerate(own) if one.name in LAST), len(own))
        parameters = [*own[:at], *(one for _, _, one in made.values()), *own[at:]]
        run.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess]
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        run.__name__, run.__doc__, run.__module__ = command.__name__, command.__doc__, command.__module__
        return run

    return decorate


READING = ("time_format", "timezone", "start", "observed_until", "sorted", "terms", "unknown")


def with_reading(*, but: Collection[str] = ()) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that adds the flags for reading data, except those in `but`; `reading` combines their values."""
    from foretell.train.config import DataOptions

    return with_flags({"data": DataOptions}, only=[f"data.{name}" for name in READING if name not in but])


def reading(given: Given, columns: str) -> dict[str, Any]:
    """Return the options for reading data from the values of flags."""
    found = {name: value for name, value in given["data"].items() if name in READING}
    if columns:
        found["columns"] = dict(pair(part, "--columns") for part in columns.split(","))
    return found


def log_names(log: list[str] | None) -> tuple[str, ...]:
    """Return the logger names from `--log tensorboard --log mlflow` or `--log tensorboard,mlflow`."""
    names = [name.strip() for text in log or [] for name in text.split(",") if name.strip()]
    if names:
        from foretell.train.loggers import check_installed

        check_installed(names)
    return tuple(names)


LAST = ("log", "set_", "as_json", "quiet")  # the last options of all commands


def _parameter(flag: Flag, name: str, hint: Any, default: object) -> inspect.Parameter:
    shown = flag.name or name
    spelled = shown.replace("_", "-")
    # An option that is on by default has a flag for each value.
    names = f"--{spelled}/--no-{spelled}" if default is True else f"--{spelled}"
    kind = _type(flag, hint)
    known = words(*get_args(hint)) if kind is str and get_origin(hint) is Literal else None
    made = Annotated[kind | None, typer.Option(names, help=flag.help, autocompletion=known)]
    return inspect.Parameter(shown, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=made)


def _with_default(help: str, default: object, key: str, by_rule: Collection[str]) -> str:
    """Return the help of a flag with the default for its key. The flag itself has no default, so that it does not override a
    configuration."""
    nothing = default is None or default is False or default is MISSING or default in ("", ())
    if "default" in help or (nothing and key not in by_rule):
        return help
    told = "on" if default is True else str(default)
    if key.startswith("model.") and default is not True:
        told += ", or the model's own"
    if key in by_rule:
        told = f"by rule; with --model, {told}"
    return f"{help.removesuffix('.')}; default: {told}."


def _type(flag: Flag, hint: Any) -> Any:
    """Return the type of a flag: that of its option. A `Literal` becomes a choice only if `flag.choices` is set, else text."""
    if flag.type is not None:
        return flag.type
    parts = get_args(hint) if get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    kind = next(one for one in parts if one is not type(None))
    if get_origin(kind) is tuple:  # names separated by commas
        return str
    if get_origin(kind) is Literal:
        return Enum("Choice", {word: word for word in get_args(kind)}, type=str) if flag.choices else str
    return kind


def one_history(argument: str | None, option: str | None) -> str | None:
    """Return the history, given as the second argument or as `--history`."""
    if argument is not None and option is not None:
        raise ForetellError(f"{argument} and --history {option}: give the history once")
    return option if argument is None else argument


def with_participants(columns: str, participants: str) -> str:
    """Translate `--participants a,b` to `--columns arg1=a,arg2=b`."""
    named = [name.strip() for name in participants.split(",") if name.strip()]
    return ",".join(filter(None, [columns, *(f"arg{place}={name}" for place, name in enumerate(named, start=1))]))


def data_source(path: str | None, sql: str, database: str) -> str | None:
    """Return the source of data: a path, or a query with its database."""
    if not sql:
        if database:
            raise ForetellError("--database is the place of a query: give one with --sql")
        return path
    if path is not None:
        raise ForetellError(f"--sql and {path}: give one of both")
    from foretell.data.sources.sql import sql_source

    return sql_source(sql, database)


def pair(text: str, option: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip() or not value.strip():
        raise ForetellError(f"{option} {text!r}: expected KEY=VALUE")
    return key.strip(), value.strip()
