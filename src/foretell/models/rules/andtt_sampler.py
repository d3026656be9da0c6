"""Sampler of an A-NDTT: one more event costs a key and a value for each of its additions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from foretell.data import EventSequence
from foretell.models.rules.andtt_parameters import Parameters
from foretell.models.rules.andtt_past import Memory, Past, recall
from foretell.models.rules.andtt_query import Query
from foretell.models.rules.rule_sampler import Group, RuleSampler, Shared, Walk
from foretell.plan.int_arrays import offsets
from foretell.sampling.rules.states import DatabaseStates, Step

if TYPE_CHECKING:
    from foretell.models.rules.andtt import ANDTT

NO_ROWS = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Remembered(Shared):
    parameters: Parameters
    query: Query
    memory: Memory


class ANDTTSampler(RuleSampler):
    shared: Remembered

    @classmethod
    @torch.inference_mode()
    def start(cls, model: ANDTT, histories: Sequence[EventSequence], seen: Sequence[int]) -> ANDTTSampler:
        """Sampler that begin with the first `seen` events of each history. The model stays as it is."""
        parameters = Parameters(model)
        memory = Memory.empty(parameters)
        situations = DatabaseStates(model.histories)
        timelines = []
        for one, n in zip(histories, seen, strict=True):
            unscored = None if one.unscored is None else one.unscored[:n]
            _, timeline = model.histories.timeline(model.vocabulary, one.types[:n], one.times[:n], unscored)
            timelines.append((timeline, one.times[:n]))
        pasts = recall(model, parameters, memory, timelines)
        made = [
            Walk(situations.of(situations.added_at(timeline, timeline.states - 1)), past)
            for (timeline, _), past in zip(timelines, pasts, strict=True)
        ]
        shared = Remembered(situations, parameters, Query(parameters, memory), WeakKeyDictionary(), memory)
        return cls(shared, made)

    @property
    def width(self) -> float:
        return 2.0 * self.shared.parameters.network.time.m

    def _length(self, past: Past) -> int:
        return sum(len(one) for by_r in past.values() for one in by_r.values())

    def _without(self, past: Past, facts: Sequence[int]) -> Past:
        return {fact: by_r for fact, by_r in past.items() if fact not in facts}

    def _after(self, group: Group, steps: Mapping[int, Step], times: Tensor) -> dict[int, Past]:
        pasts: dict[int, Past] = {}
        for number, rows in self._remembered(group, steps, times).items():
            if number in steps:
                past = pasts[number] = self._without(self.walks[number].past, steps[number].erased)
                for row, one in zip(rows, steps[number].additions, strict=True):
                    by_r = past[one.head] = dict(past.get(one.head, {}))
                    by_r[one.r] = np.append(by_r.get(one.r, NO_ROWS), row)
        return pasts

    def _remembered(self, group: Group, steps: Mapping[int, Step], times: Tensor) -> dict[int, range]:
        """Keys and values of what is added, as rows of the memory: by walk."""
        query, parameters, memory = self.shared.query, self.shared.parameters, self.shared.memory
        size, cut = parameters.conditions, 1 + parameters.time_dim + parameters.dim
        body, matrix, kinds, counts = [], [], [], {}
        for kind, number in enumerate(group.members):
            additions = steps[number].additions if number in steps else ()
            counts[number] = len(additions)
            for one in additions:
                body.append(group.slots(kind, (*one.body, *[-1] * (size - len(one.body)))))
                matrix.append(parameters.addition(one.group))
                kinds.append(kind)
        if not body:
            return {}
        when, still = times.unsqueeze(1), torch.zeros_like(times).unsqueeze(1)
        layers = query.embeddings(group.prepared, when, still, 0)
        time = query.features(when, still, 0).v[0, :, 0][kinds]
        place = torch.tensor(body, dtype=torch.int64, device=times.device).view(len(body), size)
        taken = range(0)
        for layer, (embedding, bank) in enumerate(zip(layers, parameters.additions, strict=False), start=1):
            inputs = torch.cat([time, embedding[:, 0, 0][place].flatten(1)], 1)
            made = (bank.rows[matrix] @ inputs.unsqueeze(-1)).squeeze(-1)
            taken = memory.take(layer, made[:, :cut], made[:, cut:])
        edges = (taken.start + offsets(list(counts.values()))).tolist()
        return {number: range(low, high) for number, (low, high) in zip(counts, pairwise(edges), strict=True)}
