"""Ctrl-C in, a wish to stop out, which long work asks after between its steps."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stopping() -> Iterator[dict[str, bool]]:
    """The first Ctrl-C (or SIGTERM) asks for a checkpoint and an end; a second one stops at once."""
    asked = {"stop": False}

    def ask(signum: int, frame: FrameType | None) -> None:
        if asked["stop"]:
            raise KeyboardInterrupt
        asked["stop"] = True

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
