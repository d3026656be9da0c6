"""The kernels of an A-NHP with elapsed time as input: rows of events and queries, and attention whose logits fall with age.

All rows of a batch are in one table: first all events, `[B·N]`, and then all queries, `[B·G·(P + 1)]`, gap by gap. Each of the `G = N + 1`
gaps has `P` queries inside and one at its end. An event sees the events before it, a query the events before its gap. A row of a layer's
input is `[0 …; 1; elapsed; embedding]`, `W` numbers; keys and values are side by side, `[B·N, 2D]`. Each softmax starts from the null key
of the attention (logit 0, value 0): largest logit 0, sum 1. Ages are differences of float64 times.

A program writes only its own rows, so results are deterministic.
"""

# ruff: noqa: ANN001, ANN201 (a kernel's arguments are pointers and numbers of a language of its own)
# pyright: reportMissingImports=false
from __future__ import annotations

import triton
import triton.language as tl

from foretell.nn.fused.kernels import product

_SIZES = ["B", "N", "P", "V", "rows", "tiles_of_queries", "tiles"]


@triton.jit
def log1p(x):
    """Return log(1 + x) for x >= 0, with full precision where x is tiny."""
    rounded = 1.0 + x
    exact = rounded == 1.0
    return tl.where(exact, x, tl.log(rounded) * (x / tl.where(exact, 1.0, rounded - 1.0)))


