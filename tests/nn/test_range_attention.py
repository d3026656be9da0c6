"""Attention over contiguous ranges: the loop that it is, its gradients, its memory of nothing, and logits of any size."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from foretell.nn import range_attention as module
from foretell.nn.range_attention import range_attention, range_tiles


def _loop(x, k, v, lo, hi):
    rows = []
    for query, a, b in zip(x, lo.tolist(), hi.tolist(), strict=True):
        alpha = torch.exp(k[a:b] @ query)
        rows.append((alpha[:, None] * v[a:b]).sum(0) / (1.0 + alpha.sum()))
    return torch.stack(rows) if rows else v.new_zeros(0, v.shape[1])


def _case(seed: int, queries: int, keys: int, d: int = 3, wide: int = 4):
    draw = np.random.default_rng(seed)
    ends = np.sort(draw.integers(0, keys + 1, size=(queries, 2)), axis=1)
    generator = torch.Generator().manual_seed(seed)
    tensors = [
        torch.randn(rows, columns, dtype=torch.float64, generator=generator, requires_grad=True)
        for rows, columns in ((queries, d), (keys, d), (keys, wide))
    ]
    return tensors, ends[:, 0], ends[:, 1]


@pytest.mark.parametrize("seed", range(8))
def test_every_query_attends_to_its_own_range(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROWS_A_TILE", {"cpu": 5, "cuda": 5})
    monkeypatch.setattr(module, "MOST_ELEMENTS", 100)
    (x, k, v), lo, hi = _case(seed, 60, 50)
    order = np.argsort(lo, kind="stable") if seed % 2 else np.arange(60)
    segment = np.sort(np.random.default_rng(seed).integers(0, 4, 60)) if seed % 3 else None
    lo, hi = lo[order], hi[order]
    found = range_attention(x, k, v, range_tiles(lo, hi, 50, segment=segment))
    expected = _loop(x, k, v, lo, hi)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    weight = torch.randn_like(found)
    mine = torch.autograd.grad((found * weight).sum(), (x, k, v))
    theirs = torch.autograd.grad((expected * weight).sum(), (x, k, v))
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


def test_gradients_are_those_of_finite_differences() -> None:
    (x, k, v), lo, hi = _case(3, 7, 6)
    tiles = range_tiles(lo, hi, 6)
    assert torch.autograd.gradcheck(lambda x, k, v: range_attention(x, k, v, tiles), (x, k, v))


@pytest.mark.parametrize("size", [1e4, -1e4])
def test_logits_of_any_size_are_safe(size: float) -> None:
    x = torch.tensor([[1.0]], requires_grad=True)
    k = torch.tensor([[size], [size - 1.0]], requires_grad=True)
    v = torch.tensor([[1.0], [3.0]], requires_grad=True)
    found = range_attention(x, k, v, range_tiles(np.array([0]), np.array([2]), 2))
    found.sum().backward()
    share = torch.sigmoid(torch.tensor(1.0))
    expected = share * 1.0 + (1.0 - share) * 3.0 if size > 0 else torch.tensor(0.0)
    torch.testing.assert_close(found[0, 0], expected)
    assert all(t.grad is not None and torch.isfinite(t.grad).all() for t in (x, k, v))


def test_empty_ranges_and_tables_give_zeros() -> None:
    x = torch.ones(3, 2)
    found = range_attention(
        x, torch.ones(4, 2), torch.ones(4, 5), range_tiles(np.array([0, 2, 4]), np.array([0, 2, 4]), 4)
    )
    assert found.shape == (3, 5) and not found.any()
    nothing = range_attention(x[:0], torch.ones(0, 2), torch.ones(0, 5), range_tiles(np.zeros(0), np.zeros(0), 0))
    assert nothing.shape == (0, 5)


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_that_share_the_work_find_the_same(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")
    monkeypatch.setattr(module, "MOST_ELEMENTS", 2000)
    monkeypatch.setattr(module, "ALONE", 100)
    (x, k, v), lo, hi = _case(5, 400, 300)
    order = np.argsort(lo, kind="stable")
    tiles = range_tiles(lo[order], hi[order], 300)
    shares = tiles.shared(threads)
    assert len(tiles.groups) > threads == len(shares)
    assert sum(len(share) for share in shares) == len(tiles.groups)
    weight = torch.randn(400, 4, dtype=torch.float64)
    before, found = torch.get_num_threads(), {}
    try:
        for count in (1, threads):
            torch.set_num_threads(count)
            out = range_attention(x, k, v, tiles)
            found[count] = [out, *torch.autograd.grad((out * weight).sum(), (x, k, v))]
            assert torch.get_num_threads() == count
    finally:
        torch.set_num_threads(before)
    for one, other in zip(found[1], found[threads], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
