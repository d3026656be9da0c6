"""The timelines behind a batch: every sequence of events is replayed once and remembered, all in one numbering."""

from __future__ import annotations

import threading
from collections import OrderedDict
from weakref import WeakKeyDictionary

import numpy as np

from foretell.data import EventData, Vocabulary
from foretell.ground import replay as replaying
from foretell.ground.chunk import ReplayOptions, adopt_chunks, grounding_of, walk
from foretell.ground.engine import Engine
from foretell.ground.replay import default_folder, replay_chunks
from foretell.ground.timeline import Timeline
from foretell.lang.program import Program
from foretell.plan.history import GroundingArrays, PossibleByFunctor, SlotHistory
from foretell.plan.parameters import DimensionLayout
from foretell.plan.slots import SequenceSlots, slots_of_history

KEPT_EVENTS = 4_000_000  # of timelines that are remembered
KEPT_ADDITIONS = 16_000_000  # of timelines for which what they fix about their slots is remembered: some 100 bytes each
KEPT_SLOTS = 4_000_000  # slots that are remembered: some 200 bytes each


class Histories:
    def __init__(self, program: Program, layout: DimensionLayout) -> None:
        self.layout = layout
        self.engine = Engine(program)
        self.grounding = grounding_of(self.engine)
        self.grounded = GroundingArrays(self.grounding, layout)
        self._timelines: OrderedDict[bytes, Timeline] = OrderedDict()
        self._fixed: OrderedDict[bytes, SlotHistory] = OrderedDict()
        self._slots: OrderedDict[tuple[bytes, bytes], SequenceSlots] = OrderedDict()
        self._possible: WeakKeyDictionary[SlotHistory, PossibleByFunctor] = WeakKeyDictionary()
        self._events = self._additions = self._kept_slots = 0
        self._lock = threading.Lock()  # threads ask about different sequences, but there is one engine

    def __reduce__(self) -> tuple[type[Histories], tuple[Program, DimensionLayout]]:
        """In another process histories are replayed again."""
        return Histories, (self.engine.program, self.layout)

    def __deepcopy__(self, memo: dict[int, object]) -> Histories:
        """What is remembered depends on the program alone: the copy of a model may share it."""
        return self

    @property
    def most(self) -> int:
        """Events that are possible at once, as far as is known."""
        with self._lock:
            if self._fixed:
                return max(history.most for history in self._fixed.values())
            return int(self.grounded.facts.is_event.sum())

    def replay(self, data: EventData, workers: int = 0) -> None:
        """Timelines of all sequences that are not known yet, in the numbering that they would have been given in turn.

        Many events are shared out over processes where that pays, and kept on disk, as `foretell replay` does.
        """
        fresh: dict[bytes, int] = {}
        for place, one in enumerate(data):
            fresh.setdefault(_key(one.types, one.unscored), place)
        with self._lock:
            places = [place for key, place in fresh.items() if key not in self._timelines]
            some = data.select(places)
            if some.event_count >= replaying.CHUNK_EVENTS:
                chunks = replay_chunks(self.engine, some, ReplayOptions(), workers, default_folder())
                for one, timeline in zip(some, adopt_chunks(self.engine, chunks, some, self.grounding), strict=True):
                    self._keep(_key(one.types, one.unscored), timeline)
                return
        for one in some:
            self.timeline(data.vocabulary, one.types, one.times, one.unscored)

    def timeline(
        self, vocabulary: Vocabulary, types: np.ndarray, times: np.ndarray, history_only: np.ndarray | None = None
    ) -> tuple[bytes, Timeline]:
        """A timeline depends on the events alone; its times are those of the first sequence with these events.

        An event that is `history_only` may be impossible: it fires rules, and has no intensity.
        """
        key = _key(types, history_only)
        with self._lock:
            found = self._timelines.get(key)
            if found is not None:
                self._timelines.move_to_end(key)
            else:
                names = [vocabulary.names[kind] for kind in types.tolist()]
                found = walk(self.engine, self.grounding, names, times, "history", history_only)
                self._keep(key, found)
            return key, found

    def _keep(self, key: bytes, timeline: Timeline) -> None:
        self._timelines[key] = timeline
        self._events += len(timeline.events)
        while self._events > KEPT_EVENTS and len(self._timelines) > 1:
            _, gone = self._timelines.popitem(last=False)
            self._events -= len(gone.events)

    def history(self, key: bytes, timeline: Timeline) -> SlotHistory:
        """What a timeline fixes about its slots."""
        with self._lock:
            return self._history(key, timeline)

    def slots(
        self,
        key: bytes,
        timeline: Timeline,
        states: np.ndarray,
        keep: int | None = None,
        rng: np.random.Generator | None = None,
        remember: bool = False,
        chosen: np.ndarray | None = None,
    ) -> SequenceSlots:
        """What is needed to answer queries in these states; with `keep`, for that many of the events possible at each, drawn anew.

        `remember` where the same will be asked again. With `chosen`, each query is about that one event, which is possible then.
        """
        with self._lock:
            history = self._history(key, timeline)
            if keep is not None and history.most <= keep:
                keep = None
            if keep is None and chosen is None and remember:
                return self._remembered(key, history, states)
        return slots_of_history(history, states, keep, rng, chosen)

    def totals(self, key: bytes, timeline: Timeline) -> np.ndarray:
        """How many events are possible in each state."""
        with self._lock:
            return self._history(key, timeline).totals

    def possible(self, key: bytes, timeline: Timeline, functors: list[str]) -> PossibleByFunctor:
        """Which events of these functors are possible in each state; always asked for with the same functors."""
        with self._lock:
            history = self._history(key, timeline)
            found = self._possible.get(history)
            if found is None:
                found = self._possible[history] = PossibleByFunctor(history, functors)
            return found

    def _remembered(self, key: bytes, history: SlotHistory, states: np.ndarray) -> SequenceSlots:
        place = (key, states.tobytes())
        found = self._slots.get(place)
        if found is None:
            found = self._slots[place] = slots_of_history(history, states)
            self._kept_slots += len(found.slot_fact)
            while self._kept_slots > KEPT_SLOTS:
                _, gone = self._slots.popitem(last=False)
                self._kept_slots -= len(gone.slot_fact)
        else:
            self._slots.move_to_end(place)
        return found

    def _history(self, key: bytes, timeline: Timeline) -> SlotHistory:
        found = self._fixed.get(key)
        if found is None:
            found = self._fixed[key] = SlotHistory(self.grounded, timeline)
            self._additions += len(timeline.additions) + len(timeline.events)
            while self._additions > KEPT_ADDITIONS and len(self._fixed) > 1:
                _, gone = self._fixed.popitem(last=False)
                self._additions -= len(gone.timeline.additions) + len(gone.timeline.events)
        else:
            self._fixed.move_to_end(key)
        return found


def _key(types: np.ndarray, history_only: np.ndarray | None) -> bytes:
    """What a timeline depends on: the events, and which of them may be impossible."""
    marked = np.flatnonzero(history_only) if history_only is not None else ()
    if not len(marked):
        return np.ascontiguousarray(types, dtype=np.int64).tobytes()
    return np.concatenate([types, [-1], marked]).astype(np.int64).tobytes()  # no type is negative
