"""Scores event by event in; out, how often each group of events was taken for which, told its time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretell.data import Vocabulary
from foretell.evaluate.likelihood import EventScores
from foretell.evaluate.open_vocabulary import UNMET
from foretell.report.grouping import Grouping, group_events

MOST_GROUPS = 14  # more cells cannot be read
NEVER_MET = (
    "never met"  # events that rules make possible and no data ever had: expected at times, here never seen to happen
)


@dataclass(frozen=True)
class Confusion:
    """`counts[i, j]`: events of group i for which the most probable event was of group j."""

    grouping: Grouping
    names: tuple[str, ...]  # of the groups, and NEVER_MET where such an event was expected
    counts: np.ndarray  # int64 [names, names]

    @property
    def shares(self) -> np.ndarray:
        """Of each row; a row without events is zero."""
        return self.counts / np.maximum(self.counts.sum(1, keepdims=True), 1)


def grouping_of(events: EventScores, vocabulary: Vocabulary, most: int = MOST_GROUPS) -> Grouping:
    """Groups for all that happened or was expected; what happened often comes first."""
    happened = np.bincount(events.type[events.is_event], minlength=len(vocabulary))
    guessed = events.predicted_type[events.is_event]
    expected = np.bincount(guessed[guessed != UNMET], minlength=len(vocabulary)) > 0
    return group_events(vocabulary, happened * len(events.type) + expected, most)


def confusion_of(events: EventScores, vocabulary: Vocabulary, grouping: Grouping | None = None) -> Confusion:
    grouping = grouping_of(events, vocabulary) if grouping is None else grouping
    real = events.is_event
    unmet = bool((events.predicted_type[real] == UNMET).any())
    names = (*grouping.names, NEVER_MET) if unmet else grouping.names
    places = np.append(grouping.places(vocabulary), len(grouping.names))  # UNMET is the last
    counts = np.zeros((len(names), len(names)), dtype=np.int64)
    np.add.at(counts, (places[events.type[real]], places[events.predicted_type[real]]), 1)
    return Confusion(grouping, names, counts)
