"""How sequences are put into a batch changes nothing that is computed about them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from foretell.batches.batch import Queries
from foretell.models.base import IntensityModel
from foretell.objective.loglik import Terms, log_likelihood, quadrature
from tests.asking import state_at
from tests.calendar_samples import dated
from tests.samples import random_data

LENGTHS = [3, 0, 12, 1, 7]
DATA = dated(random_data(31, LENGTHS))
CLOSE: Any = {"rtol": 1e-12, "atol": 1e-12}


def terms(model: IntensityModel, indices: list[int], width: int | None = None) -> Terms:
    batch = model.collator.batch(DATA, indices, width=width)
    return log_likelihood(model, batch, quadrature(batch, 3))


def test_batching_is_looping(model: IntensityModel):
    together = terms(model, list(range(len(LENGTHS))))
    for row, length in enumerate(LENGTHS):
        alone = terms(model, [row])
        torch.testing.assert_close(together.event_log[row, :length], alone.event_log[0], **CLOSE)
        torch.testing.assert_close(together.gap_integral[row, : length + 1], alone.gap_integral[0], **CLOSE)


def test_padding_counts_for_nothing(model: IntensityModel):
    everything = list(range(len(LENGTHS)))
    narrow, wide = terms(model, everything), terms(model, everything, width=max(LENGTHS) + 9)
    torch.testing.assert_close(wide.log_likelihood(), narrow.log_likelihood(), **CLOSE)
    for row, length in enumerate(LENGTHS):
        torch.testing.assert_close(wide.event_log[row, :length], narrow.event_log[row, :length], **CLOSE)
        assert not wide.event_log[row, length:].any()
        assert not wide.gap_integral[row, length + 1 :].any()


def test_padding_gets_no_gradient(model: IntensityModel):
    everything = list(range(len(LENGTHS)))
    parameters = list(model.parameters())
    found = [
        torch.autograd.grad(terms(model, everything, width).log_likelihood().sum(), parameters, allow_unused=True)
        for width in (None, max(LENGTHS) + 9)
    ]
    for narrow, wide in zip(*found, strict=True):
        if narrow is not None:
            torch.testing.assert_close(wide, narrow, rtol=1e-10, atol=1e-10)


def test_the_order_of_sequences_is_irrelevant(model: IntensityModel):
    order = [4, 1, 3, 0, 2]
    in_order, shuffled = terms(model, list(range(len(LENGTHS)))), terms(model, order)
    torch.testing.assert_close(shuffled.log_likelihood(), in_order.log_likelihood()[order], **CLOSE)


def test_the_pieces_of_a_batch_are_the_batch(model: IntensityModel):
    batch = model.collator.batch(DATA, range(len(LENGTHS)))
    whole = log_likelihood(model, batch, quadrature(batch, 3)).log_likelihood()
    pieces = list(batch.pieces(queries_per_gap=3, limit=2 * 3 * 13))
    assert len(pieces) == 3
    parts = [log_likelihood(model, piece, quadrature(piece, 3)).log_likelihood() for piece in pieces]
    torch.testing.assert_close(torch.cat(parts), whole, **CLOSE)


@pytest.mark.parametrize("times", [[0.3, 4.0, 9.9], []])
def test_queries_do_not_influence_each_other(model: IntensityModel, times: list[float]):
    batch = model.collator.batch(DATA, [2, 4])
    history = model.encode(batch)
    asked = torch.tensor([times, times], dtype=torch.float64)
    together = model.intensities(state_at(model, batch, Queries.at_times(batch, asked), history))
    assert together.shape == (2, len(times), 3)
    for place in range(len(times)):
        alone = model.intensities(state_at(model, batch, Queries.at_times(batch, asked[:, place : place + 1]), history))
        torch.testing.assert_close(together[:, place : place + 1], alone, **CLOSE)


def test_a_batch_of_empty_sequences_has_a_likelihood_and_gradients(model: IntensityModel):
    batch = model.collator.batch(dated(random_data(32, [0, 0])), [0, 1])
    value = log_likelihood(model, batch, quadrature(batch, 3)).log_likelihood()
    assert bool((value < 0.0).all())
    value.sum().backward()
    assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in model.parameters())
