"""Samplers of models that follow the calendar tell what the model tells, bounds hold across changes of the clock, draws have its law."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest
import torch
from scipy import stats

from foretell.data import EventSequence
from foretell.models.recurrent.rmtpp import RMTPP
from foretell.sampling.bounds.calendar_windows import calendar_waves, changes_within
from foretell.sampling.core.futures import sample_next
from foretell.sampling.core.start import start_sampler
from tests.calendar_samples import YEARLY, with_calendar
from tests.contract.members import MEMBERS, Member
from tests.sampling.test_bounds import broken
from tests.sampling.test_fit import FALSE_ALARMS, hazard
from tests.sampling.test_samplers import LATER, check, pasts

ABLE = [member for member in MEMBERS if member.build().takes_calendar]
# Midnight in UTC before clocks go forward (25 hours later), before they go back, and before a day on which nothing changes
BEGINS = [datetime(2024, 3, 30, tzinfo=UTC), datetime(2024, 10, 26, tzinfo=UTC), datetime(2025, 1, 8, tzinfo=UTC)]


def started(past: EventSequence, row: int) -> EventSequence:
    return replace(past, start=int(BEGINS[row].timestamp()) * 10**9)


def dated_pasts() -> list[EventSequence]:
    return [started(past, row) for row, past in enumerate(pasts())]


@pytest.mark.parametrize("member", ABLE, ids=lambda member: member.name)
def test_samplers_tell_the_intensities_of_the_model_before_and_after_events(member: Member):
    model, histories = with_calendar(member.build(), YEARLY), dated_pasts()
    sampler = start_sampler(model, histories, [len(one) for one in histories])
    for sequence, past in enumerate(histories):
        check(sampler, model, sequence, past, [12.0, 12.7, 15.0])
    order, goes_on = (2, 0, 1, 1), [True, False, True, True]
    sampler, histories = sampler.select(torch.tensor(order)), [histories[place] for place in order]
    for time in LATER:
        chosen = sampler.intensities(torch.full((4, 1), time, dtype=torch.float64))[:, 0].argmax(1)
        for sequence in (place for place in range(4) if goes_on[place]):
            kind = list(model.vocabulary.names).index(sampler.name(sequence, int(chosen[sequence])))
            past = histories[sequence]
            times, types = np.append(past.times, time), np.append(past.types, kind).astype(np.int32)
            histories[sequence] = replace(past, times=times, types=types, t_end=13.0)
        sampler.append(torch.full((4,), time, dtype=torch.float64), torch.where(torch.tensor(goes_on), chosen, -1))
    for sequence, past in enumerate(histories):
        check(sampler, model, sequence, past, [12.6, 12.9, 14.0])


@pytest.mark.parametrize("member", ABLE, ids=lambda member: member.name)
def test_bounds_hold_also_where_clocks_are_put_forward_or_back(member: Member):
    model = with_calendar(member.build(), spread=0.3)
    outside, looked = broken(model, dated_pasts(), windows=60, points=40, seed=5)
    assert looked > 0 and outside == 0


def test_waves_on_windows_are_within_their_remainders():
    model = with_calendar(next(one.build() for one in ABLE if one.name == "nhp"), YEARLY)
    assert model.calendar is not None
    phases, draw = model.calendar.phases, np.random.default_rng(1)
    count = 3000
    begins = torch.tensor([one.timestamp() - 345_600 for one in BEGINS], dtype=torch.float64)
    starts = begins[torch.from_numpy(draw.integers(0, 3, count))]
    middle = torch.from_numpy(draw.uniform(5.0, 20.0, count))
    half = torch.from_numpy(10.0 ** draw.uniform(-6.0, 0.5, count))
    piece = calendar_waves(phases, starts, middle, half, 3)
    curves = piece.curves()
    for place in np.linspace(-1.0, 1.0, 41):
        value = phases(phases.moments(starts, middle + half * place), torch.float64)
        low, high = curves.range_at(torch.full_like(middle, place))
        assert bool(((value >= low) & (value <= high)).all())
    changing = changes_within(phases, starts, middle - half, middle + half)
    assert 40 < int(changing.sum()) < count
    # Where nothing changes and the window is short, next to nothing is lost.
    assert float(piece.remainder[~changing & (half < 0.01)].max()) < 1e-6


@pytest.mark.parametrize("name", ["A-NHP", "NHP", "S2P2", "THP", "SAHP", "RMTPP", "A-NDTT", "NDTT", "S2-NDTT"])
def test_next_events_have_the_law_of_the_model_over_a_change_of_the_clock(name: str):
    """Below 2e-5 in all: two tests of 1e-6 for each of nine models, had seeds been drawn."""
    member = next(one for one in ABLE if one.build().title == name)
    model, past = with_calendar(member.build(), spread=0.2), dated_pasts()[0]
    if isinstance(model, RMTPP):
        with torch.no_grad():
            model.slope.mul_(0.1)
    # About three units to the next event: past the change of the clock
    scale = 0.3 / float(model.intensity(past, [12.5]).sum())
    if isinstance(model, RMTPP):
        with torch.no_grad():
            model.level.add_(math.log(scale))
    else:
        model.time_scale /= scale
    (found,) = sample_next(model, [past], n=3000, horizon=8.0, seed=1)
    edges, cumulative = hazard(model, past, found.start, found.horizon, 2000)
    missed = math.exp(-cumulative[-1])
    assert stats.binomtest(int((~found.found).sum()), 3000, missed).pvalue > FALSE_ALARMS
    by_then = np.interp(found.times[found.found], edges, cumulative)
    uniform = -np.expm1(-by_then) / -math.expm1(-cumulative[-1])
    assert stats.kstest(uniform, "uniform").pvalue > FALSE_ALARMS
    change = 12.5  # 25 hours of two
    assert int((found.times > change).sum()) > 100
