"""Program + sequences → timelines: every event is checked against the database just before it, then applied.

Sequences are independent. They are shared out in chunks, replayed here or in other processes, and kept on disk by a hash of all that they
depend on; the result is the same in each case.
"""

from __future__ import annotations

import logging
import os
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal as OneOf
from typing import get_args

import numpy as np

from foretell.data import EventData
from foretell.errors import DataError, ForetellError
from foretell.ground.cache import Cache, chunk_hash
from foretell.ground.chunk import Chunk, SequenceRows, adopt, make_chunk
from foretell.ground.engine import EndedRows, Engine, ReplayLimits
from foretell.ground.explain import why
from foretell.ground.timeline import Grounding, Timeline, with_erasures
from foretell.ground.undeclared import check_declared
from foretell.lang.program import Program

log = logging.getLogger("foretell")

Impossible = OneOf["error", "skip", "exogenous"]
EXPLAINED = 5  # impossible events of a chunk for which the failing conditions are looked for
CHUNK_EVENTS = 20_000  # a chunk is whole sequences with at least this many events
START_SECONDS = 1.0  # what processes take to start
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class ReplayOptions:
    impossible: Impossible = "error"
    limits: ReplayLimits = field(default_factory=ReplayLimits)


@dataclass(frozen=True, eq=False, repr=False)
class Replay:
    """What `replay` gives: a timeline for each sequence, and how many events were no ordinary ones."""

    timelines: list[Timeline]
    impossible: int  # events that the program made impossible: skipped or kept as history
    undeclared: int  # events taken to be exogenous because nothing declares them

    def __repr__(self) -> str:
        return f"Replay({len(self.timelines)} timelines, {self.impossible} impossible and {self.undeclared} undeclared events)"


def replay(
    program: Program,
    data: EventData,
    *,
    impossible: Impossible = "error",
    workers: int = 1,
    cache: Path | str | None = None,
    limits: ReplayLimits | None = None,
    progress: Progress | None = None,
) -> Replay:
    """Timelines of all sequences of a split. Undeclared events are treated as the program was told to (`undeclared`)."""
    if not isinstance(program, Program):
        raise ForetellError(f"program: expected a Program, found {type(program).__name__}; Program.from_file reads one")
    if not isinstance(data, EventData):
        raise ForetellError(
            f"data: expected the events of one split, found {type(data).__name__}; give data.train, or load_file(path)"
        )
    if impossible not in get_args(Impossible):
        raise ForetellError(f"impossible = {impossible!r}: expected one of {', '.join(get_args(Impossible))}")
    undeclared = check_declared(program, data)
    options = ReplayOptions(impossible, limits or ReplayLimits())
    engine = Engine(program, options.limits)
    chunks = replay_chunks(engine, data, options, workers, cache, progress)
    return Replay(adopt_chunks(engine, chunks, data), sum(chunk.impossible for chunk in chunks), undeclared)


def replay_chunks(
    engine: Engine,
    data: EventData,
    options: ReplayOptions,
    workers: int = 1,
    cache: Path | str | None = None,
    progress: Progress | None = None,
) -> list[Chunk]:
    """The chunks of a split, found on disk or replayed each by an engine of its own, so that they are the same however work is shared out.

    `engine` has the program loaded. `workers` are processes; 0: one per core where they save more time than they take to start.
    """
    parts = list(chunks_of(data))
    store = None if cache is None else Cache(Path(cache))
    hashes = [chunk_hash(engine.program, part, options.impossible) for part in parts] if store is not None else []
    done: list[Chunk | None] = [store.get(key) for key in hashes] if store is not None else [None] * len(parts)
    todo = [place for place, chunk in enumerate(done) if chunk is None]
    total = max(data.event_count, 1)

    def finish(place: int, chunk: Chunk) -> None:
        done[place] = chunk
        if store is not None:
            store.put(hashes[place], chunk)
        if progress is not None:
            progress(sum(part.event_count for part, one in zip(parts, done, strict=True) if one is not None), total)

    def replay_here(place: int) -> None:
        # The first chunk may use the engine that will adopt it, which does not know more than the program either.
        own = engine if place == 0 and engine.is_fresh else Engine(engine.program, options.limits)
        finish(place, replay_chunk(own, parts[place], options))

    if workers == 0 and len(todo) > 1:
        began = time.perf_counter()
        first = todo.pop(0)
        replay_here(first)
        left = (time.perf_counter() - began) * sum(parts[place].event_count for place in todo)
        cores = os.cpu_count() or 1
        workers = cores if left * (1 - 1 / cores) > START_SECONDS * parts[first].event_count else 1
    if workers > 1 and len(todo) > 1:
        from foretell.ground.parallel import in_processes

        some = [(place, parts[place]) for place in todo]
        for place, chunk in in_processes(engine.program, some, options, workers):
            finish(place, chunk)
    else:
        for place in todo:
            replay_here(place)
    return [chunk for chunk in done if chunk is not None]


def adopt_chunks(
    engine: Engine, chunks: Sequence[Chunk], data: EventData, grounding: Grounding | None = None
) -> list[Timeline]:
    """Timelines of all sequences in the engine's numbering, of which `grounding` is what was known of it so far."""
    rows = [rows for chunk in chunks for rows in adopt(engine, chunk)]
    grounding = grounding_of(engine) if grounding is None else grounding
    return [timeline_of(grounding, one.id, one.times, found) for one, found in zip(data, rows, strict=True)]


