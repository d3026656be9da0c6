"""Noise events: as many as the intensity expects, at times and of types that follow it, in every gap that counts and nowhere else."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

from foretell.batches.batch import Batch, Queries, make_batch
from foretell.data import EventData
from foretell.errors import ForetellError
from foretell.lang.program import Program
from foretell.models.classical.hawkes import Hawkes
from foretell.models.classical.poisson import Poisson
from foretell.models.rules.andtt import ANDTT
from foretell.models.rules.possible_events import possible_events, possible_totals
from foretell.objective import noise as drawing
from foretell.objective.nce import NoiseSource, functor_marks
from foretell.objective.noise import NoiseEvents, NoiseProcess, log_rate
from foretell.objective.noise_parts import GapMarks
from foretell.train.noise import fit_noise
from tests.objective.test_nce import hawkes_noise
from tests.samples import event_data, random_data, randomise

CPU = torch.device("cpu")
FALSE_ALARMS = 1e-6
DATA = random_data(51, [5, 0, 9, 2])


def draws(process: Hawkes | Poisson, batch: Batch, streams: int, seed: int = 0, **options) -> NoiseEvents:
    return NoiseProcess(process, CPU).draw(batch, streams, torch.Generator().manual_seed(seed), **options)


def processes() -> list[Hawkes | Poisson]:
    return [randomise(Poisson(3), 4), hawkes_noise(3, decays=1), hawkes_noise(3, decays=3, seed=5)]


@pytest.mark.parametrize("process", processes(), ids=["poisson", "hawkes", "hawkes with three decays"])
def test_counts_in_every_gap_are_poisson_with_the_integral_as_their_mean(process: Hawkes | Poisson):
    batch, streams = make_batch(DATA, range(4)), 400
    noise = draws(process, batch, streams)
    found = torch.zeros(batch.gap_length.shape, dtype=torch.float64)
    found.index_put_((torch.nonzero(noise.valid)[:, 0], noise.seen[noise.valid]), torch.ones(1).double(), True)
    expected = streams * (process.exact_integral(process.encode(batch), batch) * batch.gap_counts)
    assert not found[expected == 0.0].any()
    counted, mean = found[expected > 0.0].numpy(), expected[expected > 0.0].detach().numpy()
    tail = np.minimum(stats.poisson.cdf(counted, mean), stats.poisson.sf(counted - 1, mean))
    assert tail.min() * 2 * len(mean) > FALSE_ALARMS
    assert noise.drawn == int(found.sum())


@pytest.mark.parametrize("process", processes(), ids=["poisson", "hawkes", "hawkes with three decays"])
def test_times_inside_gaps_follow_the_intensity(process: Hawkes | Poisson):
    """The share of a gap's integral that lies before an event is uniform."""
    batch = make_batch(DATA, range(4))
    noise = draws(process, batch, 300, seed=1)
    row, place = torch.nonzero(noise.valid, as_tuple=True)
    gap, time = noise.seen[row, place], noise.times[row, place]
    start = batch.gap_start[row, gap]
    assert bool((time >= start).all() and (time <= batch.gap_end[row, gap]).all())
    share = []
    with torch.no_grad():
        whole = process.exact_integral(process.encode(batch), batch)[row, gap]
        for one in range(0, len(row), 97):  # up to its time, by many points
            points = torch.linspace(0.0, 1.0, 2001, dtype=torch.float64) * (time[one] - start[one]) + start[one]
            seen = gap[one].expand(1, len(points))
            mine = batch.rows(int(row[one]), int(row[one]) + 1)
            total = process.total(process.state(process.encode(mine), Queries.seeing(points[None], seen)))[0]
            share.append(float(torch.trapezoid(total, points) / whole[one]))
    assert len(share) > 50
    assert stats.kstest(share, "uniform").pvalue > FALSE_ALARMS


