"""SIGINT and SIGTERM in long computations: a flag that loops poll and, inside a long step, an exception that ends it.

Until its gradients are complete, a step changes only temporary state, and its draws are seeded by its number: it can be abandoned and
repeated with the same result. So the first signal also ends a running step, after a grace period of some seconds.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

GRACE = 2.0  # seconds that a step may continue after a signal


class TrainingInterrupt(Exception):  # noqa: N818 (not an error)
    """A callback or the user stopped the training; with a run folder, the state is in a checkpoint.

    Example:
        >>> class FirstStep(ft.Callback):
        ...     def stop(self) -> bool:
        ...         return True
        >>> data = ft.EventData.from_names([["visit", "test"]], [[0.5, 2.0]], t_ends=[10.0])
        >>> try:
        ...     fitted = ft.fit(ft.NHP(data.vocabulary, dim=4), data, callbacks=[FirstStep()])
        ... except ft.TrainingInterrupt:
        ...     print("stopped")
        stopped
    """


class _Inside:
    """Counts nested `interruptible` contexts; above 0, the running code may be abandoned at any line."""

    depth = 0


@contextmanager
def interruptible() -> Iterator[None]:
    """A context whose code writes only what can be computed again: a signal may end it with a `TrainingInterrupt`."""
    _Inside.depth += 1
    try:
        yield
    finally:
        _Inside.depth -= 1


@contextmanager
def stopping(*, patient: bool = False) -> Iterator[dict[str, bool]]:
    """Turns SIGINT and SIGTERM into a flag that long loops poll, `{"stop": False}`; a second signal raises KeyboardInterrupt.

    After the first signal, `interruptible` code that continues for seconds is ended with a `TrainingInterrupt`. With `patient`, neither
    exception is raised: with several processes one Ctrl-C can be several signals, and all processes must stop at the same step.
    """
    flag = {"stop": False}

    def on_signal(signum: int, frame: FrameType | None) -> None:
        if flag["stop"] and not patient:
            raise KeyboardInterrupt
        flag["stop"] = True
        if not patient:
            signal.setitimer(signal.ITIMER_REAL, GRACE, GRACE)

    def on_alarm(signum: int, frame: FrameType | None) -> None:
        if _Inside.depth:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            raise TrainingInterrupt

    handlers = {signal.SIGINT: on_signal, signal.SIGTERM: on_signal, signal.SIGALRM: on_alarm}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield flag
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        for number, handler in before.items():
            signal.signal(number, handler)
