"""The kernels of the plain A-NHP's loss. Imported only if Triton is installed.

Names: `R` keys of a sequence (its events, after a `bos` if there is one), `T` time features, padded to a power of two `TD`, `D` the
dimension, `H` heads, `L` layers. A row of a layer's table has these columns for each head: factors that multiply a query's time features
(`TD`), factors that multiply its embedding (`D`), 8 columns for constants, and the value (`D`). Of the 8, the first is the constant term
of logits if an event attends, the second if a query attends; the others are zero.
Each softmax starts from the null key of the attention (logit 0, value 0): largest logit 0, sum 1.

A program adds only to its own rows of a buffer, and in a fixed order, so results are deterministic.
"""

# ruff: noqa: ANN001, ANN201 (a kernel's arguments are pointers and numbers of a language of its own)
# pyright: reportMissingImports=false
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def time_features(times, waves, quarters, T, TD: tl.constexpr):
    """Return the sines of phases, computed in float64 and reduced to half a turn: [rows, TD], 0 from component T on."""
    component = tl.arange(0, TD)
    wave = tl.load(waves + component, mask=component < T, other=0.0)
    quarter = tl.load(quarters + component, mask=component < T, other=0.0)
    turns = times[:, None] * wave[None, :] + quarter[None, :]
    half = (turns - tl.floor(turns + 0.5)).to(tl.float32) * 2.0  # in half turns, from -1 to 1
    whole = tl.floor(half + 0.5)
    x = (half - whole) * 3.14159265358979
    y = x * x
    series = -2.50521083854e-8 + y * 1.60590438368e-10
    series = 2.75573192240e-6 + y * series
    series = -1.98412698413e-4 + y * series
    series = 8.33333333333e-3 + y * series
    series = -1.66666666667e-1 + y * series
    return (x + x * y * series) * (1.0 - 2.0 * tl.abs(whole))


@triton.jit
def tanh(x):
    size = tl.abs(x)
    decayed = tl.exp(-2.0 * size)
    large = (1.0 - decayed) / (1.0 + decayed)
    y = x * x
    series = 2.18694885362e-2 - y * 8.86323552990e-3
    series = -5.39682539683e-2 + y * series
    series = 1.33333333333e-1 + y * series
    series = -3.33333333333e-1 + y * series
    return tl.where(size < 0.25, x + x * y * series, tl.where(x < 0.0, -large, large))


@triton.jit
def log_one_plus(e):
    """Return log(1 + e) for 0 <= e <= 1, with full precision where e is tiny."""
    rounded = 1.0 + e
    exact = rounded == 1.0
    return tl.where(exact, e, tl.log(rounded) * (e / tl.where(exact, 1.0, rounded - 1.0)))


@triton.jit
def high(x):
    """Round to the eleven binary digits that the matrix units accept."""
    return ((x.to(tl.int32, bitcast=True) + 0x1000) & -0x2000).to(tl.float32, bitcast=True)


@triton.jit
def product(a, b):
    """Return `a @ b` with float32 precision, by three products of high and low parts with eleven digits each; low times low is left out."""
    high_a, high_b = high(a), high(b)
    small = tl.dot(a - high_a, high_b, input_precision="tf32")
    small = tl.dot(high_a, b - high_b, small, input_precision="tf32")
    return tl.dot(high_a, high_b, small, input_precision="tf32")


@triton.jit
def logits(
    features, feature_stride, embedding, embedding_stride, rows, T, seen, columns, table, level, R,
    STRIDE: tl.constexpr, TD: tl.constexpr, D: tl.constexpr, BM: tl.constexpr,
    EMBEDDED: tl.constexpr,
):  # fmt: skip
    """Return the logits of a tile's rows with the keys `columns`; -inf where a row does not see the key."""
    there = columns < R
    key = table + columns * STRIDE
    component, wide = tl.arange(0, TD), tl.arange(0, D)
    of_rows = tile(features, feature_stride, rows, T, BM, TD)
    of_keys = tl.load(key[None, :] + component[:, None], mask=there[None, :], other=0.0)
    found = product(of_rows, of_keys)
    if EMBEDDED:
        of_rows = tile(embedding, embedding_stride, rows, D, BM, D)
        of_keys = tl.load(key[None, :] + (TD + wide)[:, None], mask=there[None, :], other=0.0)
        found += product(of_rows, of_keys)
    found += tl.load(key + level, mask=there, other=0.0)[None, :]
    return tl.where(columns[None, :] < seen[:, None], found, float("-inf"))


