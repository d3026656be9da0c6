"""The interface of pools of workers: `ShardTask`s go in, `ShardOutcome`s come out. `ThisProcess` computes in this process."""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

Stop = Callable[[], bool]  # returns True if the work should stop; long work polls it
ShardWork = Callable[[Any, Any, Stop], Any]  # (shared input, shard, stop) → result; a module-level function

POLL = 1.0  # seconds between the polls of a waiting pool
GRACE = 40.0  # seconds for a worker to stop after an interrupt


@dataclass(frozen=True, eq=False)
class SharedInput:
    """The shared input of all shards, such as a model and its data; it is sent to every worker once."""

    value: Any
    key: str = field(default_factory=lambda: uuid.uuid4().hex)

    @cached_property
    def packed(self) -> bytes:
        return pickle.dumps(self.value, protocol=5)


NOTHING = SharedInput(None, "")


@dataclass(frozen=True)
class ShardTask:
    """One shard with everything that is needed to compute it."""

    name: Any  # identifies its outcome
    work: ShardWork
    shared: SharedInput
    item: Any
    gpu: float = 0.0  # the share of a GPU that it needs; only Ray uses it


@dataclass(frozen=True)
class ShardOutcome:
    """The outcome of a shard: a value, an error, the loss of its worker, or a cancellation."""

    name: Any
    value: Any = None
    error: Exception | None = None
    lost: str = ""  # why its worker was lost; empty: it was not
    cancelled: bool = False  # True: the pool was interrupted before the shard began


class ShardPool(Protocol):
    """The interface of a pool of workers."""

    @property
    def size(self) -> int:
        """The number of simultaneous shards."""
        ...

    @property
    def interruptible(self) -> bool:
        """Whether `interrupt` reaches the work; False for this process, where the work polls `stop`."""
        ...

    def busy(self) -> list[Any]:
        """The names of the shards that are being computed."""
        ...

    def start(self, task: ShardTask) -> None: ...

    def wait(self, seconds: float = POLL) -> list[ShardOutcome]:
        """Wait at most `seconds` and return the outcomes of finished shards, possibly none."""
        ...

    def interrupt(self) -> None:
        """Ask all workers to stop; work with checkpoints then writes one."""
        ...

    def close(self, *, now: bool = False) -> None:
        """Stop the workers; with `now`, also busy ones."""
        ...


class ThisProcess:
    """A pool without workers: shards are computed in this process, and errors are raised directly."""

    size, interruptible = 1, False

    def __init__(self, stop: Stop = lambda: False) -> None:
        self.stop = stop
        self.task: ShardTask | None = None

    def busy(self) -> list[Any]:
        return [] if self.task is None else [self.task.name]

    def start(self, task: ShardTask) -> None:
        self.task = task

    def wait(self, seconds: float = POLL) -> list[ShardOutcome]:
        """Compute the shard."""
        assert self.task is not None
        task, self.task = self.task, None
        return [ShardOutcome(task.name, task.work(task.shared.value, task.item, self.stop))]

    def interrupt(self) -> None:
        """Do nothing, because the work polls `stop`."""

    def close(self, *, now: bool = False) -> None:
        self.task = None
