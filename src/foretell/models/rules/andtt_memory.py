"""Keys and values for sampled sequences of an A-NDTT: one row per addition and layer, shared by all copies of a
sequence.

A row is written when its event happens and never changes. For every fact, a sequence knows the rows in force of each `r`. Rows of
histories are computed by the model's own network, for all events at once; rows of sampled events are added one by one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from foretell.ground.timeline import Timeline
from foretell.models.rules.andtt_network import AttentionRecord, Network
from foretell.models.rules.sampler_parameters import RowBank, RuleParameters
from foretell.plan.history import GroundingArrays, Intervals, SlotHistory
from foretell.plan.plan import Plan, make_plan
from foretell.plan.slots import SequenceSlots, slots_of_history

if TYPE_CHECKING:
    from foretell.models.rules.andtt import ANDTT

EVENTS_AT_A_TIME = 50_000  # in histories that are read together
EXTRA = 1  # the row of the extra 1 in the denominator: logit and value are 0

Rows = np.ndarray
Past = dict[int, dict[int, Rows]]  # by fact and `r`: rows of additions in force, in order


class ANDTTParameters(RuleParameters):
    """Parameters of rules, and the matrices of additions with keys and queries multiplied together, padded to one size."""

    def __init__(self, model: ANDTT) -> None:
        super().__init__(model)
        assert isinstance(self.network, Network)
        self.attention: Network = self.network
        self.layers, self.time_dim = self.attention.layers, self.attention.time.dim
        past = 1 + self.time_dim + self.conditions * self.dim
        self.additions = [RowBank((1 + self.time_dim + 2 * self.dim, past), self.device) for _ in range(self.layers)]
        self._added: dict[int, int] = {}

    def addition(self, group: int) -> int:
        """Return the row of a group in the banks of additions, which yield a folded key `[1; time; embedding]` and a value."""
        found = self._added.get(group)
        if found is None:
            family, number, _, _ = self.book.of_group(self.grounding, group)
            written = self.layout.rules[self.grounding.groups[group][0]]
            assert written is not None
            name, time, dim = family.names[number], 1 + self.time_dim, self.dim
            size = self.layout.dimension(written.head)
            row = -1
            for layer, bank in enumerate(self.additions, start=1):
                v, k, q = (self.array(f"add.{name}.{layer}.{letter}") for letter in "VKQ")
                folded = q.T @ k / math.sqrt(max(len(k), 1))
                made = folded.new_zeros(1, time + 2 * dim, time + self.conditions * dim)
                for matrix, first, low, high in (
                    (folded, 0, 0, time),
                    (folded, time, time, time + size),
                    (v, time + dim, 0, size),
                ):
                    made[0, first : first + high - low, :time] = matrix[low:high, :time]
                    column = time
                    for place, width in enumerate(written.dims):
                        into = slice(time + place * dim, time + place * dim + width)
                        made[0, first : first + high - low, into] = matrix[low:high, column : column + width]
                        column += width
                row = bank.append(made)[0]
            found = self._added[group] = row
        return found


@dataclass(frozen=True, eq=False)
class KeyMemory:
    """Per layer, folded keys `[1; time; embedding]` and values. Row 0 is padding and never counted, row 1 is the extra 1."""

    keys: tuple[RowBank, ...]
    values: tuple[RowBank, ...]

    @classmethod
    def empty(cls, parameters: ANDTTParameters) -> KeyMemory:
        width, dim, device = 1 + parameters.time_dim + parameters.dim, parameters.dim, parameters.device
        made = cls(
            tuple(RowBank((width,), device) for _ in range(parameters.layers)),
            tuple(RowBank((dim,), device) for _ in range(parameters.layers)),
        )
        first = torch.zeros(2, width, dtype=torch.float64, device=device)
        for keys, values in zip(made.keys, made.values, strict=True):
            keys.append(first)
            values.append(first.new_zeros(2, dim))
        return made

    def append(self, layer: int, keys: Tensor, values: Tensor) -> range:
        self.keys[layer - 1].append(keys)
        return self.values[layer - 1].append(values)


@dataclass(frozen=True, eq=False)
class RememberedHistory:
    """The past of a sampled sequence."""

    timeline: Timeline
    times: np.ndarray
    numbers: Tensor | None  # float64 [events, columns], if the program has features
    start: float  # the moment at time 0; 0 if the model has no calendar


class _WithAdditions(SlotHistory):
    """Slots that include, at the end, all facts with additions in force, whether they are needed then or not."""

    def __init__(self, grounded: GroundingArrays, timeline: Timeline) -> None:
        super().__init__(grounded, timeline)
        left = timeline.additions[timeline.additions[:, 2] >= timeline.states, 0]
        heads = np.unique(grounded.instances.head[left])
        self.always = heads[grounded.facts.dim[heads] > 0]
        self.possible = Intervals.of(np.zeros((0, 3), dtype=np.int64))


@torch.inference_mode()
def recall(
    model: ANDTT, parameters: ANDTTParameters, memory: KeyMemory, histories: Sequence[RememberedHistory]
) -> list[Past]:
    """Return the pasts of whole histories; their rows are added to the memory."""
    pasts: list[Past] = []
    first = 0
    while first < len(histories):
        last, events = first, 0
        while last < len(histories) and (last == first or events + len(histories[last].times) <= EVENTS_AT_A_TIME):
            events += len(histories[last].times)
            last += 1
        pasts += _recall(model, parameters, memory, histories[first:last])
        first = last
    return pasts


def _recall(
    model: ANDTT, parameters: ANDTTParameters, memory: KeyMemory, histories: Sequence[RememberedHistory]
) -> list[Past]:
    grounded, network = model.histories.grounded, parameters.attention
    timelines = [one.timeline for one in histories]
    with model.histories._lock:  # the grounding may grow, and other threads may use it
        parts = [slots_of_history(_WithAdditions(grounded, one), np.asarray([one.states - 1])) for one in timelines]
        plan = make_plan(parts, model.layout, parameters.book, model.device)
    parameters.grow()
    at = torch.zeros(plan.points, dtype=torch.float64, device=model.device)
    when = np.concatenate([np.zeros(0), *(np.concatenate([[0.0], one.times]) for one in histories)])
    at[plan.event_point] = torch.from_numpy(when).to(model.device)
    # The end of a history is not an event's time, and its embeddings are not used, so any time will do.
    attended: list[AttentionRecord] = []
    clock = None
    if parameters.clock is not None:
        starts = at.clone()
        own = [one.start for one in histories for _ in range(1 + len(one.times))]
        starts[plan.event_point] = torch.tensor(own, dtype=torch.float64, device=model.device)
        clock = parameters.clock.added_time(parameters.clock.phases.moments(starts, at))
    network(plan, at, attended, numbers_at(plan, histories), clock)
    return _taken(attended, parts, plan.query_point.cpu().numpy(), parameters, memory)


def numbers_at(plan: Plan, histories: Sequence[RememberedHistory]) -> Tensor | None:
    """Return numbers at the plan's points; missing at points that are no events."""
    numbers = [F.pad(one.numbers, (0, 0, 1, 0)) for one in histories if one.numbers is not None]
    if not numbers:
        return None
    found = numbers[0].new_full((plan.points, numbers[0].shape[1]), math.nan)
    return found.index_copy(0, plan.event_point, torch.cat(numbers))


