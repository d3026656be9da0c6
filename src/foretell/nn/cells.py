"""Cells that move when events happen and drift in between, each update after those that it reads: a recurrence in waves.

`cell(t) = c̄ + (c − c̄)·exp(−δ(t−s))`, coordinate by coordinate. A *version* of a cell is what one event makes of it, from the version
before and from embeddings just before the event: every instantiation `m` of a rule proposes a new `c` and a new `c̄`, by six gates of a sum
of matrix products; what they change is pooled and summed; the decay is the harmonic mean of the proposed ones, weighted by
`|c(s) − c̄| + |Δc_m| + |Δc̄_m|`. An embedding is `tanh` of what is deduced and of its own cell then.

In: indices, in the order of the *waves*, and all that does not depend on cells: constant parts of sums, matrices, elapsed times. Out: all
versions. A wave is embeddings that need versions of earlier waves only, and then versions that need such embeddings. Both directions work
on tables that are filled in place. There are thousands of small steps, so a step does only what depends on the one before: on the way back
all slopes are found first, for all steps at once, and the gradients of matrices are left for one product at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from foretell.nn.intensity import softplus
from foretell.nn.pool import Seen, back_from_pools, pooled

SMALLEST_DECAY = 1e-30  # no different from none, and its inverse is a number in float32, too


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


def drifted(c: Tensor, target: Tensor, decay: Tensor, elapsed: Tensor) -> Tensor:
    """`c̄ + (c − c̄)·exp(−δ(t−s))`; `elapsed` [..., 1] in the model's unit."""
    return target + (c - target) * torch.exp(-decay * elapsed)


def cells_in_waves(
    waves: Waves,
    deduced: Tensor,
    gates: Tensor,
    blocks: Tensor,
    gate_blocks: Tensor,
    beta: Tensor,
    elapsed: Tensor,
    elapsed_before: Tensor,
    matrices: Sequence[Tensor],
) -> Tensor:
    """All versions [V, 3, D]: `c`, `c̄`, `δ`; version 0 is zero.

    `deduced` [targets, D] and `gates` [proposals, 6·D] are constant parts of sums; embeddings are multiplied by `blocks` [·, D, D] and
    `gate_blocks` [·, D, 6·D], and `matrices` says by which of them, for the tiles of each step. Gates are in the order input, *minus*
    forget, target-input, *minus* target-forget, candidate, decay: `σ(−x) = 1 − σ(x)` is what is forgotten.
    """
    return _CellsInWaves.apply(  # pyright: ignore[reportReturnType]
        waves, matrices, elapsed, elapsed_before, deduced, gates, blocks, gate_blocks, beta
    )


class _CellsInWaves(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, waves: Waves, matrices: Sequence[Tensor], *given: Tensor) -> Tensor:
        run = _Run(waves, matrices, *given)
        run.ahead()
        found = run.cells
        ctx.run, run.cells = run, found.detach()  # what comes out must not be kept by what it came from
        return found

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return None, None, None, None, *ctx.run.back(grads[0])


