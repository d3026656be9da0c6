"""Range attention by kernels: tiles of asks, made once from the ranges, and three launches for the way there and back."""

from __future__ import annotations

from dataclasses import dataclass, fields
from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from foretell.nn.fused.available import kernels_run_on
from foretell.nn.fused.loss import SMALLEST, power_of_two
from foretell.nn.sparse_sum import LONGEST, Lists, int32, lists_of, summed

ROWS, KEYS = 64, 32  # asks of a tile, and keys that it meets at a time
FEWEST, CHUNKS = (
    8,
    8192,
)  # tiles that a program goes through for a block of keys, and about how many programs there are at most
IN_ONE_PART = 128  # components of keys
WIDEST, DEEPEST = 160, 64  # components of keys and of values up to which tiles fit


@dataclass(frozen=True)
class AskTiles:
    """Queries in tiles; all int32."""

    row: Tensor  # [asks]: of the queries
    low: Tensor  # [asks]
    high: Tensor
    tile_start: Tensor  # [tiles + 1]: first ask
    first: Tensor  # [tiles]: the window
    last: Tensor
    chunk_block: Tensor  # [chunks]: a block of keys, and some of the tiles whose windows meet it
    chunk_start: Tensor  # [chunks + 1]: the first of them
    chunk_tile: Tensor
    asks_of: Lists  # of every query
    parts_of: Lists  # of every key: rows of what chunks find

    def to(self, device: torch.device) -> AskTiles:
        return AskTiles(*(getattr(self, field.name).to(device) for field in fields(self)))


def ask_tiles(
    row: np.ndarray, low: np.ndarray, high: np.ndarray, starts: np.ndarray, ends: np.ndarray, queries: int, keys: int
) -> AskTiles:
    """Asks that see something, in the order of their tiles; tile `t` has the asks `[starts[t], ends[t])`."""
    first, last = np.minimum.reduceat(low, starts), np.maximum.reduceat(high, starts)
    blocks = -(-keys // KEYS)
    counts = (last - 1) // KEYS - first // KEYS + 1
    tile = np.repeat(np.arange(len(starts)), counts)
    block = np.arange(len(tile)) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(first // KEYS, counts)
    order = np.argsort(block, kind="stable")
    tile, block = tile[order], block[order]
    per_block = np.bincount(block, minlength=blocks)
    most = max(FEWEST, -(-len(tile) // CHUNKS))
    chunks = -(-per_block // most)
    chunk_block = np.repeat(np.arange(blocks), chunks)
    within = np.arange(len(chunk_block)) - np.repeat(np.cumsum(chunks) - chunks, chunks)
    chunk_start = np.repeat(np.cumsum(per_block) - per_block, chunks) + within * most
    key = (chunk_block[:, None] * KEYS + np.arange(KEYS)[None]).ravel()
    known = np.flatnonzero(key < keys)
    return AskTiles(
        int32(row),
        int32(low),
        int32(high),
        int32(np.concatenate([starts, ends[-1:]])),
        int32(first),
        int32(last),
        int32(chunk_block),
        int32(np.concatenate([chunk_start, [len(tile)]])),
        int32(tile),
        lists_of(row, np.arange(len(row)), queries),
        lists_of(key[known], known, keys, LONGEST),
    )


def runs_by_kernels(x: Tensor, k: Tensor, v: Tensor) -> bool:
    return fits_kernels(x, x.shape[1], v.shape[1])


def fits_kernels(like: Tensor, wide: int, deep: int) -> bool:
    """Whether tables of this dtype and device, with keys of `wide` components and values of `deep`, are a matter for kernels."""
    return like.dtype == torch.float32 and wide <= WIDEST and 0 < deep <= DEEPEST and kernels_run_on(like.device)


def attention_by_kernels(x: Tensor, k: Tensor, v: Tensor, tiles: AskTiles) -> Tensor:
    return _ByKernels.apply(tiles, x, k, v)  # pyright: ignore[reportReturnType]


def _sizes(x: Tensor, v: Tensor) -> dict[str, int]:
    """Keys are computed in one part where that fits: two are slower, though 72 components would be 64 and 16 instead of 128."""
    whole = power_of_two(x.shape[1])
    two = whole > IN_ONE_PART
    most = whole // 2 if two else whole
    parts = {"WA": most, "WB": power_of_two(x.shape[1] - most) if two else SMALLEST, "TWO": two}
    return {**parts, "DD": power_of_two(v.shape[1]), "BM": ROWS, "BN": KEYS, "num_warps": 4}


class _ByKernels(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tiles: AskTiles, x: Tensor, k: Tensor, v: Tensor) -> Tensor:
        kernels: Any = import_module("foretell.nn.fused.range_kernels")
        x, k, v = x.contiguous(), k.contiguous(), v.contiguous()
        wide, deep = x.shape[1], v.shape[1]
        out, level = v.new_empty(len(tiles.row), deep), v.new_empty(len(tiles.row))
        asks = (tiles.row, tiles.low, tiles.high, tiles.tile_start)
        kernels.forwards[(len(tiles.first),)](
            x, k, v, *asks, tiles.first, tiles.last, out, level, wide, deep, **_sizes(x, v), num_stages=2
        )
        ctx.tiles = tiles
        ctx.save_for_backward(x, k, v, out, level)
        return summed(out, tiles.asks_of)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        kernels: Any = import_module("foretell.nn.fused.range_kernels")
        tiles: AskTiles = ctx.tiles
        x, k, v, out, level = ctx.saved_tensors
        grad = grads[0].contiguous()
        wide, deep = x.shape[1], v.shape[1]
        asks = (tiles.row, tiles.low, tiles.high, tiles.tile_start)
        share, by_ask = torch.empty_like(level), x.new_empty(len(tiles.row), wide)
        kernels.back_to_queries[(len(tiles.first),)](
            x,
            k,
            v,
            *asks,
            tiles.first,
            tiles.last,
            out,
            level,
            grad,
            share,
            by_ask,
            wide,
            deep,
            **_sizes(x, v),
            num_stages=1,
        )
        chunks = len(tiles.chunk_block)
        of_k, of_v = k.new_empty(chunks * KEYS, wide), v.new_empty(chunks * KEYS, deep)
        kernels.back_to_keys[(chunks,)](
            x, k, v, *asks, level, grad, share, tiles.chunk_block, tiles.chunk_start, tiles.chunk_tile, of_k, of_v,
            len(k), wide, deep, **_sizes(x, v), num_stages=1,
        )  # fmt: skip
        grad_k, grad_v = summed(of_k, tiles.parts_of), summed(of_v, tiles.parts_of)
        return None, summed(by_ask, tiles.asks_of), grad_k, grad_v
