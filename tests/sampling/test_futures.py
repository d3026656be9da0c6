"""Futures say why they end, come again with their seed, and see nothing that they must not see."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from foretell.data import EventSequence
from foretell.errors import ForetellError
from foretell.models.base import IntensityModel
from foretell.models.classical.poisson import Poisson
from foretell.sampling.bounds.chebyshev import ChebyshevPiece
from foretell.sampling.core import drawing as module
from foretell.sampling.core import thinning
from foretell.sampling.core.futures import sample_futures, sample_next
from foretell.sampling.core.pace import ALIKE, Pace
from foretell.sampling.core.sampler import Bounds, Sampler
from foretell.sampling.core.thinning import BoundViolation, EventDraws, IntensityOverflow, _choice, _judged, next_events
from tests.contract.members import MEMBERS, Member
from tests.sampling.processes import MODELS, PAST, anhp, hawkes


def next_of_one(sampler: Sampler, n: int, begin: float, length: float, seed: int = 0) -> EventDraws:
    start = torch.tensor([begin], dtype=torch.float64)
    of_draw = torch.zeros(n, dtype=torch.int64)
    random = torch.Generator().manual_seed(seed)
    return next_events(sampler, of_draw, start, start + length, Pace.first(sampler, start.device), random)


@pytest.mark.parametrize("member", MEMBERS, ids=lambda member: member.name)
def test_futures_lie_between_start_and_horizon_and_say_why_they_end(member: Member):
    (found,) = sample_futures(member.build(), [PAST], n=5, horizon=3.0, events=6, seed=1)
    assert (found.start, found.horizon) == (2.2, 5.2)
    assert found.cost.accepted == sum(len(one.events) for one in found.futures)
    assert found.cost.proposals >= found.cost.accepted
    for one in found.futures:
        assert len(one.times) == len(one.events) <= 6
        assert bool((np.diff(one.times) > 0).all()) and bool(((one.times > 2.2) & (one.times <= 5.2)).all())
        assert one.end == ("count" if len(one.events) == 6 else "horizon")


@pytest.mark.parametrize("member", MEMBERS, ids=lambda member: member.name)
def test_the_same_seed_gives_the_same_futures_and_another_does_not(member: Member):
    model = member.build()
    first, again, other = (
        sample_futures(model, [PAST], n=4, horizon=9.0, events=12, seed=seed)[0] for seed in (3, 3, 4)
    )
    assert [one.to_json() for one in first.futures] == [one.to_json() for one in again.futures]
    assert [one.to_json() for one in first.futures] != [one.to_json() for one in other.futures]


def test_threads_other_histories_and_how_many_are_held_at_a_time_change_nothing(monkeypatch: pytest.MonkeyPatch):
    model = hawkes()
    alone = sample_futures(model, [PAST], n=5, horizon=4.0, seed=3)[0]
    beside = sample_futures(model, [PAST, PAST], n=5, horizon=4.0, seed=3)
    assert beside[0].to_json() == alone.to_json()
    assert beside[1].to_json() != alone.to_json()
    monkeypatch.setattr(module, "SEQUENCES_AT_A_TIME", 2)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    one_by_one = sample_futures(model, [PAST], n=5, horizon=4.0, seed=3)[0]
    torch.set_num_threads(max(2, threads))
    together = sample_futures(model, [PAST], n=5, horizon=4.0, seed=3)[0]
    torch.set_num_threads(threads)
    assert together.to_json() == one_by_one.to_json()


def test_sampling_leaves_random_state_model_and_dtype_alone():
    model = anhp().float()
    state = torch.get_rng_state()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.train()
    sample_futures(model, [PAST], n=2, horizon=1.0)
    assert model.training
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert model.dtype == torch.float32


def test_events_after_the_start_are_not_seen():
    model = anhp()
    later = EventSequence(np.append(PAST.times, [2.5, 3.0]), np.append(PAST.types, [1, 1]), 3.5, "past")
    first = sample_futures(model, [PAST], n=3, horizon=2.0, seed=5)[0]
    second = sample_futures(model, [later], n=3, horizon=2.0, start=2.2, seed=5)[0]
    assert first.to_json() == second.to_json()


def test_a_start_after_the_end_of_what_was_observed_takes_the_quiet_as_given(caplog: pytest.LogCaptureFixture):
    (found,) = sample_futures(hawkes(), [PAST], n=3, horizon=2.0, start=9.0, seed=5)
    assert all(time > 9.0 for one in found.futures for time in one.times)
    assert "observed until 2.2" in caplog.text


@pytest.mark.parametrize("start", [0.0, 2.2])
def test_a_model_with_parameters_that_are_no_numbers_is_refused(start: float):
    model = anhp()
    with torch.no_grad():
        model.w[0, 0] = torch.nan
    with pytest.raises(ForetellError, match="not finite"):
        sample_futures(model, [PAST], horizon=1.0, start=start)


def test_a_sequence_without_a_finite_bound_raises_even_from_time_0():
    sampler = module.start_sampler(hawkes(), [PAST], [0])
    sampler.bounds = lambda start, end: Bounds(torch.full_like(start, torch.inf), torch.ones_like(start))  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(IntensityOverflow, match="nothing can be drawn"):
        next_of_one(sampler, 1, 0.0, 1.0)


def test_next_events_that_are_not_found_have_no_time():
    model = Poisson(2)
    with torch.no_grad():
        model.log_rate.fill_(-3.0)
    (found,) = sample_next(
        model, [EventSequence(np.empty(0), np.empty(0, dtype=np.int32), 1.0, "p")], n=400, horizon=2.0
    )
    assert 0 < found.found.sum() < 400
    assert np.isnan(found.times[~found.found]).all() and not np.isnan(found.times[found.found]).any()
    assert all((name is None) == (not seen) for name, seen in zip(found.events, found.found, strict=True))


def test_a_process_that_explodes_is_stopped_and_says_so():
    model = hawkes()
    with torch.no_grad():
        model.alpha.mul_(20.0)
    (found,) = sample_futures(model, [PAST], horizon=1e6, events=300)
    assert found.futures[0].end == "count" and len(found.futures[0].events) == 300


def test_a_bound_that_is_exceeded_raises():
    sampler = module.start_sampler(hawkes(), [PAST], [4])
    honest = sampler.bounds

    def lying(start: torch.Tensor, end: torch.Tensor) -> Bounds:
        true = honest(start, end)
        return Bounds(true.upper * 0.8, true.middle)

    sampler.bounds = lying  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(BoundViolation, match="above its bound"):
        next_of_one(sampler, 50, 2.2, 50.0)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"horizon": 0.0}, "horizon = 0.0"),
        ({"horizon": float("nan")}, "horizon = nan"),
        ({"horizon": 1.0, "n": 0}, "n = 0"),
        ({"horizon": 1.0, "events": 0}, "events = 0"),
        ({"horizon": 1.0, "seed": -1}, "seed = -1"),
        ({"horizon": 1.0, "start": -1.0}, "start = -1"),
    ],
    ids=str,
)
def test_what_cannot_be_sampled_is_said(given: dict[str, float], said: str):
    with pytest.raises(ForetellError, match=said):
        sample_futures(hawkes(), [PAST], **given)  # pyright: ignore[reportArgumentType]


def test_a_history_of_another_kind_is_refused():
    with pytest.raises(ForetellError, match="expected one sequence"):
        hawkes().sample("robocup", horizon=1.0)  # pyright: ignore[reportArgumentType]


def test_windows_adapt_so_that_few_proposals_and_bounds_are_needed():
    (found,) = sample_futures(anhp(), [PAST], n=20, horizon=30.0, seed=6)
    assert found.cost.accepted > 300
    assert (found.cost.proposals + found.cost.bounds) / found.cost.accepted < 10.0


def test_a_lower_bound_that_is_exceeded_raises():
    sampler = module.start_sampler(anhp(), [PAST], [4])
    honest = sampler.bounds

    def lying(start: torch.Tensor, end: torch.Tensor) -> Bounds:
        true = honest(start, end)
        assert true.rates is not None
        return Bounds(true.upper * 1.5, true.middle, ChebyshevPiece(true.rates.v * 1.2, true.rates.remainder))

    sampler.bounds = lying  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(BoundViolation, match="below its bound"):
        next_of_one(sampler, 500, 2.2, 50.0)


@pytest.mark.parametrize("known", [True, False], ids=["levels", "network"])
def test_levels_that_tell_the_choice_give_the_same_distribution_as_the_network(known: bool):
    """Time and type of the next event of a sharp model, against quadrature: a false alarm in less than one of 100,000 runs."""
    model, n = anhp(), 20_000
    sampler = module.start_sampler(model, [PAST], [4])
    honest, asked = sampler.bounds, []
    if not known:
        sampler.bounds = lambda start, end: replace(honest(start, end), rates=None)  # pyright: ignore[reportAttributeAccessIssue]
    rates_at = sampler.intensities

    def counted(times: torch.Tensor) -> torch.Tensor:
        asked.append(times.numel())
        return rates_at(times)

    sampler.intensities = counted  # pyright: ignore[reportAttributeAccessIssue]
    drawn = next_of_one(sampler, n, 2.2, 2.0, seed=1)
    grid = torch.linspace(2.2, 4.2, 4001, dtype=torch.float64)
    rates = rates_at(grid[None])[0]
    step = float(grid[1] - grid[0])
    mass = torch.cat([torch.zeros(1).double(), ((rates[1:] + rates[:-1]).sum(1) * step / 2.0).cumsum(0)])
    density = rates * torch.exp(-mass)[:, None]
    halves = [slice(0, 1001), slice(1000, 4001)]  # each type early, and late
    expected = [torch.trapezoid(density[part], dx=step, dim=0) for part in halves]
    early = drawn.times < float(grid[1000])
    for part, chance in zip((early, ~early), expected, strict=True):
        for choice, p in enumerate(chance.tolist()):
            seen = int((part & (drawn.choices == choice)).sum())
            assert abs(seen - n * p) < 5.5 * np.sqrt(n * p * (1.0 - p)) + 1.0
    assert (sum(asked) < n / 4) == known


def test_samplers_with_few_many_and_no_draws_side_by_side_have_their_own_laws():
    """A false alarm in less than one of 100,000 runs."""
    model, seen = anhp(), [4, 1, 3, 2]
    sampler = module.start_sampler(model, [PAST] * 4, seen)
    draws = [3000, 40, 0, 900]
    of_draw = torch.arange(4).repeat_interleave(torch.tensor(draws))
    start = torch.full((4,), 2.2, dtype=torch.float64)
    end = start + torch.tensor([0.7, 0.9, 1.0, 0.0], dtype=torch.float64)  # the last has no time
    drawn = next_events(
        sampler, of_draw, start, end, Pace.first(sampler, start.device), torch.Generator().manual_seed(2)
    )
    for sequence, n in enumerate(draws):
        mine = drawn.found[of_draw == sequence]
        grid = torch.linspace(0.0, 1.0, 2001, dtype=torch.float64)[None] * (end - start)[:, None] + start[:, None]
        mass = torch.trapezoid(sampler.intensities(grid).sum(-1)[sequence], grid[sequence])
        p = float(1.0 - torch.exp(-mass))
        assert abs(int(mine.sum()) - n * p) <= 5.5 * np.sqrt(n * p * (1.0 - p))
    assert not bool(drawn.found[of_draw == 3].any())


@pytest.mark.parametrize("build", MODELS)
@pytest.mark.parametrize("few", [1, 3, 128])
def test_bounds_do_not_know_what_is_due(build: Callable[[], IntensityModel], few: int, monkeypatch: pytest.MonkeyPatch):
    """Where pieces lie, and how high their bounds are, is the same whenever the proposals come, so that these are a Poisson process."""
    monkeypatch.setattr("foretell.sampling.core.pace.ALIKE", few)
    start = torch.tensor([2.2], dtype=torch.float64)
    every: list[list[tuple[float, float]]] = []
    for due in (0.05, 0.3, 1.0, 6.0):
        sampler = module.start_sampler(build(), [PAST], [4])
        pace, now, mass = Pace.first(sampler, start.device), start, 0.0
        seen: list[tuple[float, float]] = []
        while mass < 6.0 and float(now) < 40.0:
            steps = thinning._steps(sampler, now, start + 40.0, pace, torch.tensor([due], dtype=torch.float64))
            window, _ = thinning._window(sampler, now, start + 40.0, pace, steps, 1e4)
            used = window.upper[0] > 0.0
            seen += zip(window.edges[0, 1:][used].tolist(), window.upper[0][used].tolist(), strict=True)
            now, mass = window.end, mass + float(window.whole)
        every.append(seen)
    assert all(len(seen) > 1 for seen in every)
    for seen in every[:-1]:
        for found, wanted in zip(seen, every[-1], strict=False):
            assert found == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize("place", [0.5, 0.02, 1.0])
def test_a_horizon_in_the_last_of_pieces_of_one_length_is_reached(place: float):
    model = hawkes()
    width = module.start_sampler(model, [PAST], [4]).width
    (found,) = sample_futures(model, [PAST], n=16, seed=1, horizon=(ALIKE - 1 + place) * width)
    assert {one.end for one in found.futures} == {"horizon"}


def test_pieces_shorter_than_the_rounding_of_time_do_not_stand_still():
    model = anhp()
    model.time.set_range(1e-5, 10.0)
    (found,) = sample_futures(model, [PAST], start=1e12, horizon=3.0, n=2, events=2)
    assert all(one.times.size == 0 or one.times[0] > 1e12 for one in found.futures)


def test_what_happens_in_another_sequence_changes_no_bound():
    """Tables grow, and are centred anew, also while a sequence waits."""
    sampler = module.start_sampler(anhp(), [PAST, PAST], [4, 4])
    start = torch.full((2, 1), 2.2, dtype=torch.float64) + torch.arange(10) * 0.01
    sampler.look(start[:, :1])
    before = sampler.bounds(start, start + 0.01).upper[0]
    for number in range(60):
        sampler.append(torch.full((2,), 2.0 + 0.001 * number, dtype=torch.float64), torch.tensor([-1, number % 3]))
        sampler.look(start[:, number % 10, None])
        torch.testing.assert_close(sampler.bounds(start, start + 0.01).upper[0], before, rtol=1e-12, atol=0.0)


def test_samplers_that_are_set_aside_change_no_bound(monkeypatch: pytest.MonkeyPatch):
    sampler = module.start_sampler(anhp(), [PAST] * 4, [4] * 4)
    looked: list[float] = []
    plain = type(sampler).look

    def look(self: Sampler, times: torch.Tensor) -> torch.Tensor:
        if bool((self._stale >= 24).any()):  # pyright: ignore
            looked.append(float(times[0, 0]))
        return plain(self, times)

    monkeypatch.setattr(type(sampler), "look", look)
    start = torch.full((4,), 2.2, dtype=torch.float64)
    of_draw = torch.tensor([0] * 6 + [1])
    next_events(
        sampler, of_draw, start, start + 50.0, Pace.first(sampler, start.device), torch.Generator().manual_seed(16)
    )
    assert len(looked) == 1


def test_a_level_that_rounding_puts_below_all_parts_tells_no_choice_that_cannot_happen():
    parts = torch.tensor([[0.0, 1.0], [0.0, 1.0]], dtype=torch.float64)
    assert _choice(parts, torch.tensor([-1e-13, 0.5], dtype=torch.float64)).tolist() == [1, 1]


def test_a_piece_without_length_and_without_a_bound_takes_nothing_from_its_window():
    upper = torch.tensor([[1.0, 1.0, torch.inf]], dtype=torch.float64)
    edges = torch.tensor([[0.0, 1.0, 2.0, 2.0]], dtype=torch.float64)
    _, mass, usable, _ = _judged(Bounds(upper, torch.ones_like(upper)), edges, 1.0, 0.2)
    assert mass.tolist() == [[0.0, 1.0, 2.0, 2.0]] and usable.tolist() == [3]


def test_bounds_do_not_depend_on_how_much_is_worked_on_together(monkeypatch: pytest.MonkeyPatch):
    sampler = module.start_sampler(anhp(), [PAST], [4])
    start = torch.linspace(2.2, 6.0, 40, dtype=torch.float64)[None]
    whole = sampler.bounds(start, start + 10.0 ** torch.linspace(-3.0, 1.0, 40, dtype=torch.float64))
    monkeypatch.setattr("foretell.models.attention.anhp_sampler.IN_CACHE", 64)
    parts = sampler.bounds(start, start + 10.0 ** torch.linspace(-3.0, 1.0, 40, dtype=torch.float64))
    torch.testing.assert_close(parts.upper, whole.upper, rtol=1e-12, atol=0.0)
    torch.testing.assert_close(parts.middle, whole.middle, rtol=1e-12, atol=0.0)
