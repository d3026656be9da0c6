"""Step functions from training data: against plain loops, and as many events as there were."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
import torch

from foretell.data import EventData, EventSequence
from foretell.models.classical.poisson import Poisson
from foretell.models.units import mean_gap, scored_counts
from foretell.objective.noise_parts import Profile, TimedNoise
from foretell.reference.timed import area, height
from foretell.train.noise import fit_noise, levelled, own_profile, start_profile
from tests.samples import event_data, random_rows
from tests.train.small import small_model

ENDS = [10.0, 4.0, 9.5, 12.0, 10.0, 10.0]
ROWS = random_rows(71, [60, 0, 45, 30, 1, 2], types=3, t_end=10.0, ties=True)
ROWS[1] = ([], [])
DATA = event_data([(t, [k % 2 for k in kinds]) for t, kinds in ROWS], t_end=ENDS)  # `c` never happens
MANY = event_data(random_rows(72, [400, 300], types=1, t_end=10.0), types=1)  # more than fit into 64 steps of eight


def partly_scored(data: EventData, seed: int = 1) -> EventData:
    random = np.random.default_rng(seed)
    marked = [
        EventSequence(one.times, one.types, one.t_end, one.id, unscored=random.random(len(one)) < 0.3) for one in data
    ]
    return EventData(marked, data.vocabulary, data.origin, data.name)


def counted(data: EventData, row: int, place: int) -> bool:
    unscored = data[row].unscored
    return (unscored is None or not unscored[place]) and (place > 0 or data.origin == "window")


def from_start(data: EventData, kind: int) -> tuple[list[float], list[float]]:
    """Elapsed times of scored events, and how long each clock ran."""
    elapsed = []
    for row, one in enumerate(data):
        elapsed += [float(t) for i, t in enumerate(one.times) if one.types[i] == kind and counted(data, row, i)]
    return elapsed, [one.t_end for one in data]


def from_own(data: EventData, kind: int) -> tuple[list[float], list[float]]:
    elapsed, watched = [], []
    for row, one in enumerate(data):
        last = None
        for place, (time, type) in enumerate(zip(one.times.tolist(), one.types.tolist(), strict=True)):
            if type == kind:
                if last is not None:
                    watched.append(time - last)
                    if counted(data, row, place):
                        elapsed.append(time - last)
                last = time
        if last is not None:
            watched.append(one.t_end - last)
    return elapsed, watched


def slow_rate(elapsed: list[float], watched: list[float], gap: float, at: float) -> float:
    """The definition, for one time: every step that covers it, at each of three widths."""
    if not elapsed:
        return 0.0
    count = max(1, min(64, len(elapsed) // 8))
    cuts = np.quantile(elapsed, [place / count for place in range(count + 1)]).tolist()
    value = 0.0
    for width in (0.01 * gap, 0.1 * gap, gap):
        for first, last in pairwise(cuts):
            begin, end = max(first - width, 0.0), last + width
            if begin <= at < end:
                time = sum(min(end, one) - min(begin, one) for one in watched)
                value += len(elapsed) / count / 3.0 / time
    return value


Clock = tuple[Callable[[EventData], Profile], Callable[[EventData, int], tuple[list[float], list[float]]]]
CLOCKS: list[Clock] = [(start_profile, from_start), (own_profile, from_own)]
BEGUN = event_data([([0.0, *t], [0, *(k % 2 for k in kinds)]) for t, kinds in ROWS], t_end=ENDS, origin="first-event")
ALL = [DATA, MANY, partly_scored(DATA), BEGUN]
IDS = ["plain", "many events", "partly scored", "from the first event"]


def pairs(profile: Profile, kind: int) -> list[tuple[float, float]]:
    return list(zip(profile.edges[kind].tolist(), profile.rate[kind].tolist(), strict=True))


@pytest.mark.parametrize("clock", CLOCKS, ids=["since the start", "since the last"])
@pytest.mark.parametrize("data", ALL, ids=IDS)
def test_rates_are_those_of_a_loop_over_the_definition(clock: Clock, data: EventData):
    profile, gap = clock[0](data), mean_gap(data)
    for kind in range(len(data.vocabulary)):
        elapsed, watched = clock[1](data, kind)
        found = pairs(profile, kind)
        for at in np.random.default_rng(3).uniform(0.0, 13.0, 80).tolist() + elapsed[:20]:
            assert height(found, at) == pytest.approx(slow_rate(elapsed, watched, gap, at), rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("clock", CLOCKS, ids=["since the start", "since the last"])
@pytest.mark.parametrize("data", ALL, ids=IDS)
def test_over_the_time_that_was_watched_as_many_events_are_expected_as_came(clock: Clock, data: EventData):
    profile = clock[0](data)
    for kind in range(len(data.vocabulary)):
        elapsed, watched = clock[1](data, kind)
        expected = sum(area(pairs(profile, kind), 0.0, one) for one in watched)
        assert expected == pytest.approx(len(elapsed), rel=1e-9)


def test_there_is_noise_on_both_sides_of_a_moment_at_which_all_come_and_none_far_away():
    random = np.random.default_rng(4)
    rows = [([float(random.uniform(0.0, 4.0)), 5.0, float(random.uniform(6.0, 9.0))], [0, 1, 0]) for _ in range(50)]
    profile, gap = start_profile(event_data(rows, types=2)), mean_gap(event_data(rows, types=2))
    shares = (0.005, 0.05, 0.5)
    before, after = ([height(pairs(profile, 1), 5.0 + sign * share * gap) for share in shares] for sign in (-1, 1))
    assert before == pytest.approx(after)
    assert before[0] > 3.0 * before[1] > 9.0 * before[2] > 0.0
    assert height(pairs(profile, 1), 5.0 + 1.1 * gap) == height(pairs(profile, 1), 5.0 - 1.1 * gap) == 0.0


def test_marks_that_never_happen_and_data_of_single_events_have_no_rate():
    assert not start_profile(DATA).rate[2].any() and not own_profile(DATA).rate[2].any()
    single = event_data([([2.0], [0]), ([3.0], [1]), ([], [])])
    assert not own_profile(single).rate.any()
    assert start_profile(single).rate[:2].any()


def test_returns_of_no_length_in_no_time_give_finite_rates():
    """Two events at once, at the very end: nothing was watched after the first."""
    data = event_data([([1.0, 4.0, 4.0], [1, 0, 0])], types=2, t_end=4.0)
    profile = own_profile(data)
    assert bool(profile.rate.isfinite().all()) and not profile.rate[0].any()


def test_timed_noise_is_made_of_four_shares(monkeypatch: pytest.MonkeyPatch):
    fitted = fit_noise(small_model(DATA), DATA, None, "timed")
    monkeypatch.setattr("foretell.train.noise.levelled", np.ones_like)
    plain = fit_noise(small_model(DATA), DATA, None, "timed")
    assert isinstance(fitted, TimedNoise) and isinstance(plain, TimedNoise)
    assert torch.equal(plain.since_start.rate, 0.25 * start_profile(DATA).rate)
    assert torch.equal(plain.since_own.rate, 0.25 * own_profile(DATA).rate)
    expected = 1.0 / (np.array([0.001, 0.03, 1.0, 10.0]) * mean_gap(DATA))
    assert plain.hawkes.beta.tolist() == pytest.approx(expected.tolist(), rel=1e-6)
    poisson = fit_noise(small_model(DATA), DATA, None, "poisson")
    assert isinstance(poisson, Poisson)
    rates = poisson.log_rate.exp()
    assert bool((plain.hawkes.mu >= 0.2 * rates).all())
    assert bool((plain.hawkes.mu <= 0.5 * rates * (1.0 + 1e-9)).all())  # of the excited share, at most all is constant
    factors = torch.from_numpy(levelled(scored_counts(DATA)[0]))
    assert factors.std() > 0.05 and plain.hawkes.alpha[:2].sum((1, 2)).gt(0.0).all()
    assert torch.equal(fitted.hawkes.mu, plain.hawkes.mu * factors)
    assert torch.equal(fitted.hawkes.alpha, plain.hawkes.alpha * factors[:, None, None])  # by what is raised
    torch.testing.assert_close(fitted.since_start.rate, plain.since_start.rate * factors[:, None], rtol=1e-14, atol=0.0)
    torch.testing.assert_close(fitted.since_own.rate, plain.since_own.rate * factors[:, None], rtol=1e-14, atol=0.0)


@pytest.mark.parametrize(
    "counts",
    [
        [7.5],
        [0.5, 0.5],
        [0.5, 9.5, 100.5],
        [1e6, *[1.5] * 10_000],
        [40.0, 30.0, 20.0, 2000.0, 1500.0],
        [1e300, 1e9, 3.0],
    ],
)
def test_marks_that_seldom_come_get_more_noise_and_others_at_least_half_of_theirs(counts: list[float]):
    array = np.array(counts)
    factors = levelled(array)
    assert factors @ array == pytest.approx(array.sum(), rel=1e-12)
    assert (factors >= 0.5).all()
    assert (factors[array == 0.5] == 1.0).all()  # what never came
    came, noise = array > 0.5, factors * np.sqrt(array)
    free = came & (factors > 0.5)
    if free.any():
        assert np.ptp(noise[free]) <= 1e-9 * noise[free].max()  # as the square roots
        assert (noise[came & ~free] >= noise[free].max() * (1.0 - 1e-9)).all()


def test_levels_are_known_in_closed_form():
    free = np.array([40.5, 90.5, 160.5])
    assert levelled(free) == pytest.approx(free.sum() / np.sqrt(free).sum() / np.sqrt(free))
    crowd = np.array([10_000.0, *[4.0] * 1000])  # the first keeps half, and all others share what it loses
    assert levelled(crowd) == pytest.approx([0.5, *[1.0 + 5000.0 / 4000.0] * 1000])
    assert levelled(np.array([0.5, *crowd]))[1:] == pytest.approx(levelled(crowd))
