"""Attention with the extra `1 +` of each query over its own contiguous range of a table: `Σ α v / (1 + Σ α)`, `α = exp(x·k)`.

Queries with overlapping ranges are grouped into tiles (`RangeTiles`, made once from the ranges). Each tile uses one window of the table
and plain batched products; tiles with windows of similar size are computed together. The largest intermediate tensor has queries × keys of
such a group, and weights are computed again in the backward pass, so that memory is linear in the input and output. An empty range gives 0.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F  # noqa: N812

from foretell.nn.fused.ranges import AskTiles, ask_tiles, attention_by_kernels, runs_by_kernels

CPU = torch.device("cpu")
ROWS_A_TILE = {"cpu": 64, "cuda": 64}
GROWTH = {"cpu": 1.5, "cuda": 4.0}  # ratio of successive window sizes: small for tight windows, large for few launches
SMALLEST_WINDOW = 8
MOST_ELEMENTS = 1 << 21  # limit of the logits of tiles that are computed together
ALONE = 1 << 18  # number of logits up to which one thread does all the work
Work = Callable[..., "tuple[Tensor, ...]"]  # groups and tensors to tensors that are summed over groups


@dataclass(frozen=True)
class Tiles:
    """Tiles with windows of one size. Rows that fill up a tile repeat its first row, and see nothing."""

    rows: Tensor  # int64 [T, R]: queries
    window: Tensor  # int64 [T, W]: the null row, which is the last of the table, then keys, clamped to the table
    low: Tensor  # int32 [T, R]: the range, as positions in the window
    high: Tensor

    @property
    def elements(self) -> int:
        return self.rows.numel() * self.window.shape[1]

    def to(self, device: torch.device) -> Tiles:
        return Tiles(*(getattr(self, name).to(device) for name in ("rows", "window", "low", "high")))


@dataclass(frozen=True, eq=False)
class RangeTiles:
    """Non-empty ranges `[lo, hi)`, cut into tiles `[starts, ends)`; the layout for the device is made at first use."""

    keys: int
    queries: int
    device: torch.device
    lo: np.ndarray
    hi: np.ndarray
    rows: np.ndarray  # the query of each range
    starts: np.ndarray
    ends: np.ndarray

    @cached_property
    def groups(self) -> tuple[Tiles, ...]:
        """The tiles for plain batched products."""
        if not len(self.lo):
            return ()
        first, last = np.minimum.reduceat(self.lo, self.starts), np.maximum.reduceat(self.hi, self.starts)
        sizes = _window_sizes(1 + last - first, GROWTH[_kind(self.device)])
        height = ROWS_A_TILE[_kind(self.device)]
        found = []
        for size in np.unique(sizes).tolist():
            chosen = np.flatnonzero(sizes == size)
            step = max(1, MOST_ELEMENTS // (height * size))
            found += [
                self._tiles(chosen[place : place + step], first, size, height).to(self.device)
                for place in range(0, len(chosen), step)
            ]
        return tuple(found)

    def _tiles(self, chosen: np.ndarray, first: np.ndarray, size: int, height: int) -> Tiles:
        starts, ends, first = self.starts[chosen, None], self.ends[chosen, None], first[chosen, None]
        height = min(height, int((ends - starts).max()))
        place = starts + np.arange(height)[None]
        valid = place < ends
        asked = np.where(valid, place, starts)
        low = np.where(valid, self.lo[asked] - first, 0).astype(np.int32)
        high = np.where(valid, self.hi[asked] - first, 0).astype(np.int32)
        window = np.minimum(first + np.arange(-1, size - 1)[None], self.keys - 1)
        window[:, 0] = self.keys
        return Tiles(*(torch.from_numpy(one) for one in (self.rows[asked], window, low, high)))

    @cached_property
    def elements(self) -> int:
        """The number of logits that are computed, including padding of tiles."""
        return sum(group.elements for group in self.groups)

    def shared(self, count: int) -> list[list[Tiles]]:
        """Divide the groups into `count` shares of about equal work; the result is deterministic."""
        shares: list[list[Tiles]] = [[] for _ in range(count)]
        for group in sorted(self.groups, key=lambda one: -one.elements):
            min(shares, key=lambda share: sum(one.elements for one in share)).append(group)
        return shares

    @cached_property
    def asks(self) -> AskTiles:
        """The tiles for kernels."""
        made = ask_tiles(self.rows, self.lo, self.hi, self.starts, self.ends, self.queries, self.keys)
        return made.to(self.device)


def range_tiles(
    lo: np.ndarray,
    hi: np.ndarray,
    keys: int,
    *,
    device: torch.device = CPU,
    segment: np.ndarray | None = None,
    rows: np.ndarray | None = None,
    queries: int | None = None,
) -> RangeTiles:
    """Make tiles for queries with ranges `[lo, hi)`, ideally in an order in which neighbours have similar ranges.

    Ranges may share a tile only if they have the same `segment` [Q]; without it, all may. `rows` [Q] is the query of each range, below
    `queries`, if a query has several ranges; without it, each query has one.
    """
    lo, hi = np.asarray(lo, dtype=np.int64), np.asarray(hi, dtype=np.int64)
    assert lo.shape == hi.shape and (len(lo) == 0 or (lo.min() >= 0 and hi.max() <= keys))
    rows = np.arange(len(lo)) if rows is None else np.asarray(rows, dtype=np.int64)
    some = np.flatnonzero(hi > lo)
    starts, ends = _cut(some, segment, ROWS_A_TILE[_kind(device)])
    return RangeTiles(
        keys, len(lo) if queries is None else queries, device, lo[some], hi[some], rows[some], starts, ends
    )


def _kind(device: torch.device) -> str:
    return device.type if device.type in ROWS_A_TILE else "cuda"


def _cut(some: np.ndarray, segment: np.ndarray | None, height: int) -> tuple[np.ndarray, np.ndarray]:
    """Return where tiles start and end among the non-empty ranges: at most `height` rows, never across segments."""
    count = len(some)
    if not count:
        return some, some
    if segment is None:
        runs = np.array([0])
    else:
        own = segment[some]
        runs = np.concatenate([[0], np.flatnonzero(own[1:] != own[:-1]) + 1])
    lengths = np.diff(np.concatenate([runs, [count]]))
    tiles = -(-lengths // height)
    within = np.arange(tiles.sum()) - np.repeat(np.cumsum(tiles) - tiles, tiles)
    starts = np.repeat(runs, tiles) + within * height
    ends = np.minimum(starts + height, np.repeat(runs + lengths, tiles))
    return starts, ends


def _window_sizes(widths: np.ndarray, growth: float) -> np.ndarray:
    """Round widths up to the next of a geometric series of sizes."""
    series = [SMALLEST_WINDOW]
    while series[-1] < widths.max():
        series.append(int(np.ceil(series[-1] * growth / 8) * 8))
    table = np.asarray(series)
    return table[np.searchsorted(table, widths)]


def range_attention(x: Tensor, k: Tensor, v: Tensor, tiles: RangeTiles) -> Tensor:
    """x: [Q, d]; k: [N, d]; v: [N, D]; returns [Q, D]. A query with several ranges gets the sum of its results."""
    assert len(x) == tiles.queries
    if len(tiles.lo) and runs_by_kernels(x, k, v):
        return attention_by_kernels(x, k, v, tiles.asks)
    return _RangeAttention.apply(tiles, x, k, v)  # pyright: ignore[reportReturnType]


def _gathered(table: Tensor, places: Tensor) -> Tensor:
    return table.index_select(0, places.flatten()).view(*places.shape, table.shape[1])


def _with_null(table: Tensor) -> Tensor:
    """Append a row of zeros to the table: key and value of the null event, which gives the 1 in the denominator."""
    return F.pad(table, (0, 0, 0, 1))


def _weights(group: Tiles, x: Tensor, k: Tensor) -> Tensor:
    """Return attention weights [T, R, W], the null event first; each row sums to 1."""
    logits = torch.bmm(x, k.transpose(1, 2))
    place = torch.arange(-1, group.window.shape[1] - 1, device=x.device, dtype=torch.int32)
    unseen = place < group.low.unsqueeze(-1)
    unseen |= place >= group.high.unsqueeze(-1)
    unseen[..., 0] = False
    return torch.softmax(logits.masked_fill_(unseen, -torch.inf), dim=-1)


def _attended(groups: Sequence[Tiles], x: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    out = v.new_zeros(len(x), v.shape[1])
    for group in groups:
        weights = _weights(group, _gathered(x, group.rows), _gathered(k, group.window))
        found = torch.bmm(weights, _gathered(v, group.window))
        # Rows that fill up a tile see nothing, and add 0.
        out.index_add_(0, group.rows.flatten(), found.flatten(0, 1))
    return (out,)


def _gradients(groups: Sequence[Tiles], x: Tensor, k: Tensor, v: Tensor, grad: Tensor) -> tuple[Tensor, ...]:
    grad_x, grad_k, grad_v = torch.zeros_like(x), torch.zeros_like(k), torch.zeros_like(v)
    for group in groups:
        xs, ks, vs = _gathered(x, group.rows), _gathered(k, group.window), _gathered(v, group.window)
        weights = _weights(group, xs, ks)
        given = _gathered(grad, group.rows)
        flat = group.window.flatten()
        grad_v.index_add_(0, flat, torch.bmm(weights.transpose(1, 2), given).flatten(0, 1))
        by_weight = torch.bmm(given, vs.transpose(1, 2))
        by_logit = torch.ops.aten._softmax_backward_data(by_weight, weights, -1, weights.dtype)
        grad_k.index_add_(0, flat, torch.bmm(by_logit.transpose(1, 2), xs).flatten(0, 1))
        grad_x.index_add_(0, group.rows.flatten(), torch.bmm(by_logit, ks).flatten(0, 1))
    return grad_x, grad_k, grad_v


def _shared_out(tiles: RangeTiles, work: Work, *tensors: Tensor) -> tuple[Tensor, ...]:
    """Sum the results of `work` over all groups. On a CPU whose idle threads sleep, each thread computes some groups alone, because
    waking all threads for every small operation takes longer.

    (Measured on two cores: a step takes 351 ms instead of 540 if they sleep, but 400 instead of 350 if they spin.)
    """
    threads = torch.get_num_threads() if tensors[0].device.type == "cpu" and _threads_sleep() else 1
    if threads == 1 or tiles.elements < ALONE:
        return work(tiles.groups, *tensors)
    shares = tiles.shared(threads)
    pool = _pool(threads)
    try:
        found = list(pool.map(lambda share: _without_gradients(work, share, tensors), shares))
    finally:
        torch.set_num_threads(threads)  # otherwise new threads would start with a pool thread's setting
    for other in found[1:]:  # in the order of the shares, so that the result does not depend on threads
        for total, part in zip(found[0], other, strict=True):
            total += part
    return found[0]


def _threads_sleep() -> bool:
    return os.environ.get("OMP_WAIT_POLICY", "").lower() == "passive"


def _without_gradients(work: Work, groups: Sequence[Tiles], tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    with torch.no_grad():  # the setting is per thread
        return work(groups, *tensors)


@lru_cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, "attention", initializer=lambda: torch.set_num_threads(1))


class _RangeAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tiles: RangeTiles, x: Tensor, k: Tensor, v: Tensor) -> Tensor:
        k, v = _with_null(k), _with_null(v)
        ctx.tiles = tiles
        ctx.save_for_backward(x, k, v)
        return _shared_out(tiles, _attended, x, k, v)[0]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        grad_x, grad_k, grad_v = _shared_out(ctx.tiles, _gradients, *ctx.saved_tensors, grads[0])
        return None, grad_x, grad_k[:-1], grad_v[:-1]
