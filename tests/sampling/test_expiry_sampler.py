"""Sampling where additions expire: draws follow the law in closed form, states agree with the model, and futures are possible."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from foretell.data.clock import NO_CLOCK
from foretell.ground.replay import replay
from foretell.models.rules.andtt import ANDTT
from foretell.models.rules.ndtt import NDTT
from foretell.models.rules.rule_model import RuleModel
from foretell.models.rules.s2ndtt import S2NDTT
from foretell.sampling.core.futures import futures_as_data, sample, sample_next
from foretell.sampling.rules.living import LivingAdditions
from tests.models.test_expiry_scores import BUY, LOOK, constant
from tests.models.test_expiry_twin import EVENTS, TIMES, small

KINDS = [ANDTT, NDTT, S2NDTT]
DRAWS = 20_000
TOO_FAR = math.sqrt(
    -math.log(1e-6 / 2.0) / 2.0
)  # Kolmogorov-Smirnov: exceeded with a probability below 1e-6, times the root of the draws


def test_next_events_follow_the_law_on_both_sides_of_an_expiry() -> None:
    model, data = constant()
    [drawn] = sample_next(model, [data[0].first(1, 1.5)], n=DRAWS, seed=3)
    both, later = BUY + 2 * LOOK, 2 * LOOK
    waits = np.sort(drawn.times - 1.5)
    hazard = both * np.minimum(waits, 1.5) + later * np.maximum(waits - 1.5, 0.0)
    reached = -np.expm1(-hazard)
    places = np.arange(DRAWS) / DRAWS
    assert np.maximum(np.abs(reached - places), np.abs(reached - places - 1.0 / DRAWS)).max() < TOO_FAR / math.sqrt(
        DRAWS
    )
    names = np.asarray(drawn.events)
    assert drawn.times[names == "buy(u)"].max() <= 3.0 < drawn.times[names == "look(u)"].max()
    share = BUY / both * -math.expm1(-both * 1.5)
    assert abs((names == "buy(u)").mean() - share) < 5.0 * math.sqrt(share * (1.0 - share) / DRAWS)


@pytest.mark.parametrize("kind", KINDS)
def test_sequences_that_are_left_alone_have_the_intensities_of_the_model(kind: type[RuleModel]) -> None:
    model, data = small(kind)
    history = data[0]
    seen = [0, 1, 2, 4, 5, 8, 9]
    sampler = model.sampler([history] * len(seen), seen)
    starts = [0.0, *TIMES]
    for wait in (0.3, 1.2, 1.7, 3.9, 4.4):
        times = torch.tensor([starts[count] + wait for count in seen], dtype=torch.float64)
        later = sampler.passed(times)
        rates = later.intensities(times.unsqueeze(1))[:, 0]
        for row, count in enumerate(seen):
            time = float(times[row])
            [expected] = model.possible_intensities(history.first(count, starts[count]), [np.nextafter(time, math.inf)])
            found = {later.name(row, place): rate for place, rate in enumerate(rates[row].tolist()) if rate > 0.0}
            assert found == pytest.approx(expected, rel=1e-6), (wait, count)


@pytest.mark.parametrize("kind", KINDS)
def test_events_that_are_appended_expire_like_those_of_a_history(kind: type[RuleModel]) -> None:
    model, data = small(kind)
    history = data[0]
    sampler = model.sampler([history], [5])  # up to look(u) at 3: the session of u has an addition that ends at 4.5
    time = torch.tensor([4.2], dtype=torch.float64)
    sampler.intensities(time.unsqueeze(1))
    names = [sampler.name(0, place) for place in range(sampler.intensities(time.unsqueeze(1)).shape[2])]
    sampler.append(time, torch.tensor([names.index("buy(u)")]))
    made = [*EVENTS[:5], "buy(u)"]
    whole = type(data[0])(
        np.asarray([*TIMES[:5], 4.2]),
        np.asarray([data.vocabulary.find(name) for name in made], dtype=np.int32),
        4.2,
        "h",
    )
    for asked in (4.4, 4.5, 6.0, 8.1, 8.3):
        now = torch.tensor([asked], dtype=torch.float64)
        later = sampler.passed(now)
        rates = later.intensities(now.unsqueeze(1))[0, 0].tolist()
        found = {later.name(0, place): rate for place, rate in enumerate(rates) if rate > 0.0}
        assert found == pytest.approx(
            model.possible_intensities(whole, [np.nextafter(asked, math.inf)])[0], rel=1e-6
        ), asked


@pytest.mark.parametrize("kind", KINDS)
def test_futures_are_possible(kind: type[RuleModel]) -> None:
    model, data = small(kind)
    futures = sample(model, data[0], horizon=12.0, n=8, start=3.2, seed=5)
    made = futures_as_data([futures], [data[0]], data.vocabulary, NO_CLOCK)
    done = replay(model.program, made)
    assert sum(len(one) for one in made) > 60 and done.impossible == 0
    assert sum(int(one.is_expiry.sum()) for one in done.timelines) > 20


def test_living_additions_end_in_order_and_a_fact_with_the_last_of_them() -> None:
    living = LivingAdditions().after((), [(3.0, 7, 1), (2.0, 7, 2), (2.0, 8, 1), (math.inf, 9, 1), (4.0, 9, 2)])
    assert living.next == 2.0 and living.count(2.0, at_now=False) == 0 and living.count(2.0, at_now=True) == 2
    left, ended, gone = living.due(2)
    assert (ended, gone) == (((2.0, 7, 2), (2.0, 8, 1)), frozenset({8}))
    assert left.due(2)[2] == frozenset({7}), "9 has an addition that never ends"
    assert left.after((9,), []).due(1)[2] == frozenset({7})
    assert left.after((7, 9), []).next == math.inf
