"""Range attention with kernels, one launch forwards and two backwards; asks (a query with one range) are put into tiles once."""

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

ROWS, KEYS = 64, 32  # asks per tile, and keys per iteration
FEWEST, CHUNKS = (
    8,
    8192,
)  # tiles that a program handles for a block of keys, at least; number of programs, at most, roughly
IN_ONE_PART = 128  # largest number of components of keys that are computed in one part
WIDEST, DEEPEST = 160, 64  # largest numbers of components of keys and of values for which tiles fit


@dataclass(frozen=True)
class AskTiles:
    """Asks (a query with one range) in tiles; all tensors are int32."""

    row: Tensor  # [asks]: the query of each ask
    low: Tensor  # [asks]: the range [low, high)
    high: Tensor
    tile_start: Tensor  # [tiles + 1]: the first ask of each tile
    first: Tensor  # [tiles]: the window [first, last)
    last: Tensor
    chunk_block: Tensor  # [chunks]: a block of keys; a chunk has some of the tiles whose windows contain it
    chunk_start: Tensor  # [chunks + 1]: position of each chunk's first tile in `chunk_tile`
    chunk_tile: Tensor
    asks_of: Lists  # the asks of every query
    parts_of: Lists  # for every key, its rows in the outputs of chunks

    def to(self, device: torch.device) -> AskTiles:
        return AskTiles(*(getattr(self, field.name).to(device) for field in fields(self)))


def ask_tiles(
    row: np.ndarray, low: np.ndarray, high: np.ndarray, starts: np.ndarray, ends: np.ndarray, queries: int, keys: int
) -> AskTiles:
    """Make tiles from non-empty ranges, in the order of the tiles; tile `t` has the asks `[starts[t], ends[t])`."""
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
    """Whether the kernels can be used for this dtype and device, with keys of `wide` components and values of `deep`."""
    return like.dtype == torch.float32 and wide <= WIDEST and 0 < deep <= DEEPEST and kernels_run_on(like.device)


def attention_by_kernels(x: Tensor, k: Tensor, v: Tensor, tiles: AskTiles) -> Tensor:
    return _ByKernels.apply(tiles, x, k, v)  # pyright: ignore[reportReturnType]


def _sizes(x: Tensor, v: Tensor) -> dict[str, int]:
    """Return sizes of tiles. Keys are computed in one part if that fits: two parts are slower, even if they need less padding."""
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
