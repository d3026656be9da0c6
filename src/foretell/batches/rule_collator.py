"""The collator of models made of rules: it adds the timeline of every row to a batch, and makes the plans of queries.

The plan of queries gap by gap does not depend on their times, so it is cached for each set of timelines. Queries with explicit counts
of visible events, or for drawn events, get a new plan each time.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from foretell.batches.batch import Batch, Collator, Queries, RuleRows, Sample
from foretell.batches.expiry import with_expiries
from foretell.batches.timelines import Histories, SizedCache
from foretell.data import EventSequence, Vocabulary
from foretell.plan.asked_events import AskedEvents
from foretell.plan.cell_plan import make_cell_plan
from foretell.plan.parameters import ParameterBook
from foretell.plan.plan import Frame, Merger, make_plan
from foretell.plan.slots import SequenceSlots
from foretell.plan.waves import Recurrence, make_recurrence

KEPT_SLOTS = 6_000_000  # limit of the total size of cached plans; a slot takes some 200 bytes


@dataclass(frozen=True, eq=False)
class QueryPlan:
    """The plan of a batch's events and queries, with the indices that say where its times come from and where its results go."""

    plan: Any  # a `Frame`, of the class that the model's network applies
    source: Tensor  # int64 [points]: the position of each time in [0, times of all events, times of all queries]
    sequence: Tensor  # int64 [points]: the row of each point
    event: Tensor  # int64 [events]: the position of each event in the flattened batch, row after row
    row: Tensor  # int64 [E]: the row of each possible event
    column: Tensor  # int64 [E]: its query within the row
    query: Tensor  # int64 [E]: row and column as one number


class RuleCollator(Collator):
    # Batches that are composed anew in every epoch almost never recur, and capturing them would waste time.
    captured_after = 2

    def __init__(self, histories: Histories, book: ParameterBook) -> None:
        self.histories, self.book, self.layout = histories, book, histories.layout
        self.plans: SizedCache[Any] = SizedCache()
        self.handed: SizedCache[Any] = SizedCache()  # plans made ahead for the next step
        self._kept: dict[Hashable, QueryPlan] | None = None
        self.asked: AskedEvents | None = (
            None  # the events of interest, for batches of one sequence; None: all possible events
        )

    def watched(self, sequence: EventSequence, until: float) -> EventSequence:
        """Extend the observation to this time, because additions also expire after the end of a sequence."""
        if not self.histories.expires or until <= sequence.t_end:
            return sequence
        return sequence.first(len(sequence), until)

    def with_rules(self, batch: Batch, chosen: Sequence[EventSequence], vocabulary: Vocabulary) -> Batch:
        found = [self.histories.timeline(vocabulary, one) for one in chosen]
        event, timelines = None, [one for _, one in found]
        if self.histories.expires:
            batch, event = with_expiries(batch, timelines)
        return replace(batch, rules=RuleRows(tuple(key for key, _ in found), tuple(timelines), event=event))

    def plan_queries(
        self, batch: Batch, queries: Queries, sample: Sample | None = None, chosen: Tensor | None = None
    ) -> Queries:
        """Return the queries with their plan. A query that sees more events than exist, or whose `chosen` fact is negative, is padding."""
        key = self._key(batch, queries, sample) if chosen is None else None
        plan = self._known(key)
        if plan is None:
            plan = self._planned(batch, queries, sample, chosen)
            if key is not None and plan.plan.possible_weight is None:  # random draws do not recur
                self.plans.keep(key, plan, plan.plan.slots, KEPT_SLOTS)
                if self._kept is not None:
                    self._kept[key] = plan
        return replace(queries, plan=plan)

    def _key(self, batch: Batch, queries: Queries, sample: Sample | None = None) -> Hashable:
        """Return the key of a plan, or None if the plan is not cached."""
        rows, per_gap, keep = self._rows(batch), queries.visible.per_gap, None if sample is None else sample.keep
        if per_gap is None or self.asked is not None:
            return None
        return rows.keys, batch.times.shape[1], tuple(queries.times.shape), per_gap, batch.times.device, keep

    def plans_ahead(self, batch: Batch, points: int) -> Mapping[Hashable, Any]:
        queries = Queries.by_gap(batch.times.new_zeros(*batch.gap_start.shape, points))
        return {self._key(batch, queries): self.plan_queries(batch, queries).plan}

    def hand(self, plans: Mapping[Hashable, Any]) -> None:
        self.handed.clear()
        for key, plan in plans.items():
            self.handed.keep(key, plan, 0, 0)

    def capture_key(self, batch: Batch) -> Hashable:
        """Return the batch's shape and timelines: a plan is valid only for the same events."""
        return tuple(batch.times.shape), self._rows(batch).keys

    @contextmanager
    def keeping(self) -> Iterator[object]:
        self._kept = {}
        try:
            yield self._kept
        finally:
            self._kept = None

    def _rows(self, batch: Batch) -> RuleRows:
        rows = batch.rules
        assert rows is not None, "a batch for a model made of rules is made by its collator"
        assert not rows.timelines or rows.timelines[0].grounding is self.histories.grounding, "another model's batch"
        return rows

    def _known(self, key: Hashable) -> QueryPlan | None:
        if key is None:
            return None
        if self._kept is None:
            return self._made(key)
        found = self._kept.get(key)
        if found is None and (found := self._made(key)) is not None:
            self._kept[key] = found
        return found

    def _made(self, key: Hashable) -> Any:
        """Return a plan that was made before, or None."""
        found = self.handed.get(key)
        return self.plans.get(key) if found is None else found

    def _planned(self, batch: Batch, queries: Queries, sample: Sample | None, chosen: Tensor | None) -> QueryPlan:
        rows, asked = self._rows(batch), queries.times.shape
        lengths = np.asarray([len(one.events) for one in rows.timelines], dtype=np.int64)
        seen = np.broadcast_to(_seen(queries), (len(batch), asked[1]))
        facts = None
        if chosen is not None:
            facts = chosen.cpu().numpy()
            seen = np.where(facts >= 0, seen, lengths[:, None] + 1)
        keep, rng = (None, None) if sample is None else (sample.keep, sample.rng)
        again = queries.visible.per_gap is not None and len(batch) > 1  # a training step will use the same states again
        parts = []
        for row, (key, timeline) in enumerate(zip(rows.keys, rows.timelines, strict=True)):
            valid = seen[row] <= lengths[row]
            states = seen[row][valid].astype(np.int64) + 1
            own = self.asked if facts is None else facts[row][valid]
            parts.append(self.histories.slots(key, timeline, states, keep, rng, again, own))
        with self.histories.building:
            return self._query_plan(parts, batch, lengths, seen, asked)

    def _query_plan(
        self,
        parts: list[SequenceSlots],
        batch: Batch,
        lengths: np.ndarray,
        seen: np.ndarray,
        shape: Sequence[int],
    ) -> QueryPlan:
        device = batch.times.device
        plan = self._frame(parts, device)
        rows, width = batch.times.shape
        rows_asked, asked = shape
        is_event = np.arange(width)[None] < lengths[:, None]
        event = np.flatnonzero(is_event)
        row, column = np.nonzero(seen <= lengths[:, None])
        source, sequence = np.zeros((2, plan.points), dtype=np.int64)
        of_events, of_queries = plan.event_point.cpu().numpy(), plan.query_point.cpu().numpy()
        sequence[of_events], sequence[of_queries] = np.repeat(np.arange(rows), 1 + lengths), row
        with_bos = np.concatenate(
            [np.zeros((rows, 1), dtype=np.int64), 1 + np.arange(rows * width).reshape(rows, width)], 1
        )
        source[of_events] = with_bos[np.concatenate([np.ones((rows, 1), dtype=bool), is_event], 1)]
        query = (row if rows_asked > 1 else 0) * asked + column
        source[of_queries] = 1 + rows * width + query
        by_event = plan.possible_query.cpu().numpy()
        row, column = row[by_event], column[by_event]
        indices = (source, sequence, event, row, column, row * asked + column)
        return QueryPlan(plan, *(torch.from_numpy(np.ascontiguousarray(one)).to(device) for one in indices))

    def _frame(self, parts: Sequence[SequenceSlots], device: torch.device) -> Frame:
        """Return the plan that the network of the rules applies."""
        return make_plan(parts, self.layout, self.book, device)


