"""Replays sequences with an engine. The results are plain arrays, which workers return and the cache stores.

Every event is checked against the database just before it, then applied. The numbers of the freshly loaded program mean the same in
all chunks. A chunk stores all further numbers with their names, in order of occurrence.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache

import numpy as np

from foretell.data import EventData
from foretell.errors import DataError
from foretell.ground.database import FactKey
from foretell.ground.engine import EndedRows, Engine, EventEffect, ReplayLimits
from foretell.ground.expiry import EXPIRY, Expiry, ExpiryQueue, lifetimes_of
from foretell.ground.explain import why
from foretell.ground.given import brought_facts
from foretell.ground.row_arrays import ragged, unravel, with_events
from foretell.ground.timeline import NO_ROWS, Grounding, Timeline, with_erasures
from foretell.options import Impossible


@dataclass(frozen=True)
class ReplayHorizon:
    """How long additions live, by the position of their rule, and the time until which expiries are replayed."""

    lifetimes: Mapping[int, float]
    until: float


NOTHING_EXPIRES = ReplayHorizon({}, 0.0)
EXPLAINED = 5  # the largest number of impossible events per chunk whose failing conditions are searched for


@dataclass(frozen=True)
class ReplayOptions:
    impossible: Impossible = "error"
    limits: ReplayLimits = field(default_factory=ReplayLimits)


@dataclass(frozen=True, eq=False)
class SequenceRows:
    """The rows of one sequence. Facts and rule instances are numbered as in its chunk."""

    kept: np.ndarray  # int32: the position in the sequence of each applied event; -1: an expiry
    events: np.ndarray  # int32: the fact of each applied event or expiry
    possible: np.ndarray  # bool: whether each was a possible, declared event
    holds: np.ndarray  # int32 [·, 3]: fact, from, to
    proofs: np.ndarray  # int32 [·, 3]: rule instance, from, to
    additions: np.ndarray  # int32 [·, 2]: rule instance, event
    removals: np.ndarray  # int32 [·, 2]: rule instance, event
    part_holds: np.ndarray  # int32 [·, 3]: as `holds`, for parts of products
    part_proofs: np.ndarray  # int32 [·, 3]: as `proofs`, for parts of products
    expired: np.ndarray  # int32 [·, 2]: the addition's row, and the expiry that ended it
    expiry_times: np.ndarray  # float64: the time of each expiry, ascending

    @property
    def kept_events(self) -> np.ndarray:
        """`kept` without the expiries."""
        return self.kept[self.kept >= 0]

    @property
    def possible_events(self) -> np.ndarray:
        """`possible` without the expiries."""
        return self.possible[self.kept >= 0]


ARRAYS = tuple(one.name for one in fields(SequenceRows))


@dataclass(frozen=True, eq=False)
class Chunk:
    functors: list[str]
    constants: list[str]
    facts: list[FactKey]
    instances: list[tuple[int, ...]]  # (rule, *facts of its body)
    sequences: list[SequenceRows]
    impossible: int = 0  # the number of events that the program made impossible, whether they were skipped or kept

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the chunk as arrays for `np.savez`: integers and one text, no pickled objects."""
        names = {"functors": self.functors, "constants": self.constants, "impossible": self.impossible}
        stored = {
            "names": np.frombuffer(json.dumps(names).encode(), dtype=np.uint8),
            "facts": ragged(self.facts),
            "instances": ragged(self.instances),
        }
        for name in ARRAYS:
            parts = [getattr(sequence, name) for sequence in self.sequences]
            stored[f"{name}.sizes"] = np.asarray([len(part) for part in parts], dtype=np.int64)
            stored[name] = np.concatenate(parts) if parts else np.empty(0, dtype=np.int32)
        return stored

    @staticmethod
    def from_arrays(stored: dict[str, np.ndarray]) -> Chunk:
        names = json.loads(stored["names"].tobytes())
        columns = {}
        for name in ARRAYS:
            cuts = np.cumsum(stored[f"{name}.sizes"])[:-1]
            columns[name] = np.split(stored[name], cuts) if len(stored[f"{name}.sizes"]) else []
        sequences = [SequenceRows(*parts) for parts in zip(*(columns[name] for name in ARRAYS), strict=True)]
        facts, instances = unravel(stored["facts"]), unravel(stored["instances"])
        return Chunk(names["functors"], names["constants"], facts, instances, sequences, names["impossible"])


def make_chunk(engine: Engine, sequences: list[SequenceRows], impossible: int) -> Chunk:
    """Return what was added to the loaded program, in order. The engine must have replayed exactly these sequences."""
    symbols, made = engine.symbols, engine.instances
    beyond = slice(engine.base_instances, None)
    return Chunk(
        symbols.functors[engine.base_functors :],
        symbols.constants[engine.base_constants :],
        symbols.keys[engine.base_facts :],
        [(rule, *body) for rule, body in zip(made.rule[beyond], made.body[beyond], strict=True)],
        sequences,
        impossible,
    )


