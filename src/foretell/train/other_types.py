"""Support for `unknown="other"`: rare event types become the type `other`, so that a model has a type for unknown events."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np

from foretell.data import Dataset, Vocabulary
from foretell.data.dataset import OTHER
from foretell.wording import counted, listed

log = logging.getLogger("foretell")

RARE = 5  # a type with fewer training events becomes `other`; categories of covariates have the same limit


def with_other_type(dataset: Dataset, called: str, level: int = logging.WARNING) -> Dataset:
    """Return the data with rare types replaced by a type `other`. Integer types keep their numbers, and `other` comes last."""
    assert dataset.train is not None
    known, counts = dataset.vocabulary, dataset.train.type_counts()
    rare = np.zeros(len(known), dtype=bool) if known.numbered else counts < RARE
    if (own := known.find(OTHER)) is not None:
        rare[own] = False
    names = [name for name, gone in zip(known.names, rare.tolist(), strict=True) if not gone]
    vocabulary = Vocabulary(tuple(names if OTHER in names else [*names, OTHER]))
    place = np.full(len(known), vocabulary.index(OTHER), dtype=np.int32)
    place[~rare] = [vocabulary.index(name) for name, gone in zip(known.names, rare.tolist(), strict=True) if not gone]
    splits = {
        name: replace(data, sequences=replace(data.columns, types=place[data.columns.types]), vocabulary=vocabulary)
        for name, data in dataset.splits().items()
    }
    merged = [known.names[kind] for kind in np.flatnonzero(rare & (counts > 0)).tolist()]
    if merged:
        events = counted(int(counts[rare].sum()), "training event")
        size = f"{counted(len(merged), 'event type')} with fewer than {RARE} training events ({listed(merged, most=5)})"
        log.log(level, "%s: %s, %s in all, became `%s`", called, size, events, OTHER)
    elif own is None:
        found = "types are integers" if known.numbered else f"no event type has fewer than {RARE} training events"
        log.log(level, "%s: %s, so that there is nothing to learn about `%s` from", called, found, OTHER)
    card = replace(dataset.card, types=len(vocabulary))
    return replace(dataset, **splits, vocabulary=vocabulary, card=card)