@pytest.mark.parametrize("process", processes(), ids=["poisson", "hawkes", "hawkes with three decays"])
def test_types_and_rates_are_those_of_the_process(process: Hawkes | Poisson):
    batch = make_batch(DATA, range(4))
    noise = draws(process, batch, 300, seed=2)
    with torch.no_grad():
        history = process.encode(batch)
        rates = process.intensities(process.state(history, Queries.seeing(noise.times, noise.seen)))
        at_events = process.log_intensity(process.state(history, Queries.of_events(batch)), batch.types)
    chosen = rates.gather(-1, noise.chosen.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(noise.log_rate[noise.valid], chosen[noise.valid].log(), rtol=1e-9, atol=1e-9)
    counts = batch.event_counts
    torch.testing.assert_close(noise.log_rate_at_events[counts], at_events[counts], rtol=1e-9, atol=1e-9)
    share = (rates / rates.sum(-1, keepdim=True))[noise.valid]
    kinds = noise.chosen[noise.valid]
    for kind in range(3):
        expected, spread = share[:, kind].sum(), (share[:, kind] * (1 - share[:, kind])).sum().sqrt()
        assert abs(float((kinds == kind).sum() - expected)) < 5.5 * float(spread)


@pytest.mark.parametrize("window", ["all", "events-2-to-I"])
@pytest.mark.parametrize("origin", ["window", "first-event"])
def test_there_is_no_noise_where_nothing_is_scored(window, origin):
    rows = [([0.0, 1.0, 1.0, 4.0], [0, 1, 2, 0]), ([0.0], [1])]
    batch = make_batch(event_data(rows, origin=origin), [0, 1], window=window, width=7)
    noise = draws(hawkes_noise(3), batch, 2000)
    assert noise.drawn > 100
    row = torch.nonzero(noise.valid)[:, 0]
    assert bool(batch.gap_counts[row, noise.seen[noise.valid]].all())
    assert bool((batch.gap_length[row, noise.seen[noise.valid]] > 0.0).all())  # nor between two events at one time


def test_long_sequences_are_gone_through_in_parts_and_blocks_of_sequences_are_the_batch(monkeypatch):
    process, data = hawkes_noise(3), random_data(53, [40, 25])
    batch = make_batch(data, [0, 1])
    whole = NoiseProcess(process, CPU)._raised(batch)
    monkeypatch.setattr(drawing, "EVENTS_AT_ONCE", 7)
    torch.testing.assert_close(NoiseProcess(process, CPU)._raised(batch), whole, rtol=1e-12, atol=1e-12)
    monkeypatch.setattr(drawing, "WEIGHTS_AT_ONCE", 1)
    noise = draws(process, batch, 50)
    expected = 50 * float((process.exact_integral(process.encode(batch), batch) * batch.gap_counts).detach().sum())
    assert abs(noise.drawn - expected) < 5.5 * math.sqrt(expected)


def test_the_same_generator_draws_the_same_noise():
    batch = make_batch(DATA, range(4))
    one, two, three = (draws(hawkes_noise(3), batch, 3, seed) for seed in (1, 1, 2))
    assert torch.equal(one.times, two.times) and torch.equal(one.chosen, two.chosen)
    assert one.times.shape != three.times.shape or not torch.equal(one.times, three.times)


def test_pseudo_events_come_at_their_own_rate_and_count_as_real():
    batch = make_batch(DATA, range(4))
    noise = draws(hawkes_noise(3), batch, 2, pseudo_rate=40.0)
    expected = 40.0 * 3 * float(batch.gap_length.sum())
    assert abs(int((noise.valid & noise.pseudo).sum()) - expected) < 5.5 * math.sqrt(expected)
    plain = draws(hawkes_noise(3), batch, 2)
    assert not plain.pseudo.any()


SHOP = """
:- event(buy). :- event(leave). :- exogenous(bell).
person(a). person(b). person(c). thing(x). thing(y).
in_shop(P) <- bos, person(P).
!in_shop(P) <- leave(P).
in_shop(P) <- bell, person(P).
buy(P,T) :- in_shop(P), person(P), thing(T).
leave(P) :- in_shop(P), person(P).
"""
SHOPPING = EventData.from_names(
    [["buy(a,x)", "leave(a)", "leave(b)", "leave(c)", "bell", "buy(b,y)"], ["leave(c)"]],
    [[1.0, 2.0, 2.5, 3.0, 4.0, 4.5], [2.0]],
    t_ends=[6.0, 3.0],
)
POSSIBLE = [[9, 9, 6, 3, 0, 9, 9], [9, 6]]  # 2 things and a way out for each person who is there


def shop() -> ANDTT:
    model = ANDTT(Program.from_text(SHOP, dim=3), SHOPPING.vocabulary, dim=3, layers=1, dtype=torch.float64)
    model.ground(SHOPPING)
    return model


def test_possible_events_are_counted_by_gap_and_functor():
    model = shop()
    batch = model.collator.batch(SHOPPING, [0, 1], unscored=model.unscored)
    found = possible_events(model, batch)
    assert model.functors == ["buy", "leave"]
    assert found.count[0].tolist() == [[2 * n // 3, n // 3] for n in POSSIBLE[0]]
    assert found.count[1, :2].tolist() == [[6, 3], [4, 2]] and not found.count[1, 2:].any()
    for index in (0, 1):
        assert possible_totals(model, SHOPPING[index]).tolist() == POSSIBLE[index]


@pytest.mark.parametrize("kind", ["poisson", "hawkes", "timed"])
def test_noise_of_rules_is_possible_and_shared_evenly_among_what_is(kind):
    model = shop()
    batch = model.collator.batch(SHOPPING, [0, 1], unscored=model.unscored)
    fitted = fit_noise(model, SHOPPING, None, kind)
    assert fitted.vocabulary == functor_marks(model)
    assert fitted.vocabulary.names == ("buy", "leave", "bell")
    streams = 3000
    noise = NoiseSource(model, fitted, streams).draw(batch, torch.Generator().manual_seed(3))
    found = possible_events(model, batch)
    text = model.histories.grounding.text
    row, place = torch.nonzero(noise.valid, as_tuple=True)
    gap = noise.seen[row, place]
    names = [text(one) for one in noise.chosen[row, place].tolist()]
    assert not any(name.startswith("bell") for name in names)
    assert not ((row == 0) & (gap == 4)).any()  # nobody is there
    third = [name for name, r, g in zip(names, row.tolist(), gap.tolist(), strict=True) if (r, g) == (0, 3)]
    assert set(third) == {"buy(c,x)", "buy(c,y)", "leave(c)"}  # only c is left
    first = [name for name, r, g in zip(names, row.tolist(), gap.tolist(), strict=True) if (r, g) == (0, 0)]
    bought = [first.count(f"buy({person},{thing})") for person in "abc" for thing in "xy"]
    assert stats.chisquare(bought).pvalue > FALSE_ALARMS
    with torch.no_grad():  # log λ^q_e = log λ^q_F − log K_F
        marks = torch.tensor([0 if name.startswith("buy") else 1 for name in names])
        source = NoiseProcess(
            fitted,
            CPU,
            torch.tensor([fitted.vocabulary.names.index(n.split("(")[0]) for n in SHOPPING.vocabulary.names]),
        )
        of_functor = log_rate(source.parts(batch), GapMarks(row, gap, marks), noise.times[row, place])
    shared = torch.from_numpy(found.count).double()[row, gap, marks].log()
    torch.testing.assert_close(noise.log_rate[row, place], of_functor - shared)


def test_rates_of_rules_are_of_the_time_in_which_something_is_possible():
    rates = fit_noise(shop(), SHOPPING, None, "poisson").log_rate.exp()
    there = 9.0 - 1.0  # nobody is there from 3 to 4
    assert rates[:2].tolist() == pytest.approx([2.5 / there, 4.5 / there])


@pytest.mark.parametrize(
    ("name", "value"), [("mu", -1.0), ("mu", np.nan), ("alpha", -0.1), ("alpha", np.inf), ("beta", 0.0)]
)
def test_a_process_whose_rates_are_no_rates_is_refused(name: str, value: float):
    process = Hawkes(2)
    with torch.no_grad():
        getattr(process, name).flatten()[0] = value
    with pytest.raises(ForetellError, match="negative or not finite"):
        NoiseProcess(process, CPU)
