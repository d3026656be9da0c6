"""Batches and plans of the next steps, made by a background thread while a device computes the ones before.

What is made depends on the order of the epoch and on the data alone, so that steps have the numbers that they have without it. A bounded
queue keeps memory to a few steps.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

POLL = 0.1  # seconds after which a thread that waits looks whether it is still wanted

Made = TypeVar("Made")


class AheadQueue(Generic[Made]):
    """The results of `make` for each piece of work, in order, with at most `size` of them made ahead."""

    def __init__(self, make: Callable[[Any], Made], work: Iterable[Any], size: int) -> None:
        assert size >= 1
        self.queue: queue.Queue[tuple[Any, Made | None, BaseException | None]] = queue.Queue(size)
        self.closed = threading.Event()
        self.thread = threading.Thread(target=self._run, args=(make, work), name="ahead", daemon=True)
        self.thread.start()

    def take(self, one: Any) -> Made:
        """What was made of the next piece of work, which is this one; an error that making it raised is raised here."""
        taken, made, error = self.queue.get()
        if error is not None:
            raise error
        assert taken is one and made is not None, "steps are taken in another order than they were made ready in"
        return made

    def close(self) -> None:
        """Stop the thread, and drop the prepared batches."""
        self.closed.set()
        self.thread.join()

    def _run(self, make: Callable[[Any], Made], work: Iterable[Any]) -> None:
        for one in work:
            if self.closed.is_set():
                return
            try:
                found = one, make(one), None
            except Exception as error:
                found = one, None, error
            if not self._put(found) or found[2] is not None:
                return

    def _put(self, found: tuple[Any, Made | None, BaseException | None]) -> bool:
        """Whether there came to be room for it."""
        while not self.closed.is_set():
            try:
                self.queue.put(found, timeout=POLL)
            except queue.Full:
                continue
            return True
        return False
