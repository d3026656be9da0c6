"""Sampler of an NDTT: one more event moves the cells of the facts that it adds, and in between every cell drifts to its target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from foretell.data import EventSequence
from foretell.models.rules.ndtt_cells import Cells, Fired, Parameters, Table, joined, moved
from foretell.models.rules.ndtt_past import recall
from foretell.models.rules.ndtt_query import Query
from foretell.models.rules.rule_sampler import Group, RuleSampler, Shared, Walk
from foretell.plan.int_arrays import offsets
from foretell.sampling.rules.states import DatabaseStates, Step

if TYPE_CHECKING:
    from foretell.models.rules.ndtt import NDTT


@dataclass(frozen=True, eq=False)
class Known(Shared):
    parameters: Parameters
    query: Query


class NDTTSampler(RuleSampler):
    shared: Known

    @classmethod
    @torch.inference_mode()
    def start(cls, model: NDTT, histories: Sequence[EventSequence], seen: Sequence[int]) -> NDTTSampler:
        """Sampler that begin with the first `seen` events of each history. The model stays as it is."""
        parameters = Parameters(model)
        situations = DatabaseStates(model.histories)
        # A history that is given more than once is read once, and left at several places.
        distinct = {id(one): one for one in histories}
        places: dict[int, list[int]] = {key: [] for key in distinct}
        for one, n in zip(histories, seen, strict=True):
            places[id(one)].append(n)
        recalled = recall(model, parameters, [(one, places[key]) for key, one in distinct.items()])
        of = dict(zip(distinct, recalled, strict=True))
        made = [
            Walk(situations.of(situations.added_at(of[id(one)].timeline, n + 1)), of[id(one)].cells[n])
            for one, n in zip(histories, seen, strict=True)
        ]
        return cls(Known(situations, parameters, Query(parameters), WeakKeyDictionary()), made)

    @property
    def width(self) -> float:
        return 0.5 * self.shared.parameters.time_scale

    def _length(self, past: Cells) -> int:
        return len(past.place)

    def _without(self, past: Cells, facts: Sequence[int]) -> Cells:
        return past.without(facts)

    def _after(self, group: Group, steps: Mapping[int, Step], times: Tensor) -> dict[int, Cells]:
        pasts = {
            kind: self.walks[number].past.without(steps[number].erased)
            for kind, number in enumerate(group.members)
            if number in steps and steps[number].additions
        }
        if not pasts:
            return {}
        fired, heads = self._fired(group, steps, times)
        # In the first row are zeros: a cell that is new.
        dim, device = self.shared.parameters.dim, times.device
        place, first = [], 1
        for kind, past in pasts.items():
            place += [first + past.place[fact] if fact in past.place else 0 for fact in heads[kind]]
            first += len(past.table)
        there = joined([Table.zeros(1, dim, device), *(past.table for past in pasts.values())])
        kinds = [kind for kind, facts in heads.items() for _ in facts]
        new = moved(
            there.rows(torch.tensor(place, device=device)), times[kinds], fired, self.shared.parameters.time_scale
        )
        edges = offsets([len(heads[kind]) for kind in pasts]).tolist()
        return {
            group.members[kind]: past.updated(heads[kind], new.rows(slice(low, high)))
            for (kind, past), (low, high) in zip(pasts.items(), pairwise(edges), strict=True)
        }

    def _fired(self, group: Group, steps: Mapping[int, Step], times: Tensor) -> tuple[Fired, dict[int, list[int]]]:
        """What all instantiations say, and the facts whose cells they are about: by kind of walk, in the order of cells."""
        parameters, device = self.shared.parameters, times.device
        size = parameters.conditions
        cells: dict[tuple[int, int], int] = {}  # by kind of walk and fact
        pools: dict[tuple[int, int, int], int] = {}  # … and group
        body, matrix, cell_of, pool_of, betas = [], [], [], [], []
        heads: dict[int, list[int]] = {}
        for kind, number in enumerate(group.members):
            for one in steps[number].additions if number in steps else ():
                gates = parameters.addition(one.group)
                body.append(group.slots(kind, (*one.body, *[-1] * (size - len(one.body)))))
                matrix.append(gates.matrix)
                if (kind, one.head) not in cells:
                    cells[kind, one.head] = len(cells)
                    heads.setdefault(kind, []).append(one.head)
                if (kind, one.head, one.group) not in pools:
                    pools[kind, one.head, one.group] = len(pools)
                    betas.append(gates.beta)
                cell_of.append(cells[kind, one.head])
                pool_of.append(pools[kind, one.head, one.group])
        when = times.unsqueeze(1)
        (top,) = self.shared.query.embeddings(group.prepared, when, torch.zeros_like(when), 0)
        places = torch.tensor(body, dtype=torch.int64, device=device).view(len(body), size)
        inputs = torch.cat([top.new_ones(len(body), 1), top[:, 0, 0][places].flatten(1)], 1)
        sums = (parameters.gates.rows[matrix] @ inputs.unsqueeze(-1)).squeeze(-1)
        pools_of = [cells[kind, head] for kind, head, _ in pools]
        numbers = (torch.tensor(one, dtype=torch.int64, device=device) for one in (cell_of, pool_of, pools_of))
        cell, pool, pool_cell = numbers
        return Fired(sums, cell, pool, pool_cell, torch.tensor(betas, dtype=torch.float64, device=device)), heads
