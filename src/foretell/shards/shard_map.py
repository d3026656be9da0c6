"""The work of a command in shards: items in, a table of rows for each shard out, in order, whoever did the work.

A *table work* goes through items (batches of sequences, say) and yields a table for each. Without `Shards` that happens here, item by
item. With them, neighbouring items are a shard; shards go to a pool, their tables to a store, and what the store has is not done again.
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

SHARD_EVENTS = 4_000  # a shard is neighbouring items with at least this many events
ATTEMPTS = 4  # at a shard whose worker dies; then something is wrong with the shard
NUMBERING = 1  # of the cuts and the tables: raise it whenever either changes

TableWork = Callable[[Any, Sequence[Any]], Iterator[Table]]  # (what all share, values of items) → a table for each
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class ShardItem:
    """The smallest piece of a work: some sequences, say."""

    value: Any
    events: int  # about how much work it is
    counts: int = 1  # in what progress is counted in: sequences, say


def make_pool(place: WorkPlace, stop: Stop = lambda: False, threads: int = 1) -> ShardPool:
    """The workers of a place; each process of this machine has so many threads."""
    if place.kind == "ray":
        return RayPool(place)
    if place.kind == "processes":
        return ProcessPool(place.cores, threads)
    return ThisProcess(stop)


def results_of(
    pool: ShardPool, tasks: Iterable[ShardTask], name: str, tell: Callable[[str], None]
) -> Iterator[tuple[Any, Any]]:
    """(name, result) of each task as it is done; an error is raised, and what is lost with its worker is done again."""
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
    folder: Path  # gets a folder for each work
    origin: Mapping[str, Any]  # what all results depend on: the model, the data, the options
    tell: Callable[[str], None] = lambda line: None
    gpu: bool = False  # True: every shard needs a GPU of its own
    pool: ShardPool | None = None

    def tables(self, name: str, work: TableWork, shared: Any, items: Sequence[ShardItem]) -> _Tables:
        """The work of some items, cut into shards. The cuts depend on the items alone, not on the number of workers."""
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
    """None if the work is done in this process. On an error, including Ctrl-C, workers are stopped at once; finished shards are
    kept."""
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
    """The tables of all items, in order; by `shards`, several items may have one table."""
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
    """Ranges of consecutive items with at least `SHARD_EVENTS` events each; the last range has the rest."""
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
    """The rows of all items of a shard, in a worker."""
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
    """The shards of one work on their way."""

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
    """Everything about a value that a result can depend on; shapes and lengths separate what comes one after the other."""
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
