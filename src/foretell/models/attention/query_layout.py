"""The memory layout of queries of several sequences, and their products with the tables of their sequences.

On a GPU they are a grid [W, P], and all sequences are multiplied at once. On a CPU they lie one after the other, [1, N], by sequence and
without gaps, and sequences are multiplied one after the other: what is a sequence's own stays in the cache, and sequences need not have as
many queries as each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class QueryLayout(Protocol):
    def times(self, rows: Tensor, matrix: Tensor, plus: Tensor | None = None) -> Tensor:
        """`plus + rows @ matrix` for rows of queries [nodes, ., ., in], with `plus` [W, out] and a matrix [W, in, out] per sequence."""
        ...

    def meet(self, tables: Tensor, vector: Tensor) -> Tensor:
        """`tables @ vector` [W, …, D] and [D], for sequences with queries; 0 for the others: [W, …]."""
        ...

    def weigh(self, weights: Tensor, values: Tensor) -> Tensor:
        """`weights @ values` head by head: [nodes, ., ., H, R] and [W, H, R, out] to [nodes, ., ., H, out]."""
        ...

    def each(self, one: Tensor) -> Tensor:
        """What a sequence has, for its queries: [W, R] to something that broadcasts to [., ., R]."""
        ...


@dataclass(frozen=True)
class GridLayout:
    """[W, P]."""

    def times(self, rows: Tensor, matrix: Tensor, plus: Tensor | None = None) -> Tensor:
        # Nodes are put side by side, so that no matrix is repeated for them.
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
    """[1, N]."""

    def __init__(self, sequence: Tensor) -> None:
        """From the sequence of every query, in order: int64 [N]."""
        sequences, counts = sequence.unique_consecutive(return_counts=True)
        self._sequences, self._counts, self._sequence = sequences.tolist(), counts.tolist(), sequence

    def select(self, queries: Tensor) -> RunLayout:
        """Some of the queries, in order: int64 [n]."""
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
