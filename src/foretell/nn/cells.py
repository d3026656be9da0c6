"""Cells that are updated by events and drift in between, computed as a recurrence in waves: each update comes after its inputs.

A *version* of a cell is its state after one event, computed from the version before and from embeddings just before the event. Every
instantiation of a rule makes a proposal, by a sum of matrix products. An embedding is a function of the deduced part and of the drifted
cell. The equations of cells and of proposals are in `gated_cells.py` and `state_cells.py`.

Inputs are indices in the order of the *waves*, and everything that does not depend on cells: constant parts of sums, matrices, elapsed
times. The output is all versions. A wave has embeddings that need only versions of earlier waves, and then versions that need such
embeddings. Both passes work on preallocated tables. There are thousands of small steps, so a step does only what depends on the step
before: in the backward pass, slopes are computed first for all steps at once, and gradients of matrices last, in one product.
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
    """Products of tiles of embeddings with one matrix per tile, added to targets; rows of padding are added to an extra last target."""

    source: Tensor  # int64 [T·height]
    target: Tensor  # int64 [T·height]


@dataclass(frozen=True)
class PoolRows:
    """Rows that are pooled, several per segment."""

    row: Tensor  # int64 [R]
    segment: Tensor  # int64 [R]
    beta: Tensor  # int64 [segments]
    head: Tensor  # int64 [segments]: the target of the pool


@dataclass(frozen=True)
class DeductionStage:
    """Embeddings that depend only on earlier ones."""

    size: int
    version: Tensor | None  # int64 [size]: the versions of their own cells; None: no embedding has a cell
    products: Products | None
    pools: PoolRows | None  # pools of rows of all targets; heads are numbered within the stage


@dataclass(frozen=True)
class CellUpdate:
    """New versions, computed from proposals."""

    size: int
    proposals: int
    before: Tensor  # int64 [size]
    own: (
        Tensor | None
    )  # int64 [size]: embeddings of the same facts, whose deduced parts are inputs; None: there are no such inputs
    version: Tensor | None  # int64 [proposals]: numbered within the update; None: one proposal per version, in order
    products: Products | None
    single: Tensor | None  # int64: proposals that are not pooled with others, numbered within the update; None: all
    pools: PoolRows | None  # pools of the other proposals; rows and heads are numbered within the update


@dataclass(frozen=True)
class Waves:
    """All steps of the recurrence. Embeddings, proposals and versions are numbered in the order of the steps; version 0 means none."""

    steps: tuple[DeductionStage | CellUpdate, ...]
    embeddings: int
    targets: int  # targets of deductions: embeddings, followed by entries of pools
    proposals: int
    versions: int
    made: Tensor  # int64 [proposals]: the version of each proposal
    functor: Tensor  # int64 [embeddings]: position of the functor among those whose facts are added; 0 for others
    made_functor: Tensor  # int64 [versions]


@dataclass(frozen=True)
class WaveTables:
    """All inputs that do not depend on cells. Embeddings are multiplied by `blocks`; `matrices` has the block of each tile, per step."""

    waves: Waves
    matrices: Sequence[Tensor]
    elapsed: Tensor  # [embeddings, 1]: time since the version that each embedding reads, in the model's unit
    elapsed_before: Tensor  # [versions, 1]: time since the version before
    deduced: Tensor  # [targets, D]: constant parts of the sums of deductions
    gates: Tensor  # [proposals, gates]: constant parts of the sums of proposals
    blocks: Tensor  # [·, D, D]
    gate_blocks: Tensor  # [·, D, gates]
    beta: Tensor

    def cells(self, run: type[WaveRun], *parameters: Tensor) -> Tensor:
        """Return all versions [V, parts, size]; `parameters` are those of the kind of cell."""
        learned = self.deduced, self.gates, self.blocks, self.gate_blocks, self.beta, *parameters
        return _CellsInWaves.apply(run, self, *learned)  # pyright: ignore[reportReturnType]


class _CellsInWaves(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, make: type[WaveRun], given: WaveTables, *learned: Tensor) -> Tensor:
        run = make(given, *learned[5:])
        run.ahead()
        found = run.cells
        ctx.run, run.cells = run, found.detach()  # the output must not be referenced by the object that made it
        return found

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return None, None, *ctx.run.back(grads[0])


class WaveRun(ABC):
    """One pass through all waves, forwards and backwards; subclasses have the equations of a kind of cell."""

    cells: Tensor  # [versions, parts, size]
    to_cells: Tensor  # the gradient of `cells`

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
        self.table = self.new(waves.embeddings + 1, dim)  # the last row is padding
        self.pooled: dict[int, Seen] = {}  # saved pools, by step
        self.stages = [step.size for step in waves.steps if isinstance(step, DeductionStage)]
        self.updates = [step.size for step in waves.steps if isinstance(step, CellUpdate)]
        self.proposals = [step.proposals for step in waves.steps if isinstance(step, CellUpdate)]

    def of_stages(self, *tables: Tensor) -> Slices:
        """Split tables of embeddings into slices, stage by stage."""
        return zip(*(table[: self.waves.embeddings].split(self.stages) for table in tables), strict=True)

    def of_updates(self, *tables: Tensor) -> Slices:
        """Split tables of versions into slices, update by update."""
        return zip(*(table[1:].split(self.updates) for table in tables), strict=True)

    def of_proposals(self, *tables: Tensor) -> Slices:
        return zip(*(table[: self.waves.proposals].split(self.proposals) for table in tables), strict=True)

    # The equations of a kind of cell

    @abstractmethod
    def slices(self) -> tuple[Slices, Slices, Slices]:
        """Return the inputs of `stage` for each stage, and of `update` for the versions and the proposals of each update."""

    @abstractmethod
    def stage(self, stage: DeductionStage, rows: tuple[Tensor, ...]) -> None:
        """Compute embeddings from their deduced parts, which are complete, and from their own cells."""

    @abstractmethod
    def update(
        self, number: int, update: CellUpdate, versions: tuple[Tensor, ...], proposals: tuple[Tensor, ...]
    ) -> None:
        """Compute new versions from the proposals."""

    @abstractmethod
    def slices_back(self) -> tuple[Slices, Slices, Slices]:
        """Return the inputs of `stage_back` and `update_back`; slopes are computed here for all steps at once."""

    @abstractmethod
    def stage_back(self, stage: DeductionStage, rows: tuple[Tensor, ...]) -> Tensor:
        """Compute the gradient of cells from that of embeddings; return the gradient of the deduced parts."""

    @abstractmethod
    def update_back(
        self, number: int, update: CellUpdate, versions: tuple[Tensor, ...], proposals: tuple[Tensor, ...]
    ) -> None: ...

    def of_parameters(self) -> tuple[Tensor, ...]:
        """Return the gradients of the parameters of this kind of cell."""
        return ()

    # Forwards

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
        """Add proposals [proposals, …] to versions [size, …]: pooled within each `r`, and summed over `r`."""
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
        """Pool the rows of a step, and save what the backward pass needs."""
        beta = self.beta.index_select(0, pools.beta)
        found, self.pooled[number] = pooled(rows, pools.segment, len(pools.head), beta)
        return found

    def _multiply(self, products: Products, matrix: Tensor, blocks: Tensor, sums: Tensor) -> None:
        inputs = self.table.index_select(0, products.source).view(matrix.shape[0], -1, self.dim)
        found = torch.bmm(inputs, blocks.index_select(0, matrix))
        sums.index_add_(0, products.target, found.view(-1, sums.shape[1]))

    # Backwards

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
        """Return the gradient of proposals from that of versions."""
        rows = grads.clone() if update.version is None else grads.index_select(0, update.version)
        if update.pools is not None:
            pools = update.pools
            found = self.pool_back(number, pools, grads.flatten(1).index_select(0, pools.head))
            rows.index_copy_(0, pools.row, found.view(-1, *grads.shape[1:]))
        return rows

    def pool_back(self, number: int, pools: PoolRows, grads: Tensor) -> Tensor:
        """Return the gradient of rows from that of their pools."""
        rows, beta = back_from_pools(self.pooled[number], grads)
        self.to_beta.index_add_(0, pools.beta, beta)
        return rows

    def _multiply_back(self, products: Products, matrix: Tensor, blocks: Tensor, to_sums: Tensor) -> None:
        grads = to_sums.index_select(0, products.target).view(matrix.shape[0], -1, to_sums.shape[1])
        found = torch.bmm(grads, blocks.index_select(0, matrix).transpose(1, 2))
        self.to_table.index_add_(0, products.source, found.view(-1, self.dim))

    def _of_matrices(self, kind: type, blocks: Tensor, to_sums: Tensor) -> Tensor:
        """Return the gradient of all matrices, with one product for each height of tiles."""
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
    """Repeat rows of versions for each of their proposals."""
    return rows if version is None else rows.index_select(0, version)
