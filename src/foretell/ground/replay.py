"""Program + sequences → timelines.

Sequences are independent. They are shared out in chunks, replayed here or in other processes, and kept on disk by a hash of all that they
depend on; the result is the same in each case. A file is written under a name of its own and then renamed, so that a reader finds a whole
one or none, however many runs write at once and wherever one is killed. What cannot be read is replayed again.
"""

from __future__ import annotations

import hashlib
import logging
import multiprocessing
import os
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

import numpy as np

from foretell.data import EventData
from foretell.data.arguments import check_split
from foretell.data.files import replacing
from foretell.errors import ForetellError
from foretell.ground.chunk import Chunk, ReplayOptions, replay_chunk
from foretell.ground.engine import Engine, ReplayLimits
from foretell.ground.expiry import lifetimes_of
from foretell.ground.given import brought_facts, with_log
from foretell.ground.impossible import check_declared
from foretell.ground.numbering import adopt_chunks
from foretell.ground.promises import BrokenPromise, broken_promises, with_promises
from foretell.ground.timeline import Timeline
from foretell.lang.program import Program
from foretell.options import Impossible
from foretell.shards.place import THIS_PROCESS, WorkPlace, parse_place
from foretell.shards.pool import ShardTask, SharedInput, Stop
from foretell.shards.shard_map import make_pool, results_of

log = logging.getLogger("foretell")

FORMAT = 7  # of the files, and of the numbering that they rely on: raise it whenever the engine changes either
VARIABLE = "FORETELL_CACHE"
CHUNK_EVENTS = 20_000  # a chunk is whole sequences with at least this many events
START_SECONDS = 1.0  # what processes take to start
Progress = Callable[[int, int], None]


@dataclass(frozen=True, eq=False, repr=False)
class Replay:
    """The result of `replay`: a timeline for each sequence, and the numbers of impossible and undeclared events."""

    timelines: list[Timeline]
    impossible: int  # events that the program made impossible: skipped or kept as history
    undeclared: int  # events taken to be exogenous because nothing declares them
    broken: tuple[BrokenPromise, ...] = ()  # each with the first place where it is

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
    on: str = "this",
) -> Replay:
    """Replay events under a program: which facts hold, and which events are possible, after each event of each sequence.

    Undeclared events are treated as the program was told to (`undeclared`). Tables from a log that has not been met have
    the values of these data. Promises are checked; timelines know nothing of them.

    Args:
        program: the rules.
        data: one split.
        impossible: events that the rules forbid: "error", "skip" (left out), or "exogenous" (kept, not predicted).
        workers: processes; 0: one per core where they save time.
        cache: a folder that keeps timelines, found again by program and data.
        limits: how large the database may get.
        progress: called with how many events are done, and how many there are.
        on: where sequences are replayed: "this" process, "processes:4", "ray", or a cluster, "ray://HOST:PORT".

    Returns:
        `timelines`, one per sequence, how many events were impossible, and promises that are broken.

    Raises:
        DataError: an event is impossible, or not declared.

    Example:
        >>> program = ft.Program.from_text("user(ann). :- event(buy). buy(U) :- user(U). bought(U) <- buy(U).")
        >>> data = ft.EventData.from_names([["buy(ann)"]], [[1.0]])
        >>> len(ft.replay(program, data).timelines)
        1
    """
    place = parse_place(on)
    if not isinstance(program, Program):
        raise ForetellError(f"program: expected a Program, found {type(program).__name__}; Program.from_file reads one")
    check_split(data)
    if impossible not in get_args(Impossible):
        raise ForetellError(f"impossible = {impossible!r}: expected one of {', '.join(get_args(Impossible))}")
    program = with_log(program, data)
    undeclared = check_declared(program, data)
    options = ReplayOptions(impossible, limits or ReplayLimits())
    engine = Engine(program, options.limits)
    chunks = replay_chunks(engine, data, options, workers, cache, progress, place)
    found = Replay(adopt_chunks(engine, chunks, data), sum(chunk.impossible for chunk in chunks), undeclared)
    if not program.promises:
        return found
    promising, names = with_promises(program)
    engine = Engine(promising, options.limits)
    chunks = replay_chunks(engine, data, options, workers, cache, progress, place)
    broken = broken_promises(program.promises, names, adopt_chunks(engine, chunks, data))
    return replace(found, broken=tuple(broken))


