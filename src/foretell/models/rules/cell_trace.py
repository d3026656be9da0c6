"""The remaining contributions of additions to the cells of facts just before one time, for each `r` that added a
fact.

From a history and a time, a `CellTrace` computes the database at that time and, for every needed fact with a cell, the contributions
of its additions.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from foretell.data import EventData, EventSequence
from foretell.models.rules.andtt_attention import AtLayer, Head, Look, seen_before, waves_at, without_heads
from foretell.models.rules.cell_model import CellModel
from foretell.models.rules.rule_network import Embeddings
from foretell.nn.pool import pooled
from foretell.plan.cell_plan import CellPlan, make_cell_plan
from foretell.plan.plan import Merger
from foretell.plan.slots import SequenceSlots

ModelT = TypeVar("ModelT", bound=CellModel)


@dataclass(frozen=True, eq=False)
class CellShares:
    """The additions in a version of a cell, the present contribution of each to its fact [A, dim], and the rest of the
    cell [dim]."""

    additions: np.ndarray
    given: Tensor
    rest: Tensor


@dataclass(frozen=True, eq=False)
class _Proposals:
    """The proposals of the additions of one version, `G [1; emb; …]` [A, ·], and the pools that combine them."""

    rows: Tensor
    pools: Tensor  # int64 [A]
    exponents: Tensor  # one per pool


class CellTrace(ABC, Generic[ModelT]):
    def __init__(self, model: ModelT, history: EventSequence, at: float) -> None:
        self.look = without_heads(model, history, at)
        self.history = history = seen_before(history, at)
        self.times = np.concatenate([[0.0], self.look.timeline.times])
        data = EventData([history], model.vocabulary)
        own = copy.deepcopy(model)
        own.ground(data)
        self.model = own.double().cpu().eval()
        self.arrays = self.model.named_arrays()
        self.cells = self.model.encode(self.model.collator.batch(data, [0])).cells[0]  # [versions, parts, size]
        self.numbers = self.model.numbers_of(history, self.look.timeline)  # of changes, if some events have features
        histories = self.model.histories
        key, timeline = histories.timeline(model.vocabulary, history)
        self.slots = histories.slots(key, timeline, np.asarray([self.look.state], dtype=np.int64))
        self.versions = self.slots.history.versions
        self.merger = Merger([self.slots], self.model.layout, self.model.book, torch.device("cpu"))
        plan = make_cell_plan(
            [self.slots], [self.slots.history], self.model.layout, self.model.book, torch.device("cpu")
        )
        times = torch.zeros(plan.points, dtype=torch.float64)
        times[plan.event_point] = torch.from_numpy(self.times)
        times[plan.query_point] = self.look.time
        self.embeddings = self.embed(plan, times)

    @abstractmethod
    def embed(self, plan: CellPlan, times: Tensor) -> Embeddings:
        """Return embeddings of all slots."""

    @abstractmethod
    def left(self, fact: int, slot: int, last: int) -> CellShares:
        """Return the present contributions of all additions up to a cell's last version, for the fact's slot at the query time."""

    def heads(self) -> Look:
        """Return the `Look` with heads of one layer, number 0. Their weights are shares of the norms of present contributions."""
        slots = self.slots
        at_query = np.flatnonzero(slots.slot_point == int(slots.query_point[0]))
        facts = slots.slot_fact[at_query]
        last = self.versions.at(facts, np.full(len(facts), self.look.state))
        heads: dict[int, tuple[Head, ...]] = {}
        rest: dict[int, Tensor] = {}
        for slot, fact, version in zip(at_query.tolist(), facts.tolist(), last.tolist(), strict=True):
            if version:
                found = self.left(fact, slot, version)
                heads[fact], rest[fact] = self._heads_of(fact, found), found.rest
        return replace(self.look, heads=heads, rest=rest)

    def _heads_of(self, fact: int, found: CellShares) -> tuple[Head, ...]:
        heads, slots = [], self.slots
        r = slots.addition_r[found.additions]
        for one in sorted(set(r.tolist()), key=lambda one: (slots.grounding.groups[one][0], one)):
            mine = np.flatnonzero(r == one)
            mine = mine[np.argsort(slots.addition_event[found.additions[mine]], kind="stable")]
            norms = found.given[mine].norm(dim=-1)
            weights = norms / norms.sum() if float(norms.sum()) else torch.zeros_like(norms)
            chosen = found.additions[mine]
            instances, events = (tuple(of[chosen].tolist()) for of in (slots.addition_instance, slots.addition_event))
            layer = AtLayer(0, weights.numpy(), 0.0, found.given[mine].sum(0))
            heads.append(Head(fact, one, instances, events, (layer,)))
        return tuple(heads)

    def passed(self, version: int, later: int) -> float:
        """Return the time between the events of two versions, in the model's unit."""
        when = self.times[self.versions.event[[version, later]]]
        return float(when[1] - when[0]) / self.model.time_scale

    def waited(self, version: int) -> float:
        """Return the time from a version's event to the query, in the model's unit."""
        return (self.look.time - float(self.times[self.versions.event[version]])) / self.model.time_scale

    def proposals(self, additions: np.ndarray) -> _Proposals:
        slots, book = self.slots, self.model.book
        said, beta, group = [], [], []
        for one in additions.tolist():
            number = int(self.merger.group[slots.addition_instance[one]])
            family, place, exponents, which = book.of_group(slots.grounding, number)
            assert exponents is not None
            body = slots.addition_body[slots.addition_start[one] : slots.addition_start[one + 1]]
            written = self.model.layout.rules[slots.grounding.groups[number][0]]
            assert written is not None
            parts = [self._embedding(slot, dim) for slot, dim in zip(body.tolist(), written.dims, strict=True)]
            functor = self.model.layout.event_with_features(written.index)
            if functor is not None and self.numbers is not None:
                features = self.model.rule_network.features
                event = int(slots.addition_event[one])
                parts[0] = parts[0] + features(features.number(functor), self.numbers[event - 1])
            column = torch.cat([torch.ones(1, dtype=torch.float64), *parts])
            said.append(self.arrays[f"add.{family.names[place]}.G"] @ column + self._by_clock(slots, one, written.head))
            beta.append(self.arrays[f"add.{exponents.names[which]}.beta"])
            group.append(number)
        distinct, segment = np.unique(group, return_inverse=True)
        exponent = torch.stack(beta)[[int(np.flatnonzero(segment == one)[0]) for one in range(len(distinct))]]
        return _Proposals(torch.stack(said), torch.from_numpy(segment), exponent)

    def _by_clock(self, slots: SequenceSlots, addition: int, head: str) -> Tensor:
        """Return the calendar's term in a proposal."""
        waves = waves_at(self.model, self.history, float(self.times[slots.addition_event[addition]]))
        return torch.zeros(1).double() if waves is None else waves @ self.arrays[f"calendar.add.{head}"]

    def _embedding(self, slot: int, dim: int) -> Tensor:
        """Return the embedding of a slot; zeros for -1, an event that is no fact."""
        if slot < 0:
            return torch.zeros(dim, dtype=torch.float64)
        return self.embeddings[dim][self.merger.row[slot]]


def shared_out(rows: Tensor, said: _Proposals) -> Tensor:
    """Return each row's share of its pool, [A, ·], for rows pooled like proposals. The shares of a pool sum to its value."""
    whole, (*_, powers, summed, _) = pooled(rows, said.pools, len(said.exponents), said.exponents)
    share = torch.where(summed[said.pools] == 0.0, 0.0, rows.sign() * powers / summed[said.pools])
    return whole[said.pools] * share