def timeline_of(
    grounding: Grounding, sequence: str, times: np.ndarray, rows: SequenceRows, lifetimes: Mapping[int, float]
) -> Timeline:
    additions = with_erasures(grounding, rows.additions, rows.removals, rows.expired)
    is_expiry = rows.kept < 0
    when = np.empty(len(rows.kept), dtype=np.float64)
    when[~is_expiry] = np.asarray(times, dtype=np.float64)[rows.kept[~is_expiry]]
    when[is_expiry] = rows.expiry_times
    applied = when, rows.events, rows.possible
    found = rows.holds, rows.proofs, additions, rows.removals
    return Timeline(grounding, sequence, *applied, *found, is_expiry, lifetimes, rows.part_holds, rows.part_proofs)


def grounding_of(engine: Engine) -> Grounding:
    """Return the engine's numbering as a grounding. It shares the engine's lists, so it grows with the engine."""
    made, symbols = engine.instances, engine.symbols
    parts, keys = engine.wiring.part_functors, symbols.keys
    facts = [fact for fact in range(engine.base_facts) if engine.permanent[fact]]
    proofs = sorted(engine.permanent_proofs)
    own, of_parts = _parted(facts, [keys[fact][0] in parts for fact in facts])
    own_proofs, part_proofs = _parted(proofs, [keys[made.head[one]][0] in parts for one in proofs])
    return Grounding(
        engine.program,
        symbols.functors,
        symbols.constants,
        symbols.keys,
        made.rule,
        made.group,
        made.head,
        made.body,
        made.groups,
        own,
        own_proofs,
        engine.wiring.products.products,
        of_parts,
        part_proofs,
    )


def _parted(values: Sequence[int], is_part: Sequence[bool]) -> tuple[np.ndarray, np.ndarray]:
    """Return the values of ordinary facts, and the values of parts of products."""
    found, chosen = np.asarray(values, dtype=np.int32), np.asarray(is_part, dtype=bool)
    return found[~chosen], found[chosen]


# --- one sequence after the other


def replay_chunk(engine: Engine, data: EventData, options: ReplayOptions) -> Chunk:
    """Replay the sequences of `data`. With `impossible="error"`, raises `DataError` for impossible events that are scored."""
    fact_of = facts_of_kinds(engine, data.vocabulary.names)
    sequences, problems = [], []
    impossible, lifetimes = 0, lifetimes_of(engine.program, data.clock)
    for sequence in data:
        walked = SequenceReplay(engine, brought_facts(engine.program, sequence, data.vocabulary.names), lifetimes)
        times = sequence.times.tolist() if lifetimes else None
        for place, kind in enumerate(np.asarray(sequence.types).tolist()):
            event = fact_of(kind)
            if times is not None:
                walked.expire(times[place])
            given = sequence.unscored is not None and bool(sequence.unscored[place])
            allowed = engine.is_possible(event)
            if allowed or given or options.impossible == "exogenous":
                walked.take(event, place, allowed and not given, 0.0 if times is None else times[place])
            elif options.impossible == "error":
                told = _explained if len(problems) < EXPLAINED else _named
                problems.append(told(walked, sequence.id, place, sequence.times, event))
                break
            impossible += not (allowed or given)
        walked.expire(sequence.t_end)
        sequences.append(walked.rows())
    if problems:
        raise DataError(problems)
    return make_chunk(engine, sequences, impossible)


def facts_of_kinds(engine: Engine, names: Sequence[str]) -> Callable[[int], int]:
    """Return a cached function from event types to facts."""

    @cache
    def fact_of(kind: int) -> int:
        return engine.event(names[kind])

    return fact_of


def walk(
    engine: Engine,
    grounding: Grounding,
    names: Sequence[str],
    times: np.ndarray,
    sequence: str,
    unscored: np.ndarray | None = None,
    given: Sequence[str] = (),
    horizon: ReplayHorizon = NOTHING_EXPIRES,
) -> Timeline:
    """Return the timeline of one sequence, in the engine's numbering. Only `unscored` events may be impossible."""
    walked = SequenceReplay(engine, given, horizon.lifetimes)
    for place, name in enumerate(names):
        walked.expire(float(times[place]))
        event, is_history = engine.event(name), unscored is not None and bool(unscored[place])
        allowed = engine.is_possible(event)
        if not allowed and not is_history:
            raise DataError(_explained(walked, sequence, place, times, event))
        walked.take(event, place, allowed and not is_history, float(times[place]))
    walked.expire(horizon.until)
    return walked.timeline(sequence, times, grounding)


