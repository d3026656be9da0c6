"""Sums of chosen rows of a table: `out[i] = Σ source[j]` over the rows `j` of target `i`, forwards and backwards without races.

Both passes sum over lists of rows, which are made once from the pairs. Nothing is scattered, so a sum always has the same order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F  # noqa: N812

LONGEST = 128  # rows that a GPU sums one after the other; longer lists are cut into parts, whose sums are added


@dataclass(frozen=True)
class Lists:
    """The rows of each target, as slices of `rows`. With `parts`, slices are parts of lists, and `parts` has those of each target."""

    rows: Tensor  # int32 [pairs]
    start: Tensor  # int32 [targets + 1]
    parts: Lists | None = None

    def to(self, device: torch.device) -> Lists:
        parts = None if self.parts is None else self.parts.to(device)
        return Lists(self.rows.to(device), self.start.to(device), parts)


@dataclass(frozen=True)
class SparseSum:
    ahead: Lists  # the rows of every target
    back: Lists  # the targets of every row

    def __call__(self, source: Tensor) -> Tensor:
        """Return the sums: [rows, D] to [targets, D]."""
        return _SparseSum.apply(self, source)  # pyright: ignore[reportReturnType]


def sparse_sum(target: np.ndarray, row: np.ndarray, targets: int, rows: int, device: torch.device) -> SparseSum:
    """Build the lists from pairs (target, row), in any order; a pair may occur more than once."""
    longest = LONGEST if device.type == "cuda" else None
    return SparseSum(
        lists_of(target, row, targets, longest).to(device), lists_of(row, target, rows, longest).to(device)
    )


def lists_of(key: np.ndarray, value: np.ndarray, keys: int, longest: int | None = None) -> Lists:
    """Return the values of each key, in their given order."""
    counts = np.bincount(key, minlength=keys)
    ordered = value if (key[1:] >= key[:-1]).all() else value[np.argsort(key.astype(np.int32), kind="stable")]
    if longest is None or not len(key) or counts.max() <= longest:
        return Lists(int32(ordered), int32(np.concatenate([[0], np.cumsum(counts)])))
    pieces = -(-counts // longest)
    whose = np.repeat(np.arange(keys), pieces)
    within = np.arange(len(whose)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    start = np.repeat(np.cumsum(counts) - counts, pieces) + within * longest
    return Lists(
        int32(ordered),
        int32(np.concatenate([start, [len(key)]])),
        lists_of(whose, np.arange(len(whose)), keys, longest),
    )


def int32(values: np.ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.int32))


def summed(table: Tensor, lists: Lists) -> Tensor:
    """Return the sums: [rows, D] to [targets, D]."""
    if not len(lists.rows) or not table.shape[1]:
        whole = lists if lists.parts is None else lists.parts
        return table.new_zeros(len(whole.start) - 1, table.shape[1])
    found = torch.embedding_bag(table, lists.rows, lists.start, mode=0, include_last_offset=True)[0]
    return found if lists.parts is None else summed(found, lists.parts)


class _SparseSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, lists: SparseSum, source: Tensor) -> Tensor:
        ctx.lists, ctx.rows = lists, len(source)
        return summed(source.contiguous(), lists.ahead)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        (grad,) = grads
        found = summed(grad.contiguous(), ctx.lists.back)
        if len(found) < ctx.rows:  # rows appended to the table later are in no sum
            found = F.pad(found, (0, 0, 0, ctx.rows - len(found)))
        return None, found
