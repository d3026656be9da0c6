"""A background thread that makes the batches and plans of the next steps while a device computes the current one.

The results depend only on the order of the epoch and on the data, so a step has the same numbers with and without this thread. A bounded
queue limits memory to a few steps.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

POLL = 0.1  # seconds after which a waiting thread checks again whether the queue was closed

Made = TypeVar("Made")


class AheadQueue(Generic[Made]):
    """A queue with the results of `make` for each piece of work, in order. At most `size` results are made ahead."""

    def __init__(self, make: Callable[[Any], Made], work: Iterable[Any], size: int) -> None:
        assert size >= 1
        self.queue: queue.Queue[tuple[Any, Made | None, BaseException | None]] = queue.Queue(size)
        self.closed = threading.Event()
        self.thread = threading.Thread(target=self._run, args=(make, work), name="ahead", daemon=True)
        self.thread.start()

    def take(self, one: Any) -> Made:
        """Return the result for `one`, which must be the next piece of work. Raises the error that making it raised."""
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
        """Return True once the result is in the queue, False if the queue was closed first."""
        while not self.closed.is_set():
            try:
                self.queue.put(found, timeout=POLL)
            except queue.Full:
                continue
            return True
        return False
