"""The timelines behind a batch: every sequence of events is replayed once and remembered, all in one numbering."""

from __future__ import annotations

import threading
from collections import OrderedDict

import numpy as np

from foretell.data import Vocabulary
from foretell.ground.engine import Engine
from foretell.ground.replay import grounding_of, walk
from foretell.ground.timeline import Timeline
from foretell.lang.program import Program
from foretell.plan.layout import Layout
from foretell.plan.slots import SequenceSlots, sequence_slots

KEPT_EVENTS = 4_000_000  # of timelines that are remembered
KEPT_SLOTS = 512  # sequences whose slots are remembered


class Histories:
    def __init__(self, program: Program, layout: Layout) -> None:
        self.layout = layout
        self.engine = Engine(program)
        self.grounding = grounding_of(self.engine)
        self._timelines: OrderedDict[bytes, Timeline] = OrderedDict()
        self._slots: OrderedDict[tuple[bytes, bytes], SequenceSlots] = OrderedDict()
        self._events = 0
        self._lock = threading.Lock()  # threads ask about different sequences, but there is one engine

    def __deepcopy__(self, memo: dict[int, object]) -> Histories:
        """What is remembered depends on the program alone: the copy of a model may share it."""
        return self

    def timeline(self, vocabulary: Vocabulary, types: np.ndarray, times: np.ndarray) -> tuple[bytes, Timeline]:
        """A timeline depends on the events alone; its times are those of the first sequence with these events."""
        key = np.ascontiguousarray(types, dtype=np.int64).tobytes()
        with self._lock:
            found = self._timelines.get(key)
            if found is None:
                names = [vocabulary.names[kind] for kind in types.tolist()]
                found = walk(self.engine, self.grounding, names, times, "history")
                self._timelines[key] = found
                self._events += len(types)
                while self._events > KEPT_EVENTS and len(self._timelines) > 1:
                    _, gone = self._timelines.popitem(last=False)
                    self._events -= len(gone.events)
            return key, found

    def slots(self, key: bytes, timeline: Timeline, states: np.ndarray) -> SequenceSlots:
        """What is needed to answer queries in these states."""
        place = (key, states.tobytes())
        with self._lock:
            found = self._slots.get(place)
            if found is None:
                found = self._slots[place] = sequence_slots(timeline, self.layout, states)
                while len(self._slots) > KEPT_SLOTS:
                    self._slots.popitem(last=False)
            return found
