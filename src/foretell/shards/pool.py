"""What every pool of workers offers: shards go in, and how the work on each ended comes out. `ThisProcess` is the pool of one."""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

Stop = Callable[[], bool]  # whether the work was asked to stop; long work polls it
ShardWork = Callable[[Any, Any, Stop], Any]  # (what all shards share, one shard) → its result; a function of a module

POLL = 1.0  # seconds until a pool that waits looks at the clock again
GRACE = 40.0  # seconds that a worker has to stop when it is asked to


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
    """One shard of a work, and what it takes to do it."""

    name: Any  # by which its outcome is known
    work: ShardWork
    shared: SharedInput
    item: Any
    gpu: float = 0.0  # the share of a GPU that it needs; Ray alone looks at it


@dataclass(frozen=True)
class ShardOutcome:
    """How the work on a shard ended: with a value, or with an error, or with its worker."""

    name: Any
    value: Any = None
    error: Exception | None = None
    lost: str = ""  # what became of its worker; empty: it is alive
    cancelled: bool = False  # True: it had not begun when the pool was asked to stop


class ShardPool(Protocol):
    """Workers that take shards."""

    @property
    def size(self) -> int:
        """Shards at a time."""
        ...

    @property
    def interruptible(self) -> bool:
        """Whether `interrupt` reaches the work: not in this process, which asks `stop` itself."""
        ...

    def busy(self) -> list[Any]:
        """Names of the shards that are being worked on."""
        ...

    def start(self, task: ShardTask) -> None: ...

    def wait(self, seconds: float = POLL) -> list[ShardOutcome]:
        """The shards that have ended; there may be none after this many seconds."""
        ...

    def interrupt(self) -> None:
        """Ask the work on all shards to stop (with a checkpoint, where it has one)."""
        ...

    def close(self, *, now: bool = False) -> None:
        """Stop the workers; `now`: even if they are busy."""
        ...


class ThisProcess:
    """The pool of one: this very process, in which an error is raised where it happens."""

    size, interruptible = 1, False

    def __init__(self, stop: Stop = lambda: False) -> None:
        self.stop = stop
        self.task: ShardTask | None = None

    def busy(self) -> list[Any]:
        return [] if self.task is None else [self.task.name]

    def start(self, task: ShardTask) -> None:
        self.task = task

    def wait(self, seconds: float = POLL) -> list[ShardOutcome]:
        """Do the work."""
        assert self.task is not None
        task, self.task = self.task, None
        return [ShardOutcome(task.name, task.work(task.shared.value, task.item, self.stop))]

    def interrupt(self) -> None:
        """Does nothing, because the work polls `stop` itself."""

    def close(self, *, now: bool = False) -> None:
        self.task = None
