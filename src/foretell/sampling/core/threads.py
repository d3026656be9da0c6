"""Run independent pieces of work on the threads of a CPU, one thread per piece; and keep memory for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

import torch

Piece = TypeVar("Piece")
Result = TypeVar("Result")

LARGE = 31 << 20  # bytes; for blocks of 32 MB and more, glibc does not adapt its threshold

_set_aside: ContextVar[int | None] = ContextVar("set_aside", default=None)


def threads() -> int:
    """Return how many pieces can be computed at a time; on a thread of `side_by_side` the answer is 1."""
    return _set_aside.get() or torch.get_num_threads()


@contextmanager
def alone(device: torch.device) -> Iterator[None]:
    """Use one thread per operation inside, where operations are too small to divide; `side_by_side` still uses all threads."""
    if device.type != "cpu":
        yield
        return
    before, held = torch.get_num_threads(), _set_aside.get()
    try:
        _set_aside.set(held or before)
        torch.set_num_threads(1)
        yield
    finally:
        torch.set_num_threads(before)
        _set_aside.set(held)


def side_by_side(work: Callable[[Piece], Result], pieces: Sequence[Piece], device: torch.device) -> list[Result]:
    """Return the results in the order of the pieces. Threads compute whole pieces, since small operations are not worth dividing."""
    if device.type != "cpu":
        return [work(piece) for piece in pieces]
    with alone(device):
        if min(threads(), len(pieces)) <= 1:
            return [work(piece) for piece in pieces]
        pool = ThreadPoolExecutor(min(threads(), len(pieces)), "sampling", initializer=lambda: torch.set_num_threads(1))
        try:
            return list(pool.map(work, pieces))
        finally:
            pool.shutdown(cancel_futures=True)
            torch.set_num_threads(1)  # otherwise new threads would start with a pool thread's setting


def keep_memory() -> None:
    """Make glibc keep freed blocks of up to `LARGE` bytes: it raises its threshold when a block of that size is freed.

    Fresh pages cost more than most operations, and threads wait for each other to get them. The block is never written: this costs two
    system calls.
    """
    torch.empty(LARGE, dtype=torch.uint8)
