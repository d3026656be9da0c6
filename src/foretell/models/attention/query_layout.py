"""How queries of several sequences lie in memory, and how each meets what its own sequence holds.

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

    def each(self, one: Tensor) -> Tensor:
        """What a sequence has, for its queries: [W, R] to something that broadcasts to [., ., R]."""
        ...


@dataclass(frozen=True)
class GridLayout:
    """[W, P]."""

    def times(self, rows: Tensor, matrix: Tensor, plus: Tensor | None = None) -> Tensor:
        # ChebyshevPiece are put side by side, so that no matrix is repeated for them.
        found = rows.movedim(0, 1).flatten(1, 2) @ matrix
        if plus is not None:
            found += plus.unsqueeze(1)
        return found.unflatten(1, (len(rows), -1)).movedim(1, 0)

    def each(self, one: Tensor) -> Tensor:
        return one.unsqueeze(1)


class RunLayout:
    """[1, N]."""

    def __init__(self, sequence: Tensor) -> None:
        """From the sequence of every query, in order: int64 [N]."""
        sequences, self._run, counts = sequence.unique_consecutive(return_inverse=True, return_counts=True)
        self._sequences, self._counts, self._sequence = sequences.tolist(), counts, sequence
        self._first = counts.cumsum(0) - counts
        self._places: dict[int, Tensor] = {}

    def select(self, queries: Tensor) -> RunLayout:
        """Some of the queries, in order: int64 [n]."""
        return RunLayout(self._sequence[queries])

    def times(self, rows: Tensor, matrix: Tensor, plus: Tensor | None = None) -> Tensor:
        nodes = len(rows)
        if len(self._sequences) == 1:
            (sequence,) = self._sequences
            found = rows @ matrix[sequence]
            return found if plus is None else found.add_(plus[sequence])
        flat, place = rows.flatten(0, 2), self._place(nodes) if nodes > 1 else None
        if place is not None:  # all nodes of a sequence come together
            flat = torch.empty_like(flat).index_copy_(0, place, flat)
        parts, matrices = flat.split((nodes * self._counts).tolist()), matrix.unbind(0)
        if plus is None:
            made = [part @ matrices[sequence] for sequence, part in zip(self._sequences, parts, strict=True)]
        else:
            first = plus.unbind(0)
            made = [
                torch.addmm(first[sequence], part, matrices[sequence])
                for sequence, part in zip(self._sequences, parts, strict=True)
            ]
        found = torch.cat(made)
        if place is not None:
            found = found.index_select(0, place)
        return found.view(*rows.shape[:-1], -1)

    def _place(self, nodes: int) -> Tensor:
        """Where each row goes, so that rows lie sequence by sequence, and of each sequence node by node: [nodes · N]."""
        if nodes not in self._places:
            first, count = self._first[self._run], self._counts[self._run]
            within = torch.arange(len(first)) - first
            self._places[nodes] = (nodes * first + within + torch.arange(nodes)[:, None] * count).flatten()
        return self._places[nodes]

    def each(self, one: Tensor) -> Tensor:
        if len(self._sequences) == 1:
            return one[self._sequences[0]].expand(1, 1, -1)
        return one.index_select(0, self._sequence).unsqueeze(0)
