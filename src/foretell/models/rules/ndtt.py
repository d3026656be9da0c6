"""NDTT, neural Datalog through time (docs/explanation/rivals.md): every fact that events add has a cell, which they move.

A history is its batch and the cells of all its facts after each event that moves them, found once; what is asked about it is a plan.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from foretell.batches.batch import Batch
from foretell.data import EventSequence, Vocabulary
from foretell.lang.program import Program
from foretell.models.registry import ModelSpec, register
from foretell.models.rules.ndtt_network import CellNetwork
from foretell.models.rules.ndtt_sampler import NDTTSampler
from foretell.models.rules.rule_model import RuleModel, digest
from foretell.models.rules.rule_network import Embeddings
from foretell.models.rules.rule_options import RuleOptions
from foretell.plan.cell_plan import CellPlan, make_cell_plan
from foretell.plan.history import History
from foretell.plan.plan import Merger
from foretell.plan.slots import SequenceSlots
from foretell.plan.waves import Recurrence, make_recurrence


@dataclass(frozen=True)
class Encoded:
    """A batch, and the cells of its facts."""

    batch: Batch
    cells: Tensor  # [B, most, 3, width]: by the number of a version in its sequence


@dataclass(frozen=True, eq=False)
class _Moves:
    """How the events of a batch move cells: known by the events alone."""

    recurrence: Recurrence | None  # None: nothing is ever added
    source: Tensor  # int64: of `bos` and events of all sequences, in [0, all events' times]


@dataclass(frozen=True)
class NdttOptions(RuleOptions):
    """Those of all models made of rules."""


@register(ModelSpec("ndtt", "NDTT", NdttOptions, "facts have cells that events move", "Mei et al. 2020"))
class NDTT(RuleModel[NdttOptions]):
    rows_at_a_time = 32  # waves are as many for all of them as for the longest

    def __init__(
        self,
        program: Program | str | Path,
        vocabulary: Vocabulary | None = None,
        options: NdttOptions | None = None,
        *,
        seed: int = 0,
        dtype: torch.dtype = torch.float32,
        **changes: Any,
    ) -> None:
        super().__init__(program, vocabulary, self.chosen(options, changes), None)
        self.network = CellNetwork(self.book, seed)
        self._start(seed)
        self.to(dtype)

    @property
    def rule_network(self) -> CellNetwork:
        return self.network

    @property
    def captured_when_met(self) -> int:
        """Never: one event moves cells after another, and a graph of all that would be as long as the sequence."""
        return sys.maxsize

    def encode(self, batch: Batch) -> Encoded:
        moves = self._moves(batch)
        recurrence = moves.recurrence
        if recurrence is None:
            shape = len(batch), 1, 3, self.network.width
            return Encoded(batch, torch.zeros(shape, dtype=self.dtype, device=self.device))
        times = torch.cat([batch.times.new_zeros(1), batch.times.flatten()]).index_select(0, moves.source)

        def elapsed(point: Tensor, since: Tensor) -> Tensor:
            return ((times.index_select(0, point) - times.index_select(0, since)) / self.time_scale).to(self.dtype)

        between = elapsed(recurrence.made, recurrence.made_before)
        cells = self.network.cells(recurrence, elapsed(recurrence.point, recurrence.since), between)
        return Encoded(batch, cells)

    def _moves(self, batch: Batch) -> _Moves:
        lengths = batch.lengths.cpu().numpy()
        types, when, history_only = (one.cpu().numpy() for one in (batch.types, batch.times, batch.history_only))
        known = ("moves", batch.times.shape, digest(types, history_only, lengths), self.device)
        found = self._plans.get(known)
        if found is not None:
            return found
        parts, histories = [], []
        nothing = np.zeros(0, dtype=np.int64)
        for row, length in enumerate(lengths.tolist()):
            key, timeline = self.histories.timeline(
                self.vocabulary, types[row, :length], when[row, :length], history_only[row, :length]
            )
            parts.append(self.histories.slots(key, timeline, nothing, remember=len(batch) > 1))
            histories.append(self.histories.history(key, timeline))
        with self._plans.building:
            found = self._made(parts, histories, lengths, batch.times.shape[1])
        self._plans.keep(known, found, sum(len(part.slot_fact) for part in parts))
        return found

    def _made(
        self, parts: Sequence[SequenceSlots], histories: Sequence[History], lengths: np.ndarray, width: int
    ) -> _Moves:
        recurrence = None
        if any(len(one.versions) > 1 for one in histories):
            recurrence = make_recurrence(Merger(parts, self.layout, self.book, self.device), histories)
        self.network.grow(self.dtype, self.device)  # names that training never met start as they would have then
        rows = [[0, *range(1 + row * width, 1 + row * width + length)] for row, length in enumerate(lengths.tolist())]
        source = torch.tensor([place for row in rows for place in row], dtype=torch.int64, device=self.device)
        return _Moves(recurrence, source)

    def batch_of(self, history: Encoded) -> Batch:
        return history.batch

    def make_plan(self, parts: Sequence[SequenceSlots]) -> CellPlan:
        return make_cell_plan(parts, [part.history for part in parts], self.layout, self.book, self.device)

    def slot_embeddings(self, history: Encoded, plan: CellPlan, times: Tensor) -> Embeddings:
        return self.network(plan, history.cells, times, self.time_scale)

    def sampler(self, histories: Sequence[EventSequence], seen: Sequence[int]) -> NDTTSampler:
        return NDTTSampler.start(self, histories, seen)
