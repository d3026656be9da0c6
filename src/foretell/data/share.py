"""A share of a split to learn from: sequences and a share between 0 and 1 in, fewer or shorter sequences out, always the same ones.

With many sequences some are drawn. Where they are few (two games of soccer), each is cut instead: at the time by which that share of
its events has happened. That time is known when it comes, without a look at what follows, so the likelihood of what is left is right.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from foretell.data.dataset import EventData
from foretell.data.sequence import EventSequence
from foretell.errors import ForetellError

ENOUGH_SEQUENCES = (
    20  # from here on sequences are drawn; the rule looks at the data alone, so that all shares are made alike
)


def share_of(data: EventData, share: float, seed: int = 0) -> EventData:
    """A share of the sequences, or of each sequence's events. A smaller share of one seed is part of a larger one."""
    if not 0.0 < share <= 1.0:
        raise ForetellError(f"share = {share}: expected a number above 0 and at most 1")
    if share == 1.0:
        return data
    if len(data) >= ENOUGH_SEQUENCES:
        order = np.random.default_rng([seed, 1]).permutation(len(data))
        return data.select(np.sort(order[: _count(share, len(data), 1)]).tolist())
    least = 2 if data.origin == "first-event" else 1  # a first event that is given leaves nothing to learn by itself
    return replace(data, sequences=[_beginning(one, share, least) for one in data], report=None)


def _beginning(sequence: EventSequence, share: float, least: int) -> EventSequence:
    count = _count(share, len(sequence), least)
    if count >= len(sequence):
        return sequence
    end = float(sequence.times[count - 1])
    kept = int(np.searchsorted(sequence.times, end, side="right"))  # what happens at the same time stays together
    unscored = None if sequence.unscored is None else sequence.unscored[:kept]
    return EventSequence(sequence.times[:kept], sequence.types[:kept], end, sequence.id, sequence.metadata, unscored)


def _count(share: float, of: int, least: int) -> int:
    return min(of, max(least, round(share * of)))
