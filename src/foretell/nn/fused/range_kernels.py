"""The kernels of range attention. Imported only if Triton is installed.

An "ask" is a row of `x` with a range `[low, high)` of keys. A tile has up to `BM` asks, whose ranges lie in one window `[first, last)`.
The `W` components of a key are padded to `WA`, or computed in two parts (`TWO`), `WA` and `WB`; the `D` components of a value are padded to
`DD`; all are powers of two. Each softmax starts from the null key (logit 0, value 0): largest logit 0, sum 1.

A program writes only its own rows, so results are deterministic.
"""

# ruff: noqa: ANN001, ANN201 (a kernel's arguments are pointers and numbers of a language of its own)
# pyright: reportMissingImports=false
from __future__ import annotations

import triton
import triton.language as tl

from foretell.nn.fused.kernels import product


@triton.jit
def rows_of(table, row, there, wide, FIRST: tl.constexpr, SIZE: tl.constexpr):
    """Load some rows of a table with `wide` columns, from column `FIRST` on: [rows, SIZE], 0 outside."""
    column = FIRST + tl.arange(0, SIZE)
    place = row.to(tl.int64)[:, None] * wide + column[None, :]
    return tl.load(table + place, mask=there[:, None] & (column < wide)[None, :], other=0.0)


@triton.jit
def write(table, row, there, wide, FIRST: tl.constexpr, SIZE: tl.constexpr, values):
    column = FIRST + tl.arange(0, SIZE)
    place = row.to(tl.int64)[:, None] * wide + column[None, :]
    tl.store(table + place, values, mask=there[:, None] & (column < wide)[None, :])


@triton.jit
def asks_of(tile, row, low, high, tile_start, BM: tl.constexpr):
    ask = tl.load(tile_start + tile) + tl.arange(0, BM)
    there = ask < tl.load(tile_start + tile + 1)
    return (
        ask,
        there,
        tl.load(row + ask, mask=there, other=0),
        tl.load(low + ask, mask=there, other=0),
        tl.load(high + ask, mask=there, other=0),
    )


