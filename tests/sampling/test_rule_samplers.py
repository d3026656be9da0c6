"""Sampler of any model of rules: the model's own intensities, also after sampled events, side by side, copied, and under bounds."""

from __future__ import annotations

import copy
import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from foretell.errors import ForetellError
from foretell.sampling.core.sampler import WindowGrowth
from foretell.sampling.core.thinning import _Clock
from tests.plan.rich_programs import rich_case
from tests.sampling.rule_kinds import KINDS, TIMED, Kind
from tests.sampling.told import AHEAD, CYCLIC, POOLED, TALK, CyclesAreRefusedByBoth, Told, exceeded, sampled, wandered

MANY = [pytest.param(kind, seed, id=f"{kind.name}-{seed}") for kind in KINDS for seed in range(24, kind.programs)]


@pytest.fixture(params=KINDS + TIMED, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> Kind:
    return request.param


@pytest.mark.parametrize("seed", [seed for seed in range(12) if seed not in CYCLIC])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_sampler_and_network_are_one_function_on_random_programs(kind: Kind, seed: int):
    """The sampler applies the network's deductions and layers to rows of its own, and has an attention and a cell step of its own."""
    one = kind.of_case(rich_case(seed), 4)
    for _ in range(3):
        times = one.last + np.asarray([1e-3, 0.3, 2.0])
        rates = one.rates(times)
        for row, wanted in zip(rates, one.model.possible_intensities(one.history, times), strict=True):
            found = {one.sampler.name(0, choice): float(rate) for choice, rate in enumerate(row)}
            assert found == pytest.approx(wanted, rel=1e-12, abs=1e-300)
        if not rates.shape[1]:
            return
        one.append(one.sampler.name(0, seed % rates.shape[1]), one.last + 0.4)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("seed", sorted(set(range(24)) - CYCLIC))
def test_intensities_are_those_of_the_model_also_after_sampled_events(kind: Kind, seed: int):
    case = rich_case(seed)
    for seen in {0, len(case.sequences[0][0])}:
        sampled(kind.of_case(case, seen), 3, seed)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "seed"), MANY)
