"""Cells that move when events happen and drift in between, each update after those that it reads: a recurrence in waves.

A *version* of a cell is what one event makes of it, from the version before and from embeddings just before the event: every instantiation
of a rule proposes something, by a sum of matrix products. An embedding is a function of what is deduced and of its own cell then. What a
cell is, and what is proposed, is in `gated_cells.py` and `state_cells.py`.

In: indices, in the order of the *waves*, and all that does not depend on cells: constant parts of sums, matrices, elapsed times. Out: all
versions. A wave is embeddings that need versions of earlier waves only, and then versions that need such embeddings. Both directions work
on tables that are filled in place. There are thousands of small steps, so a step does only what depends on the one before: on the way back
all slopes are found first, for all steps at once, and the gradients of matrices are left for one product at the end.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from foretell.nn.pool import Seen, back_from_pools, pooled

Slices = Iterator[tuple[Tensor, ...]]


@dataclass(frozen=True)
class Products:
    """Tiles of embeddings, each with one matrix; their rows are added to targets, those that fill up a tile to one behind the last."""

    source: Tensor  # int64 [T·height]
    target: Tensor  # int64 [T·height]


@dataclass(frozen=True)
class PoolRows:
    """Rows that are pooled: several of one segment."""

    row: Tensor  # int64 [R]
    segment: Tensor  # int64 [R]
    beta: Tensor  # int64 [segments]
    head: Tensor  # int64 [segments]: where the pool goes


@dataclass(frozen=True)
class DeductionStage:
    """Embeddings, which need earlier ones."""

    size: int
    version: Tensor | None  # int64 [size]: of their own cells; None: none has one
    products: Products | None
    pools: PoolRows | None  # of rows of all targets; heads are counted within the stage


@dataclass(frozen=True)
class CellUpdate:
    """Versions, by proposals."""

    size: int
    proposals: int
    before: Tensor  # int64 [size]
    own: (
        Tensor | None
    )  # int64 [size]: embeddings of their own facts then, whose deduced parts they take in; None: they take in none
    version: (
        Tensor | None
    )  # int64 [proposals]: counted within the update; None: each version has one proposal, in this order
    products: Products | None
    single: Tensor | None  # int64: proposals that are pooled with no other, counted within the update; None: all
    pools: PoolRows | None  # of the others; rows and heads are counted within the update


@dataclass(frozen=True)
class Waves:
    """Embeddings, proposals and versions are numbered as they come in the steps; version 0 is none, and in no step."""

    steps: tuple[DeductionStage | CellUpdate, ...]
    embeddings: int
    targets: int  # of deduction: embeddings, and then entries of pools
    proposals: int
    versions: int
    made: Tensor  # int64 [proposals]: the version that each is for
    functor: Tensor  # int64 [embeddings]: among those whose facts are added; 0 where the fact's is not
    made_functor: Tensor  # int64 [versions]


@dataclass(frozen=True)
class WaveTables:
    """All that does not depend on cells. Embeddings are multiplied by blocks; `matrices` says by which, for the tiles of each step."""

    waves: Waves
    matrices: Sequence[Tensor]
    elapsed: Tensor  # [embeddings, 1]: since the version that each reads, in the model's unit
    elapsed_before: Tensor  # [versions, 1]: since the version before
    deduced: Tensor  # [targets, D]: constant parts of sums …
    gates: Tensor  # [proposals, gates]: … and of what is proposed
    blocks: Tensor  # [·, D, D]
    gate_blocks: Tensor  # [·, D, gates]
    beta: Tensor

    def cells(self, run: type[WaveRun], *parameters: Tensor) -> Tensor:
        """All versions [V, parts, size]; `parameters` are those of the kind of cell."""
        learned = self.deduced, self.gates, self.blocks, self.gate_blocks, self.beta, *parameters
        return _CellsInWaves.apply(run, self, *learned)  # pyright: ignore[reportReturnType]


class _CellsInWaves(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, make: type[WaveRun], given: WaveTables, *learned: Tensor) -> Tensor:
        run = make(given, *learned[5:])
        run.ahead()
        found = run.cells
        ctx.run, run.cells = run, found.detach()  # what comes out must not be kept by what it came from
        return found

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return None, None, *ctx.run.back(grads[0])


class WaveRun(ABC):
    """One pass through all waves, there and back; what a cell is, a subclass says."""

    cells: Tensor  # [versions, parts, size]
    to_cells: Tensor  # its gradient

    def __init__(self, given: WaveTables) -> None:
        waves = self.waves = given.waves
        self.matrices, self.elapsed, self.elapsed_before = given.matrices, given.elapsed, given.elapsed_before
        self.blocks, self.gate_blocks, self.beta = (
            one.detach() for one in (given.blocks, given.gate_blocks, given.beta)
        )
        deduced, gates = given.deduced.detach(), given.gates.detach()
        dim = self.dim = deduced.shape[1]
        self.new = deduced.new_zeros
        self.sums = torch.cat([deduced, self.new(1, dim)])
        self.gates = torch.cat([gates, self.new(1, gates.shape[1])])
        self.table = self.new(waves.embeddings + 1, dim)  # the last row: what fills up
        self.pooled: dict[int, Seen] = {}  # by step
        self.stages = [step.size for step in waves.steps if isinstance(step, DeductionStage)]
        self.updates = [step.size for step in waves.steps if isinstance(step, CellUpdate)]
        self.proposals = [step.proposals for step in waves.steps if isinstance(step, CellUpdate)]

    def of_stages(self, *tables: Tensor) -> Slices:
        """Slices of tables of embeddings, stage by stage."""
        return zip(*(table[: self.waves.embeddings].split(self.stages) for table in tables), strict=True)

    def of_updates(self, *tables: Tensor) -> Slices:
        """Slices of tables of versions, update by update."""
        return zip(*(table[1:].split(self.updates) for table in tables), strict=True)

    def of_proposals(self, *tables: Tensor) -> Slices:
        return zip(*(table[: self.waves.proposals].split(self.proposals) for table in tables), strict=True)

    # What a cell is

    @abstractmethod
    def slices(self) -> tuple[Slices, Slices, Slices]:
        """The inputs of `stage` at each stage, and of `update` for the versions and proposals of each update."""

    @abstractmethod
    def stage(self, stage: DeductionStage, rows: tuple[Tensor, ...]) -> None:
        """Embeddings from what is deduced for them, which is known, and from their own cells."""

    @abstractmethod
    def update(
        self, number: int, update: CellUpdate, versions: tuple[Tensor, ...], proposals: tuple[Tensor, ...]
    ) -> None:
        """New versions from what is proposed."""

    @abstractmethod
    def slices_back(self) -> tuple[Slices, Slices, Slices]:
        """What `stage_back` and `update_back` are given; slopes are found here, for all steps at once."""

    @abstractmethod
    def stage_back(self, stage: DeductionStage, rows: tuple[Tensor, ...]) -> Tensor:
        """From the gradient of embeddings to that of their cells, and of what is deduced for them, which is given back."""

    @abstractmethod
    def update_back(
        self, number: int, update: CellUpdate, versions: tuple[Tensor, ...], proposals: tuple[Tensor, ...]
    ) -> None: ...

    def of_parameters(self) -> tuple[Tensor, ...]:
        """Gradients of the parameters of this kind of cell."""
        return ()

    # There

    def ahead(self) -> None:
        stages, updates, proposals = self.slices()
        sums = self.of_stages(self.sums)
        for number, (step, matrix) in enumerate(zip(self.waves.steps, self.matrices, strict=True)):
            if isinstance(step, DeductionStage):
                if step.products is not None:
                    self._multiply(step.products, matrix, self.blocks, self.sums)
                (inside,) = next(sums)
                if step.pools is not None:
                    rows = self.sums.index_select(0, step.pools.row)
                    inside.index_add_(0, step.pools.head, self.pool(number, step.pools, rows))
                self.stage(step, next(stages))
            else:
                if step.products is not None:
                    self._multiply(step.products, matrix, self.gate_blocks, self.gates)
                self.update(number, step, next(updates), next(proposals))

    def add_up(self, number: int, update: CellUpdate, rows: Tensor, into: Tensor) -> None:
        """Add what is proposed [proposals, …] to versions [size, …]: pooled within each `r`, and summed."""
        if update.version is None:
            into += rows
        elif update.single is None:
            into.index_add_(0, update.version, rows)
        else:
            single = update.version.index_select(0, update.single)
            into.index_add_(0, single, rows.index_select(0, update.single))
        if update.pools is not None:
            pools = update.pools
            found = self.pool(number, pools, rows.flatten(1).index_select(0, pools.row))
            into.index_add_(0, pools.head, found.view(-1, *rows.shape[1:]))

    def pool(self, number: int, pools: PoolRows, rows: Tensor) -> Tensor:
        """Rows of a step's pools, which are remembered for the way back."""
        beta = self.beta.index_select(0, pools.beta)
        found, self.pooled[number] = pooled(rows, pools.segment, len(pools.head), beta)
        return found

    def _multiply(self, products: Products, matrix: Tensor, blocks: Tensor, sums: Tensor) -> None:
        inputs = self.table.index_select(0, products.source).view(matrix.shape[0], -1, self.dim)
        found = torch.bmm(inputs, blocks.index_select(0, matrix))
        sums.index_add_(0, products.target, found.view(-1, sums.shape[1]))

    # Back

    def back(self, grad: Tensor) -> tuple[Tensor, ...]:
        self.to_cells = grad.clone()
        self.to_table, self.to_sums, self.to_gates, self.to_beta = (
            torch.zeros_like(table) for table in (self.table, self.sums, self.gates, self.beta)
        )
        stages, updates, proposals = (reversed(list(one)) for one in self.slices_back())
        steps = list(enumerate(zip(self.waves.steps, self.matrices, strict=True)))
        for number, (step, matrix) in reversed(steps):
            if isinstance(step, DeductionStage):
                to_inside = self.stage_back(step, next(stages))
                if step.pools is not None:
                    grads = self.pool_back(number, step.pools, to_inside.index_select(0, step.pools.head))
                    self.to_sums.index_copy_(0, step.pools.row, grads)
                if step.products is not None:
                    self._multiply_back(step.products, matrix, self.blocks, self.to_sums)
            else:
                self.update_back(number, step, next(updates), next(proposals))
                if step.products is not None:
                    self._multiply_back(step.products, matrix, self.gate_blocks, self.to_gates)
        return (
            self.to_sums[:-1],
            self.to_gates[:-1],
            self._of_matrices(DeductionStage, self.blocks, self.to_sums),
            self._of_matrices(CellUpdate, self.gate_blocks, self.to_gates),
            self.to_beta,
            *self.of_parameters(),
        )

    def add_up_back(self, number: int, update: CellUpdate, grads: Tensor) -> Tensor:
        """From the gradient of versions to that of what is proposed."""
        rows = grads.clone() if update.version is None else grads.index_select(0, update.version)
        if update.pools is not None:
            pools = update.pools
            found = self.pool_back(number, pools, grads.flatten(1).index_select(0, pools.head))
            rows.index_copy_(0, pools.row, found.view(-1, *grads.shape[1:]))
        return rows

    def pool_back(self, number: int, pools: PoolRows, grads: Tensor) -> Tensor:
        """From the gradient of a step's pools to that of their rows."""
        rows, beta = back_from_pools(self.pooled[number], grads)
        self.to_beta.index_add_(0, pools.beta, beta)
        return rows

    def _multiply_back(self, products: Products, matrix: Tensor, blocks: Tensor, to_sums: Tensor) -> None:
        grads = to_sums.index_select(0, products.target).view(matrix.shape[0], -1, to_sums.shape[1])
        found = torch.bmm(grads, blocks.index_select(0, matrix).transpose(1, 2))
        self.to_table.index_add_(0, products.source, found.view(-1, self.dim))

    def _of_matrices(self, kind: type, blocks: Tensor, to_sums: Tensor) -> Tensor:
        """The gradient of all matrices, by one product for each height of tiles."""
        found = torch.zeros_like(blocks)
        by_height: dict[int, list[tuple[Products, Tensor]]] = {}
        for step, matrix in zip(self.waves.steps, self.matrices, strict=True):
            if isinstance(step, kind) and step.products is not None:
                height = step.products.source.shape[0] // matrix.shape[0]
                by_height.setdefault(height, []).append((step.products, matrix))
        for height, some in by_height.items():
            source, target = (torch.cat([getattr(one, name) for one, _ in some]) for name in ("source", "target"))
            inputs = self.table.index_select(0, source).view(-1, height, self.dim)
            grads = to_sums.index_select(0, target).view(-1, height, to_sums.shape[1])
            found.index_add_(0, torch.cat([matrix for _, matrix in some]), torch.bmm(inputs.transpose(1, 2), grads))
        return found


def spread(rows: Tensor, version: Tensor | None) -> Tensor:
    """Rows of versions, for each of their proposals."""
    return rows if version is None else rows.index_select(0, version)
