"""`pass(purple7,Q)`: which events are asked about. Places in upper case or `_` are free, the others are given.

In: a pattern's text. Out: an `EventPattern` that knows which event names match; where none can, a mistake that says what may have been
meant.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from foretell.errors import ForetellError
from foretell.terms import NameProblem, normalise, split
from foretell.wording import did_you_mean, listed, shown

_TERM = re.compile(r"\s*(?P<functor>'(?:[^'\\]|\\.)*'|[^\s()']+)\s*\((?P<places>.*)\)\s*\Z", re.S)
_PLACE = re.compile(r"""\s*((?:'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|[^,'"()])+?)\s*(?:,|\Z)""", re.S)
_VARIABLE = re.compile(r"[^\W\d]\w*\Z")


@dataclass(frozen=True)
class EventPattern:
    text: str
    functor: str
    places: tuple[str, ...]  # constants and variables, as they are spelled
    free: tuple[bool, ...]

    def matches(self, name: str) -> bool:
        """A variable that stands at two places must be the same at both; `_` need not."""
        functor, arguments = split(name)
        if functor != self.functor or len(arguments) != len(self.places):
            return False
        bound: dict[str, str] = {}
        for place, free, argument in zip(self.places, self.free, arguments, strict=True):
            if not free:
                if place != argument:
                    return False
            elif place != "_" and bound.setdefault(place, argument) != argument:
                return False
        return True


def parse_event_pattern(text: str) -> EventPattern:
    wrong = f"pattern {text!r}: expected an event with free places in upper case, as in 'pass(purple7,Q)'"
    if "(" not in text and ")" not in text:
        if not text.strip():
            raise ForetellError(wrong)
        return EventPattern(text.strip(), split(_normal(text, wrong))[0], (), ())
    found = _TERM.match(text)
    if found is None or _is_variable(found["functor"]):
        raise ForetellError(wrong)
    written = _places(found["places"])
    if written is None:
        raise ForetellError(wrong)
    free = tuple(_is_variable(place) for place in written)
    constants = [
        split(_normal(f"x({place})", wrong))[1][0] if not f else place for place, f in zip(written, free, strict=True)
    ]
    functor = split(_normal(found["functor"], wrong))[0]
    return EventPattern(f"{functor}({','.join(constants)})", functor, tuple(constants), free)


def _is_variable(word: str) -> bool:
    return _VARIABLE.match(word) is not None and (word[0].isupper() or word[0] == "_")


def _places(text: str) -> list[str] | None:
    found, at = [], 0
    while at < len(text):
        match = _PLACE.match(text, at)
        if match is None:
            return None
        found.append(match[1])
        at = match.end()
    return found if found and not text.rstrip().endswith(",") else None


def _normal(name: str, wrong: str) -> str:
    try:
        return normalise(name)
    except NameProblem:
        raise ForetellError(wrong) from None


@dataclass(frozen=True)
class MayCome:
    """Names that there may be though none was met: functors with their numbers of places, and what may stand there."""

    functors: Mapping[str, int]
    constants: Collection[str]


def never_matches(pattern: EventPattern, names: Iterable[str], may_come: MayCome | None = None) -> str | None:
    """None where the pattern matches one of the events' names, or one that may still come; else why not, with what may have been meant."""
    functors = {} if may_come is None else may_come.functors
    constants = () if may_come is None else may_come.constants
    by_functor: dict[str, list[tuple[str, ...]]] = {functor: [] for functor in functors}
    for name in names:
        if pattern.matches(name):
            return None
        functor, arguments = split(name)
        by_functor.setdefault(functor, []).append(arguments)
    about = f"pattern {pattern.text!r} can never match"
    alike = by_functor.get(pattern.functor)
    if alike is None:
        hint = did_you_mean(pattern.functor, by_functor, otherwise=f"there are {listed(sorted(by_functor))}")
        return f"{about}: no event of the model is called {shown(pattern.functor)}; {hint}"
    sizes = sorted(
        {*(len(arguments) for arguments in alike), *[functors[one] for one in functors if one == pattern.functor]}
    )
    if len(pattern.places) not in sizes:
        wanted = " or ".join(map(str, sizes))
        return f"{about}: {shown(pattern.functor)} has {wanted} places, found {len(pattern.places)}"
    for number, (place, free) in enumerate(zip(pattern.places, pattern.free, strict=True)):
        there = {arguments[number] for arguments in alike if len(arguments) == len(pattern.places)}
        if free or place in there or place in constants:
            continue
        known = sorted(there) or sorted(constants)
        otherwise = f"there are {listed(known)}" if known else "nothing is known"
        hint = did_you_mean(place, {*there, *constants}, otherwise=otherwise)
        return f"{about}: no {shown(pattern.functor)} has {shown(place)} at place {number + 1}; {hint}"
    if may_come is not None:
        return None
    return f"{about}: no event of the model has these places together; leave one of them free"
