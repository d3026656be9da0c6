"""Look up rows of a small table, [K, D] and indices to one row per index, with a fast and deterministic gradient.

The few rows (types of events) are used very often. On a GPU, adding all gradients one by one into the same rows is slow and in
no fixed order; a product with the one-hot matrix of the indices avoids both.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

MOST_ONE_HOT = 4096  # rows of the table up to which the one-hot product is used on a GPU


class _Lookup(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, index: Tensor) -> Tensor:
        ctx.save_for_backward(index)
        ctx.rows = table.shape[0]
        return F.embedding(index, table)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, None]:
        (grad,) = grad_outputs
        (index,) = ctx.saved_tensors
        flat = grad.reshape(-1, grad.shape[-1])
        if grad.is_cuda and ctx.rows <= MOST_ONE_HOT:
            rows = torch.arange(ctx.rows, device=grad.device)
            one_hot = (rows[:, None] == index.flatten()).to(grad.dtype)
            return one_hot @ flat, None
        return torch.zeros(ctx.rows, grad.shape[-1], dtype=grad.dtype, device=grad.device).index_add_(
            0, index.flatten(), flat
        ), None


def lookup(table: Tensor, index: Tensor) -> Tensor:
    return _Lookup.apply(table, index)  # pyright: ignore[reportReturnType]