class SequenceReplay:
    """Replays one sequence on an engine. `lifetimes` of additions are by rule, for rules whose additions expire."""

    def __init__(self, engine: Engine, given: Sequence[str] = (), lifetimes: Mapping[int, float] | None = None) -> None:
        self.engine = engine
        self.queue: ExpiryQueue | None = None
        if lifetimes:
            self.queue = ExpiryQueue(lifetimes, engine.instances.rule, engine.instances.head)
        self.expired, self.expiry_times = array("i"), array("d")
        engine.start(given)
        self.changes = EndedRows()
        self.kept, self.events, self.possible = array("i"), array("i"), bytearray()
        self.additions, self.counts = array("i"), array("i")
        self.removals, self.removal_counts = array("i"), array("i")
        self._apply(engine.bos, 0.0)

    def take(self, event: int, place: int, allowed: bool, time: float = 0.0) -> None:
        self.kept.append(place)
        self.events.append(event)
        self.possible.append(allowed and self.engine.is_declared_event(event))
        self._apply(event, time)

    def expire(self, before: float) -> None:
        """Apply all expiries before a time."""
        if self.queue is None:
            return
        while (due := self.queue.due(before)) is not None:
            self._end(due)

    def _end(self, due: Expiry) -> None:
        self.kept.append(-1)
        self.events.append(self.engine.event(EXPIRY))
        self.possible.append(False)
        self.counts.append(0)
        self.removal_counts.append(0)
        self.expiry_times.append(due.time)
        for addition in due.additions:
            self.expired.extend((addition, len(self.events)))
        facts = tuple(fact for fact in due.facts if not self.engine.permanent[fact])
        self.engine.apply(EventEffect([], [], [], (), facts), len(self.events) + 1, self.changes)

    def _apply(self, event: int, time: float) -> None:
        fired = self.engine.fire(event)
        if self.queue is not None:
            self.queue.happened(time, fired, len(self.additions))
        self.additions.extend(fired.additions)
        self.counts.append(len(fired.additions))
        self.removals.extend(fired.removals)
        self.removal_counts.append(len(fired.removals))
        self.engine.apply(fired, len(self.events) + 1, self.changes)

    def rows(self) -> SequenceRows:
        """Return the rows of the sequence. Open intervals end after the last state."""
        end = len(self.events) + 2
        holds = [*self.changes.holds, *((fact, since, end) for fact, since in self.engine.open_facts.items())]
        proofs = [*self.changes.proofs, *((one, since, end) for one, since in self.engine.open_proofs.items())]
        held, part_holds = self._parted(holds, [row[0] for row in holds])
        proved, part_proofs = self._parted(proofs, [self.engine.instances.head[row[0]] for row in proofs])
        return SequenceRows(
            np.asarray(self.kept, dtype=np.int32),
            np.asarray(self.events, dtype=np.int32),
            np.frombuffer(bytes(self.possible), dtype=np.bool_),
            held,
            proved,
            with_events(self.additions, self.counts),
            with_events(self.removals, self.removal_counts),
            part_holds,
            part_proofs,
            np.asarray(self.expired, dtype=np.int32).reshape(-1, 2),
            np.asarray(self.expiry_times, dtype=np.float64),
        )

    def _parted(self, rows: list[tuple[int, int, int]], facts: list[int]) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows of ordinary facts, and the rows of parts of products. `facts` has the fact of each row."""
        found = np.asarray(rows, dtype=np.int32).reshape(-1, 3)
        parts, keys = self.engine.wiring.part_functors, self.engine.keys
        if not parts:
            return found, NO_ROWS
        chosen = np.asarray([keys[fact][0] in parts for fact in facts], dtype=bool)
        return found[~chosen], found[chosen]

    def timeline(self, sequence: str, times: np.ndarray, grounding: Grounding | None = None) -> Timeline:
        """Return the timeline so far, in the engine's own numbering."""
        known = grounding_of(self.engine) if grounding is None else grounding
        lifetimes = {} if self.queue is None else self.queue.lifetimes
        return timeline_of(known, sequence, times, self.rows(), lifetimes)


def _named(walked: SequenceReplay, sequence: str, place: int, times: Sequence[float] | np.ndarray, event: int) -> str:
    name = walked.engine.symbols.text(event)
    return (
        f"sequence {sequence}, event {place + 1} at time {float(times[place]):g}: `{name}` happens, "
        f"but the program makes it impossible then (the first such event of this sequence)"
    )


def _explained(
    walked: SequenceReplay, sequence: str, place: int, times: Sequence[float] | np.ndarray, event: int
) -> str:
    timeline = walked.timeline(sequence, np.asarray(times))
    reasons = why(timeline, timeline.grounding.text(event), timeline.states - 1).lines()
    tail = (
        'correct the program or the data, or say `impossible="skip"` (leave such events out) or `impossible="exogenous"` '
        "(keep them as unscored history)"
    )
    return "\n".join([_named(walked, sequence, place, times, event), *(f"  {line}" for line in reasons), f"  {tail}"])
