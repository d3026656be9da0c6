"""The kernels of attention by several heads whose logits fall with age. Imported only if Triton is installed.

Queries are ordered by gap: row `r` of a sequence sees the first `r // per_gap + extra` events. A head has `SIZE` columns of every table,
padded to `WIDE`, a power of two. Row 0 of every table is the null key of the attention (logit 0, value 0), from which each softmax
starts: largest logit 0, sum 1. Ages are differences of float64 times.

A program writes only its own rows, so results are deterministic.
"""

# ruff: noqa: ANN001, ANN201 (a kernel's arguments are pointers and numbers of a language of its own)
# pyright: reportMissingImports=false
from __future__ import annotations

import triton
import triton.language as tl

from foretell.nn.fused.kernels import product


@triton.jit
def head_rows(table, sequence, length, row, there, head, DIM: tl.constexpr, SIZE: tl.constexpr, WIDE: tl.constexpr):
    """Load a head's columns of some rows of a sequence: [rows, WIDE], 0 outside."""
    column = tl.arange(0, WIDE)
    place = (sequence.to(tl.int64) * length + row)[:, None] * DIM + (head * SIZE + column)[None, :]
    return tl.load(table + place, mask=there[:, None] & (column < SIZE)[None, :], other=0.0)


@triton.jit
def write_rows(table, sequence, length, row, there, head, values, DIM: tl.constexpr, SIZE: tl.constexpr, WIDE: tl.constexpr):  # fmt: skip
    column = tl.arange(0, WIDE)
    place = (sequence.to(tl.int64) * length + row)[:, None] * DIM + (head * SIZE + column)[None, :]
    tl.store(table + place, values, mask=there[:, None] & (column < SIZE)[None, :])


@triton.jit
def ages_of(query_time, key_time):
    return (query_time[:, None] - key_time[None, :]).to(tl.float32)


