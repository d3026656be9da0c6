"""For models made of rules: which events are possible in each gap, by functor. Between events nothing becomes possible or ceases to be."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretell.batches.batch import Batch
from foretell.data import EventSequence
from foretell.models.rules.rule_model import RuleModel
from foretell.plan.possible import PossibleByFunctor


@dataclass(frozen=True)
class PossibleEvents:
    rows: list[PossibleByFunctor]
    count: np.ndarray  # int64 [B, N + 1, functors]: 0 in padded gaps

    def facts(self, row: np.ndarray, gap: np.ndarray, functor: np.ndarray, number: np.ndarray) -> np.ndarray:
        """The fact with each number, below the count of its row, gap and functor: [n]."""
        found = np.empty(len(row), dtype=np.int64)
        for which in np.unique(row).tolist():
            mine = row == which
            found[mine] = self.rows[which].facts(functor[mine], number[mine], gap[mine] + 1)
        return found


def possible_totals(model: RuleModel, sequence: EventSequence) -> np.ndarray:
    """How many events are possible in each gap of a sequence: int64 [events + 1]."""
    key, timeline = model.histories.timeline(model.vocabulary, sequence.types, sequence.times, sequence.unscored)
    return model.histories.totals(key, timeline)[1:]


def possible_events(model: RuleModel, batch: Batch) -> PossibleEvents:
    """In the order of the model's functors. A query that has seen `g` events looks at state `g + 1`."""
    lengths = batch.lengths.cpu().numpy()
    types, when, history_only = (one.cpu().numpy() for one in (batch.types, batch.times, batch.history_only))
    count = np.zeros((len(batch), types.shape[1] + 1, len(model.functors)), dtype=np.int64)
    rows = []
    for row, length in enumerate(lengths.tolist()):
        key, timeline = model.histories.timeline(
            model.vocabulary, types[row, :length], when[row, :length], history_only[row, :length]
        )
        rows.append(model.histories.possible(key, timeline, model.functors))
        count[row, : length + 1] = rows[-1].count[1 : length + 2]
    return PossibleEvents(rows, count)
