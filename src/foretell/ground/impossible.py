"""Events that the rules make impossible: data in; without them, or with them marked as unscored history, out; and how many there were."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from foretell.data import EventData, EventSequence
from foretell.errors import DataError
from foretell.ground.chunk import SequenceRows
from foretell.ground.engine import Engine, ReplayLimits
from foretell.ground.replay import Impossible, ReplayOptions, replay_chunk
from foretell.ground.undeclared import check_declared
from foretell.lang.program import Program
from foretell.terms import split


@dataclass(frozen=True)
class WithoutImpossible:
    data: EventData
    impossible: int  # events that were left out or marked


def settle_impossible(
    program: Program, data: EventData, impossible: Impossible, limits: ReplayLimits | None = None
) -> WithoutImpossible:
    """`skip` leaves such events out: they fire nothing. `exogenous` keeps them: they fire rules and are not scored. `error` raises."""
    check_declared(program, data)
    found = replay_chunk(Engine(program), data, ReplayOptions(impossible, limits or ReplayLimits()))
    if not found.impossible:
        return WithoutImpossible(data, 0)
    if impossible == "skip" and data.origin == "first-event":
        _check_first_kept(data, found.sequences)
    is_event = np.asarray([_is_event(program, name) for name in data.vocabulary.names], dtype=bool)
    change = _without if impossible == "skip" else _marked
    sequences = [change(one, rows, is_event) for one, rows in zip(data, found.sequences, strict=True)]
    return WithoutImpossible(replace(data, sequences=sequences, report=None), found.impossible)


@contextmanager
def naming_impossible(program: Program | None, data: EventData) -> Iterator[None]:
    """If a model finds an impossible event in these data, say so with the ids of all sequences that have one. None: it has no rules.

    A model replays histories without names, one at a time, and stops at the first that cannot be.
    """
    try:
        yield
    except DataError:
        if program is not None:
            settle_impossible(program, data, "error")
        raise


def _check_first_kept(data: EventData, sequences: Sequence[SequenceRows]) -> None:
    """What a sequence is conditioned on cannot be left out of it."""
    problems = [
        f'{data.name}: sequence {one.id!r} is conditioned on its first event (origin = "first-event"), '
        f"`{data.vocabulary.names[int(one.types[0])]}`, and the program makes that very event impossible: it cannot be left out; "
        "say --impossible=exogenous, which keeps it as history, or correct the program"
        for one, rows in zip(data, sequences, strict=True)
        if len(one) and 0 not in rows.kept[:1]
    ]
    if problems:
        raise DataError(problems)


def _without(sequence: EventSequence, rows: SequenceRows, is_event: np.ndarray) -> EventSequence:
    marks = None if sequence.unscored is None else sequence.unscored[rows.kept]
    return replace(sequence, times=sequence.times[rows.kept], types=sequence.types[rows.kept], unscored=marks)


def _marked(sequence: EventSequence, rows: SequenceRows, is_event: np.ndarray) -> EventSequence:
    """Events of functors that are declared exogenous were unscored before, and are not marked."""
    marks = ~rows.possible & is_event[sequence.types]
    return replace(sequence, unscored=marks if sequence.unscored is None else marks | sequence.unscored)


def _is_event(program: Program, name: str) -> bool:
    known = program.functors.get(split(name)[0])
    return known is not None and known.kind == "event"