def chunks_of(data: EventData) -> Iterator[EventData]:
    """Whole sequences, in order, with about as many events each."""
    places: list[int] = []
    events = 0
    for place, sequence in enumerate(data):
        places.append(place)
        events += len(sequence)
        if events >= CHUNK_EVENTS:
            yield data.select(places)
            places, events = [], 0
    if places:
        yield data.select(places)


def replay_chunk(engine: Engine, data: EventData, options: ReplayOptions) -> Chunk:
    """Raises `DataError` with the first impossible event of each sequence, unless told otherwise; what is `unscored` may be impossible."""
    facts = EventFacts(engine, data)
    sequences, problems = [], []
    impossible = 0
    for sequence in data:
        walked = SequenceReplay(engine)
        for place, kind in enumerate(np.asarray(sequence.types).tolist()):
            event = facts.of(kind)
            given = sequence.unscored is not None and bool(sequence.unscored[place])
            allowed = engine.is_possible(event)
            if allowed or given or options.impossible == "exogenous":
                walked.take(event, place, allowed and not given)
            elif options.impossible == "error":
                told = _explained if len(problems) < EXPLAINED else _named
                problems.append(told(walked, sequence.id, place, sequence.times, event))
                break
            impossible += not (allowed or given)
        sequences.append(walked.rows())
    if problems:
        raise DataError(problems)
    return make_chunk(engine, sequences, impossible)


class EventFacts:
    """The fact of each type of event, looked up once."""

    def __init__(self, engine: Engine, data: EventData) -> None:
        self.engine, self.names = engine, data.vocabulary.names
        self.found: dict[int, int] = {}

    def of(self, kind: int) -> int:
        fact = self.found.get(kind)
        if fact is None:
            fact = self.found[kind] = self.engine.event(self.names[kind])
        return fact


class SequenceReplay:
    """One sequence through the engine."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        engine.start()
        self.changes = EndedRows()
        self.kept, self.events, self.possible = array("i"), array("i"), bytearray()
        self.additions, self.counts = array("i"), array("i")
        self.removals, self.removal_counts = array("i"), array("i")
        self._apply(engine.bos)

    def take(self, event: int, place: int, allowed: bool) -> None:
        engine = self.engine
        self.kept.append(place)
        self.events.append(event)
        self.possible.append(allowed and engine.is_declared_event(event))
        self._apply(event)

    def _apply(self, event: int) -> None:
        fired = self.engine.fire(event)
        self.additions.extend(fired.additions)
        self.counts.append(len(fired.additions))
        self.removals.extend(fired.removals)
        self.removal_counts.append(len(fired.removals))
        self.engine.apply(fired, len(self.events) + 1, self.changes)

    def rows(self) -> SequenceRows:
        """Closes what is still open: it holds to the end."""
        end = len(self.events) + 2
        holds = [*self.changes.holds, *((fact, since, end) for fact, since in self.engine.open_facts.items())]
        proofs = [*self.changes.proofs, *((one, since, end) for one, since in self.engine.open_proofs.items())]
        return SequenceRows(
            np.asarray(self.kept, dtype=np.int32),
            np.asarray(self.events, dtype=np.int32),
            np.frombuffer(bytes(self.possible), dtype=np.bool_),
            np.asarray(holds, dtype=np.int32).reshape(-1, 3),
            np.asarray(proofs, dtype=np.int32).reshape(-1, 3),
            _with_events(self.additions, self.counts),
            _with_events(self.removals, self.removal_counts),
        )

    def timeline(self, sequence: str, times: np.ndarray, grounding: Grounding | None = None) -> Timeline:
        """So far, in the engine's own numbering."""
        return timeline_of(grounding_of(self.engine) if grounding is None else grounding, sequence, times, self.rows())


def timeline_of(grounding: Grounding, sequence: str, times: np.ndarray, rows: SequenceRows) -> Timeline:
    additions = with_erasures(grounding, rows.additions, rows.removals)
    applied = np.asarray(times)[rows.kept], rows.events, rows.possible
    return Timeline(grounding, sequence, *applied, rows.holds, rows.proofs, additions, rows.removals)


def grounding_of(engine: Engine) -> Grounding:
    """In the engine's own numbering, which only ever grows: what it has learned by now and will learn."""
    made, symbols = engine.instances, engine.symbols
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
        np.asarray([fact for fact in range(engine.base_facts) if engine.permanent[fact]], dtype=np.int32),
        np.asarray(sorted(engine.permanent_proofs), dtype=np.int32),
    )


def walk(
    engine: Engine,
    grounding: Grounding,
    names: Sequence[str],
    times: np.ndarray,
    sequence: str,
    unscored: np.ndarray | None = None,
) -> Timeline:
    """One sequence, in the numbering of an engine that may have seen others; only what is `unscored` may be impossible."""
    walked = SequenceReplay(engine)
    for place, name in enumerate(names):
        event = engine.event(name)
        allowed = engine.is_possible(event)
        if not allowed and (unscored is None or not unscored[place]):
            raise DataError(_explained(walked, sequence, place, times, event))
        walked.take(event, place, allowed and (unscored is None or not unscored[place]))
    return walked.timeline(sequence, times, grounding)


def _with_events(instances: array[int], counts: array[int]) -> np.ndarray:
    events = np.repeat(np.arange(len(counts), dtype=np.int32), np.asarray(counts, dtype=np.int64))
    return np.column_stack([np.asarray(instances, dtype=np.int32), events]).reshape(-1, 2)


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
    tail = "correct the program or the data, or say --impossible=skip (leave such events out) or =exogenous (keep them as unscored history)"
    return "\n".join([_named(walked, sequence, place, times, event), *(f"  {line}" for line in reasons), f"  {tail}"])
