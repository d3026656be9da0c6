"""One sequence: which facts are needed at which points of time, by which proofs and additions. Integers only, times come later.

Points are the events' own times (each in the state just before it; the point of event 0 is `bos`) and the queries' times. A *slot* is a
fact at a point, needed because it is a possible event at a query, an event that happened, a condition of an addition, or in the body of a
proof of a needed slot. Facts whose embeddings never change have one slot for the sequence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from foretell.errors import ForetellError
from foretell.ground.timeline import Grounding, Timeline
from foretell.plan.cycle import cycle_message
from foretell.plan.layout import Layout

Ints = np.ndarray  # int64


@dataclass(frozen=True, eq=False)
class SequenceSlots:
    grounding: Grounding
    point_state: Ints  # [P], ascending
    event_point: Ints  # [n + 1]: point of `bos`, then of each event
    query_point: Ints  # [Q], in the order the queries were given
    slot_fact: Ints  # [S]
    slot_point: Ints  # [S]
    slot_dim: Ints  # [S]
    slot_level: Ints  # [S]: after how many others a slot can be computed
    proof_instance: Ints  # [R]
    proof_slot: Ints  # [R]: the head's
    proof_body: list[Ints]  # of every embedded condition of every proof: row, place in the body, slot
    addition_instance: Ints  # [A], sorted by (r, head, event)
    addition_event: Ints  # [A]
    addition_r: Ints  # [A]
    addition_body: Ints  # flat: slots of embedded conditions, -1 for an event that is no true fact
    addition_start: Ints  # [A + 1]
    ask_slot: Ints  # [X]: a slot and a range of additions that it attends to
    ask_low: Ints
    ask_high: Ints
    ask_segment: Ints  # [X]: equal for the same (r, head)
    possible_slot: Ints  # [E]: slots of possible events at queries
    possible_query: Ints  # [E]: and whose
    happened_slot: Ints  # [n]: of each event at its own time; -1 where it is not scored

    def __deepcopy__(self, memo: dict[int, object]) -> SequenceSlots:
        return self  # nothing in it changes, and plans are found again by what it is


class _Intervals:
    """Whether something holds in a state: intervals by item."""

    def __init__(self, item: Ints, start: Ints, stop: Ints, states: int) -> None:
        order = np.lexsort((start, item))
        self.item, self.stop, self.states = item[order], stop[order], states
        self.code = self.item * states + start[order]

    def hold(self, item: Ints, state: Ints) -> np.ndarray:
        place = np.searchsorted(self.code, item * self.states + state, side="right") - 1
        found = np.maximum(place, 0)
        if not len(self.item):
            return np.zeros(len(item), dtype=bool)
        return (place >= 0) & (self.item[found] == item) & (self.stop[found] > state)


class _Lists:
    """Values by key, as slices of one array."""

    def __init__(self, keys: Ints, values: Ints, size: int) -> None:
        order = np.argsort(keys, kind="stable")
        self.values = values[order]
        self.start = np.searchsorted(keys[order], np.arange(size + 1))

    def expand(self, keys: Ints) -> tuple[Ints, Ints]:
        """For every key all its values: (place among the keys, value)."""
        counts = self.start[keys + 1] - self.start[keys]
        place = np.repeat(np.arange(len(keys)), counts)
        within = np.arange(len(place)) - np.repeat(np.cumsum(counts) - counts, counts)
        return place, self.values[np.repeat(self.start[keys], counts) + within]


def _unique(values: Ints) -> Ints:
    """Sorted, each once; on large arrays this is several times as fast as numpy's own."""
    ordered = np.sort(values)
    keep = np.ones(len(ordered), dtype=bool)
    keep[1:] = ordered[1:] != ordered[:-1]
    return ordered[keep]


def sequence_slots(timeline: Timeline, layout: Layout, query_states: np.ndarray) -> SequenceSlots:
    return _Builder(timeline, layout, np.asarray(query_states, dtype=np.int64)).build()


