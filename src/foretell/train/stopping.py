"""Turns SIGINT and SIGTERM into a flag that long loops poll."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stopping() -> Iterator[dict[str, bool]]:
    """The flag, as `{"stop": False}`; the first signal sets it, a second one raises KeyboardInterrupt."""
    flag = {"stop": False}

    def on_signal(signum: int, frame: FrameType | None) -> None:
        if flag["stop"]:
            raise KeyboardInterrupt
        flag["stop"] = True

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield flag
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
