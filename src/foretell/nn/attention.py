"""Attention with the extra `1 +` (paper, equations 1-2) over the visible prefix of a table of keys.

A query of a sequence comes with the number of events that it sees, so its visible keys are a prefix of the table:
`logit = Σ_i x_i·k_i + bias`, `out = Σ α v / (1 + Σ α)`. The 1 is a null key with logit 0 and value 0 at the start of the table
(the paper's dummy object). With it, attention is one softmax, which is stable for logits of any size.

If queries lie gap by gap (`per_gap` of them in each), they are cut into tiles of gaps, and each tile uses only the keys that it can see.
The largest intermediate tensor has queries × keys of a tile; none has queries × keys × dimension. On a GPU, range attention computes
the same in three kernel launches; it is used where launches dominate the time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F  # noqa: N812

from foretell.nn.fused.ranges import fits_kernels
from foretell.nn.range_attention import RangeTiles, range_attention, range_tiles

# Smallest number of gaps per tile, and largest number of tiles. Many tight tiles save work on a CPU, few wide ones save launches on a GPU.
GAPS_A_TILE = {"cpu": 24, "cuda": 36}
MOST_TILES = {"cpu": 8, "cuda": 4}
ENOUGH_PRODUCTS, MANY_ROWS = (
    128,
    512,
)  # so many products keep a GPU busy; rows are divided from MANY_ROWS on
TILE_ELEMENTS = 1 << 22  # limit of queries × keys of a tile, for one sequence
SAVED_ELEMENTS = (
    1 << 26
)  # limit of queries × keys of a batch up to which attention weights are kept for the backward pass
KEPT_AGES = 1 << 24  # limit of the ages of a tile up to which they are kept for other layers and the backward pass
LOOSE_ROWS = 4096  # queries per tile if they do not lie gap by gap
RANGED_FROM = 128  # number of keys from which range attention is used
RANGED_PAIRS = (
    1 << 24
)  # queries × keys of a batch up to which ranges are faster on a GPU; for one long sequence they always are


@dataclass(frozen=True)
class Visible:
    """The visible prefix of each query: `seen[b, q]` events, or `q // per_gap` if queries lie gap by gap; plus `extra` more."""

    seen: Tensor | None
    per_gap: int | None
    extra: int = 0

    def __post_init__(self) -> None:
        assert (self.seen is None) != (self.per_gap is None), "a prefix is given by counts or by gaps"


@dataclass(frozen=True)
class Tile:
    """Queries `[row, row_end)`, which attend to the null key and to the first `keys` events.

    All queries see the columns before `unsure`. From that column on, `mask` adds -inf where a query does not see the key.
    """

    row: int
    row_end: int
    keys: int
    unsure: int
    mask: Tensor | None  # [1, rows, keys + 1 - unsure]; None: computed from `seen` when needed
    seen: Tensor | None = None  # [B, rows]

    def unseen(self, logits: Tensor) -> Tensor:
        if self.mask is not None:
            return self.mask
        assert self.seen is not None
        position = torch.arange(self.unsure, self.keys + 1, device=logits.device)
        return _minus_infinity_where(position > self.seen[..., None], logits.dtype)


def tiles(visible: Visible, rows: int, keys: int, like: Tensor) -> list[Tile]:
    if visible.per_gap is not None:
        found = _gap_tiles(visible.per_gap, visible.extra, rows, keys, like.dtype, like.device)
        for holder in _holders:
            holder.append(found)
        return found
    assert visible.seen is not None
    height = max(1, min(LOOSE_ROWS, TILE_ELEMENTS // (keys + 1)))
    counts = (visible.seen + visible.extra).clamp(min=0)
    starts = range(0, rows, height)
    return [Tile(row, min(row + height, rows), keys, 0, None, counts[:, row : row + height]) for row in starts]


_holders: list[list[list[Tile]]] = []


@contextmanager
def held_tiles() -> Iterator[list[list[Tile]]]:
    """Collect the tiles that are used inside: a captured graph reads their masks as long as it is replayed."""
    holder: list[list[Tile]] = []
    _holders.append(holder)
    try:
        yield holder
    finally:
        _holders.remove(holder)


@lru_cache(maxsize=32)
def _gap_tiles(per_gap: int, extra: int, rows: int, keys: int, dtype: torch.dtype, device: torch.device) -> list[Tile]:
    """Return tiles for queries gap by gap. They depend only on sizes, and the sizes of batches recur, so they are cached."""
    gaps = rows // per_gap
    assert gaps * per_gap == rows, "queries lie gap by gap"
    kind = device.type if device.type in MOST_TILES else "cuda"
    count = max(1, min(MOST_TILES[kind], round(gaps / GAPS_A_TILE[kind])))
    count = min(max(gaps, 1), max(count, -(-rows * (keys + 1) // TILE_ELEMENTS)))
    found = []
    for index in range(count):
        gap, gap_end = gaps * index // count, gaps * (index + 1) // count
        if gap == gap_end:
            continue
        width = min(keys, max(gap_end - 1 + extra, 0))
        seen = torch.arange(gap, gap_end, device=device).repeat_interleave(per_gap)
        unsure = min(width, max(gap + extra, 0)) + 1  # all gaps of the tile see what the first one sees
        unseen = torch.arange(unsure, width + 1, device=device) > (seen[:, None] + extra).clamp(min=0)
        mask = _minus_infinity_where(unseen, dtype)[None]
        found.append(Tile(gap * per_gap, gap_end * per_gap, width, unsure, mask))
    return found


@lru_cache(maxsize=32)
def _gap_ranges(per_gap: int, extra: int, batch: int, rows: int, table: int, device: torch.device) -> RangeTiles:
    """Return the visible prefixes as ranges in one table of all sequences, without the null rows, which range attention adds itself."""
    seen = np.clip(np.arange(rows) // per_gap + extra, 0, table - 1)
    first = np.repeat(np.arange(batch) * table + 1, rows)
    return range_tiles(first, first + np.tile(seen, batch), batch * table, device=device, segment=first)


def _minus_infinity_where(unseen: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.zeros(unseen.shape, dtype=dtype, device=unseen.device).masked_fill_(unseen, -math.inf)


@dataclass(frozen=True)
class Ages:
    """Ages of events at queries. Times are float64 and are subtracted before the result is rounded to the model's dtype."""

    queries: Tensor  # float64 [B, Q]
    keys: Tensor  # float64 [B, N + 1]; the first one, of the null key, is not used
    known: dict[int, Tensor] = field(default_factory=dict, repr=False, compare=False)  # by the first row of a tile

    def of(self, tile: Tile, dtype: torch.dtype) -> Tensor:
        """Return the ages for a tile, [B, rows, keys + 1], which are equal in all layers; the null key has age 0."""
        if tile.row in self.known:
            return self.known[tile.row]
        found = self.queries[:, tile.row : tile.row_end, None] - self.keys[:, None, : tile.keys + 1]
        found = found.to(dtype)
        found[..., 0] = 0.0
        if found.numel() <= KEPT_AGES:
            self.known[tile.row] = found
        return found


