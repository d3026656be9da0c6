"""Attention by several heads whose logits fall with age, with kernels: one launch forwards and two backwards."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from foretell.nn.fused.available import kernels_run_on
from foretell.nn.fused.loss import power_of_two

ROWS, KEYS = 32, 32  # queries per tile, and keys per iteration
DEEPEST = 64  # largest size of a head for which tiles fit


def heads_fit_kernels(like: Tensor, size: int) -> bool:
    """Whether the kernels can be used for tables of this dtype and device, with heads of this size."""
    return like.dtype == torch.float32 and 0 < size <= DEEPEST and kernels_run_on(like.device)


def heads_by_kernels(
    x: Tensor, k: Tensor, v: Tensor, times: tuple[Tensor, Tensor], decay: Tensor, prefix: tuple[int, int]
) -> Tensor:
    """x: [B, Q, D]; k, v: [B, N + 1, D], null row first; times: float64 [B, Q] and [B, N + 1]; decay: [heads]; returns [B, Q, D].

    `prefix` is the number of queries per gap, and the number of events that they see in addition to those before the gap.
    """
    return _HeadsByKernels.apply(x, k, v, *times, decay, *prefix)  # pyright: ignore[reportReturnType]


class _HeadsByKernels(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, k: Tensor, v: Tensor, now: Tensor, then: Tensor, decay: Tensor, per_gap: int, extra: int
    ) -> Tensor:
        kernels: Any = import_module("foretell.nn.fused.head_kernels")
        tensors = tuple(one.contiguous() for one in (x, k, v, now, then, decay))
        x, k, heads = tensors[0], tensors[1], len(decay)
        ctx.sizes = x.shape[1], k.shape[1], per_gap, extra, heads
        out = torch.empty_like(x)
        level = x.new_empty(len(x), heads, x.shape[1])
        if x.numel():
            grid = (-(-x.shape[1] // ROWS), len(x), heads)
            kernels.forwards[grid](*tensors, out, level, *ctx.sizes, **_options(x, heads))
        ctx.save_for_backward(*tensors, out, level)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        kernels: Any = import_module("foretell.nn.fused.head_kernels")
        *tensors, out, level = ctx.saved_tensors
        x, k, v, heads = *tensors[:3], ctx.sizes[-1]
        grad_x, grad_k, grad_v = (torch.empty_like(one) for one in (x, k, v))
        if not x.numel():
            return grad_x, grad_k.zero_(), grad_v.zero_(), None, None, torch.zeros_like(tensors[5]), None, None
        grad, share = grads[0].contiguous(), torch.empty_like(level)
        tiles = -(-x.shape[1] // ROWS)
        by_rate = x.new_empty(heads, len(x) * tiles)
        options = _options(x, heads)
        kernels.back_to_queries[tiles, len(x), heads](
            *tensors, out, level, grad, share, grad_x, by_rate, *ctx.sizes, **options
        )
        kernels.back_to_keys[-(-k.shape[1] // KEYS), len(x), heads](
            *tensors, level, grad, share, grad_k, grad_v, *ctx.sizes, **options
        )
        return grad_x, grad_k, grad_v, None, None, by_rate.sum(1), None, None


def _options(x: Tensor, heads: int) -> dict[str, int]:
    size = x.shape[2] // heads
    return {"DIM": x.shape[2], "SIZE": size, "WIDE": power_of_two(size), "BM": ROWS, "BN": KEYS, "num_warps": 4}
