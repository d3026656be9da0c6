"""The weekly Poisson process against its slow twin, also over changes to summer time and back."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
import torch
from scipy import stats

from foretell import fit, load_model, save_model
from foretell.batches.batch import Queries
from foretell.data import Clock, EventData, EventSequence, Vocabulary
from foretell.data.calendar import calendar_of, zone_clock
from foretell.data.week_hours import hours_watched, weekly_counts
from foretell.errors import ForetellError
from foretell.models.classical.poisson import Poisson
from foretell.models.classical.weekly import WeeklyPoisson, smoothed
from foretell.objective.loglik import log_likelihood
from foretell.reference import weekly as slow
from foretell.sampling.core.futures import sample_next
from foretell.train.floor_fits import fit_floors
from tests.samples import random_data

NAMES = ("a", "b")
BEGINS = (
    datetime(2024, 3, 28, 5, 30, tzinfo=UTC),
    datetime(2024, 10, 25, tzinfo=UTC),
    datetime(2024, 4, 20, tzinfo=UTC),
)
HOUR_OF_DAYS = 24.0


def sequence(row: int, random: np.random.Generator, zone: str) -> EventSequence:
    """Busy in working hours on the wall; `a` early in the day, `b` late. Times are days, to the minute."""
    begin, minutes = BEGINS[row % 3], []
    for minute in range(0, 5 * 1440, 7):
        hour = slow.hour_of_week(begin + timedelta(minutes=minute), zone)
        if random.random() < (0.2 if 8 <= hour % 24 < 17 and hour < 120 else 0.01):
            minutes.append((minute, int(hour % 24 >= 12)))
    times, types = np.array(minutes, dtype=np.float64).T
    start = int(begin.timestamp()) * 10**9
    return EventSequence(times / 1440.0, types.astype(np.int32), 5.0, str(row), start=start)


def data_of(seed: int, count: int, zone: str = "Europe/Berlin") -> EventData:
    random = np.random.default_rng(seed)
    rows = [sequence(row, random, zone) for row in range(count)]
    return EventData(rows, Vocabulary(NAMES), clock=Clock.of_unit("days", zone, absolute=True))


def dates(one: EventSequence) -> list[tuple[str, datetime]]:
    assert one.start is not None
    begin = datetime.fromtimestamp(one.start // 10**9, UTC)
    return [
        (NAMES[kind], begin + timedelta(minutes=round(time * 1440)))
        for time, kind in zip(one.times.tolist(), one.types.tolist(), strict=True)
    ]


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "UTC"])
def test_hours_are_watched_as_clocks_on_walls_go(zone: str):
    begin = datetime(2024, 3, 9, 3, 17, tzinfo=UTC)
    for days in (0.4, 3.0, 40.0):
        end = begin + timedelta(days=days)
        seconds = [np.array([one.timestamp() - 345_600.0]) for one in (begin, end)]
        found = hours_watched(seconds[0], seconds[1], zone_clock(zone))
        np.testing.assert_allclose(found, slow.watched(begin, end, zone), atol=1e-6)


def test_rates_and_their_log_likelihood_agree_with_the_twin():
    data = data_of(1, 6)
    calendar = calendar_of(data)
    assert calendar is not None
    counts, seconds = weekly_counts(data, calendar)
    plain: dict[str, list[int]] = defaultdict(lambda: [0] * slow.HOURS)
    watched = np.zeros(slow.HOURS)
    for one in data:
        for name, at in dates(one):
            plain[name][slow.hour_of_week(at, calendar.zone)] += 1
        assert one.start is not None
        begin = datetime.fromtimestamp(one.start // 10**9, UTC)
        watched += slow.watched(begin, begin + timedelta(days=5), calendar.zone)
    np.testing.assert_array_equal(counts, [plain[name] for name in NAMES])
    np.testing.assert_allclose(seconds, watched, atol=1e-6)
    expected = slow.rates(plain, watched.tolist(), 32.0, 2.0)
    np.testing.assert_allclose(smoothed(counts, seconds, 32.0, 2.0), [expected[name] for name in NAMES], rtol=1e-9)
    model = WeeklyPoisson(data.vocabulary)
    fit(model, data, data_of(2, 4))
    per_second = {
        name: (row / 86_400.0).tolist() for name, row in zip(NAMES, model.log_rate.detach().exp(), strict=True)
    }
    found = log_likelihood(model, model.collator.batch(data, range(len(data))), None).log_likelihood()
    for one, value in zip(data, found.tolist(), strict=True):
        assert one.start is not None
        begin = datetime.fromtimestamp(one.start // 10**9, UTC)
        by_hand = slow.log_likelihood(dates(one), begin, begin + timedelta(days=5), calendar.zone, per_second)
        # The model counts events per day, the twin per second.
        assert value == pytest.approx(by_hand + len(one) * np.log(86_400.0), abs=1e-6)


def test_intensities_change_where_the_hour_does_also_when_clocks_are_put_forward():
    data = data_of(3, 6)
    model = WeeklyPoisson(data.vocabulary)
    fit(model, data)
    past = data[0]
    times = np.linspace(0.0, 5.0, 600) + 1e-4
    found = model.intensity(past, times)
    rates = model.log_rate.detach().exp().numpy()
    hours = [slow.hour_of_week(BEGINS[0] + timedelta(days=float(time)), "Europe/Berlin") for time in times]
    np.testing.assert_allclose(found, rates[:, hours].T)


def test_it_beats_a_poisson_process_where_there_is_a_week_and_is_among_the_floors():
    train, dev = data_of(4, 9), data_of(5, 4)
    floors = {one.model.kind: one.score for one in fit_floors(train, dev)}
    assert list(floors) == ["poisson", "weekly", "hawkes"]
    assert floors["weekly"] > floors["poisson"] + 0.5
    plain = random_data(1, (20, 30))
    assert [one.model.kind for one in fit_floors(plain, None)] == ["poisson", "hawkes"]


def test_where_there_is_no_week_it_is_the_poisson_process():
    random = np.random.default_rng(6)
    start = int(BEGINS[2].timestamp()) * 10**9
    rows = [
        EventSequence(np.sort(random.uniform(0, 60, 500)), random.integers(0, 2, 500), 60.0, str(row), start=start)
        for row in range(6)
    ]
    parts = [
        EventData(part, Vocabulary(NAMES), clock=Clock.of_unit("hours", "UTC", True)) for part in (rows[:4], rows[4:])
    ]
    with pytest.raises(ForetellError, match="more than two weeks"):
        fit(WeeklyPoisson(Vocabulary(NAMES)), parts[0], parts[1])
    clock = Clock.of_unit("days", "UTC", True)
    train, dev = (EventData(list(one), one.vocabulary, clock=clock) for one in parts)
    weekly, plain = (fit(model(train.vocabulary), train, dev).best for model in (WeeklyPoisson, Poisson))
    assert abs(weekly - plain) < 0.01


def test_draws_have_its_law():
    """One test of 1e-6, had the seed been drawn."""
    data = data_of(7, 6)
    model = WeeklyPoisson(data.vocabulary)
    fit(model, data)
    past = data[0].first(3, 2.0)  # two days before clocks are put forward
    (found,) = sample_next(model, [past], n=4000, horizon=30.0, seed=3)
    batch = model.collator.batch(EventData([past], data.vocabulary), [0])
    waves = model.calendar
    assert waves is not None and batch.starts is not None and bool(found.found.all())
    moments = [waves.phases.moments(batch.starts, torch.tensor(one)) for one in ([found.start], found.times)]
    mass = (model.mass(moments[1]) - model.mass(moments[0])).detach().numpy()
    assert stats.kstest(mass, "expon").pvalue > 1e-6


def test_it_is_saved_and_read_again(tmp_path):
    data = data_of(8, 6)
    model = fit(WeeklyPoisson(data.vocabulary), data).model
    save_model(model, tmp_path / "model.safetensors")
    again = load_model(tmp_path / "model.safetensors")
    batch = again.collator.batch(data, [0, 1])
    queries = Queries.of_events(batch)
    both = [one.intensities(one.state(one.encode(batch), queries)) for one in (model, again)]
    assert torch.equal(*both)
