"""Program + sequences → timelines.

Sequences are independent. They are split into chunks, which are replayed in this process or in others. Results are cached on disk under a
hash of everything that they depend on. The result is the same in each case. A file is written under a temporary name and then renamed, so
readers find a complete file or none, even if several runs write at once or one is killed. Unreadable files are replayed again.
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

FORMAT = 7  # the version of the files and of the engine's numbering; raise it whenever either changes
VARIABLE = "FORETELL_CACHE"
CHUNK_EVENTS = 20_000  # the minimal number of events of a chunk, which consists of whole sequences
START_SECONDS = 1.0  # the estimated time that worker processes take to start
Progress = Callable[[int, int], None]


@dataclass(frozen=True, eq=False, repr=False)
class Replay:
    """The result of `replay`: a timeline for each sequence, and the numbers of impossible and undeclared events."""

    timelines: list[Timeline]
    impossible: int  # the number of impossible events, which were skipped or kept as history
    undeclared: int  # the number of events that nothing declares, which are treated as exogenous
    broken: tuple[BrokenPromise, ...] = ()  # broken promises, each with the place where it is first broken

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

    Undeclared events are handled according to the program's option `undeclared`. Tables from a log that have no rows yet get their
    rows from these data. Promises are checked; they do not appear in timelines.

    Args:
        program: the rules.
        data: one split.
        impossible: events that the rules forbid: "error", "skip" (left out), or "exogenous" (kept, not predicted).
        workers: the number of processes; 0: one per core if that saves time.
        cache: a folder where timelines are stored, by a hash of program and data.
        limits: how large the database may get.
        progress: called with the number of finished events and the number of all events.
        on: where sequences are replayed: "this" process, "processes:4", "ray", or a cluster, "ray://HOST:PORT".

    Returns:
        `timelines`, one per sequence; the numbers of impossible and undeclared events; and the broken promises.

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
    """Return the chunks of a split, from the cache or replayed. Each has its own engine, so the distribution of work does not matter.

    `engine` has the program loaded. `workers` is the number of processes; 0: one per core if that saves more time than starting them costs.
    Another place (`on`) than this process has workers of its own.
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
        # The first chunk may use the engine that will adopt it, because this engine only has the loaded program.
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
    """Yield whole sequences in order, with about `CHUNK_EVENTS` events each."""
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
    """Return the files in which the chunks of a split are cached."""
    return [Cache(cache).path(chunk_hash(program, part, options.impossible)) for part in chunks_of(data)]


def groups_of(data: EventData, places: Sequence[int], most: int) -> Iterator[list[int]]:
    """Yield groups of sequences. Each consists of whole chunks, so the chunks of the groups are the chunks of all sequences."""
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
    """Yield (position, chunk) in the order in which the workers of a place finish. A worker that dies only loses its own chunk."""
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
    """Replay a chunk in a worker."""
    program, options = shared
    return replay_chunk(Engine(program, options.limits), data, options)


_program: Program | None = None


def in_processes(
    program: Program, parts: list[tuple[int, EventData]], options: ReplayOptions, workers: int
) -> Iterator[tuple[int, Chunk]]:
    """Yield (position, chunk) in the order in which processes finish. An error stops all processes."""
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
    """Whether processes can be forked. A fork starts faster than a new process, but may hang if this process has threads or CUDA."""
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
    """Return `FORETELL_CACHE`, or the system's folder for caches."""
    given = os.environ.get(VARIABLE)
    if given:
        return Path(given)
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "foretell"


def chunk_hash(program: Program, data: EventData, impossible: str) -> str:
    """Return a hash of the program, the events in order, and the options that affect the replay.

    Times are included if additions expire.
    """
    options = program.undeclared, program.products, impossible
    digest = hashlib.sha256("\n".join([str(FORMAT), program.digest, *options, ""]).encode())
    # Stored numbers follow the order of declarations, although their meaning does not depend on it.
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
        if sequence.unscored is not None and sequence.unscored.any():  # unscored events may be impossible
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
        """Write to the cache. Failures are ignored, because they only cost time."""
        path = self.path(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as temporary, open(temporary, "wb") as file:
                np.savez(file, **chunk.arrays())  # pyright: ignore[reportArgumentType]
        except (OSError, ForetellError) as error:
            log.warning("%s: the replay could not be kept for next time (%s)", path, error)
