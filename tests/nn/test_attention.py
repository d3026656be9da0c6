"""`attention_with_null` against its formula, its derivative, and the extremes of its logits."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from foretell.nn import attention
from foretell.nn.attention import Visible, attention_with_null, with_null

B, N, D, PER_GAP = 2, 7, 3, 2
QUERIES = (N + 1) * PER_GAP


def prefix_attention(
    queries: list[Tensor], keys: list[Tensor], bias: Tensor, values: Tensor, visible: Visible
) -> Tensor:
    """Without null rows: `Σ α v / (1 + Σ α)` for each query, `α = exp(Σ_i x_i·k_i + bias)`; a key with bias -inf is never seen.

    queries: [B, Q, d_i] each; keys: [B, N, d_i] each; bias: [B, N]; values: [B, N, D]; gives [B, Q, D].
    """
    hidden = torch.isneginf(bias)
    ones = queries[0].new_ones(queries[0].shape[0], queries[0].shape[1], 1)
    level = bias.masked_fill(hidden, 0.0).unsqueeze(-1)
    tables = [with_null(table) for table in (*keys, level)]
    return attention_with_null(
        [*queries, ones], tables, with_null(values), visible, torch.nn.functional.pad(hidden, (1, 0))
    )


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def inputs() -> tuple[list[Tensor], list[Tensor], Tensor, Tensor]:
    queries = [draw(B, QUERIES, 2, seed=1), draw(B, QUERIES, 4, seed=2)]
    keys = [draw(B, N, 2, seed=3), draw(B, N, 4, seed=4)]
    return queries, keys, draw(B, N, seed=5), draw(B, N, D, seed=6)


def by_gaps(extra: int = 0) -> Visible:
    return Visible(None, PER_GAP, extra)


def by_counts(extra: int = 0) -> Visible:
    seen = torch.arange(QUERIES) // PER_GAP
    return Visible(seen.expand(B, -1), None, extra)


def plain(queries: list[Tensor], keys: list[Tensor], bias: Tensor, values: Tensor, seen: Tensor) -> Tensor:
    """`Σ α v / (1 + Σ α)` by loops."""
    out = torch.zeros(*queries[0].shape[:2], values.shape[-1], dtype=torch.float64)
    for b in range(B):
        for q in range(queries[0].shape[1]):
            total = 1.0
            for n in range(int(seen[b, q])):
                logit = sum(float(x[b, q] @ k[b, n]) for x, k in zip(queries, keys, strict=True)) + float(bias[b, n])
                out[b, q] += math.exp(logit) * values[b, n]
                total += math.exp(logit)
            out[b, q] /= total
    return out


@pytest.fixture(params=[1, 3, 100], ids=lambda gaps: f"{gaps} gaps a tile")
def tiled(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(attention.GAPS_A_TILE, "cpu", request.param)
    monkeypatch.setattr(attention, "LOOSE_ROWS", 3 * request.param)


@pytest.mark.usefixtures("tiled")
@pytest.mark.parametrize("extra", [0, 1])
def test_gaps_and_counts_both_give_the_formula(extra: int):
    parts = inputs()
    expected = plain(*parts, seen=(torch.arange(QUERIES) // PER_GAP + extra).clamp(max=N).expand(B, -1))
    torch.testing.assert_close(prefix_attention(*parts, by_gaps(extra)), expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(prefix_attention(*parts, by_counts(extra)), expected, rtol=1e-12, atol=1e-12)


def test_counts_may_come_in_any_order_and_differ_between_sequences():
    parts = inputs()
    seen = torch.randint(0, N + 1, (B, QUERIES), generator=torch.Generator().manual_seed(7))
    found = prefix_attention(*parts, Visible(seen, None))
    torch.testing.assert_close(found, plain(*parts, seen=seen), rtol=1e-12, atol=1e-12)


@pytest.mark.usefixtures("tiled")
@pytest.mark.parametrize("visible", [by_gaps(), by_gaps(1), by_counts()], ids=["gaps", "gaps and one more", "counts"])
def test_the_derivative_is_that_of_the_value(visible: Visible):
    queries, keys, bias, values = inputs()
    leaves = [tensor.requires_grad_() for tensor in (*queries, *keys, bias, values)]

    def out(x1: Tensor, x2: Tensor, k1: Tensor, k2: Tensor, b: Tensor, v: Tensor) -> Tensor:
        return prefix_attention([x1, x2], [k1, k2], b, v, visible)

    assert torch.autograd.gradcheck(out, leaves)


def test_a_second_derivative_is_refused_rather_than_wrong():
    queries, keys, bias, values = inputs()
    keys = [k.requires_grad_() for k in keys]
    out = prefix_attention(queries, keys, bias, values, by_gaps())
    (grad,) = torch.autograd.grad(out.square().sum(), keys[0], create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        grad.sum().backward()


def test_a_query_that_needs_no_gradient_gets_none():
    queries, keys, bias, values = inputs()
    keys = [k.requires_grad_() for k in keys]
    prefix_attention(queries, keys, bias, values, by_gaps()).sum().backward()
    assert queries[0].grad is None
    assert keys[0].grad is not None and keys[0].grad.abs().sum() > 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("logit", [1e4, -1e4])
def test_logits_of_ten_thousand_are_safe(logit: float, dtype: torch.dtype):
    queries = torch.ones(1, 4, 1, dtype=dtype, requires_grad=True)
    keys = torch.full((1, 3, 1), logit, dtype=dtype, requires_grad=True)
    bias = torch.zeros(1, 3, dtype=dtype, requires_grad=True)
    values = torch.tensor([[[1.0], [2.0], [3.0]]], dtype=dtype, requires_grad=True)
    out = prefix_attention([queries], [keys], bias, values, Visible(None, 1))
    # With huge weights the 1 in the denominator vanishes and equal keys share alike; with none, nothing comes out.
    expected = [0.0, 1.0, 1.5, 2.0] if logit > 0 else [0.0, 0.0, 0.0, 0.0]
    assert torch.allclose(out[0, :, 0], torch.tensor(expected, dtype=dtype))
    out.sum().backward()
    for leaf in (queries, keys, bias, values):
        assert leaf.grad is not None and bool(leaf.grad.isfinite().all())


def test_an_empty_history_gives_exactly_zero():
    queries, keys, bias, values = inputs()
    out = prefix_attention(queries, keys, bias, values, by_gaps())
    assert torch.equal(out[:, :PER_GAP], torch.zeros(B, PER_GAP, D, dtype=torch.float64))
    none_seen = Visible(torch.zeros(B, QUERIES, dtype=torch.long), None)
    nothing = prefix_attention(queries, [k[:, :0] for k in keys], bias[:, :0], values[:, :0], none_seen)
    assert torch.equal(nothing, torch.zeros(B, QUERIES, D, dtype=torch.float64))


def test_no_queries_give_an_empty_answer_with_a_gradient():
    _, keys, bias, values = inputs()
    values.requires_grad_()
    out = prefix_attention([draw(B, 0, 2), draw(B, 0, 4)], keys, bias, values, Visible(None, 1))
    assert out.shape == (B, 0, D)
    out.sum().backward()
    assert values.grad is not None and not values.grad.any()


def test_a_key_with_bias_minus_infinity_is_never_seen():
    queries, keys, bias, values = inputs()
    hidden = bias.clone()
    hidden[:, 2] = -math.inf
    hidden.requires_grad_()
    loud = values.clone()
    loud[:, 2] = 1e9
    loud.requires_grad_()
    kept = [n for n in range(N) if n != 2]
    seen = torch.arange(QUERIES) // PER_GAP
    found = prefix_attention(queries, keys, hidden, loud, by_gaps())
    without = Visible((seen - (seen > 2).long()).expand(B, -1), None)
    expected = prefix_attention(queries, [k[:, kept] for k in keys], bias[:, kept], values[:, kept], without)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    found.sum().backward()
    assert hidden.grad is not None and loud.grad is not None
    assert bool(hidden.grad.isfinite().all()) and not hidden.grad[:, 2].any() and not loud.grad[:, 2].any()


def test_what_is_not_seen_does_not_matter_to_the_last_bit():
    queries, keys, bias, values = inputs()
    first = prefix_attention(queries, keys, bias, values, by_gaps())
    keys[0][:, 4:] = draw(B, N - 4, 2, seed=8) * 100.0
    values[:, 4:] = -5.0
    second = prefix_attention(queries, keys, bias, values, by_gaps())
    sees_four = 5 * PER_GAP
    assert torch.equal(first[:, :sees_four], second[:, :sees_four])
    assert not torch.equal(first[:, sees_four:], second[:, sees_four:])


def test_weights_that_are_computed_again_give_the_same_gradients(monkeypatch: pytest.MonkeyPatch):
    queries, keys, bias, values = inputs()
    leaves = [*queries, *keys, bias, values]
    for leaf in leaves:
        leaf.requires_grad_()
    kept = torch.autograd.grad(prefix_attention(queries, keys, bias, values, by_gaps()).square().sum(), leaves)
    monkeypatch.setattr("foretell.nn.attention.SAVED_ELEMENTS", 0)
    again = torch.autograd.grad(prefix_attention(queries, keys, bias, values, by_gaps()).square().sum(), leaves)
    for one, other in zip(kept, again, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)
