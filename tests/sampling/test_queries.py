"""QueryLayout in a row and queries on a grid meet the same matrices; a model in float64 shares nothing that could change."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from foretell.errors import ForetellError
from foretell.models.attention.query_layout import GridLayout, RunLayout
from foretell.sampling.core.start import in_float64, past_batch
from tests.sampling.processes import PAST, anhp


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64)


def test_queries_in_a_row_are_multiplied_as_on_a_grid():
    sampler, width = 4, 5
    some = torch.tensor([[1, 1, 1, 0, 0], [0] * 5, [1] * 5, [1, 0, 0, 0, 0]]).bool()
    matrix, plus = drawn(sampler, 3, 7), drawn(sampler, 7)
    for nodes in (1, 4):
        grid = drawn(nodes, sampler, width, 3)
        row = grid[:, some].unsqueeze(1)
        runs = RunLayout(some.nonzero()[:, 0])
        for added in (None, plus):
            wanted = GridLayout().times(grid, matrix, added)[:, some].unsqueeze(1)
            torch.testing.assert_close(runs.times(row, matrix, added), wanted)
        each = GridLayout().each(plus).expand(sampler, width, 7)[some].unsqueeze(0)
        torch.testing.assert_close(runs.each(plus), each)


def test_some_queries_of_a_row_and_those_of_a_single_walk():
    matrix, plus, row = drawn(3, 2, 6), drawn(3, 6), drawn(4, 1, 5, 2)
    runs = RunLayout(torch.tensor([0, 0, 2, 2, 2]))
    whole = runs.times(row, matrix, plus)
    for chosen in ([0, 1, 4], [2, 4]):
        part = runs.select(torch.tensor(chosen))
        torch.testing.assert_close(part.times(row[:, :, chosen], matrix, plus), whole[:, :, chosen])
    assert RunLayout(torch.tensor([2, 2])).each(plus).shape == (1, 1, 6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_copy_in_float64_has_numbers_of_its_own(dtype: torch.dtype):
    model = anhp().to(dtype).train()
    own, batch = in_float64(model), past_batch([PAST], [3], model)
    assert batch.lengths.tolist() == [3] and not own.training and model.training
    assert all(one.dtype == torch.float64 for one in own.parameters())
    assert all(one.dtype == dtype for one in model.parameters())
    names = [name for name, _ in model.named_parameters()]
    assert names == [name for name, _ in own.named_parameters()]
    for (_, mine), (_, other) in zip(own.named_parameters(), model.named_parameters(), strict=True):
        torch.testing.assert_close(mine.to(dtype), other.detach())
    with torch.no_grad():
        next(model.parameters()).add_(1.0)
    assert not torch.equal(next(own.parameters()).to(dtype), next(model.parameters()))
    assert torch.equal(own.time.turns_per_unit, model.time.turns_per_unit)


def test_a_history_with_a_type_that_the_model_does_not_know_is_an_error():
    strange = replace(PAST, types=PAST.types + 1)
    with pytest.raises(ForetellError, match="type 3 is outside the vocabulary of 3 event types"):
        past_batch([strange], [4], anhp())
    past_batch([strange], [1], anhp())  # what was not seen does not matter


def test_a_vector_meets_the_tables_of_the_sequences_that_there_are_queries_of():
    tables, vector = drawn(4, 2, 5, 3), drawn(3)
    found = RunLayout(torch.tensor([0, 2, 2])).meet(tables, vector)
    torch.testing.assert_close(found[[0, 2]], GridLayout().meet(tables, vector)[[0, 2]])
