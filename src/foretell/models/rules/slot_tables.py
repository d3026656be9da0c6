"""Compile local plans of some sequences into deductions, and into rows of tables of slots on windows of time.

The plan's own compiler (`plan/deduction.py`) is used, with tiles of one row, since on a window a row stands for many times. A row of a
table is [nodes and remainder, P, D]: the values at the nodes, then the remainder, which is absent for degree 0. `P` is the number of
time pieces.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from foretell.models.attention.layers import Sublayers
from foretell.models.rules.rule_network import Arithmetic, Blocks, Embeddings
from foretell.models.rules.sampler_parameters import RuleParameters
from foretell.nn.sparse_sum import SparseSum, summed
from foretell.plan.deduction import DeductionPlan, deduce
from foretell.plan.plan import Merger
from foretell.sampling.bounds.chebyshev import ROUNDED, ChebyshevPiece, point, tanh
from foretell.sampling.bounds.values import pool
from foretell.sampling.rules.states import LocalPlan

ONE_ROW = (1, 1)  # heights of tiles


class BoundedRows(Arithmetic):
    def __init__(self, degree: int, sizes: dict[int, Tensor]) -> None:
        self.degree, self._sizes = degree, sizes  # `sizes`: absolute values of blocks, cached by id

    def product(self, rows: Tensor, blocks: Tensor) -> Tensor:
        flat, cut = rows.flatten(1, 2), (self.degree + 1) * rows.shape[2]
        found = flat[:, :cut] @ blocks
        if self.degree:
            size = self._sizes.get(id(blocks))
            if size is None:
                size = self._sizes[id(blocks)] = blocks.abs()
            found = torch.cat([found, flat[:, cut:] @ size], 1)
        return found.view(*rows.shape[:3], -1)

    def total(self, sums: SparseSum, rows: Tensor) -> Tensor:
        return summed(rows.flatten(1), sums.ahead).unflatten(1, rows.shape[1:])

    def tanh(self, rows: Tensor) -> Tensor:
        return packed(tanh(unpacked(rows, self.degree)))

    def pool(self, rows: Tensor, segment: Tensor, count: int, beta: Tensor) -> Tensor:
        return packed(pool(unpacked(rows, self.degree), segment, count, beta))

    def after(self, sublayers: Sublayers, rows: Tensor) -> Tensor:
        return packed(sublayers.after(unpacked(rows, self.degree)))


def packed(x: ChebyshevPiece) -> Tensor:
    """Reshape [nodes, rows, P, D] to [rows, nodes and remainder, P, D]."""
    return torch.cat([x.v.transpose(0, 1), x.remainder.unsqueeze(1)], 1) if x.degree else x.v.transpose(0, 1)


def unpacked(rows: Tensor, degree: int) -> ChebyshevPiece:
    return ChebyshevPiece(rows[:, :-1].transpose(0, 1), rows[:, -1]) if degree else point(rows[:, 0])


def constant_rows(values: Tensor, degree: int) -> Tensor:
    """Return rows that do not change with time: [rows, nodes and remainder, 1, D] from [rows, D]."""
    if not degree:
        return values[:, None, None]
    nodes = values.unsqueeze(1).expand(-1, degree + 1, -1)
    return torch.cat([nodes, ROUNDED * values.abs().unsqueeze(1)], 1).unsqueeze(2)


@dataclass(eq=False)
class SlotTables:
    """Slots of all plans, numbered consecutively. Each is a row of the table of its dimension."""

    deduced: dict[int, DeductionPlan]
    blocks: Blocks
    vectors: Embeddings  # [targets, dim]
    dim: np.ndarray  # int64 [S]
    row: np.ndarray  # int64 [S]
    first: np.ndarray  # int64 [plans + 1]: the first slot of each plan
    width: int  # the largest dimension of a table
    layer_zero: Embeddings | None = None  # for a network with layers
    sizes: dict[int, Tensor] = field(default_factory=dict)
    _constant: dict[int, Embeddings] = field(default_factory=dict)

    @property
    def slots(self) -> int:
        return len(self.dim)

    def constant_parts(self, degree: int, pieces: int) -> Embeddings:
        """Return `vectors` as rows of tables on windows."""
        found = self._constant.get(degree)
        if found is None:
            found = {dim: constant_rows(one, degree) for dim, one in self.vectors.items()}
            self._constant[degree] = found
        return {dim: one.expand(-1, -1, pieces, -1) for dim, one in found.items()}

    def places(self, slots: Sequence[int]) -> np.ndarray:
        """Return the rows of slots in the tensor of `stacked`; slot -1 is its last row, of zeros."""
        wanted = np.asarray(slots, dtype=np.int64)
        if not self.slots:
            return np.zeros_like(wanted)
        start, before = np.zeros(max(self.deduced, default=0) + 1, dtype=np.int64), 0
        for dim, table in self.deduced.items():
            start[dim], before = before, before + table.slots
        return np.where(wanted >= 0, start[self.dim[wanted]] + self.row[wanted], self.slots)

    def stacked(self, tables: Embeddings) -> Tensor:
        """Return all tables concatenated at one time, padded to one width, with a row of zeros at the end."""
        rows = [F.pad(tables[dim][:, 0, 0], (0, self.width - dim)) for dim in self.deduced]
        nothing = torch.zeros(1, self.width, dtype=torch.float64, device=rows[0].device if rows else None)
        return torch.cat([*rows, nothing])


def make_tables(plans: Sequence[LocalPlan], parameters: RuleParameters) -> SlotTables:
    device, network = parameters.device, parameters.network
    with parameters.lock:
        merger = Merger([one.slots for one in plans], parameters.layout, parameters.book, device)
        deduced = deduce(merger.proofs(), parameters.layout, merger.numbers, merger.vectors, device, ONE_ROW)
    for dim, count in merger.sizes.items():
        deduced.setdefault(dim, merger.nothing(count))
    parameters.grow()
    like = torch.zeros(0, dtype=torch.float64, device=device)
    return SlotTables(
        deduced,
        network.blocks_of(deduced.values()),
        {dim: table.vectors(network.vectors_of(dim, like)) for dim, table in deduced.items()},
        merger.dim,
        merger.row,
        merger.slot_offset,
        parameters.dim,
    )
