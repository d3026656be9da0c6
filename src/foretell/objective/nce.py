"""Noise-contrastive estimation (Mei, Wan and Eisner 2020): the loss of a step from a batch and its noise, without an integral.

With `λ̲_k(t) = λ_k(t) + M·λ^q_k(t)`, the objective is `Σ log(λ_k/λ̲_k)` over the observed events plus `Σ log(λ^q_k/λ̲_k)` over the
events of `M` noise streams. Both terms are logistic functions of `x = log λ_k − log(M·λ^q_k)`, the log-odds that an event is observed.

For models made of rules, only possible events may be noise. The noise process then has functors as its marks instead of types. A noise
event of a functor `F` is one of its `K_F(t)` possible events, with equal probability: `λ^q_e(t) = λ^q_F(t)/K_F(t)`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from foretell.batches.batch import Batch, Queries
from foretell.data import Vocabulary
from foretell.models.base import IntensityModel
from foretell.models.rules.possible_events import possible_events
from foretell.models.rules.rule_model import RuleModel
from foretell.objective.noise import NoiseEvents, NoiseProcess, PossibleMarks
from foretell.objective.noise_parts import Noise


def contrast(model: IntensityModel, batch: Batch, noise: NoiseEvents, history: Any = None) -> Tensor:
    """Return the negative objective of a batch, summed, in the model's dtype. `history` is the encoded batch, if the caller has it."""
    history = model.encode(model.collator.plan_batch(batch)) if history is None else history
    queries = model.collator.plan_queries(batch, Queries.seeing(noise.times, noise.seen), chosen=noise.chosen)
    found = model.ends_and_chosen(history, batch, queries, noise.chosen)
    log_streams = math.log(noise.streams)
    at_ends = _excess(found.log_at_end, noise.log_rate_at_events + log_streams, batch.event_counts)
    drawn = _excess(found.log_chosen, noise.log_rate + log_streams, noise.valid)
    real = F.softplus(-at_ends) * batch.event_counts
    pseudo = F.softplus(-drawn) * (noise.valid & noise.pseudo)
    noisy = (F.softplus(drawn) + log_streams) * (noise.valid & ~noise.pseudo)
    return real.sum() + pseudo.sum() + noisy.sum()


def _excess(log_intensity: Tensor, log_noise: Tensor, counts: Tensor) -> Tensor:
    """Return `log λ − log(M·λ^q)` where `counts` is True, else 0: other values may be infinite and must not reach a gradient."""
    zero = torch.zeros((), dtype=log_intensity.dtype, device=log_intensity.device)
    return torch.where(counts, log_intensity - log_noise.to(log_intensity.dtype), zero)


class NoiseSource:
    """Draws noise for one model from a fitted process."""

    def __init__(self, model: IntensityModel, fitted: Noise, streams: int) -> None:
        self.model, self.streams = model, streams
        self.marks = fitted.vocabulary
        of_type = marks_of_types(model, self.marks) if isinstance(model, RuleModel) else None
        self.process = NoiseProcess(fitted, model.device, of_type)

    def draw(self, batch: Batch, generator: torch.Generator, pseudo_rate: float = 0.0) -> NoiseEvents:
        possible = self._possible(self.model, batch) if isinstance(self.model, RuleModel) else None
        return self.process.draw(batch, self.streams, generator, pseudo_rate, possible)

    def _possible(self, model: RuleModel, batch: Batch) -> PossibleMarks:
        """Return the possible events of each mark. Functors of events are the first marks; other marks are never noise."""
        found = possible_events(model, batch)
        others = np.zeros((*found.count.shape[:2], len(self.marks) - found.count.shape[2]))
        count = torch.from_numpy(np.concatenate([found.count, others], axis=2))
        return PossibleMarks(count.to(model.device), found.facts)


def functor_marks(model: RuleModel) -> Vocabulary:
    """Return the marks: the functors of events in the model's order, then those of other types that occur."""
    others = sorted({model.program.split(name)[0] for name in model.vocabulary.names} - set(model.functors))
    return Vocabulary((*model.functors, *others))


def marks_of_types(model: RuleModel, marks: Vocabulary) -> Tensor:
    """Return the mark of every type: int64 [types]."""
    place = {name: number for number, name in enumerate(marks.names)}
    return torch.tensor([place[model.program.split(name)[0]] for name in model.vocabulary.names], dtype=torch.long)