def test_intensities_are_those_of_the_model_in_many_more_programs(kind: Kind, seed: int):
    case = rich_case(seed)
    for seen in {0, len(case.sequences[0][0]) // 2, len(case.sequences[0][0])}:
        try:
            one = kind.of_case(case, seen)
            one.model.possible_intensities(one.history, [one.last + 1.0])
        except ForetellError as error:
            assert "needs itself" in str(error)
            continue
        with CyclesAreRefusedByBoth(one):
            sampled(one, 5, seed)


def test_samplers_side_by_side_are_as_each_alone(kind: Kind):
    case = rich_case(1)
    whole = kind.of_case(case, len(case.sequences[0][0]))
    model, history, starts = whole.model, whole.history, list(range(len(whole.names) + 1))
    together = kind.start(model, [history] * len(starts), starts)
    draw = torch.Generator().manual_seed(0)
    at = torch.rand(len(starts), 5, dtype=torch.float64, generator=draw) * 3.0 + whole.last
    end = at + 0.3
    rates, bounds = together.intensities(at), together.bounds(at, end)
    for sequence, seen in enumerate(starts):
        alone = kind.start(model, [history], [seen])
        own = alone.intensities(at[sequence : sequence + 1])[0]
        torch.testing.assert_close(rates[sequence, :, : own.shape[1]], own, rtol=1e-12, atol=0.0)
        assert not rates[sequence, :, own.shape[1] :].any()
        upper = alone.bounds(at[sequence : sequence + 1], end[sequence : sequence + 1]).upper[0]
        torch.testing.assert_close(bounds.upper[sequence], upper, rtol=1e-12, atol=0.0)


def test_copies_go_on_separately(kind: Kind):
    one = kind.told(TALK, ["say(ann)", "rain"], [0.5, 1.0])
    before = one.rates(one.last + AHEAD)
    copies = one.sampler.select(torch.tensor([0, 0, 0]))
    assert [copies.name(0, choice) for choice in range(before.shape[1])] == ["hush", "say(ann)", "say(bob)"]
    copies.append(torch.tensor([1.5, 1.5, 2.5], dtype=torch.float64), torch.tensor([0, 1, 1]))
    assert torch.equal(one.rates(one.last + AHEAD), before)
    for sequence, (name, time) in enumerate([("hush", 1.5), ("say(ann)", 1.5), ("say(ann)", 2.5)]):
        other = Told(one.model, [*one.names, name], [*one.times, time])
        found = copies.intensities(torch.from_numpy(np.stack([other.last + AHEAD] * 3)))[sequence]
        wanted = other.rates(other.last + AHEAD)
        torch.testing.assert_close(found[:, : wanted.shape[1]], wanted, rtol=1e-9, atol=0.0)


def test_embeddings_that_come_to_need_one_another_are_refused_as_by_the_model(kind: Kind):
    one = kind.told(
        ":- event(turn). :- event(other).\n:- embed(on, 0).\nturn. other.\non <- turn.\n"
        "a :- on, b.\nb :- on, a.\nb :- other.\nother :- a.\n"
    )
    one.append("turn", 1.0)
    for ask in (lambda: one.rates([2.0]), lambda: one.model.possible_intensities(one.history, [2.0])):
        with pytest.raises(ForetellError, match="other"):
            ask()


def test_samplers_of_one_model_in_several_threads_do_not_get_in_one_another_s_way(kind: Kind):
    one = kind.told(TALK, ["say(ann)", "rain"], [0.5, 1.0])
    history, seeds = one.history, range(8)
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda seed: wandered(one.model, history, seed), seeds))
    for seed, found in zip(seeds, together, strict=True):
        alone = wandered(kind.told(TALK, ["say(ann)", "rain"], [0.5, 1.0]).model, history, seed)
        assert [name for name, _ in found] == [name for name, _ in alone]
        assert [rates for _, rates in found] == [pytest.approx(rates, rel=1e-9) for _, rates in alone]


def test_nothing_has_happened_yet(kind: Kind):
    one = kind.told(TALK)
    one.agrees()
    one.append("say(bob)", 0.0)
    one.agrees()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_events_without_embeddings_have_constant_intensities(kind: Kind):
    one = kind.told(
        ":- event(tick, 0). :- event(tock, 0).\ntick.\n:- embed(wound, 0).\nwound <- tick.\ntock :- wound.\n"
    )
    assert one.agrees() == 1
    one.append("tick", 0.5)
    assert one.agrees() == 2
    bounds = one.sampler.bounds(
        torch.tensor([[1.0]], dtype=torch.float64), torch.tensor([[900.0]], dtype=torch.float64)
    )
    assert float(bounds.upper) == pytest.approx(float(one.rates([1.0]).sum()), rel=1e-8)


@pytest.mark.parametrize("spread", [1.0, 5.0])
@pytest.mark.parametrize("kind", TIMED, ids=lambda kind: kind.name)
def test_no_factor_of_the_time_since_the_last_event_is_above_its_bound(kind: Kind, spread: float):
    one = kind.told(TALK, ["say(ann)", "rain", "hush"], [0.5, 1.0, 700.0])
    with torch.no_grad():
        for amplitudes in (*one.model.mixture.v, *one.model.mixture.a):
            amplitudes.mul_(spread)
    one = Told(one.model, one.names, one.times)
    exceeded(one.sampler, one.last, widths=(1e-6, 0.02, 0.1, 0.5, 3.0, 100.0))
    draw = torch.Generator().manual_seed(1)
    for width in (0.01, 0.03, 0.2, 2.0):  # right behind the last event, where the factor is large
        start = one.last + 0.1 * torch.rand(1, 6, generator=draw, dtype=torch.float64)
        start[0, 0] = one.last
        inside = start.unsqueeze(-1) + width * torch.linspace(0.0, 1.0, 301, dtype=torch.float64)
        most = one.sampler.intensities(inside.flatten(1)).sum(-1).view(6, -1).amax(-1)
        upper = one.sampler.bounds(start, start + width).upper[0]
        assert bool((most <= upper).all())
        if width == 0.01 and spread == 1.0:
            assert float((upper / most).max()) < 1.05