@triton.jit
def forwards(
    x, k, v, query_times, key_times, decay, out, level, rows, table, per_gap, extra, HEADS,
    DIM: tl.constexpr, SIZE: tl.constexpr, WIDE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Write the output of attention `out` [B, rows, DIM], and `level` [B, HEADS, rows]: the logarithm of `1 + Σ α`."""
    sequence, head = tl.program_id(1), tl.program_id(2)
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    there = row < rows
    seen = tl.minimum(row // per_gap + extra, table - 1)
    queries = head_rows(x, sequence, rows, row, there, head, DIM, SIZE, WIDE)
    now = tl.load(query_times + sequence.to(tl.int64) * rows + row, mask=there, other=0.0)
    rate = tl.load(decay + head)
    largest = tl.zeros([BM], tl.float32)
    total = tl.zeros([BM], tl.float32) + 1.0
    summed = tl.zeros([BM, WIDE], tl.float32)
    stop = tl.max(tl.where(there, seen, 0), 0) + 1
    for start in range(1, stop, BN):
        key = start + tl.arange(0, BN)
        known = key < stop
        logit = product(queries, tl.trans(head_rows(k, sequence, table, key, known, head, DIM, SIZE, WIDE)))
        then = tl.load(key_times + sequence.to(tl.int64) * table + key, mask=known, other=0.0)
        logit = tl.where(key[None, :] <= seen[:, None], logit - rate * ages_of(now, then), float("-inf"))
        larger = tl.maximum(largest, tl.max(logit, 1))
        weight = tl.exp(logit - larger[:, None])
        kept = tl.exp(largest - larger)
        total = total * kept + tl.sum(weight, 1)
        found = product(weight, head_rows(v, sequence, table, key, known, head, DIM, SIZE, WIDE))
        summed = summed * kept[:, None] + found
        largest = larger
    write_rows(out, sequence, rows, row, there, head, summed / total[:, None], DIM, SIZE, WIDE)
    tl.store(level + (sequence.to(tl.int64) * HEADS + head) * rows + row, largest + tl.log(total), mask=there)


@triton.jit
def back_to_queries(
    x, k, v, query_times, key_times, decay, out, level, grad, share, grad_x, grad_decay, rows, table, per_gap, extra, HEADS,
    DIM: tl.constexpr, SIZE: tl.constexpr, WIDE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Write `grad_x`, `share` [B, HEADS, rows], which is subtracted from gradients of logits, and `grad_decay` [HEADS, B, tiles]."""
    tile, sequence, head = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    row = tile * BM + tl.arange(0, BM)
    there = row < rows
    seen = tl.minimum(row // per_gap + extra, table - 1)
    queries = head_rows(x, sequence, rows, row, there, head, DIM, SIZE, WIDE)
    given = head_rows(grad, sequence, rows, row, there, head, DIM, SIZE, WIDE)
    off = tl.sum(given * head_rows(out, sequence, rows, row, there, head, DIM, SIZE, WIDE), 1)
    place = (sequence.to(tl.int64) * HEADS + head) * rows + row
    tl.store(share + place, off, mask=there)
    levels = tl.load(level + place, mask=there, other=0.0)
    now = tl.load(query_times + sequence.to(tl.int64) * rows + row, mask=there, other=0.0)
    rate = tl.load(decay + head)
    found = tl.zeros([BM, WIDE], tl.float32)
    by_rate = tl.zeros([BM], tl.float32)
    stop = tl.max(tl.where(there, seen, 0), 0) + 1
    for start in range(1, stop, BN):
        key = start + tl.arange(0, BN)
        known = key < stop
        keys = head_rows(k, sequence, table, key, known, head, DIM, SIZE, WIDE)
        then = tl.load(key_times + sequence.to(tl.int64) * table + key, mask=known, other=0.0)
        age = ages_of(now, then)
        visible = there[:, None] & (key[None, :] <= seen[:, None])
        logit = product(queries, tl.trans(keys)) - rate * age
        weight = tl.where(visible, tl.exp(tl.where(visible, logit, 0.0) - levels[:, None]), 0.0)
        by_weight = product(given, tl.trans(head_rows(v, sequence, table, key, known, head, DIM, SIZE, WIDE)))
        by_logit = weight * (by_weight - off[:, None])
        found += product(by_logit, keys)
        by_rate -= tl.sum(by_logit * tl.where(visible, age, 0.0), 1)
    write_rows(grad_x, sequence, rows, row, there, head, found, DIM, SIZE, WIDE)
    tiles, sequences = tl.num_programs(0), tl.num_programs(1)
    tl.store(grad_decay + (head * sequences + sequence) * tiles + tile, tl.sum(by_rate, 0))


@triton.jit
def back_to_keys(
    x, k, v, query_times, key_times, decay, level, grad, share, grad_k, grad_v, rows, table, per_gap, extra, HEADS,
    DIM: tl.constexpr, SIZE: tl.constexpr, WIDE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Write the gradients of `BN` keys and values from all rows that see them; the gradient of the null key is 0."""
    sequence, head = tl.program_id(1), tl.program_id(2)
    first = tl.program_id(0) * BN
    key = first + tl.arange(0, BN)
    known = key < table
    keys = head_rows(k, sequence, table, key, known, head, DIM, SIZE, WIDE)
    values = head_rows(v, sequence, table, key, known, head, DIM, SIZE, WIDE)
    then = tl.load(key_times + sequence.to(tl.int64) * table + key, mask=known, other=0.0)
    rate = tl.load(decay + head)
    found_k, found_v = tl.zeros([BN, WIDE], tl.float32), tl.zeros([BN, WIDE], tl.float32)
    begin = tl.maximum(tl.maximum(first, 1) - extra, 0) * per_gap // BM * BM
    for start in range(begin, rows, BM):
        row = start + tl.arange(0, BM)
        there = row < rows
        seen = tl.minimum(row // per_gap + extra, table - 1)
        queries = head_rows(x, sequence, rows, row, there, head, DIM, SIZE, WIDE)
        given = head_rows(grad, sequence, rows, row, there, head, DIM, SIZE, WIDE)
        place = (sequence.to(tl.int64) * HEADS + head) * rows + row
        levels = tl.load(level + place, mask=there, other=0.0)
        off = tl.load(share + place, mask=there, other=0.0)
        now = tl.load(query_times + sequence.to(tl.int64) * rows + row, mask=there, other=0.0)
        visible = (there & (seen >= 1))[None, :] & (key[:, None] <= seen[None, :]) & (key >= 1)[:, None]
        logit = product(keys, tl.trans(queries)) - rate * (now[None, :] - then[:, None]).to(tl.float32)
        weight = tl.where(visible, tl.exp(tl.where(visible, logit, 0.0) - levels[None, :]), 0.0)
        found_v += product(weight, given)
        by_weight = product(values, tl.trans(given))
        found_k += product(weight * (by_weight - off[None, :]), queries)
    write_rows(grad_k, sequence, table, key, known, head, found_k, DIM, SIZE, WIDE)
    write_rows(grad_v, sequence, table, key, known, head, found_v, DIM, SIZE, WIDE)
