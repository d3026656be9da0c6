"""The kernels for the part of a layer after attention: `tanh` and the residual, LayerNorm, a sublayer with GELU, LayerNorm again.

    x = embedding + tanh(attended),  y = norm_1(x),  s = y + contract(gelu(expand(y))),  out = norm_2(s)

Rows are independent of each other. A program writes only its own rows, and its own row of partial sums for gradients of vectors.
Gradients of matrices are computed outside, by products. Imported only if Triton is installed.
"""

# ruff: noqa: ANN001, ANN201 (a kernel's arguments are pointers and numbers of a language of its own)
# pyright: reportMissingImports=false
from __future__ import annotations

import triton
import triton.language as tl

from foretell.nn.fused.kernels import product, tanh

_SIZES = ["first_row", "stop_row"]


@triton.jit
def rows_of(table, row, there, STRIDE: tl.constexpr, OFFSET: tl.constexpr, D: tl.constexpr):
    wide = tl.arange(0, D)
    return tl.load(table + row[:, None] * STRIDE + (OFFSET + wide)[None, :], mask=there[:, None], other=0.0)


@triton.jit
def write_rows(table, row, there, values, STRIDE: tl.constexpr, OFFSET: tl.constexpr, D: tl.constexpr):
    wide = tl.arange(0, D)
    tl.store(table + row[:, None] * STRIDE + (OFFSET + wide)[None, :], values, mask=there[:, None])


@triton.jit
def normal(x, eps, D: tl.constexpr):
    """Return `(x − mean)/deviation` and 1/deviation."""
    centred = x - (tl.sum(x, 1) / D)[:, None]
    inverse = 1.0 / tl.sqrt(tl.sum(centred * centred, 1) / D + eps)
    return centred * inverse[:, None], inverse


@triton.jit
def normal_back(grad, x_hat, inverse, D: tl.constexpr):
    return (grad - (tl.sum(grad, 1) / D)[:, None] - x_hat * (tl.sum(grad * x_hat, 1) / D)[:, None]) * inverse[:, None]


@triton.jit(do_not_specialize=_SIZES)
def forwards_kernel(
    rows, attended, gain_1, shift_1, expand, of_expand, contract, of_contract, gain_2, shift_2, inner, out, eps, first_row, stop_row,
    W: tl.constexpr, D: tl.constexpr, F: tl.constexpr, TO: tl.constexpr, BM: tl.constexpr, BF: tl.constexpr, FP: tl.constexpr,
):  # fmt: skip
    """Compute `out` [., TO] from rows [., W] whose last columns are embeddings, and the output of attention; `inner` is `s`."""
    row = first_row + tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    there = row < stop_row
    wide = tl.arange(0, D)
    x = rows_of(rows, row, there, W, W - D, D) + tanh(rows_of(attended, row, there, D, 0, D))
    x_hat, _ = normal(x, eps, D)
    y = x_hat * tl.load(gain_1 + wide)[None, :] + tl.load(shift_1 + wide)[None, :]
    s = y + tl.load(of_contract + wide)[None, :]
    for start in range(0, F, BF):
        hidden = start + tl.arange(0, BF)
        h = product(y, tl.load(expand + hidden[None, :] * D + wide[:, None])) + tl.load(of_expand + hidden)[None, :]
        h = 0.5 * h * (1.0 + tl.erf(h * 0.7071067811865476))
        s += product(h, tl.load(contract + wide[None, :] * F + hidden[:, None]))
    write_rows(inner, row, there, s, D, 0, D)
    s_hat, _ = normal(s, eps, D)
    found = s_hat * tl.load(gain_2 + wide)[None, :] + tl.load(shift_2 + wide)[None, :]
    write_rows(out, row, there, found, TO, TO - D, D)
    if TO > D:  # the first columns of the next layer's input are those of this one
        column = tl.arange(0, FP)[None, :]
        before = there[:, None] & (column < W - D)
        tl.store(out + row[:, None] * TO + column, tl.load(rows + row[:, None] * W + column, mask=before), mask=before)


@triton.jit(do_not_specialize=_SIZES)
def back_kernel(
    rows, attended, gain_1, shift_1, expand, of_expand, contract, gain_2, inner, grad,
    back_rows, back_attended, normed, active, back_hidden, back_inner, sums, eps, first_row, stop_row,
    W: tl.constexpr, D: tl.constexpr, F: tl.constexpr, BM: tl.constexpr, BF: tl.constexpr,
):  # fmt: skip
    """Compute gradients of embeddings and of the output of attention, and the factors of the gradients of matrices: `y`, the hidden layer
    `active`, and the gradients of `s` and of the hidden layer. `sums` [programs, 5D + F] are partial gradients of gain_2, shift_2,
    of_contract, gain_1, shift_1, of_expand.
    """
    program = tl.program_id(0)
    row = first_row + program.to(tl.int64) * BM + tl.arange(0, BM)
    there = row < stop_row
    wide = tl.arange(0, D)
    own = sums + program.to(tl.int64) * (5 * D + F)
    step = tanh(rows_of(attended, row, there, D, 0, D))
    x_hat, inverse_1 = normal(rows_of(rows, row, there, W, W - D, D) + step, eps, D)
    gain = tl.load(gain_1 + wide)[None, :]
    y = x_hat * gain + tl.load(shift_1 + wide)[None, :]
    write_rows(normed, row, there, y, D, 0, D)
    given = rows_of(grad, row, there, D, 0, D)
    s_hat, inverse_2 = normal(rows_of(inner, row, there, D, 0, D), eps, D)
    tl.store(own + wide, tl.sum(given * s_hat, 0))
    tl.store(own + D + wide, tl.sum(given, 0))
    of_s = normal_back(given * tl.load(gain_2 + wide)[None, :], s_hat, inverse_2, D)
    tl.store(own + 2 * D + wide, tl.sum(of_s, 0))
    write_rows(back_inner, row, there, of_s, D, 0, D)
    of_y = of_s
    for start in range(0, F, BF):
        hidden = start + tl.arange(0, BF)
        h = product(y, tl.load(expand + hidden[None, :] * D + wide[:, None])) + tl.load(of_expand + hidden)[None, :]
        normal_share = 0.5 * (1.0 + tl.erf(h * 0.7071067811865476))
        place = row[:, None] * F + hidden[None, :]
        tl.store(active + place, h * normal_share, mask=there[:, None])
        slope = normal_share + h * tl.exp(-0.5 * h * h) * 0.3989422804014327
        of_h = product(of_s, tl.load(contract + wide[:, None] * F + hidden[None, :])) * slope
        tl.store(back_hidden + place, of_h, mask=there[:, None])
        tl.store(own + 5 * D + hidden, tl.sum(of_h, 0))
        of_y += product(of_h, tl.load(expand + hidden[:, None] * D + wide[None, :]))
    tl.store(own + 3 * D + wide, tl.sum(of_y * x_hat, 0))
    tl.store(own + 4 * D + wide, tl.sum(of_y, 0))
    of_x = normal_back(of_y * gain, x_hat, inverse_1, D)
    write_rows(back_rows, row, there, of_x, D, 0, D)
    write_rows(back_attended, row, there, of_x * (1.0 - step * step), D, 0, D)
