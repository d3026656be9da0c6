"""Samplers that draw events of products hierarchically: the law, and every number, is that of the same model with rows."""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from foretell.models.rules import product_blocks
from foretell.models.rules.rule_sampler import RuleSampler
from foretell.sampling.core.pace import Pace
from foretell.sampling.core.start import start_sampler
from foretell.sampling.core.thinning import BoundViolation, EventDraws, next_events
from tests.plan.product_cases import model_pair

CASES = [("andtt", 4), ("ndtt", 3), ("s2ndtt", 17)]
LAWS = [
    pytest.param("andtt", 4, 3, marks=pytest.mark.slow),
    ("ndtt", 3, 3),
    pytest.param("s2ndtt", 17, 3, marks=pytest.mark.slow),
]
DRAWS = 600
FALSE_ALARM = 1e-4  # of each comparison of laws, if seeds were drawn anew


def pair_of(kind: str, seed: int) -> tuple[RuleSampler, RuleSampler, torch.Tensor]:
    """With products and with rows, after three histories; and when these end."""
    found, expected, data = model_pair(kind, seed)
    histories = [data[0], data[1], data[2]]
    made = []
    for model in (found, expected):
        sampler = start_sampler(model, histories, [len(one) for one in histories])
        assert isinstance(sampler, RuleSampler)
        made.append(sampler)
    assert made[0].context.has_products and not made[1].context.has_products
    return made[0], made[1], torch.tensor([one.t_end for one in histories], dtype=torch.float64)


def told(sampler: RuleSampler, times: torch.Tensor) -> list[list[dict[str, float]]]:
    return [
        [
            {sampler.name(row, choice): value for choice, value in enumerate(rates.tolist()) if value > 0.0}
            for rates in of_row
        ]
        for row, of_row in enumerate(sampler.intensities(times))
    ]


@pytest.mark.parametrize(("kind", "seed"), [*CASES, ("andtt", 1)])
def test_intensities_are_those_of_rows_also_after_sampled_events(kind: str, seed: int):
    found, expected, end = pair_of(kind, seed)
    for step in range(3):
        times = end[:, None] + torch.tensor([0.1, 1.3], dtype=torch.float64)
        mine, theirs = told(found, times), told(expected, times)
        for one, other in zip(chain(*mine), chain(*theirs), strict=True):
            assert one.keys() == other.keys()
            assert list(one.values()) == pytest.approx([other[name] for name in one], rel=1e-9)
        names = [
            sorted(of_row[0])[(3 * step + row) % len(of_row[0])] if of_row[0] else None
            for row, of_row in enumerate(mine)
        ]
        end = end + 0.3
        for sampler in (found, expected):
            rates = sampler.intensities(end[:, None])[:, 0]
            choices = [
                next(
                    (one for one in range(rates.shape[1]) if rates[row, one] > 0 and sampler.name(row, one) == name), -1
                )
                for row, name in enumerate(names)
            ]
            sampler.append(end, torch.tensor(choices))


@pytest.mark.parametrize("blocks", [3, 2048])
@pytest.mark.parametrize(("kind", "seed"), CASES)
def test_no_intensity_is_above_its_bound(kind: str, seed: int, blocks: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(product_blocks, "BLOCKS", blocks)
    found, _, end = pair_of(kind, seed)
    start = end[:, None] + torch.tensor([0.0, 0.2, 0.5], dtype=torch.float64)
    width = torch.tensor([0.2, 0.3, 1.0], dtype=torch.float64)
    bounds = found.bounds(start, start + width)
    for share in (0.0, 0.01, 0.5, 0.93, 1.0):
        total = found.intensities(start + share * width).sum(-1)
        assert bool((total <= bounds.upper).all())


def drawn(sampler: RuleSampler, start: torch.Tensor, row: int, seed: int) -> tuple[EventDraws, list[str]]:
    alone = sampler.select(torch.tensor([row]))
    pace = Pace.first(alone, start.device)
    rows, now = torch.zeros(DRAWS, dtype=torch.int64), start[row : row + 1].clone()
    found = next_events(alone, rows, now, now + 5.0, pace, torch.Generator().manual_seed(seed))
    names = [alone.name(0, choice) if choice >= 0 else "" for choice in found.choices.tolist()]
    return found, names


@pytest.mark.parametrize(("kind", "seed", "blocks"), LAWS)
def test_times_and_events_have_the_law_of_rows(kind: str, seed: int, blocks: int, monkeypatch: pytest.MonkeyPatch):
    """Two samples of `DRAWS` each: times by a Kolmogorov-Smirnov test, events by a chi-squared test."""
    monkeypatch.setattr(product_blocks, "BLOCKS", blocks)
    found, expected, end = pair_of(kind, seed)
    (mine, own_names), (theirs, names) = drawn(found, end, 0, 1), drawn(expected, end, 0, 2)
    times = [one.times[one.found].numpy() for one in (mine, theirs)]
    assert _p_value(stats.ks_2samp(times[0], times[1])) > FALSE_ALARM
    every = sorted({*own_names, *names})
    counts = np.asarray([[some.count(one) for one in every] for some in (own_names, names)])
    rare = counts.sum(0) < 10
    counts = np.column_stack([counts[:, ~rare], counts[:, rare].sum(1)])
    counts = counts[:, counts.sum(0) > 0]
    if counts.shape[1] > 1:
        assert _p_value(stats.chi2_contingency(counts)) > FALSE_ALARM


def _p_value(result: Any) -> float:
    return float(result.pvalue)


def test_a_bound_that_is_exceeded_is_told(monkeypatch: pytest.MonkeyPatch):
    plain = product_blocks.FunctorRows.highest
    monkeypatch.setattr(product_blocks.FunctorRows, "highest", lambda *given: 0.3 * plain(*given))
    found, _, end = pair_of("ndtt", 3)
    with pytest.raises(BoundViolation, match="above its bound"):
        drawn(found, end, 0, 1)