class _PrefixAttention(torch.autograd.Function):
    """Attention that keeps the weights of each tile (queries × keys) for the backward pass or, if there are many, computes them again."""

    @staticmethod
    def forward(
        ctx: Any,
        laid_out: list[Tile],
        hidden: Tensor | None,  # bool [B, N + 1]
        ages: Ages | None,
        decay: Tensor | None,  # [H]: how fast logits fall with age; other tensors then have B·H rows where `ages` has B
        values: Tensor,  # [B, N + 1, D]
        *parts: Tensor,  # x_1 [B, Q, d_1], k_1 [B, N + 1, d_1], x_2, k_2 …
    ) -> Tensor:
        out = values.new_empty(values.shape[0], parts[0].shape[1], values.shape[2])
        kept = len(values) * parts[0].shape[1] * values.shape[1] <= SAVED_ELEMENTS
        weights = []
        for tile in laid_out:
            weight = _weights(tile, hidden, parts, ages, decay)
            _multiply_into(out, slice(tile.row, tile.row_end), weight, values[:, : tile.keys + 1])
            if kept:
                weights.append(weight)
            del weight
        ctx.laid_out, ctx.kept, ctx.parts, ctx.ages = laid_out, kept, len(parts), ages
        ctx.save_for_backward(hidden, decay, values, *parts, *weights)
        return out

    @staticmethod
    @once_differentiable  # the saved weights are constants to autograd: a second derivative would be wrong
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        (grad,) = grad_outputs
        laid_out: list[Tile] = ctx.laid_out
        hidden, decay, values, *rest = ctx.saved_tensors
        ages: Ages | None = ctx.ages
        parts, weights = rest[: ctx.parts], rest[ctx.parts :]
        queries, keys = parts[0::2], parts[1::2]
        grad_values = torch.empty_like(values)
        grad_queries = [torch.empty_like(x) if ctx.needs_input_grad[5 + 2 * i] else None for i, x in enumerate(queries)]
        grad_keys = [torch.empty_like(k) for k in keys]
        grad_decay = None if decay is None else torch.zeros_like(decay)
        filled = 0  # number of keys with a gradient so far; the widest tile is last in the list, and first here
        for place in reversed(range(len(laid_out))):
            tile = laid_out[place]
            weight = weights[place] if ctx.kept else _weights(tile, hidden, parts, ages, decay)
            rows, width = slice(tile.row, tile.row_end), tile.keys + 1
            grad_tile = grad[:, rows]
            _accumulate(grad_values, _over_rows(weight, grad_tile), filled)
            grad_weight = torch.bmm(grad_tile, values[:, :width].transpose(1, 2))
            grad_logits = torch.ops.aten._softmax_backward_data(grad_weight, weight, -1, weight.dtype)
            del grad_weight
            if grad_decay is not None and ages is not None:
                age = ages.of(tile, weight.dtype).flatten(1).unsqueeze(-1)
                by_head = grad_logits.view(len(age), len(grad_decay), -1)
                grad_decay -= torch.bmm(by_head, age).sum((0, 2))
            for i, (x, k) in enumerate(zip(queries, keys, strict=True)):
                grad_x = grad_queries[i]
                if grad_x is not None:
                    _multiply_into(grad_x, rows, grad_logits, k[:, :width])
                _accumulate(grad_keys[i], _over_rows(grad_logits, x[:, rows]), filled)
            filled = max(filled, width)
        for gradient in (grad_values, *grad_keys):
            gradient[:, filled:] = 0.0
        interleaved = [g for pair in zip(grad_queries, grad_keys, strict=True) for g in pair]
        return None, None, None, grad_decay, grad_values, *interleaved


