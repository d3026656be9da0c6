"""The next event if there are too many possible events to list: matching events are computed one by one, the total is estimated.

One random sample of events is used for all times of a sequence, so the estimated total intensity is as smooth as the exact one.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from foretell.batches.batch import Batch, Queries
from foretell.data import EventData
from foretell.evaluate.likelihood import with_names
from foretell.evaluate.patterns import EventPattern
from foretell.ground.timeline import Grounding
from foretell.models.base import IntensityModel
from foretell.models.rules.possible_events import possible_totals
from foretell.models.rules.rule_model import RuleModel
from foretell.plan.asked_events import AskedEvents, PlacePattern, asked_events

LISTED = 20_000  # up to this number of possible events, all of them are evaluated
DRAWN = 4096  # size of the sample of events that do not match


@dataclass(frozen=True)
class PartialModel:
    """A model restricted to a weighted sample of one sequence's possible events."""

    model: RuleModel
    asked: AskedEvents

    @property
    def possible(self) -> int:
        """Return the number of possible events; it is exact if there are no filters."""
        return round(float(self.asked.weight.sum()))

    @torch.no_grad()
    def _rates(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return, for each possible event after the last one, its term in the estimated total intensity, and whether it was drawn."""
        start, seen = batch.t_end.unsqueeze(1), batch.lengths.unsqueeze(1)
        queries = self.model.collator.plan_queries(batch, Queries.seeing(start, seen))
        with self.model.evaluating():
            answer = self.model.planned(self.model.encode(batch), queries)
        rates, weight = answer.possible.double().exp(), answer.about.plan.possible_weight
        if weight is None:
            return rates, torch.zeros_like(rates, dtype=torch.bool)
        return rates * weight, weight != 1.0

    def total(self, batch: Batch) -> float:
        """Return the estimated total intensity after the last event."""
        return float(self._rates(batch)[0].sum())

    def standard_error(self, batch: Batch) -> float:
        """Return the relative standard error of `total`, computed as for draws from one stratum, which is an upper bound."""
        rates, is_drawn = self._rates(batch)
        count = self.asked.drawn
        if count < 2 or not bool(is_drawn.any()):
            return 0.0
        # Drawn events that match, or that a filter removed, count as 0.
        others = rates[is_drawn]
        square = others.square().sum() - others.sum().square() / count
        return float((square * count / (count - 1)).clamp(min=0.0).sqrt() / rates.sum())


def is_drawn(model: IntensityModel, data: EventData) -> bool:
    """Return whether some sequence has too many possible events at its end to evaluate all of them."""
    if not isinstance(model, RuleModel) or not model.histories.grounding.products:
        return False
    return any(int(possible_totals(model, one)[-1]) > LISTED for one in data)


def drawn_total(
    model: RuleModel, data: EventData, place: int, pattern: EventPattern | None, keep: int = DRAWN, seed: int = 0
) -> PartialModel:
    """Return a model for the time after the end of sequence `place`: with all events that match, and a sample of `keep` others."""
    key, timeline = model.histories.timeline(model.vocabulary, data[place])
    history = model.histories.history(key, timeline)
    found = None if pattern is None else _places(pattern, timeline.grounding)
    asked = asked_events(history, timeline.states - 1, found, keep, np.random.default_rng((seed, place)))
    own = with_names(model, asked.names)
    own = copy.copy(own)
    assert isinstance(own, RuleModel)
    own.collator = copy.copy(model.collator)
    own.collator.asked = asked
    return PartialModel(own, asked)


def _places(pattern: EventPattern, grounding: Grounding) -> PlacePattern:
    """Convert the names of a pattern to integers; an unknown name (−1) matches nothing."""
    wanted = grounding.program.functor_of(pattern.functor, len(pattern.places))
    functor = {name: number for number, name in enumerate(grounding.functors)}.get(wanted, -1)
    constants = {name: number for number, name in enumerate(grounding.constants)}
    first: dict[str, int] = {}
    fixed, repeats = [], []
    for place, (word, free) in enumerate(zip(pattern.places, pattern.free, strict=True)):
        if not free:
            fixed.append((place, constants.get(word, -1)))
        elif word != "_" and first.setdefault(word, place) != place:
            repeats.append((first[word], place))
    return PlacePattern(functor, tuple(fixed), tuple(repeats))
