"""Noise-contrastive estimation asks every model the same: log-intensities of events that happened and of events that were drawn."""

from __future__ import annotations

from typing import Any

import torch

from foretell.batches.batch import Queries
from foretell.models.base import IntensityModel
from foretell.models.classical.poisson import Poisson
from foretell.models.rules.rule_model import RuleModel
from foretell.objective.nce import NoiseSource, contrast, functor_marks
from tests.asking import state_at
from tests.calendar_samples import dated
from tests.contract.members import VOCABULARY
from tests.samples import random_data, randomise

LENGTHS = [3, 0, 12, 1, 7]
DATA = dated(random_data(32, LENGTHS))
CLOSE: Any = {"rtol": 1e-10, "atol": 1e-10}


def source(model: IntensityModel, streams: int = 2) -> NoiseSource:
    if isinstance(model, RuleModel):
        model.ground(DATA)
    marks = functor_marks(model) if isinstance(model, RuleModel) else VOCABULARY
    return NoiseSource(model, randomise(Poisson(marks), 3), streams)


def types_of(model: IntensityModel, chosen: torch.Tensor) -> torch.Tensor:
    """What was chosen, as types; padding as type 0."""
    if not isinstance(model, RuleModel):
        return chosen
    text = model.histories.grounding.text
    found = [[0 if one < 0 else VOCABULARY.find(text(one)) for one in row] for row in chosen.tolist()]
    return torch.tensor(found, dtype=torch.long).reshape(chosen.shape)


def test_what_is_asked_of_single_events_is_what_the_state_says(model: IntensityModel):
    batch = model.collator.batch(DATA, range(len(LENGTHS)))
    noise = source(model).draw(batch, torch.Generator().manual_seed(4))
    assert noise.drawn > 20
    queries = Queries.seeing(noise.times, noise.seen)
    history = model.encode(batch)
    planned = model.collator.plan_queries(batch, queries, chosen=noise.chosen)
    found = model.ends_and_chosen(history, batch, planned, noise.chosen)
    ends = model.log_intensity(state_at(model, batch, Queries.of_events(batch), history), batch.types)
    inside = model.log_intensity(state_at(model, batch, queries, history), types_of(model, noise.chosen))
    happened = torch.arange(batch.times.shape[1])[None] < batch.lengths[:, None]
    torch.testing.assert_close(found.log_at_end[happened], ends[happened], **CLOSE)
    torch.testing.assert_close(found.log_chosen[noise.valid], inside[noise.valid], **CLOSE)


def test_the_objective_of_a_batch_is_that_of_its_sequences_one_by_one(model: IntensityModel):
    batch = model.collator.batch(DATA, range(len(LENGTHS)), width=max(LENGTHS) + 3)
    noise = source(model).draw(batch, torch.Generator().manual_seed(5))
    whole = contrast(model, batch, noise)
    parts = [contrast(model, batch.rows(row, row + 1), noise.rows(row, row + 1)) for row in range(len(batch))]
    torch.testing.assert_close(torch.stack(parts).sum(), whole, **CLOSE)
    assert torch.isfinite(whole)


def test_a_gradient_is_finite_where_there_is_padding(model: IntensityModel):
    batch = model.collator.batch(DATA, range(len(LENGTHS)), width=max(LENGTHS) + 3)
    noise = source(model).draw(batch, torch.Generator().manual_seed(6))
    parameters = [one for one in model.parameters() if one.requires_grad]
    for gradient in torch.autograd.grad(contrast(model, batch, noise), parameters, allow_unused=True):
        assert gradient is None or bool(torch.isfinite(gradient).all())
