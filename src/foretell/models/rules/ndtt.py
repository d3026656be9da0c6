"""NDTT, neural Datalog through time (docs/explanation/rivals.md): every fact that events add has a cell, which they move.

A history is its batch and the cells of all its facts after each event that moves them, found once; what is asked about it is a plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from foretell.batches.batch import Batch
from foretell.batches.rule_collator import CellCollator
from foretell.data import EventSequence, Vocabulary
from foretell.lang.program import Program
from foretell.models.registry import ModelSpec, register
from foretell.models.rules.ndtt_network import CellNetwork
from foretell.models.rules.ndtt_sampler import NDTTSampler
from foretell.models.rules.rule_model import RuleModel
from foretell.models.rules.rule_network import Embeddings
from foretell.models.rules.rule_options import RuleOptions
from foretell.plan.plan import CellPlan


@dataclass(frozen=True)
class EncodedCells:
    """A batch, and the cells of its facts."""

    batch: Batch
    cells: Tensor  # [B, most, 3, width]: by the number of a version in its sequence


@dataclass(frozen=True)
class NdttOptions(RuleOptions):
    """Those of all models made of rules."""


@register(ModelSpec("ndtt", "NDTT", NdttOptions, "facts have cells that events move", "Mei et al. 2020"))
class NDTT(RuleModel[NdttOptions]):
    shown_sizes = ("dim",)
    shown_units = {"scale": "time_scale"}  # noqa: RUF012
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

    def _make_collator(self) -> CellCollator:
        return CellCollator(self.histories, self.book)

    @property
    def rule_network(self) -> CellNetwork:
        return self.network

    def encode(self, batch: Batch) -> EncodedCells:
        assert batch.rules is not None and batch.rules.plan is not None, "a batch is planned by the model's collator"
        self.grow()
        moves = batch.rules.plan
        recurrence = moves.recurrence
        if recurrence is None:
            shape = len(batch), 1, 3, self.network.width
            return EncodedCells(batch, torch.zeros(shape, dtype=self.dtype, device=self.device))
        times = torch.cat([batch.times.new_zeros(1), batch.times.flatten()]).index_select(0, moves.source)

        def elapsed(point: Tensor, since: Tensor) -> Tensor:
            return ((times.index_select(0, point) - times.index_select(0, since)) / self.time_scale).to(self.dtype)

        between = elapsed(recurrence.made, recurrence.made_before)
        cells = self.network.cells(recurrence, elapsed(recurrence.point, recurrence.since), between)
        return EncodedCells(batch, cells)

    def batch_of(self, history: EncodedCells) -> Batch:
        return history.batch

    def slot_embeddings(self, history: EncodedCells, plan: CellPlan, times: Tensor) -> Embeddings:
        return self.network(plan, history.cells, times, self.time_scale)

    def sampler(self, histories: Sequence[EventSequence], seen: Sequence[int]) -> NDTTSampler:
        return NDTTSampler.start(self, histories, seen)
