"""How queries of several walks lie in memory, and how each meets what its own walk holds.

On a GPU they are a grid [W, P], and all walks are multiplied at once. On a CPU they lie one after the other, [1, N], walk by walk and
without gaps, and walks are multiplied one after the other: what is a walk's own stays in the cache, and walks need not have as many
queries as each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class Queries(Protocol):
    def times(self, rows: Tensor, matrix: Tensor, plus: Tensor | None = None) -> Tensor:
        """`plus + rows @ matrix` for rows of queries [nodes, ., ., in], and of each walk `plus` [W, out] and its matrix [W, in, out]."""
        ...

    def each(self, one: Tensor) -> Tensor:
        """What a walk has, for its queries: [W, R] to something that broadcasts to [., ., R]."""
        ...


@dataclass(frozen=True)
class Grid:
    """[W, P]."""

    def times(self, rows: Tensor, matrix: Tensor, plus: Tensor | None = None) -> Tensor:
        # ChebyshevPiece are put side by side, so that no matrix is repeated for them.
        found = rows.movedim(0, 1).flatten(1, 2) @ matrix
        if plus is not None:
            found += plus.unsqueeze(1)
        return found.unflatten(1, (len(rows), -1)).movedim(1, 0)

    def each(self, one: Tensor) -> Tensor:
        return one.unsqueeze(1)


class Runs:
    """[1, N]."""

    def __init__(self, walk: Tensor) -> None:
        """From the walk of every query, in order: int64 [N]."""
        walks, self._run, counts = walk.unique_consecutive(return_inverse=True, return_counts=True)
        self._walks, self._counts, self._walk = walks.tolist(), counts, walk
        self._first = counts.cumsum(0) - counts
        self._places: dict[int, Tensor] = {}

    def select(self, queries: Tensor) -> Runs:
        """Some of the queries, in order: int64 [n]."""
        return Runs(self._walk[queries])

    def times(self, rows: Tensor, matrix: Tensor, plus: Tensor | None = None) -> Tensor:
        nodes = len(rows)
        if len(self._walks) == 1:
            (walk,) = self._walks
            found = rows @ matrix[walk]
            return found if plus is None else found.add_(plus[walk])
        flat, place = rows.flatten(0, 2), self._place(nodes) if nodes > 1 else None
        if place is not None:  # all nodes of a walk come together
            flat = torch.empty_like(flat).index_copy_(0, place, flat)
        parts, matrices = flat.split((nodes * self._counts).tolist()), matrix.unbind(0)
        if plus is None:
            made = [part @ matrices[walk] for walk, part in zip(self._walks, parts, strict=True)]
        else:
            first = plus.unbind(0)
            made = [
                torch.addmm(first[walk], part, matrices[walk]) for walk, part in zip(self._walks, parts, strict=True)
            ]
        found = torch.cat(made)
        if place is not None:
            found = found.index_select(0, place)
        return found.view(*rows.shape[:-1], -1)

    def _place(self, nodes: int) -> Tensor:
        """Where each row goes, so that rows lie walk by walk, and of each walk node by node: [nodes · N]."""
        if nodes not in self._places:
            first, count = self._first[self._run], self._counts[self._run]
            within = torch.arange(len(first)) - first
            self._places[nodes] = (nodes * first + within + torch.arange(nodes)[:, None] * count).flatten()
        return self._places[nodes]

    def each(self, one: Tensor) -> Tensor:
        if len(self._walks) == 1:
            return one[self._walks[0]].expand(1, 1, -1)
        return one.index_select(0, self._walk).unsqueeze(0)
