"""Possible events as products: every number of a model is that of the same model with rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from foretell.batches.batch import Queries, Sample
from foretell.models.rules.possible_events import possible_events
from foretell.models.rules.rule_model import RuleModel
from foretell.objective.loglik import log_likelihood, quadrature
from foretell.objective.nce import NoiseSource, contrast
from foretell.train.noise import fit_noise
from tests.asking import state_at
from tests.plan.product_cases import model_pair


def terms(model: RuleModel, data, sample: Sample | None = None) -> torch.Tensor:
    batch = model.collator.batch(data, [0, 1, 2], unscored=model.unscored)
    return log_likelihood(model, batch, quadrature(batch, 3), sample).log_likelihood()


@pytest.mark.parametrize("kind", ["andtt", "ndtt", "s2ndtt"])
@pytest.mark.parametrize("seed", range(12))
def test_values_and_gradients_are_those_of_rows(kind, seed):
    found, expected, data = model_pair(kind, seed)
    one, other = terms(found, data), terms(expected, data)
    torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)
    one.sum().backward()
    other.sum().backward()
    gradients = [_by_name(model) for model in (found, expected)]
    for name, gradient in gradients[0].items():
        if name in gradients[1]:
            torch.testing.assert_close(gradient, gradients[1][name], rtol=1e-8, atol=1e-9, msg=name)


def _by_name(model: RuleModel) -> dict[str, torch.Tensor]:
    network, found = model.rule_network, {}
    for family in network.book.families.values():
        for letter in family.shapes:
            for place, name in enumerate(family.names):
                for stack, row in zip(family.stacks, family.rows[place], strict=True):
                    key = f"{stack.key}_{letter}"
                    gradient = network.stacks[key].grad
                    found[f"{family.prefix} {name} {key}"] = (
                        torch.zeros_like(network.stacks[key][row]) if gradient is None else gradient[row]
                    )
    return found | {f"w{number}": one.grad for number, one in enumerate(model.w) if one.grad is not None}


@pytest.mark.parametrize("kind", ["andtt", "ndtt", "s2ndtt"])
@pytest.mark.parametrize("seed", range(6))
def test_intensities_by_name_and_starting_rates_are_those_of_rows(kind, seed):
    found, expected, data = model_pair(kind, seed)
    for one in data:
        times = np.linspace(0.0, one.t_end, 5)
        for mine, theirs in zip(
            found.possible_intensities(one, times), expected.possible_intensities(one, times), strict=True
        ):
            assert mine.keys() == theirs.keys()
            assert list(mine.values()) == pytest.approx(list(theirs.values()), rel=1e-9)
    batch = found.collator.batch(data, [0], unscored=found.unscored)
    states = [
        state_at(model, model.collator.batch(data, [0], unscored=model.unscored), Queries.of_events(batch))
        for model in (found, expected)
    ]
    torch.testing.assert_close(*states, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_noise_is_drawn_from_products_at_the_rate_of_each_possible_event(seed):
    """Each possible event is drawn from one candidate alone, whatever products share it."""
    found, expected, data = model_pair("andtt", seed)
    for model in (found, expected):
        model.collator.batch(data, [0], unscored=model.unscored)
    mine, theirs = (
        possible_events(model, model.collator.batch(data, [0], unscored=model.unscored)) for model in (found, expected)
    )
    for gap in range(mine.count.shape[1]):
        for functor in range(mine.count.shape[2]):
            names = []
            for model, one in ((found, mine), (expected, theirs)):
                count = int(one.count[0, gap, functor])
                where = np.full(count, gap)
                facts = one.facts(np.zeros(count, dtype=np.int64), where, np.full(count, functor), np.arange(count))
                text = model.histories.grounding.text
                names.append(sorted(text(fact) for fact in facts.tolist() if fact >= 0))
            assert names[0] == names[1]


def test_noise_contrast_trains_with_products():
    found, _, data = model_pair("andtt", 1)
    noise = NoiseSource(found, fit_noise(found, data, None, "poisson"), 2)
    batch = found.collator.batch(data, [0, 1, 2], unscored=found.unscored)
    drawn = noise.draw(batch, torch.Generator().manual_seed(0))
    assert drawn.valid.any()
    loss = contrast(found, batch, drawn)
    loss.backward()
    assert torch.isfinite(loss)
