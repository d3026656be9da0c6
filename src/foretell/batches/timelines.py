"""The timelines of sequences: the events of each sequence are replayed once and cached, and all timelines number facts in the same way."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from foretell.data import EventData, EventSequence, Vocabulary
from foretell.data.clock import NO_CLOCK, Clock, clock_from
from foretell.ground import replay as replaying
from foretell.ground.chunk import NOTHING_EXPIRES, ReplayHorizon, ReplayOptions, grounding_of, timeline_of, walk
from foretell.ground.database import FactKey
from foretell.ground.engine import Engine
from foretell.ground.expiry import lifetimes_of
from foretell.ground.given import brought_facts
from foretell.ground.numbering import adopt_numbers, renumbered
from foretell.ground.replay import chunk_paths, default_folder, groups_of, replay_chunks
from foretell.ground.stored_chunks import StoredChunks
from foretell.ground.timeline import Timeline
from foretell.lang.program import Program
from foretell.plan.asked_events import AskedEvents
from foretell.plan.history import GroundingArrays, SlotHistory
from foretell.plan.parameters import DimensionLayout
from foretell.plan.possible_by_functor import PossibleByFunctor
from foretell.plan.slots import SequenceSlots, slots_of_history

KEPT_EVENTS = (
    4_000_000  # total events of the timelines in memory; others are read from disk or replayed again when needed
)
KEY_BYTES = 32  # length of the hash of the inputs of a timeline
GROUP_EVENTS = 1 << 20  # total events of the chunks that are in memory at a time
KEPT_ADDITIONS = 16_000_000  # total additions of the cached slot histories; some 100 bytes each
KEPT_SLOTS = 4_000_000  # total of cached slots; some 200 bytes each


Entry = TypeVar("Entry")


class SizedCache(Generic[Entry]):
    """An LRU cache of entries that each have a size. A copy of a cache, also in another process, is empty."""

    def __init__(self) -> None:
        self.entries: OrderedDict[Hashable, tuple[Entry, int]] = OrderedDict()
        self.size = 0  # of all entries
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[SizedCache], tuple[()]]:
        return SizedCache, ()

    def __len__(self) -> int:
        return len(self.entries)

    def get(self, key: Hashable) -> Entry | None:
        with self._lock:
            if key not in self.entries:
                return None
            self.entries.move_to_end(key)
            return self.entries[key][0]

    def keep(self, key: Hashable, entry: Entry, size: int, most: int, least: int = 0) -> None:
        """Add an entry; evict the least recently used ones while the total size is above `most`, but keep at least `least` entries."""
        with self._lock:
            if key not in self.entries:
                self.entries[key] = entry, size
                self.size += size
            while self.size > most and len(self.entries) > least:
                _, (_, gone) = self.entries.popitem(last=False)
                self.size -= gone

    def clear(self) -> None:
        with self._lock:
            self.entries.clear()
            self.size = 0


class Histories:
    def __init__(self, program: Program, layout: DimensionLayout) -> None:
        self.layout = layout
        self.engine = Engine(program)
        self.grounding = grounding_of(self.engine)
        self.grounded = GroundingArrays(self.grounding, layout)
        self._timelines: SizedCache[Timeline] = SizedCache()
        self._stored = StoredChunks()
        self._fixed: SizedCache[SlotHistory] = SizedCache()
        self._slots: SizedCache[SequenceSlots] = SizedCache()
        self._possible: WeakKeyDictionary[SlotHistory, PossibleByFunctor] = WeakKeyDictionary()
        self._lock = threading.Lock()  # there is one engine for all threads
        self.building = threading.Lock()  # plans of pieces add new names to the parameter book one at a time
        self.expires = program.expires
        self.clock = NO_CLOCK  # converts durations with a unit
        self._lifetimes: dict[int, float] | None = None

    def __reduce__(self) -> tuple[Callable[..., Histories], tuple[Program, DimensionLayout, Clock]]:
        """In another process the sequences are replayed again."""
        return _histories, (self.engine.program, self.layout, self.clock)

    def __deepcopy__(self, memo: dict[int, object]) -> Histories:
        """Return the object itself: the cache depends only on the program, so copies of a model can share it."""
        return self

    @property
    def most(self) -> int:
        """The largest number of events that are possible at once, as far as is known."""
        with self._lock:
            if len(self._fixed):
                return max(history.most for history, _ in self._fixed.entries.values())
            return int(self.grounded.facts.is_event.sum())

    def replay(self, data: EventData, workers: int = 0) -> None:
        """Compute the timelines of all sequences that are not cached, numbered as if the sequences were replayed one by one.

        Large data are shared out over processes, and the results are kept on disk, as with `foretell replay`.
        """
        with self._lock:
            fresh: dict[bytes, int] = {}
            for place, one in enumerate(data):
                key = self._key(one, self.brought(data.vocabulary, one))
                if key not in self._timelines.entries and key not in self._stored:
                    fresh.setdefault(key, place)
            places, keys = list(fresh.values()), list(fresh)
            if int(data.lengths[places].sum()) >= replaying.CHUNK_EVENTS:
                done = 0
                for group in groups_of(data, places, GROUP_EVENTS):
                    self._replay_group(data.select(group), keys[done : done + len(group)], workers)
                    done += len(group)
                return
        for place in places:
            self.timeline(data.vocabulary, data[place])

    def _replay_group(self, data: EventData, keys: Sequence[bytes], workers: int) -> None:
        """Replay whole chunks, each of which stays on disk."""
        data = replace(data, clock=self.clock) if self.expires else data
        options, folder = ReplayOptions(), default_folder()
        chunks = replay_chunks(self.engine, data, options, workers, folder)
        paths, first = chunk_paths(self.engine.program, data, options, folder), 0
        for chunk, path in zip(chunks, paths, strict=True):
            numbers, own = adopt_numbers(self.engine, chunk), keys[first : first + len(chunk.sequences)]
            tables = numbers.tables()
            for place, (key, rows) in enumerate(zip(own, chunk.sequences, strict=True), first):
                found = renumbered(rows, *tables)
                one = data[place]
                self._keep(key, timeline_of(self.grounding, one.id, one.times, found, self.lifetimes))
            self._stored.add(path, numbers, own)
            first += len(own)

    def set_clock(self, clock: Clock) -> None:
        """Use this clock for durations; clear the caches if it changes durations."""
        if self.expires and clock != self.clock:
            self.clock, self._lifetimes = clock, None
            for one in (self._timelines, self._stored, self._fixed, self._slots):
                one.clear()

    def clock_spec(self) -> dict[str, object]:
        """Return the entry for the clock in a saved model; empty if nothing expires."""
        return {"clock": self.clock.to_json()} if self.expires else {}

    def meet_clock(self, spec: Mapping[str, Any]) -> None:
        """Use the clock of a saved model."""
        self.set_clock(clock_from(spec.get("clock", {})))

    @property
    def lifetimes(self) -> dict[int, float]:
        """The lifetime of additions, by rule; only rules whose additions expire."""
        if self._lifetimes is None:
            self._lifetimes = lifetimes_of(self.engine.program, self.clock)
        return self._lifetimes

    def brought(self, vocabulary: Vocabulary, sequence: EventSequence) -> tuple[str, ...]:
        """Return the facts that come with a sequence."""
        return brought_facts(self.engine.program, sequence, vocabulary.names)

    def timeline(
        self, vocabulary: Vocabulary, sequence: EventSequence, count: int | None = None
    ) -> tuple[bytes, Timeline]:
        """Return the key and the timeline of a sequence, or of its first `count` events.

        The key depends only on the events and the given facts, and also on times where additions expire. A cached timeline has the times of
        the first sequence with its key. An event that is `unscored` may be impossible: it fires rules, and has no intensity.
        """
        given = self.brought(vocabulary, sequence)  # taken from the whole sequence: its prefixes have the same facts
        sequence = sequence if count is None else sequence.first(count)
        types, times, history_only = sequence.types, sequence.times, sequence.unscored
        key = self._key(sequence, given)
        with self._lock:
            found = self._timelines.get(key)
            if found is None and (rows := self._stored.get(key)) is not None:
                found = timeline_of(self.grounding, "history", times, rows, self.lifetimes)
                self._keep(key, found)
            if found is None:
                names = [vocabulary.names[kind] for kind in types.tolist()]
                horizon = ReplayHorizon(self.lifetimes, sequence.t_end) if self.expires else NOTHING_EXPIRES
                found = walk(self.engine, self.grounding, names, times, "history", history_only, given, horizon)
                self._keep(key, found)
            return key, found

    def _key(self, sequence: EventSequence, given: Sequence[str]) -> bytes:
        """Return the key of a timeline; timelines with equal keys are equal."""
        plain = _key(sequence.types, sequence.unscored, given)
        if not self.expires:
            return plain
        ends = np.append(sequence.times, sequence.t_end).astype(np.float64)
        return plain + hashlib.blake2b(ends.tobytes(), digest_size=16).digest()

    def _keep(self, key: bytes, timeline: Timeline) -> None:
        self._timelines.keep(key, timeline, len(timeline.events), KEPT_EVENTS, least=1)

    def history(self, key: bytes, timeline: Timeline) -> SlotHistory:
        """Return the part of the slots that depends only on the timeline."""
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
        chosen: np.ndarray | AskedEvents | None = None,
    ) -> SequenceSlots:
        """Return the slots for queries in these states; with `keep`, for a new random sample of that many possible events per query.

        Set `remember` if the same states will be requested again. `chosen` is either one event per query, which must be possible there, or
        `AskedEvents`, the events of interest for all queries.
        """
        with self._lock:
            history = self._history(key, timeline)
            if chosen is not None and history.products is not None:
                self.grounded.refresh()  # facts may have been drawn in the meantime
            if keep is not None and history.most <= keep:
                keep = None
            if keep is None and chosen is None and remember:
                return self._remembered(key, history, states)
        return slots_of_history(history, states, keep, rng, chosen)

    def totals(self, key: bytes, timeline: Timeline) -> np.ndarray:
        """Return the number of possible events in each state: int64 [states]."""
        with self._lock:
            return self._history(key, timeline).totals

    def possible(self, key: bytes, timeline: Timeline, functors: list[str]) -> PossibleByFunctor:
        """Return which events of these functors are possible in each state. The result is cached: always pass the same functors."""
        with self._lock:
            history = self._history(key, timeline)
            found = self._possible.get(history)
            if found is None:
                found = self._possible[history] = PossibleByFunctor(history, functors, self._fact_of)
            return found

    def _fact_of(self, key: FactKey) -> int:
        """Return the number of the fact for an event that was drawn from a product."""
        with self._lock:
            return self.engine.fact(key)

    def _remembered(self, key: bytes, history: SlotHistory, states: np.ndarray) -> SequenceSlots:
        place = (key, states.tobytes())
        found = self._slots.get(place)
        if found is None:
            found = slots_of_history(history, states)
            self._slots.keep(place, found, len(found.slot_fact), KEPT_SLOTS)
        return found

    def _history(self, key: bytes, timeline: Timeline) -> SlotHistory:
        found = self._fixed.get(key)
        if found is None:
            found = SlotHistory(self.grounded, timeline)
            size = len(timeline.additions) + len(timeline.events)
            self._fixed.keep(key, found, size, KEPT_ADDITIONS, least=1)
        return found


def _key(types: np.ndarray, history_only: np.ndarray | None, given: Sequence[str]) -> bytes:
    """Return a hash of the events, of which events may be impossible, and of the facts that came with the sequence."""
    marked = np.flatnonzero(history_only) if history_only is not None else ()
    brought = "".join(f"{name}\n" for name in given).encode("utf-8", "surrogatepass")
    whole = np.ascontiguousarray(types, dtype=np.int64)
    if len(marked):
        whole = np.concatenate([whole, [-1], marked]).astype(np.int64)  # no type is negative
    return hashlib.blake2b(whole.tobytes() + brought, digest_size=KEY_BYTES).digest()


def _histories(program: Program, layout: DimensionLayout, clock: Clock) -> Histories:
    made = Histories(program, layout)
    made.set_clock(clock)
    return made
