"""Scores event by event in; out, how often each group of events was taken for which, told its time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretell.data import Vocabulary
from foretell.evaluate.likelihood import EventScores
from foretell.report.grouping import Grouping, group_events

MOST_GROUPS = 14  # more cells cannot be read


@dataclass(frozen=True)
class Confusion:
    """`counts[i, j]`: events of group i for which the most probable event was of group j."""

    grouping: Grouping
    counts: np.ndarray  # int64 [groups, groups]

    @property
    def shares(self) -> np.ndarray:
        """Of each row; a row without events is zero."""
        return self.counts / np.maximum(self.counts.sum(1, keepdims=True), 1)


def grouping_of(events: EventScores, vocabulary: Vocabulary, most: int = MOST_GROUPS) -> Grouping:
    """Groups for all that happened or was expected; what happened often comes first."""
    happened = np.bincount(events.type[events.is_event], minlength=len(vocabulary))
    expected = np.bincount(events.predicted_type[events.is_event], minlength=len(vocabulary)) > 0
    return group_events(vocabulary, happened * len(events.type) + expected, most)


def confusion_of(events: EventScores, vocabulary: Vocabulary, grouping: Grouping | None = None) -> Confusion:
    grouping = grouping_of(events, vocabulary) if grouping is None else grouping
    places, size = grouping.places(vocabulary), len(grouping.names)
    counts = np.zeros((size, size), dtype=np.int64)
    real = events.is_event
    np.add.at(counts, (places[events.type[real]], places[events.predicted_type[real]]), 1)
    return Confusion(grouping, counts)
