"""Cells of facts between events, and how an event moves them (docs/explanation/rivals.md): an NDTT in float64, for sequences side by side.

The cells of a sequence never change: those after an event are a new table. All cells are of one size: what a shorter one is filled up with
is 0 and stays 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from foretell.lang.program import GATES
from foretell.models.rules.sampler_parameters import RowBank, RuleParameters
from foretell.nn.intensity import softplus
from foretell.nn.pool import pool

if TYPE_CHECKING:
    from foretell.models.rules.rule_model import RuleModel

SLOWEST = 1e-300  # a decay that is 0 in floating point would be divided by


@dataclass(frozen=True)
class GateRows:
    """What one `r` proposes."""

    matrix: int  # row of `gates`
    beta: float


class NDTTParameters(RuleParameters):
    def __init__(self, model: RuleModel) -> None:
        super().__init__(model)
        self.gates = RowBank((GATES * self.dim, 1 + self.conditions * self.dim), self.device)
        self._added: dict[int, GateRows] = {}

    def addition(self, group: int) -> GateRows:
        found = self._added.get(group)
        if found is None:
            family, number, of_beta, which = self.book.of_group(self.grounding, group)
            assert of_beta is not None
            beta = float(self.array(f"add.{of_beta.names[which]}.beta"))
            found = self._added[group] = GateRows(self._gates(group, family.names[number]), beta)
        return found

    def _gates(self, group: int, name: str) -> int:
        """Six blocks of rows and one block of columns for each condition, each filled up."""
        written = self.layout.rules[self.grounding.groups[group][0]]
        assert written is not None
        whole = self.array(f"add.{name}.G").unflatten(0, (GATES, -1))
        dim, size = self.dim, whole.shape[1]
        made = whole.new_zeros(GATES, dim, 1 + self.conditions * dim)
        made[:, :size, 0] = whole[:, :, 0]
        column = 1
        for place, width in enumerate(written.dims):
            into = 1 + place * dim
            made[:, :size, into : into + width] = whole[:, :, column : column + width]
            column += width
        return self.gates.append(made.flatten(0, 1)[None])[0]


@dataclass(frozen=True, eq=False)
class CellTable:
    """`cell(t) = target + (c − target)·exp(−rate·(t − since))`, one row a cell."""

    c: Tensor  # float64 [n, D]
    target: Tensor  # float64 [n, D]
    rate: Tensor  # float64 [n, D]: a unit of the data's time
    since: Tensor  # float64 [n]

    @classmethod
    def zeros(cls, rows: int, dim: int, device: torch.device) -> CellTable:
        nothing = torch.zeros(rows, dim, dtype=torch.float64, device=device)
        return cls(nothing, nothing, nothing, nothing.new_zeros(rows))

    def __len__(self) -> int:
        return len(self.since)

    def rows(self, chosen: Tensor | slice) -> CellTable:
        return CellTable(self.c[chosen], self.target[chosen], self.rate[chosen], self.since[chosen])

    def narrow(self, dim: int) -> CellTable:
        """The first components of every cell."""
        return CellTable(self.c[:, :dim], self.target[:, :dim], self.rate[:, :dim], self.since)

    def put(self, places: Tensor, other: CellTable, length: int) -> CellTable:
        """Other rows in some places of a table that is now as long as that."""
        more = length - len(self)
        padded = (F.pad(one, (0, 0) * (one.dim() - 1) + (0, more)) for one in self._columns())
        return CellTable(*(one.index_copy(0, places, new) for one, new in zip(padded, other._columns(), strict=True)))

    def now(self, times: Tensor) -> Tensor:
        """At one time each, [n]."""
        return self.target + (self.c - self.target) * torch.exp(-self.rate * (times - self.since).unsqueeze(-1))

    def _columns(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.c, self.target, self.rate, self.since


def joined_cells(tables: Iterable[CellTable]) -> CellTable:
    return CellTable(*(torch.cat(columns) for columns in zip(*(one._columns() for one in tables), strict=True)))


@dataclass(frozen=True, eq=False)
class FactCells:
    """All that a sequence keeps of its past. A fact without a cell has none yet: it is 0."""

    place: dict[int, int]  # of each fact's cell in the table
    table: CellTable

    def without(self, facts: Iterable[int]) -> FactCells:
        gone = self.place.keys() & set(facts)
        if not gone:
            return self
        kept = {fact: row for fact, row in self.place.items() if fact not in gone}
        chosen = torch.tensor(list(kept.values()), dtype=torch.int64, device=self.table.c.device)
        return FactCells({fact: row for row, fact in enumerate(kept)}, self.table.rows(chosen))

    def updated(self, facts: Iterable[int], rows: CellTable) -> FactCells:
        """New cells of these facts, each of which comes once."""
        place = dict(self.place)
        places = [place.setdefault(fact, len(place)) for fact in facts]
        there = torch.tensor(places, dtype=torch.int64, device=rows.c.device)
        return FactCells(place, self.table.put(there, rows, len(place)))


@dataclass(frozen=True, eq=False)
class GateSums:
    """Instantiations that fire: what they say about which cells."""

    sums: Tensor  # float64 [A, 6 · D]: of the gates
    cell: Tensor  # int64 [A]
    pool: Tensor  # int64 [A]
    pool_cell: Tensor  # int64 [pools]
    pool_beta: Tensor  # float64 [pools]


def moved_cells(old: CellTable, times: Tensor, fired: GateSums, time_scale: float) -> CellTable:
    """Cells after an event each, at its time [n]; those that are new come as zeros."""
    now = old.now(times)
    c, target = now[fired.cell], old.target[fired.cell]
    i, f, z, i_target, f_target, decay = fired.sums.unflatten(1, (GATES, -1)).unbind(1)
    z = torch.tanh(z)
    by_c = torch.sigmoid(f) * c + torch.sigmoid(i) * z - c
    by_target = torch.sigmoid(f_target) * target + torch.sigmoid(i_target) * z - target
    pools = len(fired.pool_cell)
    both = pool(torch.cat([by_c, by_target], 1), fired.pool, pools, fired.pool_beta)
    whole = torch.cat([now, old.target], 1).index_add(0, fired.pool_cell, both)
    weight = (c - target).abs() + by_c.abs() + by_target.abs()
    summed = torch.zeros_like(now).index_add(0, fired.cell, weight)
    weight = torch.where(summed[fired.cell] == 0.0, 1.0, weight)
    upper = torch.zeros_like(now).index_add(0, fired.cell, weight)
    lower = torch.zeros_like(now).index_add(0, fired.cell, weight / softplus(decay).clamp(min=SLOWEST))
    new_c, new_target = whole.chunk(2, 1)
    return CellTable(new_c, new_target, upper / lower / time_scale, times)
