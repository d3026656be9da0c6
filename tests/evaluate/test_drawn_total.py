"""Predictions where possible events are too many to be listed: those that match are exact, the total is estimated without bias."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from foretell.data import EventData
from foretell.evaluate import drawn_total as drawing
from foretell.evaluate.drawn_total import drawn_total
from foretell.evaluate.patterns import parse_event_pattern
from foretell.evaluate.predict import predict
from foretell.models.rules.rule_model import RuleModel
from foretell.terms import split
from tests.plan.product_cases import model_pair

SEEDS = 400


def pattern_of(model: RuleModel, data: EventData, place: int) -> str:
    """An event of the data that the program declares, with every second place left open."""
    names = [name for name in data.vocabulary.names if split(name)[0] in model.functors]
    functor, args = split(names[place % len(names)])
    places = [arg if number % 2 else f"V{number}" for number, arg in enumerate(args)]
    return f"{functor}({','.join(places)})" if places else functor


@pytest.mark.parametrize(("kind", "seed"), [("andtt", 0), ("andtt", 1), ("andtt", 4), ("ndtt", 2), ("s2ndtt", 3)])
def test_with_all_candidates_every_number_is_that_of_rows(kind, seed, monkeypatch):
    found, expected, data = model_pair(kind, seed)
    monkeypatch.setattr(drawing, "LISTED", 0)
    monkeypatch.setattr(drawn_total, "__defaults__", (10**6, 0))
    for place, one in enumerate(data):
        pattern = pattern_of(found, data, seed + place)
        mine, theirs = (predict(model, one, pattern=pattern) for model in (found, expected))
        assert mine.outlook.possible == theirs.outlook.possible
        numbers = [(each.mean, each.median, each.no_event, *each.outlook.interval_90) for each in (mine, theirs)]
        for a, b in zip(*numbers, strict=True):
            assert a == b or a == pytest.approx(b, rel=1e-9)
        assert mine.who is not None and theirs.who is not None
        assert mine.who.matching == theirs.who.matching
        assert mine.who.probability == pytest.approx(theirs.who.probability, rel=1e-9)
        by_name = [{each.event: each.probability for each in side.events} for side in (mine.who, theirs.who)]
        assert by_name[0] == pytest.approx(by_name[1], rel=1e-9)


def total(model: RuleModel, data: EventData, pattern: str, seed: int) -> tuple[float, float, float]:
    """The estimate of the total intensity at the end, what matches of it, and the standard error that is told."""
    found = drawn_total(model, data, 0, parse_event_pattern(pattern), 3, seed)
    one = data[0]
    batch = found.model.collator.batch(data, [0], unscored=found.model.unscored)
    rates = found.model.possible_intensities(one, [one.t_end])[0]
    with torch.no_grad():
        share = found.standard_error(batch)
    return found.total(batch), sum(rates[name] for name in found.asked.names), share


@pytest.mark.parametrize("seed", [0, 3, 8])
def test_the_total_is_estimated_without_bias_and_what_matches_is_exact(seed):
    """A z-test; the false-alarm rate is 1e-5 each (4.4 standard errors)."""
    found, expected, data = model_pair("andtt", seed)
    pattern = pattern_of(found, data, seed)
    exact = expected.possible_intensities(data[0], [data[0].t_end])[0]
    matching = [rate for name, rate in exact.items() if parse_event_pattern(pattern).matches(name)]
    drawn = np.array([total(found, data, pattern, one) for one in range(SEEDS)])
    assert drawn[:, 1] == pytest.approx(sum(matching), rel=1e-9)
    spread = drawn[:, 0].std() / math.sqrt(SEEDS)
    assert abs(drawn[:, 0].mean() - sum(exact.values())) < 4.4 * spread + 1e-9
    told = math.sqrt(np.mean((drawn[:, 2] * drawn[:, 0]) ** 2))
    assert drawn[:, 0].std() > 0.0 and told > 0.8 * drawn[:, 0].std()
