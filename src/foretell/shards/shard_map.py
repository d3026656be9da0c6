"""The work of a command in shards: items in, one table of rows per shard out, in order, independent of the workers.

A *table work* iterates over items (such as batches of sequences) and yields one table per item. Without `Shards`, it runs in this
process. With `Shards`, consecutive items form a shard, a pool computes the shards, and a store keeps their tables for later runs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from foretell.errors import ForetellError
from foretell.shards.place import WorkPlace
from foretell.shards.pool import ShardPool, ShardTask, SharedInput, Stop, ThisProcess
from foretell.shards.processes import ProcessPool
from foretell.shards.ray_pool import RayPool
from foretell.shards.store import ShardStore, Table, joined
from foretell.wording import counted

SHARD_EVENTS = 4_000  # a shard has consecutive items with at least this many events
ATTEMPTS = 4  # a shard whose workers have died this many times is an error
NUMBERING = 1  # version of cuts and tables: increase it when either changes

TableWork = Callable[[Any, Sequence[Any]], Iterator[Table]]  # (shared input, items' values) → one table per item
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class ShardItem:
    """The smallest part of a work, such as a batch of sequences."""

    value: Any
    events: int  # approximate amount of work
    counts: int = 1  # size in the unit of the progress display, such as sequences


def make_pool(place: WorkPlace, stop: Stop = lambda: False, threads: int = 1) -> ShardPool:
    """Return the pool of workers of a place; processes of this machine have `threads` threads each."""
    if place.kind == "ray":
        return RayPool(place)
    if place.kind == "processes":
        return ProcessPool(place.cores, threads)
    return ThisProcess(stop)


def results_of(
    pool: ShardPool, tasks: Iterable[ShardTask], name: str, tell: Callable[[str], None]
) -> Iterator[tuple[Any, Any]]:
    """Yield (name, result) of each task when it is finished. Errors are raised; tasks whose worker is lost are repeated."""
    todo, attempts = list(reversed(list(tasks))), dict[Any, int]()
    running: dict[Any, ShardTask] = {}
    while todo or running:
        while todo and len(running) < pool.size:
            task = todo.pop()
            running[task.name] = task
            pool.start(task)
        for outcome in pool.wait():
            task = running.pop(outcome.name)
            if outcome.error is not None:
                raise outcome.error
            if not outcome.lost and not outcome.cancelled:
                yield outcome.name, outcome.value
                continue
            todo.append(task)
            attempts[task.name] = attempts.get(task.name, 0) + 1
            if attempts[task.name] >= ATTEMPTS:
                raise ForetellError(
                    f"{name}: shard {task.name} failed: {ATTEMPTS} workers died while they computed it, the last one: "
                    f"{outcome.lost}; finished shards are kept, and the same command continues"
                )
            tell(f"{name}: shard {task.name} is done again: {outcome.lost}")


@dataclass
class Shards:
    """Where the shards of a command are computed, and where their results are stored."""

    place: WorkPlace
    folder: Path  # contains one folder per work
    origin: Mapping[str, Any]  # everything that all results depend on: model, data, options
    tell: Callable[[str], None] = lambda line: None
    gpu: bool = False  # True: each shard needs its own GPU
    pool: ShardPool | None = None

    def tables(self, name: str, work: TableWork, shared: Any, items: Sequence[ShardItem]) -> _Tables:
        """Return the work of some items, cut into shards. The cuts only depend on the items, not on the number of workers."""
        cuts = cuts_of(items)
        digest = _digest([NUMBERING, name, self.origin, cuts, [item.value for item in items]])
        store = ShardStore(self.folder / f"{name}-{digest[:12]}", digest, self.tell)
        return _Tables(self, name, _ShardWork(work, SharedInput(shared), items, cuts), store)

    def workers(self) -> ShardPool:
        if self.pool is None:
            self.pool = make_pool(self.place)
        return self.pool

    def close(self, *, now: bool = False) -> None:
        if self.pool is not None:
            self.pool.close(now=now)
            self.pool = None


@contextmanager
def open_shards(
    place: WorkPlace, folder: Path, origin: Mapping[str, Any], tell: Callable[[str], None], *, gpu: bool = False
) -> Iterator[Shards | None]:
    """Context manager for `Shards`, or None if the work is done in this process. After an error or Ctrl-C, workers are stopped at
    once; finished shards are kept."""
    if place.kind == "this":
        yield None
        return
    shards = Shards(place, folder, origin, tell, gpu)
    try:
        yield shards
    except BaseException:
        shards.close(now=True)
        raise
    shards.close()


def tables_of(
    name: str,
    work: TableWork,
    shared: Any,
    items: Sequence[ShardItem],
    shards: Shards | None,
    progress: Progress | None,
) -> list[Table]:
    """Return the tables of all items in order; with `shards`, there is one table per shard."""
    if shards is not None:
        return shards.tables(name, work, shared, items).all(progress)
    found, done, whole = [], 0, sum(item.counts for item in items)
    for table, item in zip(work(shared, [item.value for item in items]), items, strict=True):
        found.append(table)
        done += item.counts
        if progress is not None:
            progress(done, whole)
    return found


def cuts_of(items: Sequence[ShardItem]) -> list[tuple[int, int]]:
    """Return (start, stop) ranges of consecutive items with at least `SHARD_EVENTS` events each; the last range has the rest."""
    cuts, start, held = [], 0, 0
    for place, item in enumerate(items, 1):
        held += item.events
        if held >= SHARD_EVENTS:
            cuts.append((start, place))
            start, held = place, 0
    if start < len(items):
        cuts.append((start, len(items)))
    return cuts


def work_on_shard(shared: Any, item: tuple[TableWork, Sequence[Any]], stop: Stop) -> Table:
    """Compute the rows of all items of a shard as one table; called in a worker."""
    work, items = item
    return joined(list(work(shared, items)))


@dataclass(frozen=True)
class _ShardWork:
    work: TableWork
    shared: SharedInput
    items: Sequence[ShardItem]
    cuts: Sequence[tuple[int, int]]

    def task(self, number: int, gpu: bool) -> ShardTask:
        start, stop = self.cuts[number]
        values = [item.value for item in self.items[start:stop]]
        return ShardTask(number, work_on_shard, self.shared, (self.work, values), float(gpu))

    def counts(self, number: int) -> int:
        start, stop = self.cuts[number]
        return sum(item.counts for item in self.items[start:stop])


class _Tables:
    """The shards of one work; `all` returns their tables in order, and computes those that the store lacks."""

    def __init__(self, shards: Shards, name: str, work: _ShardWork, store: ShardStore) -> None:
        self.shards, self.name, self.work, self.store = shards, name, work, store

    def all(self, progress: Progress | None) -> list[Table]:
        work, whole = self.work, sum(item.counts for item in self.work.items)
        found = {number: table for number in range(len(work.cuts)) if (table := self.store.get(number)) is not None}
        done = sum(work.counts(number) for number in found)
        if found:
            there = f"of {counted(len(work.cuts), 'shard')}, {len(found)} were done before"
            self.shards.tell(f"{self.name}: {there}, in {self.store.folder}")
        todo = [number for number in range(len(work.cuts)) if number not in found]
        if todo:
            tasks = [work.task(number, self.shards.gpu) for number in todo]
            for number, table in results_of(self.shards.workers(), tasks, self.name, self.shards.tell):
                self.store.put(number, table)
                found[number] = table
                done += work.counts(number)
                if progress is not None:
                    progress(done, whole)
        return [found[number] for number in range(len(work.cuts))]


def _digest(parts: Sequence[Any]) -> str:
    found = hashlib.sha256()
    for part in parts:
        _feed(found.update, part)
    return found.hexdigest()


def _feed(update: Callable[[bytes], None], value: Any) -> None:
    """Feed a value to a hash. Shapes and lengths are included, so that different values do not give the same bytes."""
    if isinstance(value, np.ndarray):
        update(f"{value.dtype}{value.shape}".encode())
        update(np.ascontiguousarray(value).tobytes())
    elif isinstance(value, Mapping):
        _feed(update, [item for key in sorted(value) for item in (key, value[key])])
    elif isinstance(value, list | tuple):
        update(f"[{len(value)}]".encode())
        for item in value:
            _feed(update, item)
    elif isinstance(value, bytes):
        update(f"b{len(value)}".encode() + value)
    else:
        update(f"{value!r};".encode("utf-8", "surrogatepass"))
