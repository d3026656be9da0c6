"""What a model takes from its training data: wavelengths, the unit of time, starting rates."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from foretell.batches.batch import Queries, make_batch
from foretell.data import EventSequence
from foretell.data.synthetic import HawkesProcess, PoissonProcess, simulate
from foretell.errors import ForetellError
from foretell.models.attention.anhp import ANHP
from foretell.models.units import mean_gap, scored_counts, starting_rates, wave_range
from foretell.objective.loglik import log_likelihood, quadrature
from tests.samples import event_data, random_rows

GAPS = event_data([([1.0, 1.0, 3.0], [0, 1, 2]), ([], []), ([2.0, 2.5], [0, 0])], t_end=[5.0, 9.0, 4.0])


def test_m_and_capital_m_come_from_positive_gaps_and_the_longest_sequence():
    assert wave_range(GAPS, "min") == (0.5, 9.0)
    assert wave_range(GAPS, "quantile") == (pytest.approx(np.quantile([2.0, 0.5], 0.01)), 9.0)
    assert wave_range(GAPS, 0.25) == (0.25, 9.0)


def test_without_two_events_at_different_times_m_is_the_whole():
    assert wave_range(event_data([([1.0], [0]), ([3.0, 3.0], [0, 1])], t_end=6.0), "quantile") == (6.0, 6.0)


@pytest.mark.parametrize("shortest", [0.0, -1.0, math.inf, math.nan, "median"])
def test_a_shortest_wave_that_is_none_is_refused(shortest: Any):
    with pytest.raises(ForetellError, match="shortest wave"):
        wave_range(GAPS, shortest)


def test_data_without_any_time_are_refused():
    with pytest.raises(ForetellError, match="no time to learn from"):
        wave_range(event_data([([0.0], [0])], t_end=0.0), "quantile")


def test_the_unit_of_time_is_the_mean_gap():
    assert mean_gap(GAPS) == pytest.approx((0.0 + 2.0 + 0.5) / 3.0)
    assert mean_gap(event_data([([1.0], [0]), ([2.0], [0])], t_end=6.0)) == pytest.approx(6.0)


def test_counts_have_half_an_event_more_and_leave_out_a_given_first_event():
    counts, observed = scored_counts(GAPS)
    assert counts.tolist() == [3.5, 1.5, 1.5] and observed == 18.0
    given = event_data([([0.0, 1.0], [0, 1])], t_end=2.0, origin="first-event")
    assert scored_counts(given)[0].tolist() == [0.5, 1.5, 0.5]


def test_a_prepared_model_without_history_starts_near_the_rates_of_the_data():
    model = ANHP.preset("plain", GAPS.vocabulary, dim=8, dtype=torch.float64)
    with torch.no_grad():
        model.w.zero_()
    model.prepare(GAPS)
    batch = make_batch(event_data([([], [])], t_end=5.0), [0])
    state = model.state(model.encode(batch), Queries.at_times(batch, torch.tensor([[1.0]], dtype=torch.float64)))
    assert model.intensities(state)[0, 0].tolist() == pytest.approx([3.5 / 18.0, 1.5 / 18.0, 1.5 / 18.0])


@pytest.mark.parametrize("c", [1000.0, 1.0 / 60.0])
@pytest.mark.parametrize("options", [{}, {"heads": 2, "layers": 3, "bos": True}, {"dim": 5, "time_dim": 7}])
def test_prepared_on_rescaled_data_a_model_differs_by_log_c_an_event(c: float, options: dict[str, Any]):
    rows = random_rows(101, [6, 0, 11])
    values = []
    for unit in (1.0, c):
        data = event_data([([unit * t for t in times], types) for times, types in rows], t_end=10.0 * unit)
        model = ANHP.preset("plain", data.vocabulary, **{"dim": 8, **options}, dtype=torch.float64)
        model.prepare(data)
        batch = make_batch(data, range(3))
        values.append(
            log_likelihood(model, batch, quadrature(batch, 4)).log_likelihood() + batch.scored * math.log(unit)
        )
    torch.testing.assert_close(values[1], values[0], rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("shortest", [1e-9, 1.0, 9.0, 44.0, 50.0, 1e6])
@pytest.mark.parametrize("dim", [1, 2, 3, 6])
def test_any_shortest_wave_gives_a_model_that_works(shortest: float, dim: int):
    model = ANHP.preset("plain", GAPS.vocabulary, dim=dim, shortest_wave=shortest)
    model.prepare(GAPS)
    batch = make_batch(GAPS, range(3))
    assert bool(log_likelihood(model, batch, quadrature(batch, 2)).log_likelihood().isfinite().all())


def test_dropout_repeats_from_its_generator_and_is_off_in_evaluation():
    model = ANHP.preset("plain", GAPS.vocabulary, dim=8, dropout=0.5)
    batch = make_batch(GAPS, range(3))

    def value() -> torch.Tensor:
        return model.state(model.encode(batch), Queries.of_events(batch)).detach()

    model.noise = torch.Generator().manual_seed(1)
    first, second = value(), value()
    assert not torch.equal(first, second)
    model.noise = torch.Generator().manual_seed(1)
    assert torch.equal(value(), first)
    model.eval()
    assert torch.equal(value(), value())
    without = ANHP.preset("plain", GAPS.vocabulary, dim=8)
    assert torch.equal(value(), without.state(without.encode(batch), Queries.of_events(batch)))


def test_attention_starts_as_a_memory_that_fades_with_weight_one_at_the_mean_gap():
    data = simulate(HawkesProcess(np.array([0.5]), np.array([[0.5]]), np.array([1.0])), 40, 50.0, 3)
    model = ANHP.preset("plain", data.vocabulary, dim=64, layers=1, fading=2.0, dtype=torch.float64)
    model.prepare(data)
    layer, time = model.layer_list()[0], model.time
    elapsed = np.array([model.time_scale * factor for factor in (1e-3, 1.0, 10.0)])
    start = 0.3 * time.M
    nothing = torch.zeros(model.dim, dtype=torch.float64)

    def vector(matrix: torch.Tensor, t: float) -> torch.Tensor:
        features = time(torch.tensor([t], dtype=torch.float64), torch.float64)[0]
        return matrix[0] @ torch.cat([torch.ones(1, dtype=torch.float64), features, nothing])

    key = vector(layer.K, start)
    logits = [float(key.detach() @ vector(layer.Q, start + gap).detach()) / model.dim**0.5 for gap in elapsed]
    assert logits[0] > logits[1] > logits[2]
    assert abs(logits[1]) < 2.5  # the sinusoids make it wiggle around 0


def test_an_event_starts_by_raising_its_own_type_and_rates_start_at_those_of_poisson():
    data = simulate(PoissonProcess(np.array([0.5, 0.2, 0.1])), 40, 20.0, 4)
    model = ANHP.preset("plain", data.vocabulary, dim=32, layers=1, echo=8.0, dtype=torch.float64)
    model.prepare(data)
    nothing_yet = EventSequence(np.empty(0), np.empty(0, dtype=np.int32), 20.0, "empty")
    np.testing.assert_allclose(model.intensity(nothing_yet, [1.0])[0], starting_rates(data), rtol=1e-9)
    for kind in range(3):
        once = EventSequence(np.array([1.0]), np.array([kind], dtype=np.int32), 20.0, "once")
        raised = model.intensity(once, [1.01])[0] / starting_rates(data)
        assert raised.argmax() == kind and raised[kind] > 1.5
