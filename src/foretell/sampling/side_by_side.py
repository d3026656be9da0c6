"""Independent pieces of work on the threads of a CPU: each takes one piece at a time, and computes alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Piece = TypeVar("Piece")
Result = TypeVar("Result")


def side_by_side(work: Callable[[Piece], Result], pieces: Sequence[Piece], device: torch.device) -> list[Result]:
    """What comes is in the order of the pieces. Small operations are not worth sharing out among threads; whole pieces are."""
    if device.type != "cpu":
        return [work(piece) for piece in pieces]
    whole = torch.get_num_threads()
    threads = min(whole, len(pieces))
    if threads <= 1:
        torch.set_num_threads(1)
        try:
            return [work(piece) for piece in pieces]
        finally:
            torch.set_num_threads(whole)
    pool = ThreadPoolExecutor(threads, "sampling", initializer=lambda: torch.set_num_threads(1))
    try:
        return list(pool.map(work, pieces))
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(whole)  # a pool thread's own number becomes that of threads to come
