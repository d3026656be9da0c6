"""Sampler of an A-NDTT: an event costs one key and one value for each of its additions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from foretell.data import EventSequence
from foretell.models.rules.andtt_memory import ANDTTParameters, KeyMemory, Past, RememberedHistory, recall
from foretell.models.rules.andtt_query import ANDTTQuery
from foretell.models.rules.rule_sampler import RuleSampler, SequenceGroup, last_time
from foretell.models.rules.sampled_sequences import RuleContext, SampledSequence
from foretell.plan.int_arrays import offsets
from foretell.sampling.rules.living import NewEnd
from foretell.sampling.rules.states import DatabaseStates, Transition

if TYPE_CHECKING:
    from foretell.models.rules.andtt import ANDTT

NO_ROWS = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class ANDTTContext(RuleContext):
    parameters: ANDTTParameters
    query: ANDTTQuery
    memory: KeyMemory


class ANDTTSampler(RuleSampler):
    has_waves = True
    context: ANDTTContext

    @classmethod
    @torch.inference_mode()
    def start(cls, model: ANDTT, histories: Sequence[EventSequence], seen: Sequence[int]) -> ANDTTSampler:
        """Return a sampler of sequences that start with the first `seen` events of each history. The model does not change."""
        parameters = ANDTTParameters(model)
        memory = KeyMemory.empty(parameters)
        states = DatabaseStates(model.histories)
        timelines = []
        for one, n in zip(histories, seen, strict=True):
            # Additions in force now may expire while sequences are sampled.
            past = one.first(n, last_time(one.times[:n]))
            _, timeline = model.histories.timeline(model.vocabulary, past)
            times = timeline.times if timeline.is_expiry.any() else past.times
            timelines.append(
                RememberedHistory(timeline, times, model.numbers_of(past, timeline), parameters.start_of(past))
            )
        pasts = recall(model, parameters, memory, timelines)
        made = [
            SampledSequence(
                states.of(states.added_at(one.timeline, one.timeline.states - 1)),
                past,
                last_time(history.times[:n]),
                states.living_at(one.timeline, one.timeline.states - 1),
                one.start,
            )
            for one, past, history, n in zip(timelines, pasts, histories, seen, strict=True)
        ]
        query = ANDTTQuery(parameters, memory)
        return cls(ANDTTContext(states, parameters, query, WeakKeyDictionary(), memory), made)

    @property
    def _steady_width(self) -> float:
        return 2.0 * self.context.parameters.attention.time.m

    def _remembered(self, past: Past) -> Iterable[int]:
        return past.keys()

    def _length(self, past: Past) -> int:
        return sum(len(one) for by_r in past.values() for one in by_r.values())

    def _expired(self, past: Past, ended: Sequence[NewEnd], facts: frozenset[int]) -> Past:
        left = dict(past)
        for _, fact, r in ended:
            if fact in left and r in left[fact]:
                left[fact] = {**left[fact], r: left[fact][r][1:]}
        return {
            fact: {r: rows for r, rows in by_r.items() if len(rows)} for fact, by_r in left.items() if fact not in facts
        }

    def _without(self, past: Past, facts: Sequence[int]) -> Past:
        return {fact: by_r for fact, by_r in past.items() if fact not in facts}

    def _after(self, group: SequenceGroup, changes: Mapping[int, Transition], times: Tensor) -> dict[int, Past]:
        pasts: dict[int, Past] = {}
        for number, rows in self._new_rows(group, changes, times).items():
            if number in changes:
                past = pasts[number] = self._without(self.sequences[number].past, changes[number].erased)
                for row, one in zip(rows, changes[number].additions, strict=True):
                    by_r = past[one.head] = dict(past.get(one.head, {}))
                    by_r[one.r] = np.append(by_r.get(one.r, NO_ROWS), row)
        return pasts

    def _new_rows(self, group: SequenceGroup, changes: Mapping[int, Transition], times: Tensor) -> dict[int, range]:
        """Write keys and values of the new additions into the memory; return their rows by sequence."""
        context, parameters = self.context, self.context.parameters
        size, cut = parameters.conditions, 1 + parameters.time_dim + parameters.dim
        body, matrix, kinds, counts, marked = [], [], [], {}, []
        for kind, number in enumerate(group.members):
            additions = changes[number].additions if number in changes else ()
            counts[number] = len(additions)
            for one in additions:
                body += group.slots(kind, (*one.body, *[-1] * (size - len(one.body))))
                matrix.append(parameters.addition(one.group))
                kinds.append(kind)
                marked.append((number, one.event))
        if not matrix:
            return {}
        when, still = times.unsqueeze(1), torch.zeros_like(times).unsqueeze(1)
        layers = context.query.embeddings(group.prepared, when, still, 0)
        time = context.query.features(self._starts(group.members), when, still, 0).v[0, :, 0][kinds]
        place = torch.from_numpy(group.tables.places(body)).to(times.device).view(len(matrix), size)
        taken = range(0)
        for layer, (below, bank) in enumerate(zip(layers, parameters.additions, strict=False), start=1):
            bodies = self.by_numbers(group.tables.stacked(below)[place], marked)
            inputs = torch.cat([time, bodies.flatten(1)], 1)
            made = (bank.rows[matrix] @ inputs.unsqueeze(-1)).squeeze(-1)
            taken = context.memory.append(layer, made[:, :cut], made[:, cut:])
        edges = (taken.start + offsets(list(counts.values()))).tolist()
        return {number: range(low, high) for number, (low, high) in zip(counts, pairwise(edges), strict=True)}
