"""Messages during long steps, since a step on a long sequence may take minutes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

FIRST = 10.0  # seconds before the first message about a step; each further delay is twice as long


class StepProgress:
    """Reports how long a step has taken so far; the time until the next message doubles."""

    def __init__(self, tell: Callable[[str], None], first: float = FIRST) -> None:
        self.tell, self.first = tell, first
        self.began, self.next, self.place = time.monotonic(), first, "the first step"
        self.over = threading.Event()
        self.lock = threading.Lock()

    def passed(self, epoch: int, done: int, of: int) -> None:
        """Record that a step is done."""
        with self.lock:
            self.began, self.next = time.monotonic(), self.first
            self.place = f"epoch {epoch}: step {done + 1} of {of}" if done < of else f"epoch {epoch}: scoring dev"

    def watch(self) -> None:
        while not self.over.wait(min(self.first / 4.0, 0.5)):
            with self.lock:
                taken, due, place = time.monotonic() - self.began, self.next, self.place
                if taken >= due:
                    self.next = 2.0 * due
            if taken >= due:
                self.tell(f"{place} has taken {taken:.0f} s so far")


@contextmanager
def step_progress(tell: Callable[[str], None]) -> Iterator[StepProgress]:
    """A context during which steps are watched."""
    made = StepProgress(tell)
    thread = threading.Thread(target=made.watch, name="step-progress", daemon=True)
    thread.start()
    try:
        yield made
    finally:
        made.over.set()
        thread.join()
