"""The attention weights of an A-NDTT just before one time: those of the additions of each `r`, layer by layer.

From a history and a time, `look` computes the database at that time and the attention heads of every needed fact that was added
(docs/explanation/andtt.md). An addition has the weight `α / (1 + Σ α)`, and the extra `1` has the weight `1 / (1 + Σ α)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from foretell.batches.batch import starts_of
from foretell.data import EventSequence
from foretell.ground.timeline import Timeline
from foretell.models.rules.andtt import ANDTT
from foretell.models.rules.andtt_memory import RememberedHistory, numbers_at
from foretell.models.rules.andtt_network import AttentionRecord
from foretell.models.rules.rule_model import RuleModel
from foretell.plan.plan import make_plan
from foretell.plan.slots import SequenceSlots


@dataclass(frozen=True, eq=False)
class AtLayer:
    layer: int  # from 1 on; 0: there are no layers of attention
    weights: np.ndarray  # float64, one per addition of the head
    kept: float  # the weight of the extra 1; all weights sum to 1
    value: Tensor  # float64 [dim]: the weighted sum of values, or in models without attention the joint contribution


@dataclass(frozen=True, eq=False)
class Head:
    """One fact and one `r` that added it, with the additions that are in force, in order of time."""

    fact: int
    group: int
    instances: tuple[int, ...]
    events: tuple[int, ...]  # 0 is `bos`, i the i-th event
    layers: tuple[AtLayer, ...]


@dataclass(frozen=True, eq=False)
class Look:
    """One time, and everything that the model knows just before it."""

    time: float
    seen: int  # the number of events with a smaller time
    timeline: Timeline  # of these events
    heads: dict[int, tuple[Head, ...]]  # by fact
    rest: dict[int, Tensor] = field(default_factory=dict)  # by fact: further terms from the past, float64 [dim]
    waves: Tensor | None = None  # float64 [features]: the calendar's waves at that time; None: no calendar

    @property
    def state(self) -> int:
        return self.timeline.states - 1


@torch.no_grad()
def look_back(model: ANDTT, history: EventSequence, at: float) -> Look:
    past = seen_before(history, at)
    key, remembered = model.histories.timeline(model.vocabulary, past)
    slots = model.histories.slots(key, remembered, np.asarray([remembered.states - 1], dtype=np.int64))
    timeline = _own(remembered, past)
    plan = make_plan([slots], model.layout, model.book, model.device)
    model.network.grow(model.dtype, model.device)
    point_times = torch.zeros(plan.points, dtype=torch.float64, device=model.device)
    point_times[plan.event_point] = torch.from_numpy(np.concatenate([[0.0], timeline.times])).to(model.device)
    point_times[plan.query_point] = at
    moments = None
    if model.clock is not None:
        moments = model.clock.phases.moments(starts_of([past]).to(model.device), point_times)
    numbers = numbers_at(plan, [RememberedHistory(timeline, timeline.times, model.numbers_of(past, timeline), 0.0)])
    attended: list[AttentionRecord] = []
    with model.evaluating():
        model.network(plan, point_times, attended, numbers, model.added_time(moments))
    query = int(plan.query_point[0])
    return Look(at, len(past), timeline, _heads(attended, slots, query), waves=waves_at(model, past, at))


def seen_before(history: EventSequence, at: float) -> EventSequence:
    """Return the events with a smaller time, observed until `at`."""
    return history.first(int(np.searchsorted(history.times, at, side="left")), at)


def without_heads(model: RuleModel, history: EventSequence, at: float) -> Look:
    """Return the database at a time, for a model without attention."""
    past = seen_before(history, at)
    _, timeline = model.histories.timeline(model.vocabulary, past)
    return Look(at, len(past), _own(timeline, past), {}, waves=waves_at(model, past, at))


def waves_at(model: RuleModel, history: EventSequence, at: float) -> Tensor | None:
    """Return the calendar's waves at a time of a history, float64 [features]; None: the model has no calendar."""
    if model.clock is None:
        return None
    phases = model.clock.phases
    moments = phases.moments(starts_of([history]).to(model.device), torch.full((1,), at, dtype=torch.float64))
    return phases(moments.to(model.device), torch.float64)[0].cpu()


def _own(timeline: Timeline, past: EventSequence) -> Timeline:
    """Return a cached timeline adapted to this history: it may come from another sequence with equal events.

    Its sequence, and without expiries its times, become those of this history. The grounding is copied, as names may have been added.
    """
    times = timeline.times if timeline.is_expiry.any() else past.times
    return replace(timeline, grounding=replace(timeline.grounding), times=times, sequence=past.id)


def _heads(attended: Sequence[AttentionRecord], slots: SequenceSlots, query: int) -> dict[int, tuple[Head, ...]]:
    """Return the heads by fact. The fact of a slot is the one whose additions the slot attends to."""
    layers: dict[tuple[int, int], list[AtLayer]] = {}
    additions: dict[tuple[int, int], np.ndarray] = {}
    for record in attended:
        asked = record.table.asked
        at_query = np.flatnonzero(record.table.point.cpu().numpy()[asked.slot] == query)
        for row in at_query.tolist():
            slot, low, high = int(asked.slot[row]), int(asked.low[row]), int(asked.high[row])
            which = asked.addition[low:high]
            fact = slots.grounding.head[int(slots.addition_instance[which[0]])]
            key = fact, int(slots.addition_r[which[0]])
            additions[key] = which
            layers.setdefault(key, []).append(_weighed(record, slot, low, high))
    found: dict[int, list[Head]] = {}
    for key in sorted(layers, key=lambda one: (slots.grounding.groups[one[1]][0], one)):
        which = additions[key]
        head = Head(
            *key,
            tuple(slots.addition_instance[which].tolist()),
            tuple(slots.addition_event[which].tolist()),
            tuple(sorted(layers[key], key=lambda one: one.layer)),
        )
        found.setdefault(head.fact, []).append(head)
    return {fact: tuple(heads) for fact, heads in found.items()}


def _weighed(record: AttentionRecord, slot: int, low: int, high: int) -> AtLayer:
    x, k, v = record.x[slot].double().cpu(), record.k[low:high].double().cpu(), record.v[low:high].double().cpu()
    logits = k @ x
    largest = float(logits.max().clamp(min=0.0))
    alpha, one = (logits - largest).exp(), float(np.exp(-largest))
    whole = one + float(alpha.sum())
    weights = alpha / whole
    return AtLayer(record.layer, weights.numpy(), one / whole, weights @ v)