@triton.jit
def forwards(
    x, k, v, row, low, high, tile_start, first, last, out, level, W, D,
    WA: tl.constexpr, WB: tl.constexpr, TWO: tl.constexpr, DD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Write the output of attention `out` [asks, D], and `level` [asks]: the logarithm of `1 + Σ α`."""
    tile = tl.program_id(0)
    ask, there, own, a, b = asks_of(tile, row, low, high, tile_start, BM)
    xa, xb = rows_of(x, own, there, W, 0, WA), rows_of(x, own, there, W, WA, WB)
    largest = tl.zeros([BM], tl.float32)
    total = tl.zeros([BM], tl.float32) + 1.0
    summed = tl.zeros([BM, DD], tl.float32)
    stop = tl.load(last + tile)
    for start in range(tl.load(first + tile), stop, BN):
        key = start + tl.arange(0, BN)
        known = key < stop
        logit = product(xa, tl.trans(rows_of(k, key, known, W, 0, WA)))
        if TWO:
            logit += product(xb, tl.trans(rows_of(k, key, known, W, WA, WB)))
        logit = tl.where((key[None, :] >= a[:, None]) & (key[None, :] < b[:, None]), logit, float("-inf"))
        larger = tl.maximum(largest, tl.max(logit, 1))
        weight = tl.exp(logit - larger[:, None])
        kept = tl.exp(largest - larger)
        total = total * kept + tl.sum(weight, 1)
        summed = summed * kept[:, None] + product(weight, rows_of(v, key, known, D, 0, DD))
        largest = larger
    write(out, ask, there, D, 0, DD, summed / total[:, None])
    tl.store(level + ask, largest + tl.log(total), mask=there)


@triton.jit
def back_to_queries(
    x, k, v, row, low, high, tile_start, first, last, out, level, grad, share, grad_x, W, D,
    WA: tl.constexpr, WB: tl.constexpr, TWO: tl.constexpr, DD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Write `grad_x` [asks, W], and `share` [asks], which is subtracted from the gradient of every logit."""
    tile = tl.program_id(0)
    ask, there, own, a, b = asks_of(tile, row, low, high, tile_start, BM)
    xa, xb = rows_of(x, own, there, W, 0, WA), rows_of(x, own, there, W, WA, WB)
    given = rows_of(grad, own, there, D, 0, DD)
    off = tl.sum(given * rows_of(out, ask, there, D, 0, DD), 1)
    tl.store(share + ask, off, mask=there)
    levels = tl.load(level + ask, mask=there, other=0.0)
    found_a, found_b = tl.zeros([BM, WA], tl.float32), tl.zeros([BM, WB], tl.float32)
    stop = tl.load(last + tile)
    for start in range(tl.load(first + tile), stop, BN):
        key = start + tl.arange(0, BN)
        known = key < stop
        ka, kb = rows_of(k, key, known, W, 0, WA), rows_of(k, key, known, W, WA, WB)
        logit = product(xa, tl.trans(ka))
        if TWO:
            logit += product(xb, tl.trans(kb))
        seen = (key[None, :] >= a[:, None]) & (key[None, :] < b[:, None])
        weight = tl.where(seen, tl.exp(logit - levels[:, None]), 0.0)
        by_weight = product(given, tl.trans(rows_of(v, key, known, D, 0, DD)))
        by_logit = weight * (by_weight - off[:, None])
        found_a += product(by_logit, ka)
        if TWO:
            found_b += product(by_logit, kb)
    write(grad_x, ask, there, W, 0, WA, found_a)
    if TWO:
        write(grad_x, ask, there, W, WA, WB, found_b)


@triton.jit
def back_to_keys(
    x, k, v, row, low, high, tile_start, level, grad, share, chunk_block, chunk_start, chunk_tile, grad_k, grad_v, keys, W, D,
    WA: tl.constexpr, WB: tl.constexpr, TWO: tl.constexpr, DD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Write the gradients of `BN` keys from some of the tiles whose windows contain them."""
    chunk = tl.program_id(0)
    key = tl.load(chunk_block + chunk) * BN + tl.arange(0, BN)
    known = key < keys
    ka, kb = rows_of(k, key, known, W, 0, WA), rows_of(k, key, known, W, WA, WB)
    vs = rows_of(v, key, known, D, 0, DD)
    found_a, found_b = tl.zeros([BN, WA], tl.float32), tl.zeros([BN, WB], tl.float32)
    found_v = tl.zeros([BN, DD], tl.float32)
    for place in range(tl.load(chunk_start + chunk), tl.load(chunk_start + chunk + 1)):
        ask, there, own, a, b = asks_of(tl.load(chunk_tile + place), row, low, high, tile_start, BM)
        xa, xb = rows_of(x, own, there, W, 0, WA), rows_of(x, own, there, W, WA, WB)
        given = rows_of(grad, own, there, D, 0, DD)
        levels = tl.load(level + ask, mask=there, other=0.0)
        off = tl.load(share + ask, mask=there, other=0.0)
        logit = product(ka, tl.trans(xa))
        if TWO:
            logit += product(kb, tl.trans(xb))
        seen = (key[:, None] >= a[None, :]) & (key[:, None] < b[None, :])
        weight = tl.where(seen, tl.exp(logit - levels[None, :]), 0.0)
        found_v += product(weight, given)
        by_weight = product(vs, tl.trans(given))
        by_logit = weight * (by_weight - off[None, :])
        found_a += product(by_logit, xa)
        if TWO:
            found_b += product(by_logit, xb)
    at = chunk * BN + tl.arange(0, BN)
    write(grad_k, at, known, W, 0, WA, found_a)
    if TWO:
        write(grad_k, at, known, W, WA, WB, found_b)
    write(grad_v, at, known, D, 0, DD, found_v)
