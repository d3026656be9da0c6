"""Independent pieces of work on the threads of a CPU, each of which computes alone; and memory that is kept for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

import torch

Piece = TypeVar("Piece")
Result = TypeVar("Result")

LARGE = 31 << 20  # bytes; glibc does not learn from blocks of 32 MB and more

_set_aside: ContextVar[int | None] = ContextVar("set_aside", default=None)


def threads() -> int:
    """How many pieces can be worked on at a time; a thread of `side_by_side` has none but itself."""
    return _set_aside.get() or torch.get_num_threads()


@contextmanager
def alone(device: torch.device) -> Iterator[None]:
    """Operations inside use one thread each, where they are too small to be shared out; `side_by_side` still has all threads."""
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
    """What comes is in the order of the pieces. Small operations are not worth sharing out among threads; whole pieces are."""
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
            torch.set_num_threads(1)  # a pool thread's own number becomes that of threads to come


def keep_memory() -> None:
    """Have the C library keep freed blocks below `LARGE`, where it is glibc: it does once it has seen one of that size freed.

    New pages cost more than most operations, and threads queue for them. The block is never touched: this costs two system calls.
    """
    torch.empty(LARGE, dtype=torch.uint8)