def test_windows_grow_with_the_time_since_the_last_event_where_intensities_depend_on_it():
    for plain, timed in zip(KINDS, TIMED, strict=True):
        assert plain.told(TALK).sampler.growth() is None
        one = timed.told(TALK, ["say(ann)", "rain"], [0.5, 1.0])
        copies = one.sampler.select(torch.tensor([0, 0]))
        copies.append(torch.tensor([1.5, 1.5], dtype=torch.float64), torch.tensor([0, -1]))
        found = copies.growth()
        assert found is not None and found.short == one.model.short
        assert found.last.tolist() == [1.5, 1.0]
        assert copies.width == pytest.approx(0.6 * found.short)


@pytest.mark.parametrize("beta", [1.0, 1.3, 4.0])
def test_pools_have_the_exponents_of_the_model(kind: Kind, beta: float):
    one = kind.told(POOLED, ["go(a)", "go(b)", "go(a)"], [0.3, 0.4, 0.9])
    with torch.no_grad():
        one.model.rule_network.stacks["beta_beta"].fill_(beta - 1.0)
    one = Told(one.model, one.names, one.times)
    sampled(one, 3, seed=0)
    exceeded(one.sampler, one.last, widths=(0.1, 1.0))


def test_windows_that_are_much_too_long_still_have_finite_bounds(kind: Kind):
    one = kind.told(TALK, ["say(ann)", "rain"], [0.5, 1.0])
    bounds = one.sampler.bounds(torch.full((1, 1), 1.0).double(), torch.full((1, 1), 1e7).double())
    assert bool(bounds.upper.isfinite().all())


@pytest.mark.gpu
def test_samplers_are_the_same_on_a_gpu(kind: Kind):
    one = kind.told(TALK, ["say(ann)", "rain"], [0.5, 1.0])
    there = kind.start(copy.deepcopy(one.model).cuda(), [one.history], [2])
    at = torch.from_numpy(one.last + AHEAD)[None]
    for _ in range(3):
        torch.testing.assert_close(there.intensities(at.cuda()).cpu(), one.sampler.intensities(at), rtol=1e-9, atol=0.0)
        upper = there.bounds(at.cuda(), at.cuda() + 0.2).upper.cpu()
        torch.testing.assert_close(upper, one.sampler.bounds(at, at + 0.2).upper, rtol=1e-7, atol=0.0)
        for sampler, when in ((one.sampler, at), (there, at.cuda())):
            sampler.append(when[:, 1], torch.zeros(1, dtype=torch.int64, device=when.device))
        at = at + 0.5


@pytest.mark.parametrize("limit", [0.0, 0.7, 40.0, math.inf])
def test_the_clock_of_windows_and_its_inverse_agree_and_windows_stop_growing_at_the_limit(limit: float):
    one = TIMED[0].told(TALK, ["say(ann)", "rain"], [0.5, 1.0])
    last = torch.tensor([1.0], dtype=torch.float64)
    one.sampler.growth = lambda: WindowGrowth(last, 0.1, limit)
    clock = _Clock(one.sampler, torch.tensor([1.3], dtype=torch.float64))
    lengths = torch.tensor([[0.0, 1e-9, 0.05, 0.1, 0.3, 0.5, 0.8]], dtype=torch.float64)
    waits = clock.after(lengths) - 1.3
    torch.testing.assert_close(clock.lengths(waits), lengths, rtol=1e-12, atol=1e-15)
    assert bool((waits.diff() > 0.0).all())
    pace = (clock.after(lengths + 1e-6) - clock.after(lengths)) / 1e-6  # of time, beside that of the clock
    expected = (0.1 + 0.3 + waits).clamp(max=0.1 + limit) / 0.1
    torch.testing.assert_close(pace, expected, rtol=1e-4, atol=0.0)