def replay_chunks(
    engine: Engine,
    data: EventData,
    options: ReplayOptions,
    workers: int = 1,
    cache: Path | str | None = None,
    progress: Progress | None = None,
    on: WorkPlace = THIS_PROCESS,
) -> list[Chunk]:
    """The chunks of a split, found on disk or replayed each by an engine of its own, so that they are the same however work is shared out.

    `engine` has the program loaded. `workers` are processes; 0: one per core where they save more time than they take to start. Another
    place (`on`) than this process has workers of its own.
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

    if on.kind != "this":
        for at, chunk in in_shards(engine.program, [(at, parts[at]) for at in todo], options, on):
            finish(at, chunk)
        todo = []
    if workers == 0 and len(todo) > 1:
        began = time.perf_counter()
        first = todo.pop(0)
        replay_here(first)
        left = (time.perf_counter() - began) * sum(parts[place].event_count for place in todo)
        cores = os.cpu_count() or 1
        workers = cores if left * (1 - 1 / cores) > START_SECONDS * parts[first].event_count else 1
    if workers > 1 and len(todo) > 1:
        some = [(place, parts[place]) for place in todo]
        for place, chunk in in_processes(engine.program, some, options, workers):
            finish(place, chunk)
    else:
        for place in todo:
            replay_here(place)
    return [chunk for chunk in done if chunk is not None]


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


def chunk_paths(program: Program, data: EventData, options: ReplayOptions, cache: Path) -> list[Path]:
    """The files in which the chunks of a split are cached."""
    return [Cache(cache).path(chunk_hash(program, part, options.impossible)) for part in chunks_of(data)]


def groups_of(data: EventData, places: Sequence[int], most: int) -> Iterator[list[int]]:
    """Some sequences in groups of whole chunks: those of one group after the other are the chunks of all of them."""
    group: list[int] = []
    events = held = 0
    for place, length in zip(places, data.lengths[np.asarray(places, dtype=np.int64)].tolist(), strict=True):
        group.append(place)
        events, held = events + length, held + length
        if events >= CHUNK_EVENTS:
            events = 0
            if held >= most:
                yield group
                group, held = [], 0
    if group:
        yield group


# --- in other processes


def in_shards(
    program: Program, parts: list[tuple[int, EventData]], options: ReplayOptions, place: WorkPlace
) -> Iterator[tuple[int, Chunk]]:
    """(place, chunk) as they are done by the workers of a place; one that dies takes only its own chunk with it."""
    if not parts:
        return
    shared, pool = SharedInput((program, options)), make_pool(place)
    try:
        tasks = [ShardTask(at, replay_shard, shared, data) for at, data in parts]
        yield from results_of(pool, tasks, "replay", lambda line: log.warning("%s", line))
    except BaseException:
        pool.close(now=True)
        raise
    pool.close()


def replay_shard(shared: tuple[Program, ReplayOptions], data: EventData, stop: Stop) -> Chunk:
    """A chunk, in a worker."""
    program, options = shared
    return replay_chunk(Engine(program, options.limits), data, options)


_program: Program | None = None


def in_processes(
    program: Program, parts: list[tuple[int, EventData]], options: ReplayOptions, workers: int
) -> Iterator[tuple[int, Chunk]]:
    """(place, chunk) as they are done. A mistake in one stops the others."""
    context = multiprocessing.get_context("fork" if _may_fork() else "spawn")
    with ProcessPoolExecutor(min(workers, len(parts)), context, _load, (program,)) as pool:
        futures = {pool.submit(_replay, data, options): place for place, data in parts}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        finally:
            for future in futures:
                future.cancel()


def _may_fork() -> bool:
    """A copy of this process starts at once, where a new one imports everything; one with threads or CUDA might hang as a copy."""
    torch = sys.modules.get("torch")
    on_a_device = torch is not None and torch.cuda.is_initialized()
    return sys.platform == "linux" and threading.active_count() == 1 and not on_a_device


def _load(program: Program) -> None:
    global _program
    _program = program


def _replay(data: EventData, options: ReplayOptions) -> Chunk:
    assert _program is not None
    return replay_chunk(Engine(_program, options.limits), data, options)


# --- on disk


def default_folder() -> Path:
    """`FORETELL_CACHE`, else where this system keeps caches."""
    given = os.environ.get(VARIABLE)
    if given:
        return Path(given)
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "foretell"


def chunk_hash(program: Program, data: EventData, impossible: str) -> str:
    """A hash of the program, the events in their order, and the options that change what is replayed.

    Times matter where additions expire.
    """
    options = program.undeclared, program.products, impossible
    digest = hashlib.sha256("\n".join([str(FORMAT), program.digest, *options, ""]).encode())
    # Numbers are stored, and they follow the order in which things are declared, though the meaning does not.
    order = [*program.functors, "", *(name for one in program.components for name in one.functors), ""]
    order += [str((table.functor, table.rows)) for table in program.tables]
    digest.update("\n".join(order).encode("utf-8", "surrogatepass"))
    lifetimes = lifetimes_of(program, data.clock)
    digest.update("".join(f"{place} lives {one!r}\n" for place, one in lifetimes.items()).encode())
    used: dict[int, None] = {}
    for sequence in data:
        types = np.asarray(sequence.types, dtype=np.int32)
        digest.update(len(types).to_bytes(8, "little"))
        digest.update(types.tobytes())
        if lifetimes:
            digest.update(np.append(sequence.times, sequence.t_end).astype(np.float64).tobytes())
        for name in brought_facts(program, sequence, data.vocabulary.names):
            digest.update(f"given {name}\n".encode("utf-8", "surrogatepass"))
        if sequence.unscored is not None and sequence.unscored.any():  # such events may be impossible
            digest.update(b"unscored" + sequence.unscored.tobytes())
        used.update(dict.fromkeys(np.unique(types).tolist()))
    for kind in sorted(used):
        digest.update(f"{kind} {data.vocabulary.names[kind]}\n".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


@dataclass(frozen=True)
class Cache:
    folder: Path

    def path(self, key: str) -> Path:
        return self.folder / "timelines" / f"{key}.npz"

    def get(self, key: str) -> Chunk | None:
        path = self.path(key)
        try:
            with np.load(path, allow_pickle=False) as stored:
                return Chunk.from_arrays({name: stored[name] for name in stored.files})
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, IndexError, TypeError, EOFError, zipfile.BadZipFile) as error:
            log.warning("%s: cannot be read (%s); replayed again", path, error)
            return None

    def put(self, key: str, chunk: Chunk) -> None:
        """Write to the cache; a failure is ignored, since it only costs time."""
        path = self.path(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as temporary, open(temporary, "wb") as file:
                np.savez(file, **chunk.arrays())  # pyright: ignore[reportArgumentType]
        except (OSError, ForetellError) as error:
            log.warning("%s: the replay could not be kept for next time (%s)", path, error)
