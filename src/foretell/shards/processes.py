"""A pool of processes on this machine, by `concurrent.futures`. If a process dies, only its own shard is lost."""

from __future__ import annotations

import concurrent.futures
import contextlib
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from typing import Any

from foretell.reading import read_limits
from foretell.shards.pool import POLL, ShardOutcome, ShardTask
from foretell.shards.worker import ProcessCall, RaisedError, begin_process, perform_call


@dataclass
class _Worker:
    """An executor with a single process; if the process dies, other executors are not affected."""

    executor: ProcessPoolExecutor
    process: BaseProcess | None = None
    task: ShardTask | None = None
    future: Future[Any] | None = None
    known: set[str] = field(default_factory=set)  # keys of the shared inputs that were sent to it

    def ended(self) -> ShardOutcome:
        """Return the outcome of its shard, and mark the worker as free."""
        assert self.task is not None and self.future is not None
        task, future, self.task, self.future = self.task, self.future, None, None
        try:
            value = future.result()
        except BrokenProcessPool:
            return ShardOutcome(task.name, lost=f"its process ended with exit code {self.exit_code()} (out of memory?)")
        if isinstance(value, RaisedError):
            return ShardOutcome(task.name, error=value.error)
        return ShardOutcome(task.name, value)

    def exit_code(self) -> int | None:
        """Return the exit code of its process; None if it is not known within a second.

        The executor's thread waits for the process, too. If that thread gets the exit code first, this one cannot read it
        until it is stored.
        """
        if self.process is None:
            return None
        until = time.monotonic() + 1.0
        while self.process.exitcode is None and time.monotonic() < until:
            time.sleep(0.01)
        return self.process.exitcode


class ProcessPool:
    """A pool of up to `size` worker processes with `threads` threads each, which are started when needed."""

    interruptible = True

    def __init__(self, size: int, threads: int = 1) -> None:
        self.size, self.threads = size, threads
        self.workers: list[_Worker] = []

    def busy(self) -> list[Any]:
        return [one.task.name for one in self.workers if one.task is not None]

    def start(self, task: ShardTask) -> None:
        idle = [one for one in self.workers if one.task is None]
        # Prefer a worker that already has the shared input.
        idle.sort(key=lambda one: task.shared.key not in one.known)
        one = idle[0] if idle else self._new()
        try:
            self._submit(one, task)
        except BrokenProcessPool:  # the process died while idle
            self.workers.remove(one)
            self._submit(self._new(), task)

    def wait(self, seconds: float = POLL) -> list[ShardOutcome]:
        waited = {one.future: one for one in self.workers if one.future is not None}
        done, _ = concurrent.futures.wait(waited, seconds, concurrent.futures.FIRST_COMPLETED)
        found = [waited[future].ended() for future in done]
        for outcome, future in zip(found, done, strict=True):
            if outcome.lost:
                self.workers.remove(waited[future])
                waited[future].executor.shutdown(wait=False)
        return found

    def interrupt(self) -> None:
        """Send SIGTERM to all processes."""
        for one in self.workers:
            if one.process is not None and one.process.is_alive() and one.process.pid is not None:
                os.kill(one.process.pid, signal.SIGTERM)

    def close(self, *, now: bool = False) -> None:
        for one in self.workers:
            if now and one.process is not None and one.process.is_alive():
                one.process.kill()
            one.executor.shutdown(wait=True, cancel_futures=True)
        self.workers = []

    def _new(self) -> _Worker:
        # No fork, since a forked process would inherit the state of torch's threads.
        context = multiprocessing.get_context("spawn")
        one = _Worker(ProcessPoolExecutor(1, context, begin_process))
        self.workers.append(one)
        return one

    def _submit(self, one: _Worker, task: ShardTask) -> None:
        shared = task.shared
        packed = shared.packed if shared.key and shared.key not in one.known else None
        call = ProcessCall(task.work, shared.key, packed, task.item, read_limits())
        before = {child.pid for child in multiprocessing.active_children()}
        with _environment(OMP_NUM_THREADS=str(self.threads), OMP_WAIT_POLICY="passive"):
            one.future = one.executor.submit(perform_call, call)  # the first call starts the process
        one.task = task
        one.known.add(shared.key)
        if one.process is None:
            started = [child for child in multiprocessing.active_children() if child.pid not in before]
            one.process = started[0] if started else None


@contextlib.contextmanager
def _environment(**changes: str) -> Iterator[None]:
    """Context manager that sets environment variables for processes started inside the block."""
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
