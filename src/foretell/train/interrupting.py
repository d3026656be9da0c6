"""SIGINT and SIGTERM while something is computed for long: a flag that loops poll and, inside a long step, an exception that leaves it.

A step writes nothing but scratch until its gradients are complete, and draws from its number: left in the middle and taken again, it is
the same step. So the first signal ends a step, too, once that has had some seconds to end by itself.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

GRACE = 2.0  # seconds that a step has to end by itself after a signal


class TrainingInterrupt(Exception):  # noqa: N818 (not an error)
    """A callback or the user asked to stop; with a run folder, the state is in a checkpoint.

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
    """Whether something is computed that may be left at any line."""

    depth = 0


@contextmanager
def interruptible() -> Iterator[None]:
    """Inside, nothing is written but what will be written again: a signal may end it with a `TrainingInterrupt`."""
    _Inside.depth += 1
    try:
        yield
    finally:
        _Inside.depth -= 1


@contextmanager
def stopping(*, patient: bool = False) -> Iterator[dict[str, bool]]:
    """Turns SIGINT and SIGTERM into a flag that long loops poll, `{"stop": False}`; a second signal raises KeyboardInterrupt.

    Code that is `interruptible` and continues for seconds after the first signal is left with a `TrainingInterrupt`. With
    `patient` neither happens: with several processes one Ctrl-C can be several signals, and all processes must stop at the same
    step.
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
