"""The possible events in each gap by functor, for models made of rules. Between changes, possible events stay the same."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretell.batches.batch import Batch
from foretell.data import EventSequence
from foretell.models.rules.rule_model import RuleModel
from foretell.plan.possible_by_functor import PossibleByFunctor


@dataclass(frozen=True)
class PossibleEvents:
    rows: list[PossibleByFunctor]
    count: np.ndarray  # int64 [B, N + 1, functors]: 0 in padded gaps

    def facts(self, row: np.ndarray, gap: np.ndarray, functor: np.ndarray, number: np.ndarray) -> np.ndarray:
        """Return facts, [n]: the possible event `number` (from 0 on) of each `functor` in each `gap` of each `row`."""
        found = np.empty(len(row), dtype=np.int64)
        for which in np.unique(row).tolist():
            mine = row == which
            found[mine] = self.rows[which].facts(functor[mine], number[mine], gap[mine] + 1)
        return found


def possible_totals(model: RuleModel, sequence: EventSequence) -> np.ndarray:
    """Return the number of possible events in each gap between changes of a sequence: int64 [changes + 1]."""
    key, timeline = model.histories.timeline(model.vocabulary, sequence)
    return model.histories.totals(key, timeline)[1:]


def gaps_of_events(model: RuleModel, sequence: EventSequence) -> np.ndarray:
    """Return, for each gap between changes, the gap between events that contains it: int64 [changes + 1]."""
    _, timeline = model.histories.timeline(model.vocabulary, sequence)
    return np.concatenate([[0], np.cumsum(~timeline.is_expiry)])


def possible_events(model: RuleModel, batch: Batch) -> PossibleEvents:
    """Return the possible events, in the order of the model's functors. A query that has seen `g` events uses state `g + 1`."""
    assert batch.rules is not None, "a batch for a model made of rules is made by its collator"
    count = np.zeros((*batch.gap_start.shape, len(model.functors)), dtype=np.int64)
    rows = []
    for row, (key, timeline) in enumerate(zip(batch.rules.keys, batch.rules.timelines, strict=True)):
        rows.append(model.histories.possible(key, timeline, model.functors))
        count[row, : timeline.states - 1] = rows[-1].count[1 : timeline.states]
    return PossibleEvents(rows, count)
