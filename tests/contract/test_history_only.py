"""What comes before `scored_from` is history for every model: seen, and scored neither as events nor as silence."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from foretell.batches.batch import Queries, make_batch
from foretell.data import EventData
from foretell.models.base import IntensityModel
from foretell.models.capabilities import exact_integral_of
from foretell.objective.loglik import Points, log_likelihood, quadrature, training_loss, uniform
from tests.asking import state_at
from tests.calendar_samples import dated
from tests.samples import event_data, random_rows

# a tie with the cut, a cut in the middle of a gap, one before the first event, one after the last, and no event at all
ROWS = [*random_rows(43, [9, 6, 4, 5]), ([], []), ([1.0, 4.0, 4.0, 6.0], [0, 1, 2, 0])]
CUTS = [4.3, 5.1, 0.01, 9.9, 2.5, 4.0]
DATA = dated(event_data(ROWS, t_end=10.0))
EVERYTHING = range(len(DATA))


def later(data: EventData) -> EventData:
    return replace(data, sequences=[replace(one, scored_from=cut) for one, cut in zip(data, CUTS, strict=True)])


def earlier(data: EventData) -> EventData:
    """Each sequence as it was observed until its cut."""
    parts = [
        one.first(int(np.searchsorted(one.times, cut, side="right")), cut) for one, cut in zip(data, CUTS, strict=True)
    ]
    return replace(data, sequences=parts)


def test_a_closed_form_before_a_cut_and_that_after_it_add_up_to_the_whole(model: IntensityModel):
    if exact_integral_of(model) is None:
        pytest.skip("this model's integral has no closed form")
    whole, *parts = (
        log_likelihood(model, model.collator.batch(data, EVERYTHING), None).log_likelihood()
        for data in (DATA, earlier(DATA), later(DATA))
    )
    torch.testing.assert_close(parts[0] + parts[1], whole, rtol=1e-11, atol=1e-11)


def test_what_is_scored_after_a_cut_is_that_of_loops_over_its_events_and_points(model: IntensityModel):
    """The slow twin: events after the cut, and a weighted sum of totals at points after it."""
    nodes, weights = np.polynomial.legendre.leggauss(4)
    nodes, weights = ((nodes + 1) / 2).tolist(), (weights / 2).tolist()
    data = later(DATA)
    batch = model.collator.batch(data, EVERYTHING)
    found = log_likelihood(model, batch, quadrature(batch, 4)).log_likelihood().tolist()
    for place, (one, cut) in enumerate(zip(data, CUTS, strict=True)):
        edges = [cut, *(time for time in one.times.tolist() if time > cut), one.t_end]
        seen, asked, steps = int((one.times <= cut).sum()), [], []
        for begin, end in pairwise(edges):
            for node, weight in zip(nodes, weights, strict=True):
                asked.append((begin + (end - begin) * node, seen))
                steps.append(((end - begin) * weight, None))
            if seen < len(one):
                asked.append((end, seen))
                steps.append((0.0, int(one.types[seen])))
            seen += 1
        alone = model.collator.batch(data, [place])
        times, events = (
            torch.tensor([column], dtype=kind)
            for column, kind in zip(zip(*asked, strict=True), (torch.float64, torch.int64), strict=True)
        )
        intensities = model.intensities(state_at(model, alone, Queries.seeing(times, events)))[0].tolist()
        expected = 0.0
        for values, (weight, kind) in zip(intensities, steps, strict=True):
            expected += -weight * sum(values) if kind is None else math.log(values[kind])
        assert found[place] == pytest.approx(expected, rel=1e-10, abs=1e-10)


def test_training_on_what_comes_after_a_cut_descends_its_likelihood(model: IntensityModel):
    batch = model.collator.batch(later(DATA), EVERYTHING)
    points = quadrature(batch, 4)
    expected = -log_likelihood(model, batch, points).log_likelihood().sum()
    torch.testing.assert_close(training_loss(model, batch, points).objective, expected, rtol=1e-12, atol=1e-12)


def test_draws_lie_after_the_cut_and_weigh_as_much_as_the_time_after_it():
    batch = make_batch(later(DATA), EVERYTHING)
    for points in (quadrature(batch, 3), quadrature(batch, 3, short=0.1), _drawn(batch)):
        used = points.weights > 0.0
        cuts = torch.tensor(CUTS, dtype=torch.float64)[:, None].expand_as(points.weights)
        assert bool((points.queries.times >= cuts - 1e-12)[used].all())
        torch.testing.assert_close(points.weights.sum(1), 10.0 - cuts[:, 0], rtol=2e-2, atol=2e-2)


def _drawn(batch) -> Points:
    return uniform(batch, batch.lengths.clamp(min=1) * 3, torch.Generator().manual_seed(0))