@triton.jit
def tile(start, stride, rows, columns, BM: tl.constexpr, WIDE: tl.constexpr):
    """Load the first `rows` rows and `columns` columns from `start` on: [BM, WIDE], 0 outside.

    Tiles are loaded again at each use: they are in a cache, while registers are scarce.
    """
    row, column = tl.arange(0, BM)[:, None], tl.arange(0, WIDE)[None, :]
    return tl.load(start + row * stride + column, mask=(row < rows) & (column < columns), other=0.0)


@triton.jit
def attend(
    features, feature_stride, embedding, embedding_stride, rows, T, seen, most, table, level, R,
    STRIDE: tl.constexpr, TD: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    EMBEDDED: tl.constexpr,
):  # fmt: skip
    """Compute one head: the weighted sum of values that each row sees [BM, D], and the log of its denominator [BM]."""
    largest = tl.zeros([BM], tl.float32)
    total = tl.full([BM], 1.0, tl.float32)
    gathered = tl.zeros([BM, D], tl.float32)
    for start in range(0, most, BN):
        columns = start + tl.arange(0, BN)
        found = logits(
            features, feature_stride, embedding, embedding_stride, rows, T, seen, columns, table, level, R,
            STRIDE, TD, D, BM, EMBEDDED,
        )  # fmt: skip
        higher = tl.maximum(largest, tl.max(found, 1))
        shrink = tl.exp(largest - higher)
        weight = tl.exp(found - higher[:, None])
        values = tile(table + start * STRIDE + (TD + D + 8), STRIDE, R - start, D, BN, D)
        total = total * shrink + tl.sum(weight, 1)
        gathered = gathered * shrink[:, None] + product(weight, values)
        largest = higher
    return gathered / total[:, None], largest + tl.log(total)


@triton.jit
def attend_back(
    features, feature_stride, embedding, embedding_stride, grad, rows, T, seen, most, shared, denominator,
    back_embedding, table, back_table, level, R,
    STRIDE: tl.constexpr, TD: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    EMBEDDED: tl.constexpr,
):  # fmt: skip
    """Add the gradient of a head's output to that of the table, in place, and to that of the rows' embedding, which is returned.

    `grad` is a tile [BM, D] in memory, and `shared` its product with the output, summed over columns. The same thread always adds to the
    same number of the table, so that the order of additions is fixed.
    """
    wide = tl.arange(0, D)
    for start in range(0, most, BN):
        columns = start + tl.arange(0, BN)
        there = columns < R
        found = logits(
            features, feature_stride, embedding, embedding_stride, rows, T, seen, columns, table, level, R,
            STRIDE, TD, D, BM, EMBEDDED,
        )  # fmt: skip
        weight = tl.exp(found - denominator[:, None])
        back_rows = back_table + columns[:, None] * STRIDE
        of_grad = tile(grad, D, BM, D, BM, D)
        place = back_rows + (TD + D + 8 + wide)[None, :]
        part = product(tl.trans(weight), of_grad)
        tl.atomic_add(place, part, mask=there[:, None], sem="relaxed")
        values = tl.load(
            table + columns[None, :] * STRIDE + (TD + D + 8 + wide)[:, None], mask=there[None, :], other=0.0
        )
        back = weight * (product(of_grad, values) - shared[:, None])
        tl.atomic_add(back_table + columns * STRIDE + level, tl.sum(back, 0), mask=there, sem="relaxed")
        turned = tl.trans(back)
        part = product(turned, tile(features, feature_stride, rows, T, BM, TD))
        tl.atomic_add(back_rows + tl.arange(0, TD)[None, :], part, mask=there[:, None], sem="relaxed")
        if EMBEDDED:
            of_keys = tile(table + start * STRIDE + TD, STRIDE, R - start, D, BN, D)
            back_embedding += product(back, of_keys)
            part = product(turned, tile(embedding, embedding_stride, rows, D, BM, D))
            tl.atomic_add(back_rows + (TD + wide)[None, :], part, mask=there[:, None], sem="relaxed")
    return back_embedding


