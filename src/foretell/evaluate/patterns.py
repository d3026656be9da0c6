"""Patterns of events: `pass(purple7,Q)` selects possible next events; `pass(+P,-Q)` predicts some participants of an event from the others.

An `EventPattern` has free places (in upper case, or `_`) and decides which event names match; if none can match, the error suggests names.
A `ParticipantPattern` has `+` at places that are taken from the true event and `-` at places that are predicted. The prediction is the
event of that functor with the highest intensity; for a model of rules, only possible events count.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from foretell.batches.batch import Queries, Window
from foretell.data import EventData, Vocabulary
from foretell.errors import ForetellError
from foretell.models.base import IntensityModel
from foretell.shards.shard_map import Shards, tables_of
from foretell.shards.store import Table, joined
from foretell.terms import NameProblem, normalise, split
from foretell.train.likelihood_task import batch_at, batch_items
from foretell.wording import did_you_mean, listed, shown

_TERM = re.compile(r"\s*(?P<functor>'(?:[^'\\]|\\.)*'|[^\s()']+)\s*\((?P<places>.*)\)\s*\Z", re.S)
_PLACE = re.compile(r"""\s*((?:'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|[^,'"()])+?)\s*(?:,|\Z)""", re.S)
_VARIABLE = re.compile(r"[^\W\d]\w*\Z")


@dataclass(frozen=True)
class EventPattern:
    text: str
    functor: str
    places: tuple[str, ...]  # constants and variables, as written
    free: tuple[bool, ...]

    def matches(self, name: str) -> bool:
        """Return whether an event name matches. A variable must have the same value at all its places; `_` can have several."""
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
class PossibleNames:
    """Event names that are possible even if the data do not have them: functors with their numbers of places, and the constants."""

    functors: Mapping[str, Collection[int]]
    constants: Collection[str]


def never_matches(pattern: EventPattern, names: Iterable[str], may_come: PossibleNames | None = None) -> str | None:
    """Return None if the pattern matches one of `names` or a name that may still come; else the reason, with suggestions."""
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
    sizes = sorted({*(len(arguments) for arguments in alike), *functors.get(pattern.functor, ())})
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


_SIGNED_TERM = re.compile(r"\s*(?P<functor>[^()\s]+|'[^']*')\s*\((?P<places>[^()]*)\)\s*\Z")
_SIGNED_PLACE = re.compile(r"\s*(?P<sign>[+-])\s*\w*\s*\Z")


@dataclass(frozen=True)
class ParticipantPattern:
    text: str
    functor: str
    given: tuple[bool, ...]  # for each place, whether it has `+`


def parse_pattern(text: str) -> ParticipantPattern:
    """Parse a participant pattern such as `watch(+U,-P)`."""
    wrong = ForetellError(
        f"pattern {text!r}: expected a functor with + (given) or - (predicted) at every place: 'pass(+P,-Q)'"
    )
    found = _SIGNED_TERM.match(text)
    if found is None:
        raise wrong
    places = [_SIGNED_PLACE.match(place) for place in found["places"].split(",")]
    given = tuple(place["sign"] == "+" for place in places if place is not None)
    if len(given) != len(places):
        raise wrong
    if all(given):
        raise ForetellError(f"pattern {text!r}: nothing is to be predicted; mark a place with -")
    try:
        functor = split(normalise(found["functor"]))[0]
    except NameProblem as problem:
        raise ForetellError(f"pattern {text!r}: {problem}") from None
    return ParticipantPattern("".join(text.split()), functor, given)


@dataclass(frozen=True)
class Guesses:
    """The predictions for one pattern, with one row per event."""

    pattern: str
    sequence: np.ndarray  # int64
    event: np.ndarray  # int64
    wrong: np.ndarray  # bool
    candidates: np.ndarray  # int64: number of possible events that matched


def _groups(vocabulary: Vocabulary, pattern: ParticipantPattern) -> np.ndarray:
    """Return a group index for each type: types of the functor with equal values at the `+` places share a group; -1: another functor."""
    known: dict[tuple[str, ...], int] = {}
    groups = np.full(len(vocabulary), -1, dtype=np.int64)
    for kind, name in enumerate(vocabulary.names):
        functor, args = split(name)
        if functor == pattern.functor and len(args) == len(pattern.given):
            key = tuple(arg for arg, given in zip(args, pattern.given, strict=True) if given)
            groups[kind] = known.setdefault(key, len(known))
    if not known:
        raise ForetellError(
            f"pattern {pattern.text!r}: no event of the model is `{pattern.functor}` with {len(pattern.given)} places"
        )
    return groups


def check_patterns(model: IntensityModel, patterns: Sequence[ParticipantPattern]) -> None:
    """Raise if a pattern fits no event of the model."""
    for pattern in patterns:
        _groups(model.vocabulary, pattern)


@torch.no_grad()
def guess_participants(
    model: IntensityModel,
    data: EventData,
    patterns: Sequence[ParticipantPattern],
    window: Window = "all",
    shards: Shards | None = None,
) -> list[Guesses]:
    """Return the guesses for each pattern, in the order of the data."""
    guessing = _Guessing(model, data, patterns, window)
    found = joined(tables_of("participants", guess_batches, guessing, batch_items(data, model, 1), shards, None))
    made = []
    for place, pattern in enumerate(patterns):
        chosen = found["pattern"] == place if found else []
        table = {name: column[chosen] for name, column in found.items()} or dict.fromkeys(
            COLUMNS, np.zeros(0, np.int64)
        )
        order = np.lexsort((table["event"], table["sequence"]))
        sequence, event, wrong, candidates = (table[name][order] for name in COLUMNS)
        made.append(Guesses(pattern.text, sequence, event, wrong.astype(bool), candidates))
    return made


COLUMNS = ("sequence", "event", "wrong", "candidates")


@dataclass(frozen=True)
class _Guessing:
    """The inputs of predicting participants in a batch, except its sequences."""

    model: IntensityModel
    data: EventData
    patterns: Sequence[ParticipantPattern]
    window: Window


@torch.no_grad()
def guess_batches(guessing: _Guessing, items: Sequence[np.ndarray]) -> Iterator[Table]:
    """Yield a table per batch, with a row for each event that matches a pattern."""
    model = guessing.model
    groups = [_groups(model.vocabulary, pattern) for pattern in guessing.patterns]
    for indices in items:
        with model.evaluating():
            batch = batch_at(guessing.data, indices, model, guessing.window)
            history = model.encode(batch)
            queries = model.collator.plan_queries(batch, Queries.of_events(batch))
            logs = model.log_intensities(model.state(history, queries))
        rows = [np.zeros((0, 5), dtype=np.int64)]
        types, counts = batch.types.cpu().numpy(), batch.event_counts.cpu().numpy()
        for place, group in enumerate(groups):
            row, event = np.nonzero(counts & (group[types] >= 0))
            if not len(row):
                continue
            true = types[row, event]
            found = logs[torch.from_numpy(row), torch.from_numpy(event)]
            matches = torch.from_numpy(group[None, :] == group[true][:, None]).to(found.device)
            found = found.masked_fill(~matches, -torch.inf)
            guessed = found.argmax(-1).cpu().numpy()
            candidates = (found > -torch.inf).sum(-1).cpu().numpy()
            of_pattern = np.full(len(row), place)
            own = batch.event_of(torch.from_numpy(row), torch.from_numpy(event)).cpu().numpy()
            rows.append(np.stack([of_pattern, indices[row], own, guessed != true, candidates], axis=1))
        table = np.concatenate(rows)
        yield {name: table[:, place] for place, name in enumerate(("pattern", *COLUMNS))}