@triton.jit(do_not_specialize=_SIZES)
def rows_kernel(
    times, types, inside, ends, vectors, scales, turns, rows, now, elapsed, B, N, P, V,
    J: tl.constexpr, M: tl.constexpr, FRONT: tl.constexpr, D: tl.constexpr,
    JP: tl.constexpr, MP: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    """Write layer 0's input rows, each row's time `now`, and the time since the event before it. The queries' vector is the last one."""
    row = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    per_gap = P + 1
    each = (N + 1) * per_gap
    is_event = row < B * N
    there = row < B * (N + each)
    query = tl.maximum(row - B * N, 0)
    sequence = tl.where(is_event, row // tl.maximum(N, 1), query // each)
    place = query % each
    before = tl.where(is_event, row % tl.maximum(N, 1), place // per_gap)  # events before it
    point = place % per_gap
    at_end = there & ~is_event & (point == P)
    within = there & ~is_event & (point < P)
    mine = there & is_event
    time = tl.load(times + sequence * N + before, mask=mine, other=0.0)
    time += tl.load(ends + sequence * (N + 1) + before, mask=at_end, other=0.0)
    time += tl.load(inside + (sequence * (N + 1) + before) * P + point, mask=within, other=0.0)
    since = tl.load(times + sequence * N + before - 1, mask=there & (before > 0), other=0.0)
    passed = tl.maximum(time - since, 0.0)
    tl.store(now + row, time, mask=there)
    tl.store(elapsed + row, passed, mask=there)
    start = rows + row[:, None] * (FRONT + 2 * J + 2 * M + D)
    front = tl.arange(0, 16)[None, :]
    ones = tl.where(front == FRONT - 1, 1.0, 0.0) + 0.0 * point[:, None].to(tl.float32)
    tl.store(start + front, ones, mask=there[:, None] & (front < FRONT))
    if J:
        column = tl.arange(0, JP)
        known = column < J
        scale = tl.load(scales + column, mask=known, other=1.0)
        longest = tl.load(scales + J - 1)
        factor = 1.0 / log1p((longest / scale).to(tl.float32))
        share = (passed[:, None] * (1.0 / scale)[None, :]).to(tl.float32)
        wanted = there[:, None] & known[None, :]
        tl.store(start + FRONT + column[None, :], tl.exp(-share), mask=wanted)
        tl.store(start + FRONT + J + column[None, :], log1p(share) * factor[None, :], mask=wanted)
    if M:
        column = tl.arange(0, MP)
        turn = tl.load(turns + column, mask=column < M, other=0.0)
        angle = passed[:, None] * turn[None, :]
        part = (angle - tl.floor(angle + 0.5)).to(tl.float32) * 6.283185307179586
        wanted = there[:, None] & (column < M)[None, :]
        tl.store(start + FRONT + 2 * J + column[None, :], tl.sin(part), mask=wanted)
        cosine = tl.where(turn[None, :] > 0.0, tl.cos(part), 0.0)
        tl.store(start + FRONT + 2 * J + M + column[None, :], cosine, mask=wanted)
    wide = tl.arange(0, D)
    kind = tl.load(types + sequence * N + before, mask=mine, other=0)
    kind = tl.where(is_event, kind, V - 1)
    vector = tl.load(vectors + kind[:, None] * D + wide[None, :], mask=there[:, None], other=0.0)
    tl.store(start + FRONT + 2 * J + 2 * M + wide[None, :], vector, mask=there[:, None])


@triton.jit
def head_tile(table, first, row, there, STRIDE: tl.constexpr, offset, SIZE: tl.constexpr, WIDE: tl.constexpr):
    """Load a head's columns of some rows after the row `first`: [rows, WIDE], 0 outside."""
    column = tl.arange(0, WIDE)
    place = (first + row)[:, None] * STRIDE + (offset + column)[None, :]
    return tl.load(table + place, mask=there[:, None] & (column < SIZE)[None, :], other=0.0)


@triton.jit
def write_head(table, first, row, there, STRIDE: tl.constexpr, offset, values, SIZE: tl.constexpr, WIDE: tl.constexpr):
    column = tl.arange(0, WIDE)
    place = (first + row)[:, None] * STRIDE + (offset + column)[None, :]
    tl.store(table + place, values, mask=there[:, None] & (column < SIZE)[None, :])


@triton.jit
def tile_rows(tile, tiles_of_queries, sequence, B, N, P, BM: tl.constexpr):
    """Return the first row of a tile's sequence, the tile's rows from there, which of them exist, and how many events each sees.

    Tiles of queries come before tiles of events; within each kind, tiles that see most events come first.
    """
    each = (N + 1) * (P + 1)
    asks = tile < tiles_of_queries
    length = tl.where(asks, each, N)
    tiles = (length + BM - 1) // BM
    number = tiles - 1 - tl.where(asks, tile, tile - tiles_of_queries)
    row = number * BM + tl.arange(0, BM)
    long = sequence.to(tl.int64)
    first = tl.where(asks, B.to(tl.int64) * N + long * each, long * N)
    seen = tl.where(asks, row // (P + 1), row)
    return first, row, row < length, seen


@triton.jit(do_not_specialize=_SIZES)
def attend_kernel(
    q, kv, now, times, log_decay, out, level, unit, scale, B, N, P, rows, tiles_of_queries,
    H: tl.constexpr, D: tl.constexpr, SIZE: tl.constexpr, WIDE: tl.constexpr, DECAY: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Write the output of attention `out` [rows, D], and `level` [H, rows]: the logarithm of `1 + Σ α`."""
    sequence, head = tl.program_id(1), tl.program_id(2)
    first, row, there, seen = tile_rows(tl.program_id(0), tiles_of_queries, sequence, B, N, P, BM)
    events = sequence.to(tl.int64) * N
    queries = head_tile(q, first, row, there, D, head * SIZE, SIZE, WIDE) * scale
    time = tl.load(now + first + row, mask=there, other=0.0)
    rate = tl.exp(tl.load(log_decay + head)) / unit if DECAY else 0.0
    largest = tl.zeros([BM], tl.float32)
    total = tl.zeros([BM], tl.float32) + 1.0
    summed = tl.zeros([BM, WIDE], tl.float32)
    stop = tl.max(tl.where(there, seen, 0), 0)
    for start in range(0, stop, BN):
        key = start + tl.arange(0, BN)
        known = key < stop
        logit = product(queries, tl.trans(head_tile(kv, events, key, known, 2 * D, head * SIZE, SIZE, WIDE)))
        if DECAY:
            then = tl.load(times + events + key, mask=known, other=0.0)
            logit -= rate * (time[:, None] - then[None, :]).to(tl.float32)
        logit = tl.where(key[None, :] < seen[:, None], logit, float("-inf"))
        larger = tl.maximum(largest, tl.max(logit, 1))
        weight = tl.exp(logit - larger[:, None])
        kept = tl.exp(largest - larger)
        total = total * kept + tl.sum(weight, 1)
        found = product(weight, head_tile(kv, events, key, known, 2 * D, D + head * SIZE, SIZE, WIDE))
        summed = summed * kept[:, None] + found
        largest = larger
    write_head(out, first, row, there, D, head * SIZE, summed / total[:, None], SIZE, WIDE)
    tl.store(level + head.to(tl.int64) * rows + first + row, largest + tl.log(total), mask=there)


@triton.jit(do_not_specialize=_SIZES)
def queries_back_kernel(
    q, kv, now, times, log_decay, out, level, grad, grad_q, share, by_rate, unit, scale, B, N, P, rows, tiles_of_queries, tiles,
    H: tl.constexpr, D: tl.constexpr, SIZE: tl.constexpr, WIDE: tl.constexpr, DECAY: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Write `grad_q`, `share` [H, rows], which is subtracted from the gradient of every logit, and `by_rate` [H, B, tiles] for `log_decay`.

    Rows of tiles outside the grid keep their values.
    """
    tile, sequence, head = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    first, row, there, seen = tile_rows(tile, tiles_of_queries, sequence, B, N, P, BM)
    events = sequence.to(tl.int64) * N
    queries = head_tile(q, first, row, there, D, head * SIZE, SIZE, WIDE) * scale
    given = head_tile(grad, first, row, there, D, head * SIZE, SIZE, WIDE)
    off = tl.sum(given * head_tile(out, first, row, there, D, head * SIZE, SIZE, WIDE), 1)
    place = head.to(tl.int64) * rows + first + row
    tl.store(share + place, off, mask=there)
    levels = tl.load(level + place, mask=there, other=0.0)
    time = tl.load(now + first + row, mask=there, other=0.0)
    rate = tl.exp(tl.load(log_decay + head)) / unit if DECAY else 0.0
    found = tl.zeros([BM, WIDE], tl.float32)
    of_rate = tl.zeros([BM], tl.float32)
    stop = tl.max(tl.where(there, seen, 0), 0)
    for start in range(0, stop, BN):
        key = start + tl.arange(0, BN)
        known = key < stop
        keys = head_tile(kv, events, key, known, 2 * D, head * SIZE, SIZE, WIDE)
        visible = there[:, None] & (key[None, :] < seen[:, None])
        logit = product(queries, tl.trans(keys))
        by_weight = product(given, tl.trans(head_tile(kv, events, key, known, 2 * D, D + head * SIZE, SIZE, WIDE)))
        if DECAY:
            then = tl.load(times + events + key, mask=known, other=0.0)
            age = (time[:, None] - then[None, :]).to(tl.float32)
            logit -= rate * age
            weight = tl.where(visible, tl.exp(tl.where(visible, logit, 0.0) - levels[:, None]), 0.0)
            by_logit = weight * (by_weight - off[:, None])
            of_rate -= tl.sum(by_logit * tl.where(visible, age, 0.0), 1)
        else:
            weight = tl.where(visible, tl.exp(tl.where(visible, logit, 0.0) - levels[:, None]), 0.0)
            by_logit = weight * (by_weight - off[:, None])
        found += product(by_logit, keys)
    write_head(grad_q, first, row, there, D, head * SIZE, found * scale, SIZE, WIDE)
    if DECAY:
        tl.store(by_rate + (head * B + sequence) * tiles + tile, rate * tl.sum(of_rate, 0))


@triton.jit
def keys_from_rows(
    q, grad, level, share, now, first, length, at, per_gap, keys, values, key, then, rate, scale, found_k, found_v, head, rows,
    D: tl.constexpr, SIZE: tl.constexpr, WIDE: tl.constexpr, DECAY: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    """Add the contributions of consecutive rows to the gradients of some keys; the first of these keys is `at`."""
    for start in range((at + 1) * per_gap // BM * BM, length, BM):
        row = start + tl.arange(0, BM)
        there = row < length
        seen = row // per_gap
        queries = head_tile(q, first, row, there, D, head * SIZE, SIZE, WIDE)
        given = head_tile(grad, first, row, there, D, head * SIZE, SIZE, WIDE)
        place = head.to(tl.int64) * rows + first + row
        levels = tl.load(level + place, mask=there, other=0.0)
        off = tl.load(share + place, mask=there, other=0.0)
        visible = there[None, :] & (key[:, None] < seen[None, :])
        logit = product(keys, tl.trans(queries)) * scale
        if DECAY:
            time = tl.load(now + first + row, mask=there, other=0.0)
            logit -= rate * (time[None, :] - then[:, None]).to(tl.float32)
        weight = tl.where(visible, tl.exp(tl.where(visible, logit, 0.0) - levels[None, :]), 0.0)
        found_v += product(weight, given)
        by_weight = product(values, tl.trans(given))
        found_k += product(weight * (by_weight - off[None, :]), queries)
    return found_k, found_v


@triton.jit(do_not_specialize=_SIZES)
def keys_back_kernel(
    q, kv, now, times, log_decay, level, grad, share, grad_kv, unit, scale, B, N, P, rows,
    H: tl.constexpr, D: tl.constexpr, SIZE: tl.constexpr, WIDE: tl.constexpr, DECAY: tl.constexpr, EVENTS: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Write gradients of `BN` keys and values from all rows that see them: queries and, in layers where events attend, events."""
    sequence, head = tl.program_id(1), tl.program_id(2)
    events = sequence.to(tl.int64) * N
    at = tl.program_id(0) * BN
    key = at + tl.arange(0, BN)
    known = key < N
    keys = head_tile(kv, events, key, known, 2 * D, head * SIZE, SIZE, WIDE)
    values = head_tile(kv, events, key, known, 2 * D, D + head * SIZE, SIZE, WIDE)
    then = tl.load(times + events + key, mask=known, other=0.0)
    rate = tl.exp(tl.load(log_decay + head)) / unit if DECAY else 0.0
    found_k, found_v = tl.zeros([BN, WIDE], tl.float32), tl.zeros([BN, WIDE], tl.float32)
    each = (N + 1) * (P + 1)
    first = B.to(tl.int64) * N + sequence.to(tl.int64) * each
    found_k, found_v = keys_from_rows(
        q, grad, level, share, now, first, each, at, P + 1, keys, values, key, then, rate, scale, found_k, found_v, head, rows,
        D, SIZE, WIDE, DECAY, BM,
    )  # fmt: skip
    if EVENTS:
        found_k, found_v = keys_from_rows(
            q, grad, level, share, now, events, N, at, 1, keys, values, key, then, rate, scale, found_k, found_v, head, rows,
            D, SIZE, WIDE, DECAY, BM,
        )  # fmt: skip
    write_head(grad_kv, events, key, known, 2 * D, head * SIZE, found_k * scale, SIZE, WIDE)
    write_head(grad_kv, events, key, known, 2 * D, D + head * SIZE, found_v, SIZE, WIDE)