_SIZES = ["layer", "B", "R", "N", "V", "T", "G", "P", "K", "S", "tiles", "extra", "front"]


@triton.jit
def write_front(to, valid):
    """Write the constant 1 of a row, after three zeros."""
    column = tl.arange(0, 4)[None, :]
    tl.store(to[:, None] + column, tl.where(column == 3, 1.0, 0.0) + 0.0 * valid[:, None], mask=valid[:, None])


@triton.jit(do_not_specialize=_SIZES)
def rows_kernel(
    times, types, vectors, waves, quarters, rows, B, R, N, V, T, extra, front,
    D: tl.constexpr, TD: tl.constexpr, BM: tl.constexpr, FRONT: tl.constexpr,
):  # fmt: skip
    """Write the events as rows `[0; 0; 0; 1; time; embedding]`, after `front` columns with the type: 1 in its column, else 0.

    If there is a `bos`, it comes first, with the last of the vectors.
    """
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    valid = row < B * R
    batch, event = row // R, row % R - extra
    known = valid & (event >= 0)
    place = batch.to(tl.int64) * N + event
    time = tl.load(times + place, mask=known, other=0.0)
    kind = tl.load(types + place, mask=known, other=0)
    kind = tl.where(event < 0, V - 1, kind)
    to = rows + row.to(tl.int64) * (front + 4 + T + D)
    component, wide = tl.arange(0, TD), tl.arange(0, D)
    features = time_features(time, waves, quarters, T, TD)
    if FRONT:
        column = tl.arange(0, FRONT)[None, :]
        tl.store(
            to[:, None] + column, tl.where(column == kind[:, None], 1.0, 0.0), mask=valid[:, None] & (column < front)
        )
        to += front
    write_front(to, valid)
    tl.store(to[:, None] + 4 + component[None, :], features, mask=valid[:, None] & (component[None, :] < T))
    vector = tl.load(vectors + kind[:, None] * D + wide[None, :], mask=valid[:, None], other=0.0)
    tl.store(to[:, None] + (4 + T) + wide[None, :], vector, mask=valid[:, None])


