"""Who takes part, given when and what: the most intense event among those that match a pattern.

`pass(+P,-Q)` asks: given that a pass by this P happened at this time, to whom? Places with `+` are those of the true event, places with
`-` are predicted. Candidates are the events of the model's vocabulary with that functor; for a model of rules, those that are possible.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from foretell.batches.batch import Window
from foretell.batches.queries import Queries
from foretell.data import EventData, Vocabulary
from foretell.errors import ForetellError
from foretell.models.base import IntensityModel
from foretell.terms import NameProblem, normalise, split
from foretell.train.score import batches_of

_PATTERN = re.compile(r"\s*(?P<functor>[^()\s]+|'[^']*')\s*\((?P<places>[^()]*)\)\s*\Z")
_PLACE = re.compile(r"\s*(?P<sign>[+-])\s*\w*\s*\Z")


@dataclass(frozen=True)
class Pattern:
    text: str
    functor: str
    given: tuple[bool, ...]  # of each place


def parse_pattern(text: str) -> Pattern:
    """`watch(+U,-P)`."""
    wrong = ForetellError(
        f"pattern {text!r}: expected a functor with + (given) or - (predicted) at every place: 'pass(+P,-Q)'"
    )
    found = _PATTERN.match(text)
    if found is None:
        raise wrong
    places = [_PLACE.match(place) for place in found["places"].split(",")]
    given = tuple(place["sign"] == "+" for place in places if place is not None)
    if len(given) != len(places):
        raise wrong
    if all(given):
        raise ForetellError(f"pattern {text!r}: nothing is to be predicted; mark a place with -")
    try:
        functor = split(normalise(found["functor"]))[0]
    except NameProblem as problem:
        raise ForetellError(f"pattern {text!r}: {problem}") from None
    return Pattern("".join(text.split()), functor, given)


@dataclass(frozen=True)
class Guesses:
    """Of one pattern, event by event."""

    pattern: str
    sequence: np.ndarray  # int64
    event: np.ndarray  # int64
    wrong: np.ndarray  # bool
    candidates: np.ndarray  # int64: how many events matched and were possible


def _groups(vocabulary: Vocabulary, pattern: Pattern) -> np.ndarray:
    """For each type the number of its given places' values among those of its functor; -1: another functor."""
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


def check_patterns(model: IntensityModel, patterns: Sequence[Pattern]) -> None:
    """A pattern that fits no event of the model is a mistake."""
    for pattern in patterns:
        _groups(model.vocabulary, pattern)


@torch.no_grad()
def guess_participants(
    model: IntensityModel, data: EventData, patterns: Sequence[Pattern], window: Window = "all"
) -> list[Guesses]:
    groups = [_groups(model.vocabulary, pattern) for pattern in patterns]
    rows: list[list[tuple[int, int, bool, int]]] = [[] for _ in patterns]
    for indices, batch in batches_of(data, model, window, 1):
        history = model.encode(batch)
        queries = model.collator.plan_queries(batch, Queries.of_events(batch))
        logs = model.log_intensities(model.state(history, queries))
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
            rows[place] += zip(
                np.asarray(indices)[row].tolist(),
                event.tolist(),
                (guessed != true).tolist(),
                candidates.tolist(),
                strict=True,
            )
    made = []
    for pattern, found in zip(patterns, rows, strict=True):
        table = np.asarray(sorted(found), dtype=np.int64).reshape(-1, 4)
        made.append(Guesses(pattern.text, table[:, 0], table[:, 1], table[:, 2].astype(bool), table[:, 3]))
    return made
