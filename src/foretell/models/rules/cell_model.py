"""Models of rules in which every fact that events add has a cell, updated by these events: NDTT and S2-NDTT.

An encoded history consists of its batch and the cells of all its facts after each event that updates them. Queries about it are a plan.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from foretell.batches.batch import Batch
from foretell.batches.rule_collator import CellCollator
from foretell.lang.program import GATES
from foretell.models.calendar import starts_of
from foretell.models.rules.cell_network import CellClock, CellNetwork
from foretell.models.rules.event_features import PointInputs
from foretell.models.rules.rule_model import OptionsT, RuleModel
from foretell.models.rules.rule_network import Embeddings
from foretell.plan.cell_plan import CellPlan


@dataclass(frozen=True)
class EncodedCells:
    """A batch and the cells of its facts."""

    batch: Batch
    cells: Tensor  # [B, most, parts, size]: indexed by the number of a version in its sequence


class CellModel(RuleModel[OptionsT]):
    shown_units = {"scale": "time_scale"}  # noqa: RUF012
    rows_at_a_time = 32  # a batch has the number of waves of its longest sequence

    def _make_collator(self) -> CellCollator:
        return CellCollator(self.histories, self.book)

    @property
    @abstractmethod
    def rule_network(self) -> CellNetwork: ...

    def encode(self, batch: Batch) -> EncodedCells:
        assert batch.rules is not None and batch.rules.plan is not None, "a batch is planned by the model's collator"
        self.grow()
        moves = batch.rules.plan
        recurrence = moves.recurrence
        if recurrence is None:
            shape = len(batch), 1, *self.rule_network.cell_shape
            return EncodedCells(batch, torch.zeros(shape, dtype=self.dtype, device=self.device))
        times = torch.cat([batch.times.new_zeros(1), batch.times.flatten()]).index_select(0, moves.source)

        def elapsed(point: Tensor, since: Tensor) -> Tensor:
            return ((times.index_select(0, point) - times.index_select(0, since)) / self.time_scale).to(self.dtype)

        between = elapsed(recurrence.made, recurrence.made_before)
        before = elapsed(recurrence.point, recurrence.since)
        numbers = self.event_numbers(batch, moves.source)
        clock = None
        if self.clock is not None:
            when = starts_of(batch).index_select(0, moves.sequence), times
            waves = self.clock.at(self.clock.phases.moments(*when)).index_select(0, recurrence.made)
            clock = CellClock(waves, tuple(self.clock.cells))
        cells = self.rule_network.cells(recurrence, before, between, numbers, clock)
        return EncodedCells(batch, cells)

    def clock_sizes(self) -> tuple[dict[str, int], int]:
        rows = self._cell_rows()
        return {name: GATES * self.layout.dimension(name) if rows is None else rows for name in self.layout.added}, 0

    def batch_of(self, history: EncodedCells) -> Batch:
        return history.batch

    def slot_embeddings(self, history: EncodedCells, plan: CellPlan, times: Tensor, given: PointInputs) -> Embeddings:
        """Return the embeddings of slots. The terms of numbers and the calendar are in the cells already."""
        return self.rule_network(plan, history.cells, times, self.time_scale)
