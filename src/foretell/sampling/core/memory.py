"""Memory that has been used is kept for the next operation: new pages cost more than most operations, and threads queue for them."""

from __future__ import annotations

import torch

LARGE = 31 << 20  # bytes; glibc does not learn from blocks of 32 MB and more


def keep_memory() -> None:
    """Have the C library keep freed blocks below `LARGE`, where it is glibc: it does once it has seen one of that size freed.

    The block is never touched, so that this costs two system calls.
    """
    torch.empty(LARGE, dtype=torch.uint8)