class _Builder:
    def __init__(self, timeline: Timeline, layout: Layout, query_states: Ints) -> None:
        self.timeline, self.layout, self.grounding = timeline, layout, timeline.grounding
        self.states = timeline.states + 1
        grounding = self.grounding
        self.functor = np.asarray([key[0] for key in grounding.keys], dtype=np.int64)
        dims, changing = layout.of_facts(grounding)
        self.dim = np.asarray(dims, dtype=np.int64)[self.functor]
        self.changing = np.asarray(changing, dtype=bool)[self.functor]
        self.event_fact = np.asarray([grounding.is_event(fact) for fact in range(len(grounding.keys))], dtype=bool)
        self.head = np.asarray(grounding.head, dtype=np.int64)
        self._points(query_states)
        always = grounding.always.astype(np.int64)
        holds = timeline.holds.astype(np.int64)
        end = np.full(len(always), timeline.states)
        self.hold_fact = np.concatenate([always, holds[:, 0]])
        self.hold_from = np.concatenate([np.zeros_like(always), holds[:, 1]])
        self.hold_to = np.concatenate([end, holds[:, 2]])
        self.truth = _Intervals(self.hold_fact, self.hold_from, self.hold_to, self.states)
        proofs, constant = timeline.proofs.astype(np.int64), grounding.always_proofs.astype(np.int64)
        proof = np.concatenate([constant, proofs[:, 0]])
        start = np.concatenate([np.zeros_like(constant), proofs[:, 1]])
        stop = np.concatenate([np.full(len(constant), timeline.states), proofs[:, 2]])
        self.proved = _Intervals(proof, start, stop, self.states)
        distinct = np.unique(proof)
        self.proofs_of = _Lists(self.head[distinct], distinct, len(grounding.keys))

    def _points(self, query_states: Ints) -> None:
        events = len(self.timeline.events)
        state = np.concatenate([query_states, np.arange(events + 1)])
        kind = np.concatenate([np.zeros(len(query_states)), np.ones(events + 1)])
        order = np.lexsort((kind, state))
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        self.point_state = state[order]
        self.query_point, self.event_point = place[: len(query_states)], place[len(query_states) :]

    def build(self) -> SequenceSlots:
        additions, r = self._in_order(self.timeline.additions.astype(np.int64))
        body_fact, body_start, body_row = self._addition_bodies(additions)
        body_point = self.event_point[additions[body_row, 1]] if len(body_row) else body_row
        asked_fact, asked_point, asked_query = self._possible()
        happened_fact, happened_point, happened = self._happened()
        true = self.truth.hold(body_fact, self.point_state[body_point]) if len(body_fact) else np.zeros(0, dtype=bool)
        codes = _unique(
            np.concatenate(
                [
                    self._code(body_fact[true], body_point[true]),
                    self._code(asked_fact, asked_point),
                    self._code(happened_fact, happened_point),
                ]
            )
        )
        codes, proof_code, proof_instance = self._close(codes)
        fact, point = codes // self._stride, codes % self._stride

        def slot_of(code: Ints) -> Ints:
            return np.searchsorted(codes, code)

        proof_slot = slot_of(proof_code)
        proof_body = self._proof_bodies(proof_instance, point[proof_slot], slot_of)
        level = self._levels(fact, point, proof_slot, proof_body, proof_instance)
        body_slot = np.full(len(body_fact), -1, dtype=np.int64)
        body_slot[true] = slot_of(self._code(body_fact[true], body_point[true]))
        asks = self._asks(additions, r, fact, point)
        happened_slot = np.full(len(self.timeline.events), -1, dtype=np.int64)
        happened_slot[happened] = slot_of(self._code(happened_fact, happened_point))
        scored = self.timeline.possible_events
        return SequenceSlots(
            self.grounding,
            self.point_state,
            self.event_point,
            self.query_point,
            fact,
            point,
            self.dim[fact],
            level,
            proof_instance,
            proof_slot,
            proof_body,
            additions[:, 0],
            additions[:, 1],
            r,
            body_slot,
            body_start,
            *asks,
            slot_of(self._code(asked_fact, asked_point)),
            asked_query,
            np.where(scored, happened_slot, -1),
        )

    @property
    def _stride(self) -> int:
        return len(self.point_state)

    def _code(self, fact: Ints, point: Ints) -> Ints:
        """A slot as one number; what never changes is looked at once, at the first point."""
        return fact * self._stride + np.where(self.changing[fact], point, 0)

    def _possible(self) -> tuple[Ints, Ints, Ints]:
        """Every event that is possible at a query: fact, point, query."""
        chosen = self.event_fact[self.hold_fact]
        fact, start, stop = self.hold_fact[chosen], self.hold_from[chosen], self.hold_to[chosen]
        order = np.argsort(self.query_point, kind="stable")
        state = self.point_state[self.query_point[order]]
        low, high = np.searchsorted(state, start), np.searchsorted(state, stop)
        counts = np.maximum(high - low, 0)
        row = np.repeat(np.arange(len(fact)), counts)
        within = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
        query = order[np.repeat(low, counts) + within]
        return fact[row], self.query_point[query], query

    def _happened(self) -> tuple[Ints, Ints, np.ndarray]:
        """Events that were true facts just before they happened: fact, point, and which."""
        events = self.timeline.events.astype(np.int64)
        point = self.event_point[1:]
        true = self.truth.hold(events, self.point_state[point]) if len(events) else np.zeros(0, dtype=bool)
        which = np.flatnonzero(true)
        return events[which], point[which], which

    def _addition_bodies(self, additions: Ints) -> tuple[Ints, Ints, Ints]:
        """Embedded conditions of all additions: facts in one array, where each addition's start, and whose they are."""
        rules, bodies = self.grounding.rule, self.grounding.body
        known: dict[int, list[int]] = {}
        for instance in np.unique(additions[:, 0]).tolist():
            layout = self.layout.rules[rules[instance]]
            assert layout is not None
            known[instance] = [bodies[instance][place] for place in layout.embedded]
        counts = np.asarray([len(known[one]) for one in additions[:, 0].tolist()], dtype=np.int64)
        start = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        flat = np.asarray([fact for one in additions[:, 0].tolist() for fact in known[one]], dtype=np.int64)
        return flat, start, np.repeat(np.arange(len(additions)), counts)

    def _close(self, codes: Ints) -> tuple[Ints, Ints, Ints]:
        """Slots with all that their proofs need; and the proofs: code of the head's slot, instantiation."""
        found_codes, found_instances = [], []
        frontier = codes
        while len(frontier):
            fact, point = frontier // self._stride, frontier % self._stride
            embedded = self.dim[fact] > 0
            frontier, fact, point = frontier[embedded], fact[embedded], point[embedded]
            place, instance = self.proofs_of.expand(fact)
            holds = self.proved.hold(instance, self.point_state[point[place]])
            place, instance = place[holds], instance[holds]
            found_codes.append(frontier[place])
            found_instances.append(instance)
            body_fact, row, _ = self._bodies(instance)
            needed = _unique(self._code(body_fact, point[place][row]))
            place = np.searchsorted(codes, needed)
            frontier = needed[codes[np.minimum(place, len(codes) - 1)] != needed]
            codes = np.sort(np.concatenate([codes, frontier]), kind="stable")
        nothing = np.zeros(0, dtype=np.int64)
        return codes, np.concatenate([nothing, *found_codes]), np.concatenate([nothing, *found_instances])

    def _bodies(self, instances: Ints) -> tuple[Ints, Ints, Ints]:
        """Embedded body facts of instantiations: fact, row, and place among the embedded ones."""
        distinct, inverse = np.unique(instances, return_inverse=True)
        facts = []
        for instance in distinct.tolist():
            layout = self.layout.rules[self.grounding.rule[instance]]
            assert layout is not None
            facts.append([self.grounding.body[instance][place] for place in layout.embedded])
        counts = np.asarray([len(one) for one in facts], dtype=np.int64)
        start = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        flat = np.asarray([fact for one in facts for fact in one], dtype=np.int64)
        many = counts[inverse] if len(inverse) else np.zeros(0, dtype=np.int64)
        row = np.repeat(np.arange(len(instances)), many)
        within = np.arange(len(row)) - np.repeat(np.cumsum(many) - many, many)
        return (flat[start[inverse][row] + within] if len(row) else flat[:0]), row, within

    def _proof_bodies(self, instances: Ints, points: Ints, slot_of: Callable[[Ints], Ints]) -> list[Ints]:
        """[row, place, slot] of every embedded condition of every proof."""
        fact, row, place = self._bodies(instances)
        return [row, place, slot_of(self._code(fact, points[row])) if len(row) else row]

    def _levels(self, fact: Ints, point: Ints, proof_slot: Ints, proof_body: list[Ints], instances: Ints) -> Ints:
        """Longest paths through the proofs; they must have no cycle."""
        row, _, body = proof_body
        head = proof_slot[row] if len(row) else row
        level = np.zeros(len(fact), dtype=np.int64)
        # A path visits slots of different facts at one point, and then some that never change: no fact twice.
        for _ in range(len(_unique(fact)) + 1):
            raised = level.copy()
            np.maximum.at(raised, head, level[body] + 1)
            if (raised == level).all():
                return level
            level = raised
        raise ForetellError(cycle_message(self.timeline, fact, self.point_state[point], head, body, instances[row]))

    def _in_order(self, additions: Ints) -> tuple[Ints, Ints]:
        """Additions by (r, head, event), and the r of each: a group, or several that only the values of `: b(X)` tell apart."""
        grounding = self.grounding
        group = np.asarray(grounding.group, dtype=np.int64)[additions[:, 0]]
        if not self.layout.values_of_heads:
            return additions, group  # as timelines have them
        first: dict[tuple[int, ...], int] = {}
        r = np.arange(len(grounding.groups))
        for number, (rule, *values) in enumerate(grounding.groups):
            count = self.layout.values_of_heads.get(rule)
            if count is not None:
                r[number] = first.setdefault((rule, *values[:count]), number)
        order = np.lexsort((additions[:, 1], self.head[additions[:, 0]], r[group]))
        return additions[order], r[group[order]]

    def _asks(self, additions: Ints, r: Ints, fact: Ints, point: Ints) -> tuple[Ints, Ints, Ints, Ints]:
        """For every slot and every (r, head) that added its fact: the range of additions in force."""
        head = self.head[additions[:, 0]]
        new = np.ones(len(additions), dtype=bool)
        new[1:] = (r[1:] != r[:-1]) | (head[1:] != head[:-1])
        segment = np.cumsum(new) - 1
        first = np.flatnonzero(new)
        of_head = _Lists(head[first], np.arange(len(first)), len(self.functor))
        slots = np.flatnonzero(self.dim[fact] > 0)
        place, own = of_head.expand(fact[slots])
        slot = slots[place]
        state = self.point_state[point[slot]]
        width = self.states + 1
        low = np.searchsorted(segment * width + np.minimum(additions[:, 2], width - 1), own * width + state)
        high = np.searchsorted(segment * width + additions[:, 1], own * width + state)
        some = np.flatnonzero(high > low)
        some = some[np.lexsort((point[slot[some]], own[some]))]
        return slot[some], low[some], high[some], own[some]
