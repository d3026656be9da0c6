"""Events that the rules make impossible: data in; without them, or with them marked as unscored history, out; and how many there were."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from foretell.data import EventData, EventSequence
from foretell.ground.chunk import SequenceRows
from foretell.ground.engine import Engine, Limits
from foretell.ground.replay import Impossible, ReplayOptions, replay_chunk
from foretell.ground.undeclared import check_declared
from foretell.lang.program import Program
from foretell.terms import split


@dataclass(frozen=True)
class Settled:
    data: EventData
    impossible: int  # events that were left out or marked


def settle_impossible(
    program: Program, data: EventData, impossible: Impossible, limits: Limits | None = None
) -> Settled:
    """`skip` leaves such events out: they fire nothing. `exogenous` keeps them: they fire rules and are not scored. `error` raises."""
    check_declared(program, data)
    found = replay_chunk(Engine(program), data, ReplayOptions(impossible, limits or Limits()))
    if not found.impossible:
        return Settled(data, 0)
    is_event = np.asarray([_is_event(program, name) for name in data.vocabulary.names], dtype=bool)
    change = _without if impossible == "skip" else _marked
    sequences = [change(one, rows, is_event) for one, rows in zip(data, found.sequences, strict=True)]
    return Settled(replace(data, sequences=sequences, report=None), found.impossible)


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
