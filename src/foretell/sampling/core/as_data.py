"""Sampled futures as event data, which can be written to a file, scored, or trained on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foretell.data import EventData, EventSequence, Vocabulary
from foretell.sampling.core.futures import Futures


def futures_as_data(
    found: Sequence[Futures], histories: Sequence[EventSequence] | None, vocabulary: Vocabulary
) -> EventData:
    """A sequence for each future, named after its history and its place; with `histories`, what happened before comes first.

    It ends at the horizon, or with its last event where it was cut there.
    """
    names = {name: number for number, name in enumerate(vocabulary.names)}
    sequences = []
    for place, one in enumerate(found):
        past_times, past_types = np.empty(0), np.empty(0, dtype=np.int32)
        if histories is not None:
            seen = int(np.searchsorted(histories[place].times, one.start, side="right"))
            past_times, past_types = histories[place].times[:seen], histories[place].types[:seen]
        for number, future in enumerate(one.futures, 1):
            types = [names.setdefault(name, len(names)) for name in future.events]
            times = np.concatenate([past_times, future.times])
            end = one.horizon if future.end == "horizon" else float(future.times[-1])
            kinds = np.concatenate([past_types, np.asarray(types, dtype=np.int32)])
            sequences.append(EventSequence(times, kinds, end, f"{one.sequence}-{number}"))
    return EventData(sequences, Vocabulary(tuple(names)), name="futures")
