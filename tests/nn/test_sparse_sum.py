"""Sums of chosen rows: those of a loop, their gradients, and lists that are cut up because a GPU would wait for them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from foretell.nn.sparse_sum import SparseSum, lists_of, sparse_sum, summed

CPU = torch.device("cpu")


def _pairs(seed: int, targets: int = 9, rows: int = 7, count: int = 40) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    return draw.integers(0, targets, count), draw.integers(0, rows, count)


@pytest.mark.parametrize("seed", range(5))
def test_every_target_is_the_sum_of_its_rows(seed: int) -> None:
    target, row = _pairs(seed)
    source = torch.randn(7, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    expected = torch.zeros(9, 3, dtype=torch.float64).index_add_(0, torch.from_numpy(target), source[row])
    torch.testing.assert_close(sparse_sum(target, row, 9, 7, CPU)(source), expected)


def test_gradients_are_those_of_finite_differences() -> None:
    made = sparse_sum(*_pairs(3), 9, 7, CPU)
    source = torch.randn(7, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(made, (source,))


@pytest.mark.parametrize("longest", [1, 2, 3, 5])
def test_lists_that_are_cut_up_give_the_same_sums(longest: int) -> None:
    target, row = _pairs(1, targets=4, count=90)
    source = torch.randn(7, 3, dtype=torch.float64)
    whole, cut = lists_of(target, row, 4), lists_of(target, row, 4, max(longest, 2))
    assert cut.parts is not None and int(torch.diff(cut.start).max()) <= max(longest, 2)
    torch.testing.assert_close(summed(source, cut), summed(source, whole))


@pytest.mark.parametrize(("targets", "rows"), [(0, 0), (3, 0), (0, 4), (3, 4)])
def test_nothing_to_sum_gives_zeros(targets: int, rows: int) -> None:
    nothing = np.zeros(0, dtype=np.int64)
    made = sparse_sum(nothing, nothing, targets, rows, CPU)
    source = torch.ones(rows, 2, requires_grad=True)
    found = made(source)
    assert found.shape == (targets, 2) and not found.any()
    assert isinstance(made, SparseSum)
    assert not torch.autograd.grad(found.sum(), source)[0].any()