def _weights(
    tile: Tile, hidden: Tensor | None, parts: Sequence[Tensor], ages: Ages | None, decay: Tensor | None
) -> Tensor:
    """Return the attention weights of a tile's queries on the null key and the keys they see: [B, rows, keys + 1]; each row sums to 1."""
    rows, width = slice(tile.row, tile.row_end), tile.keys + 1
    queries, keys = parts[0::2], parts[1::2]
    logits = torch.bmm(queries[0][:, rows], keys[0][:, :width].transpose(1, 2))
    for x, k in zip(queries[1:], keys[1:], strict=True):
        logits.baddbmm_(x[:, rows], k[:, :width].transpose(1, 2))
    if ages is not None and decay is not None:
        age = ages.of(tile, logits.dtype).unsqueeze(1)
        logits.view(len(age), len(decay), *logits.shape[1:]).addcmul_(age, decay.view(1, -1, 1, 1), value=-1.0)
    if tile.unsure < width:
        logits[:, :, tile.unsure :] += tile.unseen(logits)
    if hidden is not None:
        logits.masked_fill_(hidden[:, None, :width], -math.inf)
    return torch.softmax(logits, dim=-1)


def _multiply_into(out: Tensor, rows: slice, left: Tensor, right: Tensor) -> None:
    """Compute `out[:, rows] = left @ right`; on a CPU, `bmm` into a slice works one matrix at a time, and a copy is faster."""
    if out.is_cuda:
        torch.bmm(left, right, out=out[:, rows])
    else:
        out[:, rows] = torch.bmm(left, right)


