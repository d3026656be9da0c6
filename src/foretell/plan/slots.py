"""One sequence → its slots: which facts are needed at which points of time, with their proofs and additions. Only integers, no times.

Points are the times of events (each in the state just before the event; the point of event 0 is `bos`) and of queries. A *slot* is a
fact at a point. It is needed if it is a possible event at a query, an event that happened, a condition of an addition, or in the body
of a proof of a needed slot. Facts whose embeddings never change have one slot per sequence.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from foretell.errors import ForetellError
from foretell.ground.timeline import Grounding, Timeline
from foretell.plan.asked_events import AskedEvents
from foretell.plan.history import NO_INTS, GroundingArrays, SlotHistory
from foretell.plan.int_arrays import Ints, below, sorted_once, spread, without
from foretell.plan.local_rows import LocalFacts, LocalProofs, LocalRows
from foretell.plan.parameters import DimensionLayout
from foretell.plan.possible_by_state import checked, numbers_below
from foretell.plan.product_draws import all_candidates, drawn_candidates

# The largest size of the table that finds the slots of conditions. If only few of many facts are needed, a search is used instead.
CELLS_A_CONDITION = 32


@dataclass(frozen=True, eq=False)
class SequenceSlots:
    history: SlotHistory
    point_state: Ints  # [P]: the state at each point, ascending
    event_point: Ints  # [n + 1]: the points of `bos` and of each event
    query_point: Ints  # [Q]: the points of the queries, in the caller's order
    slot_fact: Ints  # [S]
    slot_point: Ints  # [S]
    slot_dim: Ints  # [S]
    slot_level: Ints  # [S]: the number of levels that must be computed before the slot
    proof_instance: Ints  # [R]
    proof_slot: Ints  # [R]: the slot that is proved
    proof_body: list[Ints]  # row of the proof, place in the body, and slot of every embedded condition
    addition_instance: Ints  # [A], sorted by (r, head, event)
    addition_event: Ints  # [A]
    addition_r: Ints  # [A]
    addition_body: Ints  # flat: slots of embedded conditions; -1: an event that is no true fact
    addition_start: Ints  # [A + 1]
    ask_slot: Ints  # [X]: a slot that attends to a range of additions
    ask_low: Ints
    ask_high: Ints
    ask_segment: Ints  # [X]: the segment of additions; equal for equal (r, head)
    possible_slot: Ints  # [E]: slots of possible events at queries, sorted by (fact, point)
    possible_query: Ints  # [E]: the query of each possible event
    possible_weight: np.ndarray  # float64 [E]: K / J if J of the K possible events of a query were drawn, else 1
    happened_slot: Ints  # [n]: the slot of each event at its own time; -1: not scored
    version_slot: Ints  # [versions]: the slot of the cell's fact just before the update; -1: not read
    local: LocalRows | None = None  # facts and proofs without numbers in the grounding: drawn from products

    @property
    def grounded(self) -> GroundingArrays:
        return self.history.grounded

    @property
    def grounding(self) -> Grounding:
        return self.history.grounding

    def __deepcopy__(self, memo: dict[int, object]) -> SequenceSlots:
        return self  # immutable; plans are cached by the identity of these objects


def sequence_slots(
    timeline: Timeline,
    layout: DimensionLayout,
    query_states: np.ndarray,
    keep: int | None = None,
    rng: np.random.Generator | None = None,
) -> SequenceSlots:
    """Return the slots of a sequence. With `keep`, `rng` draws at most that many of the possible events of a query, anew at each call."""
    return slots_of_history(SlotHistory(GroundingArrays(timeline.grounding, layout), timeline), query_states, keep, rng)


def slots_of_history(
    history: SlotHistory,
    query_states: np.ndarray,
    keep: int | None = None,
    rng: np.random.Generator | None = None,
    chosen: Ints | AskedEvents | None = None,
) -> SequenceSlots:
    """Return `sequence_slots` for a history that was already computed.

    With `chosen`, each query is for one given possible event, or all queries are for the same events.
    """
    checked(keep, rng)
    return _Builder(history, TimePoints.of(np.asarray(query_states, dtype=np.int64), history)).build(keep, rng, chosen)


@dataclass(frozen=True, eq=False)
class TimePoints:
    """The points of queries and events, sorted by state. A query in the state just before an event comes before the event."""

    state: Ints  # [P]: the state at each point, ascending
    event: Ints  # [n + 1]: the points of `bos` and of each event
    query: Ints  # [Q]: the points of the queries, in the caller's order
    query_at: Ints  # [P]: the query at each point; -1 for events
    before: Ints  # [states + 1]: the number of points in earlier states

    @classmethod
    def of(cls, query_states: Ints, history: SlotHistory) -> TimePoints:
        assert not len(query_states) or 0 <= query_states.min() <= query_states.max() < history.states
        order = np.argsort(query_states, kind="stable")
        ordered = query_states[order]
        queries = np.searchsorted(ordered, np.arange(history.states + 1))
        before = queries + np.minimum(np.arange(history.states + 1), history.events + 1)
        event = queries[1 : history.events + 2] + np.arange(history.events + 1)
        own = np.arange(len(order)) + np.minimum(ordered, history.events + 1)
        query, state = np.empty_like(order), np.empty(len(order) + len(event), dtype=np.int64)
        query[order] = own
        state[own], state[event] = ordered, np.arange(history.events + 1)
        query_at = np.full(len(state), -1, dtype=np.int64)
        query_at[own] = order
        return cls(state, event, query, query_at, before)


@dataclass(frozen=True, eq=False)
class _Proofs:
    heads: list[tuple[Ints, Ints]]  # (codes of slots, positions among them), in blocks with [R] rows in total
    instance: Ints  # [R]: the rule instance of each proof


@dataclass(frozen=True, eq=False)
class _Bodies:
    """The embedded conditions [C] of proofs."""

    row: Ints  # [C]: the proof's row
    place: Ints  # [C]: the place among the proof's embedded conditions
    fact: Ints  # [C]
    code: Ints  # [C]: the condition's slot as a code


class _Builder:
    def __init__(self, history: SlotHistory, points: TimePoints) -> None:
        self.history, self.points = history, points
        self.facts, self.instances = history.grounded.facts, history.grounded.instances
        self.stride = len(points.state)
        self.local: LocalFacts | None = None
        self.local_proofs: LocalProofs | None = None
        if history.products is not None:
            self.local = LocalFacts(len(self.facts.dim), history.grounded.known)
            self.local_proofs = LocalProofs(history, self.local)

    def build(
        self, keep: int | None, rng: np.random.Generator | None, chosen: Ints | AskedEvents | None = None
    ) -> SequenceSlots:
        history, points, additions = self.history, self.points, self.history.additions
        asked_fact, asked_point, weight = self._possible(keep, rng) if chosen is None else self._chosen(chosen)
        asked = self._code(asked_fact, asked_point)
        looked = self._code(history.looked.fact, points.event[history.looked.event])
        codes, proofs, bodies = self._close(sorted_once(np.concatenate([looked, asked])))
        fact, point = self._parts(codes)
        proof_slot = np.concatenate([NO_INTS, *(np.searchsorted(codes, head)[place] for head, place in proofs.heads)])
        body_slot = self._slots(codes, fact, bodies)
        level = self._levels(fact, point, proof_slot[bodies.row], body_slot, proofs.instance[bodies.row])
        looked_slot = np.append(np.searchsorted(codes, looked), -1)  # an event that is no true fact has place -1
        return SequenceSlots(
            history,
            points.state,
            points.event,
            points.query,
            fact,
            point,
            self.facts.dim[fact],
            level,
            proofs.instance,
            proof_slot,
            [bodies.row, bodies.place, body_slot],
            additions.instance,
            additions.event,
            additions.r,
            looked_slot[history.looked.body],
            additions.body_start,
            *self._asks(codes, point),
            np.searchsorted(codes, asked),
            points.query_at[asked_point],
            weight,
            np.where(history.scored, looked_slot[history.looked.happened], -1),
            looked_slot[history.looked.own],
            None if self.local_proofs is None else self.local_proofs.rows(),
        )

    def _code(self, fact: Ints, point: Ints) -> Ints:
        """Encode slots as integers. Facts that never change have one slot, at the first point."""
        return fact * self.stride + point * self.facts.changing[fact]

    def _parts(self, codes: Ints) -> tuple[Ints, Ints]:
        """Return fact and point of encoded slots."""
        fact = codes // self.stride
        return fact, codes - fact * self.stride

    def _possible(self, keep: int | None, rng: np.random.Generator | None) -> tuple[Ints, Ints, np.ndarray]:
        """Return the possible events at queries, sorted by (fact, point): fact, point, weight."""
        if self.local is not None:
            return self._possible_of_products(self.local, keep, rng)
        if keep is None or self.history.most <= keep:
            fact, point = self._all_possible()
            return fact, point, np.ones(len(fact))
        assert rng is not None
        query = self.points.query
        state = self.points.state[query]
        count = self.history.cells.count[state]
        many, few = np.flatnonzero(count > keep), np.flatnonzero(count <= keep)
        drawn = numbers_below(count[many], keep, rng)
        whose, cell = spread(np.zeros_like(few), count[few])
        which = np.concatenate([np.tile(many, keep), few[whose]])
        event = self.history.cells.events(np.concatenate([drawn.ravel(), cell]), state[which])
        fact, point = self._parts(np.sort(event * self.stride + query[which]))
        return fact, point, np.maximum(count / keep, 1.0)[self.points.query_at[point]]

    def _possible_of_products(
        self, local: LocalFacts, keep: int | None, rng: np.random.Generator | None
    ) -> tuple[Ints, Ints, np.ndarray]:
        query = self.points.query
        state = self.points.state[query]
        if keep is None or self.history.most <= keep:
            fact, whose = all_candidates(self.history, local, state)
            codes = sorted_once(fact * self.stride + query[whose])  # an event of several products is listed once
            weight = np.ones(len(codes))
        else:
            assert rng is not None
            fact, whose, drawn = drawn_candidates(self.history, local, state, keep, rng)
            codes = fact * self.stride + query[whose]
            order = np.argsort(codes, kind="stable")
            codes, weight = codes[order], drawn[order]
        self.facts = local.extended(self.facts, self.history.grounded)
        return *self._parts(codes), weight

    def _chosen(self, chosen: Ints | AskedEvents) -> tuple[Ints, Ints, np.ndarray]:
        """Return the chosen events in the form of `_possible`: one event per query, or the same events for all queries."""
        if isinstance(chosen, AskedEvents):
            assert self.local is not None
            codes = chosen.numbered(self.local)[:, None] * self.stride + self.points.query
            self.facts = self.local.extended(self.facts, self.history.grounded)
            order = np.argsort(codes, axis=None, kind="stable")
            weight = np.broadcast_to(chosen.weight[:, None], codes.shape)
            return *self._parts(codes.ravel()[order]), weight.ravel()[order]
        return *self._parts(np.sort(chosen * self.stride + self.points.query)), np.ones(len(chosen))

    def _all_possible(self) -> tuple[Ints, Ints]:
        """Return (fact, point) of all possible events. Facts in `always` are possible at all queries, others while they hold."""
        possible, before, always = self.history.possible, self.points.before, self.history.always
        queries = np.flatnonzero(self.points.query_at >= 0)
        low = np.searchsorted(queries, before[possible.start])
        row, place = spread(low, np.searchsorted(queries, before[possible.stop]) - low)
        changing = possible.item[row] * self.stride + queries[place]
        steady = (always[:, None] * self.stride + queries).ravel()
        return self._parts(np.sort(np.concatenate([changing, steady]), kind="stable"))  # merges two sorted runs

    def _close(self, codes: Ints) -> tuple[Ints, _Proofs, _Bodies]:
        """Return the slots with everything that their proofs need, the proofs, and the proofs' conditions."""
        heads: list[tuple[Ints, Ints]] = []
        found: list[tuple[Ints, ...]] = []
        frontier, rows = codes, 0
        while len(frontier):
            fact, point = self._parts(frontier)
            place, instance = self._proofs(frontier, fact)
            body, row, within = self.instances.bodies(instance)
            needed = self._code(body, point[place[row]])
            heads.append((frontier, place))
            found.append((instance, row + rows, within, body, needed))
            rows += len(place)
            frontier = without(sorted_once(needed), codes)
            codes = np.sort(np.concatenate([codes, frontier]), kind="stable")
        instance, *conditions = (
            np.concatenate([NO_INTS, *parts]) for parts in (zip(*found, strict=True) if found else [()] * 5)
        )
        return codes, _Proofs(heads, instance), _Bodies(*conditions)

    def _proofs(self, codes: Ints, fact: Ints) -> tuple[Ints, Ints]:
        """Return all proofs of sorted slots: position of the slot, rule instance. A proof holds for a run of slots of its head."""
        before, proofs = self.points.before, self.history.proofs
        place, instance = self.facts.always_proofs.expand(fact)
        head = proofs.item * self.stride
        low = np.searchsorted(codes, head + before[proofs.start])
        high = np.searchsorted(codes, head + before[proofs.stop])
        row, changing = spread(low, high - low)
        if len(row):
            place, instance = (
                np.concatenate([place, changing]),
                np.concatenate([instance, self.history.proof_instance[row]]),
            )
        if self.local_proofs is None:
            return place, instance
        point = codes - fact * self.stride
        shown = np.where(self.facts.dim[fact] > 0, self.facts.functor[fact], -1)
        own, more = self.local_proofs.of(fact, shown, self.points.state[point])
        self.instances = self.local_proofs.extended()
        return np.concatenate([place, own]), np.concatenate([instance, more])

    def _slots(self, codes: Ints, fact: Ints, bodies: _Bodies) -> Ints:
        """Return the slots of conditions. For few distinct facts, a table by fact and point is faster than a search for codes."""
        if not len(bodies.code):
            return NO_INTS
        used = np.zeros(len(self.facts.dim), dtype=bool)
        used[bodies.fact] = True
        width = np.where(self.facts.changing, self.stride, 1) * used
        stop = np.cumsum(width)
        if stop[-1] > CELLS_A_CONDITION * len(bodies.code):
            return np.searchsorted(codes, bodies.code)
        table = np.empty(stop[-1], dtype=np.int32)
        shift = stop - width - np.arange(len(width)) * self.stride  # code + shift = position in the table
        mine = np.flatnonzero(used[fact])
        table[codes[mine] + shift[fact[mine]]] = mine
        return table[bodies.code + shift[bodies.fact]].astype(np.int64)

    def _levels(self, fact: Ints, point: Ints, head: Ints, body: Ints, instances: Ints) -> Ints:
        """Return each slot's level: the length of its longest path through proofs. Raises if proofs have a cycle."""
        level = np.zeros(len(fact), dtype=np.int64)
        # A path visits slots of distinct facts at one point, then facts that never change. So no fact occurs twice.
        for _ in range(len(sorted_once(fact)) + 1):
            raised = level.copy()
            np.maximum.at(raised, head, level[body] + 1)
            if (raised == level).all():
                return level
            level = raised
        state = self.points.state[point]
        raise ForetellError(cycle_message(self.history.timeline, fact, state, head, body, instances))

    def _asks(self, codes: Ints, point: Ints) -> tuple[Ints, Ints, Ints, Ints]:
        """Return the range of additions in force for every slot and segment (r, head) of its fact, sorted by segment and point."""
        additions = self.history.additions
        head = additions.segment_head
        shown = np.flatnonzero(self.facts.dim[head] > 0)
        start = head[shown] * self.stride
        first = np.searchsorted(codes, start)
        place, slot = spread(first, np.searchsorted(codes, start + self.stride) - first)
        own = shown[place]
        limit = own * additions.width + self.points.state[point[slot]]
        high = below(additions.added, limit)
        low = additions.segment_start[own] if additions.erased is None else below(additions.erased, limit)
        some = np.flatnonzero(high > low)
        return slot[some], low[some], high[some], own[some]


