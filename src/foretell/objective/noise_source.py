"""Noise for one model: a fitted process in, noise of any batch out that the model can be asked about.

Where a model is made of rules, only possible events may be noise. The process then tells functors apart, not types, and an event of a
functor is any of those possible at the time, all alike: `λ^q_e(t) = λ^q_F(t)/K_F(t)`, and none where `K_F(t)` is 0.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from foretell.batches.batch import Batch
from foretell.data import Vocabulary
from foretell.models.base import IntensityModel
from foretell.models.rules.possible_events import possible_events
from foretell.models.rules.rule_model import RuleModel
from foretell.objective.noise import NoiseEvents, NoiseProcess, Possible
from foretell.objective.timed import Noise
from foretell.terms import split


class NoiseSource:
    def __init__(self, model: IntensityModel, fitted: Noise, streams: int) -> None:
        self.model, self.streams = model, streams
        self.marks = fitted.vocabulary
        of_type = marks_of_types(model, self.marks) if isinstance(model, RuleModel) else None
        self.process = NoiseProcess(fitted, model.device, of_type)

    def draw(self, batch: Batch, generator: torch.Generator, pseudo_rate: float = 0.0) -> NoiseEvents:
        possible = self._possible(self.model, batch) if isinstance(self.model, RuleModel) else None
        return self.process.draw(batch, self.streams, generator, pseudo_rate, possible)

    def _possible(self, model: RuleModel, batch: Batch) -> Possible:
        """Functors of events come first among the marks; others happen and are no noise."""
        found = possible_events(model, batch)
        others = np.zeros((*found.count.shape[:2], len(self.marks) - found.count.shape[2]))
        count = torch.from_numpy(np.concatenate([found.count, others], axis=2))
        return Possible(count.to(model.device), found.facts)


def functor_marks(model: RuleModel) -> Vocabulary:
    """Functors of events, in the model's order, and then those of other types that happen."""
    others = sorted({split(name)[0] for name in model.vocabulary.names} - set(model.functors))
    return Vocabulary((*model.functors, *others))


def marks_of_types(model: RuleModel, marks: Vocabulary) -> Tensor:
    """The functor of every type: int64 [types]."""
    place = {name: number for number, name in enumerate(marks.names)}
    return torch.tensor([place[split(name)[0]] for name in model.vocabulary.names], dtype=torch.long)
