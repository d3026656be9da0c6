"""What facts' embeddings are deduced from one another, at times or on windows of time (`nodes.py`): a sketch with its numbers.

A table of slots is `[slots, nodes, P, D]`: behind the values at the nodes the remainder, but for degree 0, where there is none; `P` is over
the pieces of time that are asked about.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from foretell.models.rules.sampler_parameters import RuleParameters
from foretell.nn.sparse_sum import Lists, lists_of, summed
from foretell.sampling.bounds.chebyshev import ROUNDED, ChebyshevPiece, point
from foretell.sampling.bounds.values import pool
from foretell.sampling.rules.local_plan import LocalPlan


@dataclass(frozen=True, eq=False)
class Level:
    start: int
    stop: int
    vectors: Tensor  # [targets, D]
    blocks: Tensor | None  # [N, D, D], transposed; None: nothing is deduced from other slots
    sizes: Tensor | None  # their absolute values
    input: Tensor  # int64 [N]
    sums: Lists
    pool: Tensor  # int64 [pooled]
    pool_slot: Tensor  # int64 [pools]
    pool_beta: Tensor  # float64 [pools]

    def inside(self, done: Tensor, degree: int) -> Tensor:
        """What is deduced for the slots of this level from those of lower ones, before `tanh`; `done` is a table of all slots."""
        _, height, pieces, dim = done.shape
        targets, cut = len(self.vectors), (degree + 1) * pieces
        if self.blocks is None:
            whole = done.new_zeros(targets, height, pieces, dim)
        else:
            rows = done[self.input].flatten(1, 2)
            moved = rows[:, :cut] @ self.blocks
            if self.sizes is not None and degree:
                moved = torch.cat([moved, rows[:, cut:] @ self.sizes], 1)
            whole = summed(moved.flatten(1), self.sums).view(targets, height, pieces, dim)
        whole[:, : degree + 1] += self.vectors[:, None, None]
        if degree:
            whole[:, -1] += ROUNDED * self.vectors.abs().unsqueeze(1)
        if not len(self.pool_slot):
            return whole
        count = self.stop - self.start
        found = pool(unpacked(whole[count:], degree), self.pool, len(self.pool_slot), self.pool_beta)
        return whole[:count].index_add(0, self.pool_slot, packed(found))


def levels_of(sketch: LocalPlan, parameters: RuleParameters) -> tuple[Level, ...]:
    levels, device = [], parameters.device
    for one in sketch.levels:
        blocks = None
        if len(one.block):
            blocks = parameters.blocks.rows[whole_numbers(one.block, device)].mT.contiguous()
        vectors = lists_of(one.vector_target, one.vector, one.targets).to(device)
        levels.append(
            Level(
                one.start,
                one.stop,
                summed(parameters.vectors.rows, vectors),
                blocks,
                None if blocks is None else blocks.abs(),
                whole_numbers(one.input, device),
                lists_of(one.sum_target, one.sum_product, one.targets).to(device),
                whole_numbers(one.pool, device),
                whole_numbers(one.pool_slot, device),
                torch.from_numpy(one.pool_beta).to(device),
            )
        )
    return tuple(levels)


def whole_numbers(values: np.ndarray, device: torch.device) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.int64)).to(device)


def height(degree: int) -> int:
    """Rows of a table for one slot: values at nodes, and the remainder where there is one."""
    return degree + 2 if degree else 1


def packed(x: ChebyshevPiece) -> Tensor:
    """[nodes, rows, P, D] to [rows, nodes and remainder, P, D]."""
    return torch.cat([x.v.transpose(0, 1), x.remainder.unsqueeze(1)], 1) if x.degree else x.v.transpose(0, 1)


def unpacked(table: Tensor, degree: int) -> ChebyshevPiece:
    return ChebyshevPiece(table[:, :-1].transpose(0, 1), table[:, -1]) if degree else point(table[:, 0])