def cycle_message(
    timeline: Timeline, fact: np.ndarray, state: np.ndarray, head: np.ndarray, body: np.ndarray, instances: np.ndarray
) -> str:
    """Describe one cycle, in the earliest state that has one. Slots have a `fact` and a `state`; slot `head` needs slot `body`."""
    needs: dict[int, dict[int, int]] = {}
    for one, other, instance in zip(head.tolist(), body.tolist(), instances.tolist(), strict=True):
        needs.setdefault(one, {}).setdefault(other, instance)
    cycle = _cycle(needs, state)
    return "\n".join(_lines(timeline, [int(fact[slot]) for slot in cycle], int(state[cycle[0]]), _by(needs, cycle)))


def _by(needs: dict[int, dict[int, int]], cycle: list[int]) -> list[int]:
    return [needs[one][other] for one, other in pairwise(cycle)]


def _cycle(needs: dict[int, dict[int, int]], state: np.ndarray) -> list[int]:
    """Return slots that form a cycle: each needs the next, and the first is repeated at the end."""
    readers: dict[int, list[int]] = {}
    waiting = {slot: sum(other in needs for other in found) for slot, found in needs.items()}
    for slot, found in needs.items():
        for other in found:
            readers.setdefault(other, []).append(slot)
    done = [slot for slot, count in waiting.items() if not count]
    while done:  # removes slots that can be computed: they are on no cycle
        for reader in readers.get(done.pop(), ()):
            waiting[reader] -= 1
            if not waiting[reader]:
                done.append(reader)
    left = {slot for slot, count in waiting.items() if count}
    path = [min(left, key=lambda slot: (int(state[slot]), slot))]
    places = {path[0]: 0}
    while True:
        slot = next(other for other in needs[path[-1]] if other in left)
        if slot in places:
            return [*path[places[slot] :], slot]
        places[slot] = len(path)
        path.append(slot)


def _lines(timeline: Timeline, facts: list[int], state: int, instances: list[int]) -> Iterator[str]:
    grounding = timeline.grounding
    rules = [grounding.program.rules[grounding.rule[one]] for one in instances]
    names = [grounding.text(fact) for fact in facts]
    functor = grounding.functors[grounding.keys[facts[0]][0]]
    when = "before the first event"
    if state > 1:
        number = timeline.event_number(state - 1)
        is_expiry = timeline.is_expiry[state - 2]
        when = "after an expiry" if is_expiry else f"after event {number} (`{timeline.after(state)}`)"
    yield (
        f"{rules[0].rule.span.place}: the embedding of `{names[0]}` needs itself {when}: "
        "proofs through facts with embeddings must not be cyclic"
    )
    for (one, other), numbered in zip(pairwise(names), rules, strict=True):
        yield f"  {one} is deduced from {other} ({numbered.name}, {numbered.rule.span.place})"
    yield f"  hint: give one of them no embedding, as in `:- embed({functor}, 0).`, or use `<-`, which looks at the past"
