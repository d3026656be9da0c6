"""The memory layout of queries of several sequences, and their products with the tables of these sequences.

On a GPU queries are a grid [W, P], and all sequences are multiplied at once. On a CPU they are [1, N], sorted by sequence and without
gaps, and sequences are multiplied one after the other. Then the tables of a sequence stay in the cache, and sequences may have different
numbers of queries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class QueryLayout(Protocol):
    def times(self, rows: Tensor, matrix: Tensor, plus: Tensor | None = None) -> Tensor:
        """Return `plus + rows @ matrix` for rows of queries [nodes, ., ., in]; per sequence, `plus` is [W, out], `matrix` [W, in, out]."""
        ...

    def meet(self, tables: Tensor, vector: Tensor) -> Tensor:
        """Return `tables @ vector`, [W, …], from [W, …, D] and [D]; 0 for sequences without queries."""
        ...

    def weigh(self, weights: Tensor, values: Tensor) -> Tensor:
        """Return `weights @ values` per head, [nodes, ., ., H, out], from [nodes, ., ., H, R] and [W, H, R, out]."""
        ...

    def each(self, one: Tensor) -> Tensor:
        """Return values of sequences, [W, R], for each of their queries, as a tensor that broadcasts to [., ., R]."""
        ...


@dataclass(frozen=True)
class GridLayout:
    """Queries as a grid: [W, P]."""

    def times(self, rows: Tensor, matrix: Tensor, plus: Tensor | None = None) -> Tensor:
        # Nodes are put side by side, so that no matrix is repeated for each node.
        found = rows.movedim(0, 1).flatten(1, 2) @ matrix
        if plus is not None:
            found += plus.unsqueeze(1)
        return found.unflatten(1, (len(rows), -1)).movedim(1, 0)

    def meet(self, tables: Tensor, vector: Tensor) -> Tensor:
        return tables @ vector

    def weigh(self, weights: Tensor, values: Tensor) -> Tensor:
        found = weights.permute(1, 3, 0, 2, 4).flatten(2, 3) @ values  # [W, H, nodes · P, out]
        return found.unflatten(2, (len(weights), -1)).permute(2, 0, 3, 1, 4)

    def each(self, one: Tensor) -> Tensor:
        return one.unsqueeze(1)


class RunLayout:
    """Queries sorted by sequence: [1, N]."""

    def __init__(self, sequence: Tensor) -> None:
        """Build the layout from the sequence of every query, sorted: int64 [N]."""
        sequences, counts = sequence.unique_consecutive(return_counts=True)
        self._sequences, self._counts, self._sequence = sequences.tolist(), counts.tolist(), sequence

    def select(self, queries: Tensor) -> RunLayout:
        """Return the layout of some of the queries, in order: int64 [n]."""
        return RunLayout(self._sequence[queries])

    def times(self, rows: Tensor, matrix: Tensor, plus: Tensor | None = None) -> Tensor:
        nodes = len(rows)
        made = []
        for sequence, part in zip(self._sequences, rows.split(self._counts, dim=2), strict=True):
            flat = part.reshape(-1, rows.shape[-1])
            found = flat @ matrix[sequence] if plus is None else torch.addmm(plus[sequence], flat, matrix[sequence])
            made.append(found.view(nodes, -1, found.shape[-1]))
        return (made[0] if len(made) == 1 else torch.cat(made, dim=1)).unsqueeze(1)

    def meet(self, tables: Tensor, vector: Tensor) -> Tensor:
        found = tables.new_zeros(tables.shape[:-1])
        for sequence in self._sequences:
            torch.matmul(tables[sequence], vector, out=found[sequence])
        return found

    def weigh(self, weights: Tensor, values: Tensor) -> Tensor:
        nodes = len(weights)
        made = []
        for sequence, part in zip(self._sequences, weights.split(self._counts, dim=2), strict=True):
            by_head = part.reshape(-1, *part.shape[3:]).transpose(0, 1)  # [H, nodes · n, R]
            made.append((by_head @ values[sequence]).unflatten(1, (nodes, -1)))
        found = made[0] if len(made) == 1 else torch.cat(made, dim=2)
        return found.permute(1, 2, 0, 3).unsqueeze(1)

    def each(self, one: Tensor) -> Tensor:
        if len(self._sequences) == 1:
            return one[self._sequences[0]].expand(1, 1, -1)
        return one.index_select(0, self._sequence).unsqueeze(0)