def _taken(
    attended: Sequence[AttentionRecord],
    parts: Sequence[SequenceSlots],
    query: np.ndarray,
    parameters: ANDTTParameters,
    memory: KeyMemory,
) -> list[Past]:
    pasts: list[Past] = [{} for _ in parts]
    first = np.concatenate([[0], np.cumsum([len(part.addition_instance) for part in parts])])
    sequence_of = {int(point): number for number, point in enumerate(query.tolist())}
    time, dim = 1 + parameters.time_dim, parameters.dim
    shared = parameters.attention.time.width
    for record in attended:
        asked = record.table.asked
        point = record.table.point.cpu().numpy()[asked.slot]
        at_end = np.flatnonzero(np.isin(point, query))
        low, high = asked.low[at_end], asked.high[at_end]
        rows = np.concatenate([np.zeros(0, dtype=np.int64), *(np.arange(a, b) for a, b in zip(low, high, strict=True))])
        chosen = torch.from_numpy(rows).to(record.k.device)
        size = record.v.shape[1]
        keys = record.k.new_zeros(len(rows), time + dim)
        keys[:, :time] = record.k[chosen, :time]
        keys[:, time : time + size] = record.k[chosen, shared:]
        values = record.v.new_zeros(len(rows), dim)
        values[:, :size] = record.v[chosen]
        taken = memory.append(record.layer, keys, values)
        if record.layer > 1:
            continue  # upper layers have the same rows in the same order
        place = taken.start
        for number, start, stop in zip(point[at_end].tolist(), low.tolist(), high.tolist(), strict=True):
            which = sequence_of[number]
            addition = int(asked.addition[start]) - int(first[which])
            part = parts[which]
            head = part.grounding.head[int(part.addition_instance[addition])]
            count = stop - start
            pasts[which].setdefault(head, {})[int(part.addition_r[addition])] = np.arange(place, place + count)
            place += count
    return pasts