class _Run:
    """One pass, there and back."""

    def __init__(
        self,
        waves: Waves,
        matrices: Sequence[Tensor],
        elapsed: Tensor,
        elapsed_before: Tensor,
        deduced: Tensor,
        gates: Tensor,
        blocks: Tensor,
        gate_blocks: Tensor,
        beta: Tensor,
    ) -> None:
        self.waves, self.matrices = waves, matrices
        self.elapsed, self.elapsed_before = elapsed, elapsed_before
        self.blocks, self.gate_blocks, self.beta = blocks, gate_blocks, beta
        dim = self.dim = deduced.shape[1]
        new = deduced.new_zeros
        self.tiny = torch.finfo(deduced.dtype).tiny / torch.finfo(deduced.dtype).eps
        self.sums = torch.cat([deduced, new(1, dim)])
        self.gates = torch.cat([gates, new(1, gates.shape[1])])
        self.table = new(waves.embeddings + 1, dim)  # the last row: what fills up
        self.own = new(waves.embeddings, 2, dim)  # c − c̄ and exp(−δ(t−s)) of each embedding's own cell
        self.cells = new(waves.versions, 3, dim)
        self.earlier = new(waves.versions, 2, dim)  # the same of the version before
        self.now = new(waves.versions, 3, dim)  # just before each update: c(s), c̄, |c(s) − c̄|
        self.mean = new(waves.versions, 2, dim)  # Σ w, Σ w/δ
        self.change = new(waves.proposals, 2, dim)  # Δc, Δc̄
        self.weighed = new(waves.proposals, 2, dim)  # w, w/δ
        self.pooled: dict[int, Seen] = {}  # by step
        self.stages = [step.size for step in waves.steps if isinstance(step, DeductionStage)]
        self.updates = [step.size for step in waves.steps if isinstance(step, CellUpdate)]
        self.proposals = [step.proposals for step in waves.steps if isinstance(step, CellUpdate)]

    def _of_stages(self, *tables: Tensor) -> Iterator[tuple[Tensor, ...]]:
        """Slices of tables of embeddings, stage by stage."""
        return zip(*(table[: self.waves.embeddings].split(self.stages) for table in tables), strict=True)

    def _of_updates(self, *tables: Tensor) -> Iterator[tuple[Tensor, ...]]:
        """Slices of tables of versions, update by update."""
        return zip(*(table[1:].split(self.updates) for table in tables), strict=True)

    def _of_proposals(self, *tables: Tensor) -> Iterator[tuple[Tensor, ...]]:
        return zip(*(table[: self.waves.proposals].split(self.proposals) for table in tables), strict=True)

    # There

    def ahead(self) -> None:
        stages = self._of_stages(self.sums, self.table, self.elapsed, *self.own.unbind(1))
        now, mean = self.now.unbind(1), self.mean.unbind(1)
        updates = self._of_updates(
            self.cells[:, :2],
            self.cells[:, 2],
            self.elapsed_before,
            *self.earlier.unbind(1),
            self.now,
            *now,
            self.mean,
            *mean,
        )
        parts = self._gate_parts(self.gates)
        proposals = self._of_proposals(
            self.gates[:, : 4 * self.dim], *parts, self.change, self.weighed, *self.weighed.unbind(1)
        )
        for number, (step, matrix) in enumerate(zip(self.waves.steps, self.matrices, strict=True)):
            if isinstance(step, DeductionStage):
                if step.products is not None:
                    self._multiply(step.products, matrix, self.blocks, self.sums)
                self._stage(number, step, *next(stages))
            else:
                if step.products is not None:
                    self._multiply(step.products, matrix, self.gate_blocks, self.gates)
                self._update(number, step, next(updates), next(proposals))

    def _gate_parts(self, gates: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """What enters and what is forgotten [·, 2, D], of the cell and of its target; the candidate [·, 1, D]; the decay [·, D]."""
        both = gates[:, : 4 * self.dim].unflatten(1, (2, 2, self.dim))
        candidate, decay = gates[:, 4 * self.dim :].unflatten(1, (2, self.dim)).unbind(1)
        return both[:, :, 0], both[:, :, 1], candidate.unsqueeze(1), decay

    def _multiply(self, products: Products, matrix: Tensor, blocks: Tensor, sums: Tensor) -> None:
        inputs = self.table.index_select(0, products.source).view(matrix.shape[0], -1, self.dim)
        found = torch.bmm(inputs, blocks.index_select(0, matrix))
        sums.index_add_(0, products.target, found.view(-1, sums.shape[1]))

    def _stage(
        self,
        number: int,
        stage: DeductionStage,
        inside: Tensor,
        value: Tensor,
        elapsed: Tensor,
        away: Tensor,
        faded: Tensor,
    ) -> None:
        if stage.pools is not None:
            pools = stage.pools
            beta = self.beta.index_select(0, pools.beta)
            found, self.pooled[number] = pooled(
                self.sums.index_select(0, pools.row), pools.segment, len(pools.head), beta
            )
            inside.index_add_(0, pools.head, found)
        if stage.version is not None:
            c, target, decay = self.cells.index_select(0, stage.version).unbind(1)
            torch.sub(c, target, out=away)
            torch.exp(decay.mul_(elapsed).neg_(), out=faded)
            inside += target.addcmul_(away, faded)
        torch.tanh(inside, out=value)

    def _update(
        self, number: int, update: CellUpdate, versions: tuple[Tensor, ...], proposals: tuple[Tensor, ...]
    ) -> None:
        cell, new_decay, elapsed, away, faded, now, value, target, apart, mean, whole, inverse = versions
        squashed, enter, leave, candidate, decay, change, weighed, weight, over_decay = proposals
        squashed.sigmoid_()
        candidate.tanh_()
        torch.clamp(softplus(decay), min=SMALLEST_DECAY, out=decay)
        torch.index_select(self.cells, 0, update.before, out=now)
        torch.sub(value, target, out=away)
        torch.exp(apart.mul_(elapsed).neg_(), out=faded)
        torch.mul(away, faded, out=apart)
        torch.add(target, apart, out=value)
        cell.copy_(now[:, :2])
        apart.abs_().add_(self.tiny)  # where nothing changes at all, all decays count the same
        seen = _spread(now, update.version)
        torch.mul(enter, candidate, out=change)
        change.addcmul_(leave, seen[:, :2], value=-1.0)
        if update.version is None:
            cell += change
        elif update.single is None:
            cell.index_add_(0, update.version, change)
        else:
            single = update.version.index_select(0, update.single)
            cell.index_add_(0, single, change.index_select(0, update.single))
        if update.pools is not None:
            pools = update.pools
            rows = change.flatten(1).index_select(0, pools.row)
            beta = self.beta.index_select(0, pools.beta)
            found, self.pooled[number] = pooled(rows, pools.segment, len(pools.head), beta)
            cell.index_add_(0, pools.head, found.view(-1, 2, self.dim))
        torch.add(change.abs().sum(1), seen[:, 2], out=weight)
        torch.div(weight, decay, out=over_decay)
        if update.version is None:
            mean.copy_(weighed)
        else:
            mean.index_add_(0, update.version, weighed)
        torch.div(whole, inverse, out=new_decay)

    # Back

    def back(self, grad: Tensor) -> tuple[Tensor, ...]:
        self.to_cells = grad.clone()
        self.to_table, self.to_sums, self.to_gates, self.to_beta = (
            torch.zeros_like(table) for table in (self.table, self.sums, self.gates, self.beta)
        )
        stages = _backwards(
            self._of_stages(
                self.to_table, self.to_sums, 1.0 - self.table * self.table, self._slopes(self.own, self.elapsed)
            )
        )
        updates = _backwards(
            self._of_updates(
                self.to_cells[:, :2],
                self.to_cells[:, 2],
                self.mean[:, 1].reciprocal(),
                self._slopes(self.earlier, self.elapsed_before),
            )
        )
        proposals = _backwards(self._of_proposals(*self._slopes_of_proposals()))
        steps = list(enumerate(zip(self.waves.steps, self.matrices, strict=True)))
        for number, (step, matrix) in reversed(steps):
            if isinstance(step, DeductionStage):
                self._stage_back(number, step, *next(stages))
                if step.products is not None:
                    self._multiply_back(step.products, matrix, self.blocks, self.to_sums)
            else:
                self._update_back(number, step, next(updates), next(proposals))
                if step.products is not None:
                    self._multiply_back(step.products, matrix, self.gate_blocks, self.to_gates)
        return (
            self.to_sums[:-1],
            self.to_gates[:-1],
            self._of_matrices(DeductionStage, self.blocks, self.to_sums),
            self._of_matrices(CellUpdate, self.gate_blocks, self.to_gates),
            self.to_beta,
        )

    def _slopes(self, drift: Tensor, elapsed: Tensor) -> Tensor:
        """Of a drifted cell, by `c`, `c̄` and `δ`: [·, 3, D]."""
        away, faded = drift.unbind(1)
        return torch.stack([faded, 1.0 - faded, -faded * away * elapsed], dim=1)

    def _slopes_of_proposals(self) -> tuple[Tensor, ...]:
        made = self.waves.made
        enter, leave, candidate, decay = self._gate_parts(self.gates[:-1])
        now = self.now.index_select(0, made)[:, :2]
        by_gates = torch.stack([candidate * enter * (1.0 - enter), -now * leave * (1.0 - leave)], dim=2)
        by_candidate = enter * (1.0 - candidate * candidate)
        mean = self.cells[:, 2].index_select(0, made) / decay
        by_weight = 1.0 - mean
        by_decay = mean * self.weighed[:, 0] * (-torch.expm1(-decay) / decay)
        side = self.earlier[:, 0].sign().index_select(0, made)
        sides = torch.stack([side, -side], dim=1)
        to_both, to_last = self.to_gates.split([4 * self.dim, 2 * self.dim], dim=1)
        to_candidate, to_decay = to_last.split(self.dim, dim=1)
        to_both = to_both.unflatten(1, (2, 2, self.dim))
        return (
            by_gates,
            by_candidate,
            leave,
            by_weight,
            by_decay,
            self.change.sign(),
            sides,
            to_both,
            to_candidate,
            to_decay,
        )

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

    def _stage_back(
        self, number: int, stage: DeductionStage, to_value: Tensor, to_inside: Tensor, slope: Tensor, slopes: Tensor
    ) -> None:
        torch.mul(to_value, slope, out=to_inside)
        if stage.version is not None:
            self.to_cells.index_add_(0, stage.version, slopes * to_inside.unsqueeze(1))
        if stage.pools is not None:
            pools = stage.pools
            rows, beta = back_from_pools(self.pooled[number], to_inside.index_select(0, pools.head))
            self.to_sums.index_copy_(0, pools.row, rows)
            self.to_beta.index_add_(0, pools.beta, beta)

    def _update_back(
        self, number: int, update: CellUpdate, versions: tuple[Tensor, ...], proposals: tuple[Tensor, ...]
    ) -> None:
        to_now, to_decay, per_inverse, slopes = versions
        by_gates, by_candidate, leave, by_weight, by_decay, sign, sides, to_both, to_candidate, to_last = proposals
        # δ = Σw / Σ(w/δ_m)
        mean = _spread(to_decay * per_inverse, update.version)
        torch.mul(mean, by_decay, out=to_last)
        weight = mean.mul_(by_weight).unsqueeze(1)
        # what changes, by pools and by weights
        change = to_now.clone() if update.version is None else to_now.index_select(0, update.version)
        if update.pools is not None:
            pools = update.pools
            grads = to_now.flatten(1).index_select(0, pools.head)
            rows, beta = back_from_pools(self.pooled[number], grads)
            change.index_copy_(0, pools.row, rows.view(-1, 2, self.dim))
            self.to_beta.index_add_(0, pools.beta, beta)
        change.addcmul_(weight, sign)
        torch.mul(change.unsqueeze(2), by_gates, out=to_both)
        torch.sum(change * by_candidate, 1, out=to_candidate)
        # Δ = σ_i·z − (1 − σ_f)·now
        change.mul_(leave).neg_().addcmul_(weight, sides)
        if update.version is None:
            to_now += change
        else:
            to_now.index_add_(0, update.version, change)
        before = slopes * to_now[:, :1]
        before[:, 1] += to_now[:, 1]
        self.to_cells.index_add_(0, update.before, before)


def _spread(rows: Tensor, version: Tensor | None) -> Tensor:
    return rows if version is None else rows.index_select(0, version)


def _backwards(rows: Iterator[tuple[Tensor, ...]]) -> Iterator[tuple[Tensor, ...]]:
    return reversed(list(rows))
