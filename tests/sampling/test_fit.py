"""Samples are of the model: gaps, rescaled times, counts and kinds of events agree with integrals of its intensities.

Every test has a seed, so it always passes or always fails; the thresholds are those of a false-alarm rate of 1e-6 for each test, had the
seed been drawn, and there are fewer than ten of them here: below 1e-5 in all.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from foretell.data import EventData, EventSequence
from foretell.models.base import IntensityModel
from foretell.models.capabilities import HasRules
from foretell.sampling.core.futures import futures_as_data, sample_futures, sample_next
from tests.sampling.processes import MODELS, PAST, TYPES, andtt, anhp

FALSE_ALARMS = 1e-6


def totals(model: IntensityModel, past: EventSequence, times: np.ndarray) -> np.ndarray:
    """Total intensities, asked of the model itself and not of its sampler."""
    possible = model.possible_intensities(past, times) if isinstance(model, HasRules) else None
    if possible is not None:
        return np.array([sum(row.values()) for row in possible])
    return model.intensity(past, times).sum(1)


def hazard(
    model: IntensityModel, past: EventSequence, start: float, end: float, panels: int = 60
) -> tuple[np.ndarray, np.ndarray]:
    """Times, and the integral of the total intensity from `start` up to each: Gauss-Legendre on panels."""
    nodes, weights = np.polynomial.legendre.leggauss(6)
    edges = np.linspace(start, end, panels + 1)
    half = (edges[1] - edges[0]) / 2.0
    times = (edges[:-1, None] + half * (1.0 + nodes)).ravel()
    inside = (totals(model, past, times).reshape(panels, -1) * weights).sum(1) * half
    return edges, np.concatenate([[0.0], inside.cumsum()])


@pytest.mark.parametrize("build", MODELS)
def test_gaps_have_the_survival_function_of_quadrature(build):
    model = build()
    (found,) = sample_next(model, [PAST], n=4000, horizon=6.0, seed=1)
    edges, cumulative = hazard(model, PAST, found.start, found.horizon, 400)
    missed = math.exp(-cumulative[-1])
    assert stats.binomtest(int((~found.found).sum()), 4000, missed).pvalue > FALSE_ALARMS
    by_then = np.interp(found.times[found.found], edges, cumulative)
    uniform = -np.expm1(-by_then) / -math.expm1(-cumulative[-1])
    assert stats.kstest(uniform, "uniform").pvalue > FALSE_ALARMS


@pytest.mark.parametrize("build", MODELS)
def test_rescaled_times_of_futures_are_exponential_and_counts_match_the_compensator(build):
    model = build()
    (found,) = sample_futures(model, [PAST], n=24, horizon=8.0, seed=2)
    data = futures_as_data([found], [PAST], model.vocabulary)
    residuals, surplus = [], []
    for sequence in data:
        first = len(PAST)
        before = found.start
        whole = 0.0
        for place in range(first, len(sequence) + 1):
            end = float(sequence.times[place]) if place < len(sequence) else found.horizon
            past = EventSequence(sequence.times[:place], sequence.types[:place], max(end, before), "so far")
            area = hazard(model, past, before, end, 12)[1][-1] if end > before else 0.0
            whole += area
            if place < len(sequence):
                residuals.append(area)
            before = end
        surplus.append(len(sequence) - first - whole)
    # The events of each future are followed by an interval that none ended; leaving it out shortens what is left, so the
    # censored ones are put together with the next future's first: a Poisson process of rate 1 goes on where it was cut.
    assert stats.ttest_1samp(surplus, 0.0).pvalue > FALSE_ALARMS
    joined, left = [], 0.0
    place = 0
    for sequence, extra in zip(data, surplus, strict=True):
        count = len(sequence) - len(PAST)
        own = residuals[place : place + count]
        place += count
        tail = count - extra - sum(own)
        if own:
            own = [own[0] + left, *own[1:]]
            left = tail
        else:
            left += tail
        joined += own
    assert len(joined) > 100
    assert stats.kstest(joined, "expon").pvalue > FALSE_ALARMS


@pytest.mark.parametrize("build", MODELS)
def test_kinds_of_events_come_in_proportion_to_their_intensities(build):
    model = build()
    (found,) = sample_next(model, [PAST], n=4000, horizon=4.0, seed=3)
    names = list(TYPES.names)
    counts, expected = np.zeros(3), np.zeros(3)
    seen = found.found
    times = found.times[seen]
    for name in np.array(found.events, dtype=object)[seen]:
        counts[names.index(name)] += 1
    possible = model.possible_intensities(PAST, times) if isinstance(model, HasRules) else None
    rows = (
        np.array([[row.get(name, 0.0) for name in names] for row in possible])
        if possible is not None
        else model.intensity(PAST, times)
    )
    shares = rows / rows.sum(1, keepdims=True)
    expected = shares.sum(0)
    spread = (np.einsum("ni,nj->ij", shares, -shares) + np.diag(expected))[:2, :2]
    off = (counts - expected)[:2]
    kinds = expected > 0
    if kinds.all():
        assert stats.chi2.sf(off @ np.linalg.solve(spread, off), 2) > FALSE_ALARMS
    assert not counts[~kinds].any()


def test_a_sampler_that_is_off_by_a_tenth_would_be_caught():
    """The control: the same test, on times that are ten per cent too long."""
    model = anhp()
    (found,) = sample_next(model, [PAST], n=4000, horizon=6.0, seed=1)
    edges, cumulative = hazard(model, PAST, found.start, found.horizon, 400)
    longer = found.start + 1.1 * (found.times[found.found] - found.start)
    longer = longer[longer < found.horizon]
    uniform = -np.expm1(-np.interp(longer, edges, cumulative)) / -math.expm1(-cumulative[-1])
    assert stats.kstest(uniform, "uniform").pvalue < FALSE_ALARMS


def test_sampled_events_of_rules_are_possible_when_they_happen():
    model = andtt()
    (found,) = sample_futures(model, [PAST], n=20, horizon=10.0, seed=4)
    data = futures_as_data([found], [PAST], model.vocabulary)
    fresh = EventData(list(data), data.vocabulary)
    assert sum(len(one) for one in fresh) > 300
    for sequence in fresh:
        model.histories.timeline(model.vocabulary, sequence)  # an impossible event is an error here
