"""Networks in which facts have cells, of any kind. They prepare the parameters for a recurrence in waves (`nn/cells.py`).

In it, embeddings of all dimensions are rows of one table, as wide as the largest dimension. Components beyond a fact's own
dimension are zero.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from foretell.models.rules.rule_network import Embeddings, RuleNetwork
from foretell.nn.cells import CellUpdate, WaveRun, WaveTables
from foretell.nn.pool import at_least_one
from foretell.plan.cell_plan import CellPlan
from foretell.plan.parameters import ParameterBook, ParameterFamily
from foretell.plan.wave_rows import Kind, MarkedRows, RowsByName
from foretell.plan.waves import Recurrence

_Found = tuple[Tensor, Tensor, list[Tensor]]


@dataclass(frozen=True)
class CellClock:
    """The calendar's inputs to cells: waves at the event of each version [versions, features], and `Bᵀ` of each functor."""

    waves: Tensor
    matrices: tuple[Tensor, ...]


class CellNetwork(RuleNetwork):
    run: ClassVar[type[WaveRun]]  # computes the cells
    cell_shape: tuple[int, int]  # parts and size of a version
    gate_rows: int  # the size of a version's proposal

    def __init__(self, book: ParameterBook, seed: int) -> None:
        super().__init__(book, seed)
        self.width = max(book.layout.dims, default=0)
        self._rows: dict[int, tuple[int, Tensor]] = {}  # per family, with its number of names at that time
        self.grow(torch.float32, torch.device("cpu"))

    @abstractmethod
    def forward(self, plan: CellPlan, cells: Tensor, times: Tensor, scale: float) -> Embeddings:
        """Return embeddings of a plan's slots. `times` of its points are float64; `cells` are [sequences, most, parts, size]."""

    @abstractmethod
    def gates(self, whole: Tensor) -> Tensor:
        """Return matrices `G` [names, out, in] in the row order of the cells: [names, gate_rows, in]."""

    def cell_parameters(self) -> tuple[Tensor, ...]:
        """Return parameters of the cells that are not parameters of rules."""
        return ()

    def cells(
        self,
        recurrence: Recurrence,
        elapsed: Tensor,
        elapsed_before: Tensor,
        numbers: Tensor | None = None,
        clock: CellClock | None = None,
    ) -> Tensor:
        """Return all versions of all cells [sequences, most, parts, size]. `elapsed` is up to each row's event, in the model's unit.

        `numbers` [points, columns] are those of events, if some have features.
        """
        waves = recurrence.waves
        vectors, blocks = self._assembled(recurrence.vectors.kinds, self._padded, self.width, elapsed)
        gates, gate_blocks = self._assembled(recurrence.gates.kinds, self.gates, self.gate_rows, elapsed)
        of_vectors, of_gates, matrices = self._rows_of(recurrence)
        deduced = vectors.new_zeros(waves.targets, self.width)
        deduced = deduced.index_add(0, recurrence.target, vectors.index_select(0, of_vectors))
        proposed = gates.index_select(0, of_gates)
        if recurrence.marked is not None:
            assert numbers is not None, "a batch has the features of its events"
            more = self._by_numbers(recurrence.marked, gate_blocks, numbers.index_select(0, recurrence.made))
            proposed = proposed.index_add(0, recurrence.marked.row, more)
        if clock is not None:
            proposed = proposed + self._by_clock(clock, waves.made_functor).index_select(0, waves.made)
        found = WaveTables(
            waves,
            matrices,
            elapsed.unsqueeze(-1),
            elapsed_before.unsqueeze(-1),
            deduced,
            proposed,
            blocks,
            gate_blocks,
            at_least_one(self.stacks["beta_beta"]),
        ).cells(self.run, *self.cell_parameters())
        return found.index_select(0, recurrence.place.flatten()).view(*recurrence.place.shape, *self.cell_shape)

    def _by_numbers(self, marked: MarkedRows, gate_blocks: Tensor, numbers: Tensor) -> Tensor:
        """Return the terms of numbers of events [versions, columns] in proposals: a block of `G` times `W [1; x; missing]`."""
        block, version = _rows(marked.block, True), marked.head
        found, first = [], 0
        for functor, count in marked.counts:
            mine = slice(first, first + count)
            W = self.features.W[functor]
            some, which = block[mine].unique(return_inverse=True)
            folded = F.pad(W, (0, 0, 0, self.width - len(W))).T @ gate_blocks.index_select(0, some)
            given = self.features.inputs_of(functor, numbers.index_select(0, version[mine]))
            found.append(torch.bmm(given.unsqueeze(1), folded.index_select(0, which)).squeeze(1))
            first += count
        return torch.cat(found)

    def _by_clock(self, clock: CellClock, functor: Tensor) -> Tensor:
        """Return the calendar's term in all proposals for each version: [versions, gate_rows]."""
        found = clock.waves.new_zeros(len(functor), self.gate_rows)
        for number, matrix in enumerate(clock.matrices):
            mine = (functor == number).nonzero().squeeze(1)
            rows = clock.waves.index_select(0, mine) @ self.gates(matrix.T.unsqueeze(0))[0].T
            found = found.index_copy(0, mine, rows)
        return found

    def _padded(self, whole: Tensor) -> Tensor:
        """Return matrices padded with zero rows to the largest dimension."""
        return F.pad(whole, (0, 0, 0, self.width - whole.shape[1]))

    def _rows_of(self, recurrence: Recurrence) -> _Found:
        """Return rows of constant parts and of the matrices of each step; cached until there are new names."""
        used = (recurrence.vectors, recurrence.gates)
        key = tuple(len(kind.family.names) for one in used for kind in one.kinds)
        found: _Found | None = recurrence.rows.get(key)
        if found is None:
            blocks = _rows(recurrence.blocks, True).split(list(recurrence.block_tiles))
            gate_blocks = _rows(recurrence.gate_blocks, True).split(list(recurrence.gate_tiles))
            matrices = [
                other if isinstance(step, CellUpdate) else one
                for step, one, other in zip(recurrence.waves.steps, blocks, gate_blocks, strict=True)
            ]
            found = _rows(recurrence.vectors, False), _rows(recurrence.gates, False), matrices
            recurrence.rows.clear()
            recurrence.rows[key] = found
        return found

    def _assembled(
        self, kinds: Sequence[Kind], made: Callable[[Tensor], Tensor], rows: int, like: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return constant columns [·, rows], and blocks of columns [·, width, rows], of all names of all kinds."""
        width = self.width
        vectors, blocks = [like.new_zeros(0, rows)], [like.new_zeros(0, width, rows)]
        for kind in kinds:
            whole = made(self._stacked(kind.family))
            vectors.append(whole[..., 0])
            if kind.dims:
                parts = whole[..., 1:].split(list(kind.dims), dim=-1)
                cut = torch.stack([F.pad(part, (0, width - part.shape[-1])) for part in parts], dim=1)
                blocks.append(cut.flatten(0, 1).transpose(1, 2))
        return torch.cat(vectors), torch.cat(blocks)

    def _stacked(self, family: ParameterFamily) -> Tensor:
        """Return all matrices of a family: [names, out, in]."""
        known, rows = self._rows.get(family.place, (-1, None))
        if known != len(family.names) or rows is None or rows.device != self.stacks["beta_beta"].device:
            rows = torch.tensor(family.rows, device=self.stacks["beta_beta"].device).view(len(family.names), -1)
            self._rows[family.place] = len(family.names), rows
        letter = "G" if family.stem == "add" else "W"
        found = [
            self.stack(f"{stack.key}_{letter}").index_select(0, rows[:, place])
            for place, stack in enumerate(family.stacks)
        ]
        return found[0] if letter == "G" else torch.cat([found[0].unsqueeze(-1), *found[1:]], dim=-1)


def _rows(named: RowsByName, blocks: bool) -> Tensor:
    """Return the positions of parameters in the tensors of `_assembled`."""
    each = [len(kind.dims) if blocks else 1 for kind in named.kinds]
    counts = [len(kind.family.names) * many for kind, many in zip(named.kinds, each, strict=True)]
    device = named.kind.device
    many = torch.tensor(each, dtype=torch.int64, device=device)
    start = torch.tensor([0, *counts], dtype=torch.int64, device=device).cumsum(0)
    return start[named.kind] + named.name * many[named.kind] + named.condition
