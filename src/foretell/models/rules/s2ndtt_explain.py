"""What additions have left in the states of an S2-NDTT just before one time: each `r` that added a fact, with the share of each addition.

A history and a time in. Out: the database then, and for every fact that has a state and is needed then, what its additions still give to
it. A jump shrinks and turns with its state and is otherwise kept, so what is left of it is known: the difference that it makes to the
stream above the layers. With one layer these differences, and what the state has taken in from deductions, add up to what the state gives.
"""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from foretell.data import EventData, EventSequence
from foretell.models.rules.andtt_attention import AtLayer, Head, Look, without_heads
from foretell.models.rules.rule_network import Embeddings
from foretell.models.rules.s2ndtt import S2NDTT
from foretell.models.rules.s2ndtt_network import PARTS, stream
from foretell.nn.pool import pooled
from foretell.plan.cell_plan import make_cell_plan
from foretell.plan.plan import Merger


@torch.no_grad()
def look_into_states(model: S2NDTT, history: EventSequence, at: float) -> Look:
    """What is known just before a time. Heads have one layer, number 0; weights are shares of the norms of what additions have left."""
    look = without_heads(model, history, at)
    return _Trace(model, history.first(look.seen), look).heads()


class _Trace:
    def __init__(self, model: S2NDTT, history: EventSequence, look: Look) -> None:
        self.look, self.times = look, np.concatenate([[0.0], history.times])
        data = EventData([history], model.vocabulary)
        own = copy.deepcopy(model)
        own.ground(data)
        self.model = own.double().cpu().eval()
        self.arrays = self.model.named_arrays()
        self.cells = self.model.encode(self.model.collator.batch(data, [0])).cells[0]  # [versions, parts, P]
        histories = self.model.histories
        key, timeline = histories.timeline(model.vocabulary, history.types, history.times, history.unscored)
        self.slots = histories.slots(key, timeline, np.asarray([look.seen + 1], dtype=np.int64))
        self.versions = self.slots.history.versions
        self.merger = Merger([self.slots], self.model.layout, self.model.book, torch.device("cpu"))
        self.embeddings, self.deduced = self._embeddings()

    def _embeddings(self) -> tuple[Embeddings, Embeddings]:
        """Of all slots, and what is deduced for them."""
        plan = make_cell_plan(
            [self.slots], [self.slots.history], self.model.layout, self.model.book, torch.device("cpu")
        )
        times = torch.zeros(plan.points, dtype=torch.float64)
        times[plan.event_point] = torch.from_numpy(self.times)
        times[plan.query_point] = self.look.time
        deduced: dict[int, list[Tensor]] = {}
        found = self.model.network(plan, self.cells[None], times, self.model.time_scale, deduced)
        return found, {dim: torch.cat(levels) for dim, levels in deduced.items()}

    def heads(self) -> Look:
        slots = self.slots
        at_query = np.flatnonzero(slots.slot_point == int(slots.query_point[0]))
        facts = slots.slot_fact[at_query]
        last = self.versions.at(facts, np.full(len(facts), self.look.seen + 1))
        heads: dict[int, tuple[Head, ...]] = {}
        rest: dict[int, Tensor] = {}
        for slot, fact, version in zip(at_query.tolist(), facts.tolist(), last.tolist(), strict=True):
            if version:
                heads[fact], rest[fact] = self._of_fact(fact, slot, version)
        return replace(self.look, heads=heads, rest=rest)

    def _of_fact(self, fact: int, slot: int, last: int) -> tuple[tuple[Head, ...], Tensor]:
        """What each `r` still gives to a fact, and what its state gives besides."""
        functor = int(self.model.layout.added_numbers(self.slots.grounding)[self.slots.grounding.keys[fact][0]])
        additions, left = self._left(functor, last)
        systems = self.model.network.of_functor(functor)
        by_layer = self.cells[last].unflatten(0, (-1, PARTS))
        since = float(self.times[self.versions.event[last]])
        waited = (self.look.time - since) / self.model.time_scale
        elapsed = torch.full((1 + len(additions), 1), waited, dtype=torch.float64)
        turns = [
            one.rotation(own[2].expand(len(elapsed), -1), elapsed) for one, own in zip(systems, by_layer, strict=True)
        ]
        whole = by_layer[:, :2].flatten(1)  # [L, 2P]
        without = torch.cat([whole[None], whole - left])
        below = self.deduced[self.merger.dim[slot]][self.merger.row[slot]].expand(len(elapsed), -1)
        _, above = stream(systems, turns, without.unbind(1), below)
        given = above[:1] - above[1:]
        heads = []
        r = self.slots.addition_r[additions]
        for one in sorted(set(r.tolist()), key=lambda one: (self.slots.grounding.groups[one][0], one)):
            mine = np.flatnonzero(r == one)
            mine = mine[np.argsort(self.slots.addition_event[additions[mine]], kind="stable")]
            norms = given[mine].norm(dim=-1)
            weights = norms / norms.sum() if float(norms.sum()) else torch.zeros_like(norms)
            chosen = additions[mine]
            instances, events = (
                tuple(of[chosen].tolist()) for of in (self.slots.addition_instance, self.slots.addition_event)
            )
            layer = AtLayer(0, weights.numpy(), 0.0, given[mine].sum(0))
            heads.append(Head(fact, one, instances, events, (layer,)))
        return tuple(heads), above[0] - below[0] - given.sum(0)

    def _left(self, functor: int, last: int) -> tuple[np.ndarray, Tensor]:
        """Additions behind a version, and what is left of their jumps right after the last of them: [A, L, 2P]."""
        systems, versions = self.model.network.of_functor(functor), self.versions
        rate = torch.stack([torch.complex(-one.log_decay.exp(), one.frequency) for one in systems])  # [L, P]
        survives = torch.ones_like(rate)
        found, jumps = [], []
        version, later = last, last
        while version:
            if version != later:
                when = self.times[versions.event[[version, later]]]
                passed = float(when[1] - when[0]) / self.model.time_scale
                step = self.cells[version].unflatten(0, (-1, PARTS))[:, 2]
                survives = survives * torch.exp(rate * step * passed)
            mine = versions.addition[versions.made == version]
            real, imaginary = self._jumps(mine).unbind(2)
            kept = torch.complex(real, imaginary) * survives
            found.append(mine)
            jumps.append(torch.cat([kept.real, kept.imag], dim=-1))
            version, later = int(versions.before[version]), version
        return np.concatenate(found), torch.cat(jumps)

    def _jumps(self, additions: np.ndarray) -> Tensor:
        """What each addition of one version gave to its state, its share of its pool: [A, L, 2, P]."""
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
            column = torch.cat([torch.ones(1, dtype=torch.float64), *parts])
            said.append(self.arrays[f"add.{family.names[place]}.G"] @ column)
            beta.append(self.arrays[f"add.{exponents.names[which]}.beta"])
            group.append(number)
        distinct, segment = np.unique(group, return_inverse=True)
        rows, pools = torch.stack(said), torch.from_numpy(segment)
        exponent = torch.stack(beta)[[int(np.flatnonzero(segment == one)[0]) for one in range(len(distinct))]]
        whole, (*_, powers, summed, _) = pooled(rows, pools, len(distinct), exponent)
        share = torch.where(summed[pools] == 0.0, 0.0, rows.sign() * powers / summed[pools])
        return (whole[pools] * share).unflatten(1, (self.model.layers, PARTS, -1))[:, :, :2]

    def _embedding(self, slot: int, dim: int) -> Tensor:
        """Zeros for an event that was no fact."""
        if slot < 0:
            return torch.zeros(dim, dtype=torch.float64)
        return self.embeddings[dim][self.merger.row[slot]]
