"""Works that the tests of this folder give to workers."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from foretell.errors import DataError
from foretell.shards.shard_map import ShardItem


@dataclass(frozen=True)
class Orders:
    """What the work does beside its sums: items whose worker is killed, once or always; a wait; a mistake."""

    folder: Path
    kills: tuple[int, ...] = ()
    always: bool = False
    wrong: int | None = None
    wait: float = 0.0


def items(count: int = 6, events: int = 4_000) -> list[ShardItem]:
    return [ShardItem(number, events, 1) for number in range(count)]


def squares(orders: Orders, numbers: Sequence[int]) -> Iterator[dict[str, Any]]:
    """One row per item; each time that one is begun, a file says so."""
    for number in numbers:
        (orders.folder / f"begun-{number}-{time.monotonic_ns()}").touch()
        time.sleep(orders.wait)
        begun = len(list(orders.folder.glob(f"begun-{number}-*")))
        if number in orders.kills and (orders.always or begun == 1):
            os.kill(os.getpid(), signal.SIGKILL)
        if number == orders.wrong:
            raise DataError([f"item {number} is wrong"])
        yield {"number": np.array([number]), "square": np.array([number**2 / 3.0]), "name": [f"n{number}"]}


def niceness(shared: object, item: int, stop: Callable[[], bool]) -> int:
    return os.nice(item)


def until_stopped(folder: Path, name: str, stop: Callable[[], bool]) -> str:
    """Waits until it is asked to stop."""
    (folder / f"{name}.pid").write_text(str(os.getpid()))
    until = time.monotonic() + 60.0
    while not stop() and time.monotonic() < until:
        time.sleep(0.02)
    (folder / f"{name}.stopped").touch()
    return "stopped" if stop() else "late"


def begun(folder: Path) -> list[int]:
    return sorted(int(path.name.split("-")[1]) for path in folder.glob("begun-*"))