@triton.jit(do_not_specialize=_SIZES)
def history_kernel(
    rows, next_rows, table, gathered, denominators, B, R, T, front,
    H: tl.constexpr, D: tl.constexpr, TD: tl.constexpr, STRIDE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Let the events of a sequence attend to those before them; write the next layer's rows, and outputs for the backward pass."""
    batch = tl.program_id(0).to(tl.int64)
    first = tl.program_id(1) * BM
    event = first + tl.arange(0, BM)
    valid = event < R
    most = tl.minimum(R, first + BM - 1)
    component, wide = tl.arange(0, TD), tl.arange(0, D)
    width = front + 4 + T + D
    at = rows + (batch * R + first) * width + front
    summed = tl.zeros([BM, D], tl.float32)
    for head in range(H):
        part = table + batch * R * STRIDE + head * (STRIDE // H)
        found, denominator = attend(
            at + 4, width, at + 4 + T, width, R - first, T, event, most, part, TD + D, R,
            STRIDE, TD, D, BM, BN, True,
        )  # fmt: skip
        summed += found
        place = (batch * H + head) * R + event
        tl.store(gathered + place[:, None] * D + wide[None, :], found, mask=valid[:, None])
        tl.store(denominators + place, denominator, mask=valid)
    row = next_rows + (batch * R + event) * (4 + T + D)
    to = row[:, None]
    write_front(row, valid)
    features = tile(at + 4, width, R - first, T, BM, TD)
    tl.store(to + 4 + component[None, :], features, mask=valid[:, None] & (component[None, :] < T))
    embedding = tile(at + 4 + T, width, R - first, D, BM, D)
    tl.store(to + (4 + T) + wide[None, :], embedding + tanh(summed), mask=valid[:, None])


@triton.jit(do_not_specialize=_SIZES)
def history_back_kernel(
    rows, table, gathered, denominators, grad, back, back_table, kept, B, R, T, S, tiles, front,
    H: tl.constexpr, D: tl.constexpr, TD: tl.constexpr, STRIDE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Compute the gradient of this layer's embeddings from that of the next layer's, and add that of its table in place."""
    batch = tl.program_id(0).to(tl.int64)
    share = tl.program_id(1)
    wide = tl.arange(0, D)
    width = front + 4 + T + D
    own = kept + (batch * S + share) * (BM * D)
    for number in range(share, tiles, S):
        first = number * BM
        event = first + tl.arange(0, BM)
        valid = event < R
        most = tl.minimum(R, first + BM - 1)
        at = rows + (batch * R + first) * width + front
        summed = tl.zeros([BM, D], tl.float32)
        for head in range(H):
            summed += tile(gathered + ((batch * H + head) * R + first) * D, D, R - first, D, BM, D)
        step = tanh(summed)
        above = tile(grad + (batch * R + first) * D, D, R - first, D, BM, D)
        inner = above * (1.0 - step * step)
        tl.store(own + tl.arange(0, BM)[:, None] * D + wide[None, :], inner)
        tl.debug_barrier()
        below = above
        for head in range(H):
            place = (batch * H + head) * R + first
            shared = tl.sum(inner * tile(gathered + place * D, D, R - first, D, BM, D), 1)
            # Rows that do not exist have weight 0.
            denominator = tl.load(denominators + place + tl.arange(0, BM), mask=valid, other=float("inf"))
            part = batch * R * STRIDE + head * (STRIDE // H)
            below = attend_back(
                at + 4, width, at + 4 + T, width, own, R - first, T, event, most, shared, denominator,
                below, table + part, back_table + share * B.to(tl.int64) * R * STRIDE + part, TD + D, R,
                STRIDE, TD, D, BM, BN, True,
            )  # fmt: skip
        tl.store(back + (batch * R + event)[:, None] * D + wide[None, :], below, mask=valid[:, None])
        tl.debug_barrier()


@triton.jit(do_not_specialize=_SIZES)
def queries_kernel(
    table, inside, weights, ends, types, counted, waves, quarters, w, constant, log_tau,
    features, gathered, denominators, back, back_w, back_levels, losses, kept,
    log_unit, rate, B, R, N, G, P, K, T, S, tiles, extra,
    L: tl.constexpr, H: tl.constexpr, D: tl.constexpr, TD: tl.constexpr, STRIDE: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    BACK: tl.constexpr, PSEUDO: tl.constexpr,
):  # fmt: skip
    """Compute tiles of queries, `P` inside each of `G` gaps and one at its end: all layers, the loss, and the top embedding's gradient.

    Per query, the kernel stores its time features, the output of each head, the denominators, and the gradient of its top embedding. The
    embeddings above each layer, minus the base vector, are in `kept` while the tile is computed.
    """
    batch = tl.program_id(0).to(tl.int64)
    share = tl.program_id(1)
    program = batch * S + share
    wide = tl.arange(0, D)
    lane = tl.arange(0, BM)
    place_in_tile = lane[:, None] * D + wide[None, :]
    embedded = kept + program * (L * BM * D)
    per_gap = P + 1
    whole = B.to(tl.int64) * R * STRIDE  # elements of a layer's table
    queries = B.to(tl.int64) * tiles * BM
    objective = tl.zeros([BM], tl.float64)
    likelihood = tl.zeros([BM], tl.float64)
    for order in range(share, tiles, S):
        first = (tiles - 1 - order) * BM  # the longest tiles go first
        at = batch * tiles * BM + first
        query = first + lane
        valid = query < G * per_gap
        gap, point = query // per_gap, query % per_gap
        at_end = valid & (point == P)
        within = valid & (point < P)
        seen = gap + extra
        most = tl.minimum(R, tl.minimum(first + BM - 1, G * per_gap - 1) // per_gap + extra)
        place = batch * G * P + gap * P + point
        time = tl.load(inside + place, mask=within, other=0.0)
        time = tl.where(at_end, tl.load(ends + batch * G + gap, mask=at_end, other=0.0), time)
        of_time = features + at * TD
        tl.store(of_time + lane[:, None] * TD + tl.arange(0, TD)[None, :], time_features(time, waves, quarters, T, TD))
        tl.debug_barrier()

        for layer in tl.static_range(L):
            summed = tl.zeros([BM, D], tl.float32)
            for head in range(H):
                found, denominator = attend(
                    of_time, TD, embedded + (layer - 1) * BM * D, D, BM, TD, seen, most,
                    table + layer * whole + batch * R * STRIDE + head * (STRIDE // H), TD + D + 1, R,
                    STRIDE, TD, D, BM, BN, layer > 0,
                )  # fmt: skip
                summed += found
                if BACK:
                    row = (layer * H + head) * queries + at
                    tl.store(gathered + row * D + place_in_tile, found)
                    tl.store(denominators + row + lane, denominator)
            moved = tanh(summed)
            if layer > 0:
                moved += tile(embedded + (layer - 1) * BM * D, D, BM, D, BM, D)
            tl.store(embedded + layer * BM * D + place_in_tile, moved)
            tl.debug_barrier()

        weight = tl.load(weights + place, mask=within, other=0.0).to(tl.float32)
        ended = at_end & (gap < N)
        kind = tl.load(types + batch * N + gap, mask=ended, other=0).to(tl.int32)
        counts = tl.load(counted + batch * N + gap, mask=ended, other=0).to(tl.float32)
        back_moved = tl.zeros([BM, D], tl.float32)
        for start in range(0, K, BK):
            of_type = start + tl.arange(0, BK)
            known = of_type < K
            moved = tile(embedded + (L - 1) * BM * D, D, BM, D, BM, D)
            row = tl.load(w + of_type[None, :] * D + wide[:, None], mask=known[None, :], other=0.0)
            level = tl.load(log_tau + of_type, mask=known, other=0.0)
            tau = tl.exp(level)
            score = product(moved, row)
            score = (score + tl.load(constant + of_type, mask=known, other=0.0)[None, :]) / tau[None, :]
            shrunk = tl.exp(-tl.abs(score))
            soft = tl.maximum(score, 0.0) + log_one_plus(shrunk)
            slope = tl.where(score >= 0.0, 1.0, shrunk) / (1.0 + shrunk)
            linear = score < -37.0
            log_soft = tl.where(linear, score, tl.log(tl.where(linear, 1.0, soft)))
            log_slope = tl.where(linear, 1.0, slope / tl.where(linear, 1.0, soft))
            unit = tl.where(known, tl.exp(level + log_unit), 0.0)
            hit = tl.where(of_type[None, :] == kind[:, None], counts[:, None], 0.0)
            log_rate = log_soft + (level + log_unit)[None, :]
            integral = weight[:, None] * soft * unit[None, :]
            plain = tl.sum(integral - hit * log_rate, 1)
            likelihood += plain.to(tl.float64)
            back_score = weight[:, None] * unit[None, :] * slope - hit * log_slope
            back_level = integral - hit
            if PSEUDO:
                spread = tl.where(known[None, :], (rate * weight)[:, None], 0.0)
                plain -= tl.sum(spread * log_rate, 1)
                back_score -= spread * log_slope
                back_level -= spread
            objective += plain.to(tl.float64)
            if BACK:
                back_level -= back_score * score
                back_score = back_score / tau[None, :]
                row = tile(w + start * D, D, K - start, D, BK, D)
                back_moved += product(back_score, row)
                to = back_w + program * K * D + of_type[:, None] * D + wide[None, :]
                part = product(tl.trans(back_score), moved)
                tl.atomic_add(to, part, mask=known[:, None], sem="relaxed")
                to = back_levels + program * 2 * K + of_type
                tl.atomic_add(to, tl.sum(back_score, 0), mask=known, sem="relaxed")
                tl.atomic_add(to + K, tl.sum(back_level, 0), mask=known, sem="relaxed")
        if BACK:
            tl.store(back + at * D + place_in_tile, back_moved)
        tl.debug_barrier()
    tl.store(losses + program * 2, tl.sum(objective, 0))
    tl.store(losses + program * 2 + 1, tl.sum(likelihood, 0))


@triton.jit(do_not_specialize=_SIZES)
def queries_back_kernel(
    table, features, gathered, denominators, back, back_table, kept, layer, B, R, G, P, S, tiles, extra,
    H: tl.constexpr, D: tl.constexpr, TD: tl.constexpr, STRIDE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    EMBEDDED: tl.constexpr,
):  # fmt: skip
    """Compute the gradient of the queries' embeddings below `layer` from that above it, in place, and that of the layer's table."""
    batch = tl.program_id(0).to(tl.int64)
    share = tl.program_id(1)
    program = batch * S + share
    lane = tl.arange(0, BM)
    place_in_tile = lane[:, None] * D + tl.arange(0, D)[None, :]
    inner = kept + program * (2 * BM * D)
    embedded = inner + BM * D
    per_gap = P + 1
    queries = B.to(tl.int64) * tiles * BM
    for order in range(share, tiles, S):
        first = (tiles - 1 - order) * BM
        at = batch * tiles * BM + first
        seen = (first + lane) // per_gap + extra
        most = tl.minimum(R, tl.minimum(first + BM - 1, G * per_gap - 1) // per_gap + extra)
        if EMBEDDED:
            moved = tl.zeros([BM, D], tl.float32)
            for below in range(layer):
                summed = tl.zeros([BM, D], tl.float32)
                for head in range(H):
                    summed += tile(gathered + ((below * H + head) * queries + at) * D, D, BM, D, BM, D)
                moved += tanh(summed)
            tl.store(embedded + place_in_tile, moved)
        summed = tl.zeros([BM, D], tl.float32)
        for head in range(H):
            summed += tile(gathered + ((layer * H + head) * queries + at) * D, D, BM, D, BM, D)
        step = tanh(summed)
        back_moved = tile(back + at * D, D, BM, D, BM, D)
        of_inner = back_moved * (1.0 - step * step)
        tl.store(inner + place_in_tile, of_inner)
        tl.debug_barrier()
        for head in range(H):
            row = (layer * H + head) * queries + at
            part = batch * R * STRIDE + head * (STRIDE // H)
            shared = tl.sum(of_inner * tile(gathered + row * D, D, BM, D, BM, D), 1)
            back_moved = attend_back(
                features + at * TD, TD, embedded, D, inner, BM, TD, seen, most,
                shared, tl.load(denominators + row + lane), back_moved,
                table + part, back_table + share * B.to(tl.int64) * R * STRIDE + part, TD + D + 1, R,
                STRIDE, TD, D, BM, BN, EMBEDDED,
            )  # fmt: skip
        if EMBEDDED:
            tl.store(back + at * D + place_in_tile, back_moved)
        tl.debug_barrier()


@triton.jit
def try_kernel(out):
    """A minimal kernel, to test whether kernels can be built and started."""
    tl.store(out, 1.0)
