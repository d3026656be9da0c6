"""The kernel of an A-NHP's head: the loss from embeddings of queries, and the factors of its gradients.

`λ_k = τ_k softplus(s_k)·r` with scores `s_k = (w_k·emb + c_k)/τ_k` and the mixture over time scales
`r = 1 + Σ_j softplus(v_j·emb + d_j)·exp(−u/s_j)/s_j`, or `r = 1` without it. A program writes only its own rows, and its own row of sums.
Imported only if Triton is installed.
"""

# ruff: noqa: ANN001, ANN201 (a kernel's arguments are pointers and numbers of a language of its own)
# `if J:` is decided when a kernel is compiled.
# pyright: reportMissingImports=false, reportPossiblyUnboundVariable=false
from __future__ import annotations

import triton
import triton.language as tl

from foretell.nn.fused.decayed_kernels import log1p
from foretell.nn.fused.kernels import log_one_plus, product

_SIZES = ["B", "N", "P", "K", "first_row"]


@triton.jit
def softplus_and_slope(x):
    shrunk = tl.exp(-tl.abs(x))
    return tl.maximum(x, 0.0) + log_one_plus(shrunk), tl.where(x >= 0.0, 1.0, shrunk) / (1.0 + shrunk)


@triton.jit(do_not_specialize=_SIZES)
def scores_kernel(
    top, elapsed, types, counted, weights, matrix, constants, log_tau, scales, grad, back, sums, losses,
    unit, log_unit, rate, B, N, P, K, first_row,
    J: tl.constexpr, JP: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr, BACK: tl.constexpr, PSEUDO: tl.constexpr,
):  # fmt: skip
    """`matrix` [K + J, D] has `w` and `v`; `constants` are their biases. Embeddings `top` and their gradient `grad` [., D] have queries
    from `first_row` on.

    `back` [queries, K + J]: gradients of `w·emb + c` and `v·emb + d`; `sums` [programs, 2K + J]: of biases, and of `log τ`;
    `losses` [programs, 2]: objective and negative log-likelihood.
    """
    program = tl.program_id(0)
    query = program.to(tl.int64) * BM + tl.arange(0, BM)
    per_gap = P + 1
    each = (N + 1) * per_gap
    there = query < B * each
    sequence, gap, point = query // each, query % each // per_gap, query % per_gap
    ended = there & (point == P) & (gap < N)
    within = there & (point < P)
    weight = tl.load(weights + (sequence * (N + 1) + gap) * P + point, mask=within, other=0.0).to(tl.float32)
    kind = tl.load(types + sequence * N + gap, mask=ended, other=0).to(tl.int32)
    counts = tl.load(counted + sequence * N + gap, mask=ended, other=0).to(tl.float32)
    spread = rate * weight if PSEUDO else 0.0 * weight
    wide = tl.arange(0, D)
    place = (first_row + query)[:, None] * D + wide[None, :]
    emb = tl.load(top + place, mask=there[:, None], other=0.0)
    more = tl.zeros([BM], tl.float32)
    if J:
        one = tl.arange(0, JP)
        scaled = one < J
        passed = tl.load(elapsed + first_row + query, mask=there, other=0.0)
        inverse = tl.where(scaled, 1.0 / tl.load(scales + one, mask=scaled, other=1.0), 0.0)
        density = (
            tl.exp(-(passed[:, None] * inverse[None, :]).to(tl.float32)) * (unit * inverse).to(tl.float32)[None, :]
        )
        v = tl.load(matrix + (K + one)[None, :] * D + wide[:, None], mask=scaled[None, :], other=0.0)
        amount = product(emb, v) + tl.load(constants + K + one, mask=scaled, other=0.0)[None, :]
        soft_amount, slope_amount = softplus_and_slope(amount)
        more = tl.sum(soft_amount * density, 1)
    factor = 1.0 + more
    log_factor = log1p(more)
    plain = -(counts * log_factor)
    extra = -(K * spread * log_factor)
    total = tl.zeros([BM], tl.float32)
    of_emb = tl.zeros([BM, D], tl.float32)
    own = sums + program.to(tl.int64) * (2 * K + J)
    for start in range(0, K, BK):
        of_type = start + tl.arange(0, BK)
        known = of_type < K
        level = tl.load(log_tau + of_type, mask=known, other=0.0)
        tau = tl.exp(level)
        score = product(emb, tl.load(matrix + of_type[None, :] * D + wide[:, None], mask=known[None, :], other=0.0))
        score = (score + tl.load(constants + of_type, mask=known, other=0.0)[None, :]) / tau[None, :]
        soft, slope = softplus_and_slope(score)
        linear = score < -37.0
        log_soft = tl.where(linear, score, tl.log(tl.where(linear, 1.0, soft)))
        log_slope = tl.where(linear, 1.0, slope / tl.where(linear, 1.0, soft))
        size = tl.where(known, tl.exp(level + log_unit), 0.0)
        hit = tl.where(of_type[None, :] == kind[:, None], counts[:, None], 0.0)
        log_rate = log_soft + (level + log_unit)[None, :]
        total += tl.sum(soft * size[None, :], 1)
        plain -= tl.sum(hit * log_rate, 1)
        back_score = (weight * factor)[:, None] * size[None, :] * slope - hit * log_slope
        back_level = (weight * factor)[:, None] * soft * size[None, :] - hit
        if PSEUDO:
            spread_here = tl.where(known[None, :], spread[:, None], 0.0)
            extra -= tl.sum(spread_here * log_rate, 1)
            back_score -= spread_here * log_slope
            back_level -= spread_here
        if BACK:
            back_level -= back_score * score
            back_score = back_score / tau[None, :]
            wanted = there[:, None] & known[None, :]
            tl.store(back + query[:, None] * (K + J) + of_type[None, :], back_score, mask=wanted)
            row = tl.load(matrix + of_type[:, None] * D + wide[None, :], mask=known[:, None], other=0.0)
            of_emb += product(back_score, row)
            tl.store(own + of_type, tl.sum(back_score, 0), mask=known)
            tl.store(own + K + J + of_type, tl.sum(back_level, 0), mask=known)
    plain += weight * factor * total
    tl.store(losses + program * 2, tl.sum((plain + extra).to(tl.float64), 0))
    tl.store(losses + program * 2 + 1, tl.sum(plain.to(tl.float64), 0))
    if BACK:
        if J:
            of_more = weight * total - (counts + K * spread) / factor
            of_amount = of_more[:, None] * density * slope_amount
            tl.store(
                back + query[:, None] * (K + J) + (K + one)[None, :], of_amount, mask=there[:, None] & scaled[None, :]
            )
            tl.store(own + K + one, tl.sum(of_amount, 0), mask=scaled)
            row = tl.load(matrix + (K + one)[:, None] * D + wide[None, :], mask=scaled[:, None], other=0.0)
            of_emb += product(of_amount, row)
        tl.store(grad + place, of_emb, mask=there[:, None])
