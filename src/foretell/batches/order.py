"""The order of batches: for data in memory, all sequences sorted by length; for packed data, sorted by length within a buffer of shards.

The shards of packed data are drawn at random into groups of at most `BUFFER_EVENTS` events. Each batch comes from one group, so that an
epoch reads the pages of one group after the other. Data that fit into the buffer are one group, and give exactly the same
batches as data in memory. An order can be recomputed from its seed, so a checkpoint only needs the number of steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, overload

import numpy as np

from foretell.batches.batch import length_buckets
from foretell.data import EventData

BUFFER_EVENTS = 1 << 23  # 100 MB of times and types


class BatchOrder(Sequence[np.ndarray]):
    """Batches as arrays of sequence numbers. After the last batch of a group, the pages of packed data are released."""

    def __init__(self, data: EventData, batches: Sequence[Sequence[np.ndarray]]) -> None:
        self.data = data
        self.batches = [batch for group in batches for batch in group]
        self.ends = set(np.cumsum([len(group) for group in batches]).tolist())

    def __len__(self) -> int:
        return len(self.batches)

    @overload
    def __getitem__(self, index: int) -> np.ndarray: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[np.ndarray]: ...
    def __getitem__(self, index: int | slice) -> np.ndarray | Sequence[np.ndarray]:
        return self.batches[index]

    def __iter__(self) -> Iterator[np.ndarray]:
        for place, batch in enumerate(self.batches):
            yield batch
            self.passed(place + 1)

    def step(self, place: int) -> Any:
        """Return the batch of the step at this position in the epoch."""
        return self.batches[place]

    def passed(self, count: int) -> None:
        """Record that this many steps are done; release the pages of a finished group."""
        shards = self.data.columns.shards
        if shards is not None and count in self.ends:
            shards.release()


def epoch_order(data: EventData, batch_size: int, rng: np.random.Generator, buffer: int = BUFFER_EVENTS) -> BatchOrder:
    """Return the batches of an epoch in random order."""
    lengths, groups = data.lengths, buffered(data, buffer, rng)
    if groups is None:
        return BatchOrder(data, [length_buckets(lengths, batch_size, rng)])
    made = ((group, length_buckets(lengths[group], batch_size, rng)) for group in groups)
    return BatchOrder(data, [[group[batch] for batch in batches] for group, batches in made])


def fitting_order(data: EventData, most_gaps: int, buffer: int = BUFFER_EVENTS) -> BatchOrder:
    """Return all sequences sorted by length, in batches of at most `most_gaps` gaps with padding; the result is deterministic."""
    gaps, groups = data.lengths + 1, buffered(data, buffer, None)
    if groups is None:
        groups = [np.arange(len(data))]

    def batches(group: np.ndarray) -> list[np.ndarray]:
        fixed = np.random.default_rng(0)  # any fixed order: it changes no sum
        found = length_buckets(gaps[group], max(1, len(group)), fixed, max_tokens=max(1, most_gaps))
        return [group[batch] for batch in found]

    return BatchOrder(data, [batches(group) for group in groups])


def buffered(data: EventData, buffer: int, rng: np.random.Generator | None) -> list[np.ndarray] | None:
    """Return groups of shards, as arrays of sequence numbers, that each fit in the buffer (or are one shard), in an order drawn by `rng`.

    Return None if no groups are needed."""
    shards = data.columns.shards
    if shards is None or data.event_count <= buffer:
        return None
    starts, offsets = shards.starts, data.columns.offsets
    events = np.diff(offsets[starts])
    order = np.arange(len(events)) if rng is None else rng.permutation(len(events))
    groups: list[np.ndarray] = []
    members: list[np.ndarray] = []
    held = 0
    for shard in order.tolist():
        if members and held + int(events[shard]) > buffer:
            groups.append(np.concatenate(members))
            members, held = [], 0
        members.append(np.arange(starts[shard], starts[shard + 1]))
        held += int(events[shard])
    return [*groups, np.concatenate(members)]