def _over_rows(left: Tensor, right: Tensor) -> Tensor:
    """Return `leftᵀ @ right`, summed over the rows: [B, R, a] and [B, R, b] to [B, a, b].

    On a GPU, few sequences with many rows each would use only few processors: rows are divided, and the parts are added.
    """
    batch, rows, wide = left.shape
    shares = 1
    if left.is_cuda and rows >= MANY_ROWS:
        shares = max((c for c in range(1, ENOUGH_PRODUCTS // max(batch, 1) + 1) if rows % c == 0), default=1)
    if shares == 1:
        return torch.bmm(left.transpose(1, 2), right)
    split = left.reshape(batch * shares, rows // shares, wide)
    parts = torch.bmm(split.transpose(1, 2), right.reshape(batch * shares, rows // shares, -1))
    return parts.unflatten(0, (batch, shares)).sum(1)


def _accumulate(total: Tensor, part: Tensor, filled: int) -> None:
    """Add `part` to the first rows of `total`; only its first `filled` rows are initialised."""
    width = part.shape[1]
    if filled == 0:
        total[:, :width] = part
    else:
        assert width <= filled
        total[:, :width] += part


def attention_with_null(
    queries: list[Tensor], keys: list[Tensor], values: Tensor, visible: Visible, hidden: Tensor | None = None
) -> Tensor:
    """Return `Σ α v / (1 + Σ α)` for each query, `α = exp(Σ_i x_i·k_i)`, over tables that start with the null row (`with_null`).

    queries: [B, Q, d_i] each; keys: [B, N + 1, d_i] each; values: [B, N + 1, D]; returns [B, Q, D]. Keys in `hidden` (bool) are invisible.
    """
    batch, rows = queries[0].shape[:2]
    wide = sum(x.shape[2] for x in queries)
    if visible.per_gap is not None and hidden is None and _ranges_win(values, rows, wide):
        x, k = (parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1) for parts in (queries, keys))
        ranges = _gap_ranges(visible.per_gap, visible.extra, batch, rows, values.shape[1], values.device)
        out = range_attention(x.flatten(0, 1), k.flatten(0, 1), values.flatten(0, 1), ranges)
        return out.view(batch, rows, values.shape[2])
    laid_out = tiles(visible, rows, values.shape[1] - 1, values)
    parts = [part for pair in zip(queries, keys, strict=True) for part in pair]
    return _PrefixAttention.apply(laid_out, hidden, None, None, values, *parts)  # pyright: ignore[reportReturnType]


def head_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    visible: Visible,
    hidden: Tensor | None = None,
    ages: Ages | None = None,
    decay: Tensor | None = None,
) -> Tensor:
    """`attention_with_null` of several heads at once, with logits that may fall with age: `α = exp(x·k − decay·(t − s))`.

    queries: [B·H, Q, d], the heads of a sequence side by side; keys, values: [B·H, N + 1, d]; hidden: bool [B, N + 1]; decay: [H].
    Returns [B·H, Q, d]. Where all ages are large, the null key has nearly all the weight, as with an empty history.
    """
    rows = len(queries)
    if hidden is not None:
        hidden = hidden.repeat_interleave(rows // len(hidden), 0)
    if visible.seen is not None and len(visible.seen) > 1:
        visible = replace(visible, seen=visible.seen.repeat_interleave(rows // len(visible.seen), 0))
    laid_out = tiles(visible, queries.shape[1], values.shape[1] - 1, values)
    return _PrefixAttention.apply(laid_out, hidden, ages, decay, values, queries, keys)  # pyright: ignore[reportReturnType]


def attention_with_first(queries: list[Tensor], keys: list[Tensor], values: Tensor, visible: Visible) -> Tensor:
    """Return softmax attention without a null key: every query sees the first key, which is an event, and its prefix of the others."""
    laid_out = tiles(visible, queries[0].shape[1], values.shape[1] - 1, values)
    parts = [part for pair in zip(queries, keys, strict=True) for part in pair]
    return _PrefixAttention.apply(laid_out, None, None, None, values, *parts)  # pyright: ignore[reportReturnType]


def _ranges_win(values: Tensor, rows: int, wide: int) -> bool:
    """Whether range attention is faster here: on a GPU, with several tiles, up to some size, and not in a captured step, because it
    saves launches.

    (H200, benchmarks/attention.py: an eager step of A-NHP takes 0.5 to 0.8 of the time from 400 events on, 1.0 to 1.2 up to 72; attention
    alone takes up to twice the time above that size; a captured step 1.0 to 1.25.)
    """
    pairs = len(values) * rows * values.shape[1]
    small = values.shape[1] >= RANGED_FROM and (pairs <= RANGED_PAIRS or len(values) == 1)
    return rows > 0 and small and not _holders and fits_kernels(values, wide, values.shape[2])


def with_null(table: Tensor) -> Tensor:
    """Add a row of zeros in front of a table [B, N, d]: the null key that stands for the 1."""
    return F.pad(table, (0, 0, 1, 0))