@dataclass(frozen=True, eq=False)
class CellUpdates:
    """How the events of a batch update the cells of facts; it depends on the events alone."""

    recurrence: Recurrence | None  # None: no fact is ever added
    source: Tensor  # int64: the position of the time of each `bos` and event, in [0, times of all events]
    sequence: Tensor  # int64: the row of each `bos` and event


class CellCollator(RuleCollator):
    """The collator for programs whose facts have cells. A batch gets a plan, too, because events update cells one after another."""

    captured_after = sys.maxsize  # never: the captured graph would have one part per event

    def plan_batch(self, batch: Batch) -> Batch:
        rows = self._rows(batch)
        if rows.plan is not None:
            return batch
        key = self._cells_key(batch)
        found = self._made(key)
        if found is None:
            nothing = np.zeros(0, dtype=np.int64)
            pairs = list(zip(rows.keys, rows.timelines, strict=True))
            parts = [self.histories.slots(*pair, nothing, remember=len(batch) > 1) for pair in pairs]
            with self.histories.building:
                found = self._updates(parts, rows, batch)
            self.plans.keep(key, found, sum(len(part.slot_fact) for part in parts), KEPT_SLOTS)
        return replace(batch, rules=replace(rows, plan=found))

    def plans_ahead(self, batch: Batch, points: int) -> Mapping[Hashable, Any]:
        planned = self._rows(self.plan_batch(batch)).plan
        return {self._cells_key(batch): planned, **super().plans_ahead(batch, points)}

    def _cells_key(self, batch: Batch) -> Hashable:
        return "cells", self._rows(batch).keys, batch.times.shape[1], batch.times.device

    def _updates(self, parts: Sequence[SequenceSlots], rows: RuleRows, batch: Batch) -> CellUpdates:
        width, device = batch.times.shape[1], batch.times.device
        histories = [self.histories.history(*pair) for pair in zip(rows.keys, rows.timelines, strict=True)]
        recurrence = None
        if any(len(one.versions) > 1 for one in histories):
            recurrence = make_recurrence(Merger(parts, self.layout, self.book, device), histories)
        places = [
            [0, *range(1 + row * width, 1 + row * width + len(one.events))] for row, one in enumerate(rows.timelines)
        ]
        source = torch.tensor([place for row in places for place in row], dtype=torch.int64, device=device)
        sequence = np.repeat(np.arange(len(places)), [len(row) for row in places])
        return CellUpdates(recurrence, source, torch.from_numpy(sequence).to(device))

    def _frame(self, parts: Sequence[SequenceSlots], device: torch.device) -> Frame:
        return make_cell_plan(parts, [part.history for part in parts], self.layout, self.book, device)


def _seen(queries: Queries) -> np.ndarray:
    """Return the number of events that each query sees: [1 or B, Q]."""
    if queries.visible.per_gap is not None:
        return (np.arange(queries.times.shape[1]) // queries.visible.per_gap)[None]
    return queries.seen().cpu().numpy()
