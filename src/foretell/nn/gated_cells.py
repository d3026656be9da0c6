"""The cell of NDTT, in waves: `cell(t) = c̄ + (c − c̄)·exp(−δ(t−s))`, element by element.

Every instantiation `m` of a rule proposes a new `c` and a new `c̄`, by six gates of a sum of matrix products. The proposed changes are
pooled and summed. The decay is the harmonic mean of the proposed ones, weighted by `|c(s) − c̄| + |Δc_m| + |Δc̄_m|`. An embedding is the
`tanh` of its deduced part plus its drifted cell. The order of the gates is input, *minus* forget, target-input, *minus* target-forget,
candidate, decay: the sign turns a forget gate into the share that is forgotten, `σ(−x) = 1 − σ(x)`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from foretell.nn.cells import CellUpdate, DeductionStage, Slices, WaveRun, WaveTables, spread
from foretell.nn.intensity import softplus

SMALLEST_DECAY = 1e-30  # has the same effect as 0, and its inverse is finite also in float32


def drifted(c: Tensor, target: Tensor, decay: Tensor, elapsed: Tensor) -> Tensor:
    """Return `c̄ + (c − c̄)·exp(−δ(t−s))`; `elapsed` [..., 1] in the model's unit."""
    return target + (c - target) * torch.exp(-decay * elapsed)


class GatedCells(WaveRun):
    """A pass for versions [V, 3, D]: `c`, `c̄`, `δ`; version 0 is zero."""

    def __init__(self, given: WaveTables) -> None:
        super().__init__(given)
        waves, dim, new = self.waves, self.dim, self.new
        self.tiny = torch.finfo(self.sums.dtype).tiny / torch.finfo(self.sums.dtype).eps
        self.own = new(waves.embeddings, 2, dim)  # c − c̄ and exp(−δ(t−s)) of each embedding's own cell
        self.cells = new(waves.versions, 3, dim)
        self.earlier = new(waves.versions, 2, dim)  # likewise for the version before each update
        self.now = new(waves.versions, 3, dim)  # just before each update: c(s), c̄, |c(s) − c̄|
        self.mean = new(waves.versions, 2, dim)  # Σ w, Σ w/δ
        self.change = new(waves.proposals, 2, dim)  # Δc, Δc̄
        self.weighed = new(waves.proposals, 2, dim)  # w, w/δ

    # Forwards

    def slices(self) -> tuple[Slices, Slices, Slices]:
        stages = self.of_stages(self.sums, self.table, self.elapsed, *self.own.unbind(1))
        now, mean = self.now.unbind(1), self.mean.unbind(1)
        updates = self.of_updates(
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
        proposals = self.of_proposals(
            self.gates[:, : 4 * self.dim], *parts, self.change, self.weighed, *self.weighed.unbind(1)
        )
        return stages, updates, proposals

    def _gate_parts(self, gates: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the input and the forget gates ([·, 2, D] each, for cell and target), the candidate [·, 1, D] and the decay [·, D]."""
        both = gates[:, : 4 * self.dim].unflatten(1, (2, 2, self.dim))
        candidate, decay = gates[:, 4 * self.dim :].unflatten(1, (2, self.dim)).unbind(1)
        return both[:, :, 0], both[:, :, 1], candidate.unsqueeze(1), decay

    def stage(self, stage: DeductionStage, rows: tuple[Tensor, ...]) -> None:
        inside, value, elapsed, away, faded = rows
        if stage.version is not None:
            c, target, decay = self.cells.index_select(0, stage.version).unbind(1)
            torch.sub(c, target, out=away)
            torch.exp(decay.mul_(elapsed).neg_(), out=faded)
            inside += target.addcmul_(away, faded)
        torch.tanh(inside, out=value)

    def update(
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
        apart.abs_().add_(self.tiny)  # if nothing changes at all, all decays have equal weights
        seen = spread(now, update.version)
        torch.mul(enter, candidate, out=change)
        change.addcmul_(leave, seen[:, :2], value=-1.0)
        self.add_up(number, update, change, cell)
        torch.add(change.abs().sum(1), seen[:, 2], out=weight)
        torch.div(weight, decay, out=over_decay)
        if update.version is None:
            mean.copy_(weighed)
        else:
            mean.index_add_(0, update.version, weighed)
        torch.div(whole, inverse, out=new_decay)

    # Backwards

    def slices_back(self) -> tuple[Slices, Slices, Slices]:
        own, before = self._slopes(self.own, self.elapsed), self._slopes(self.earlier, self.elapsed_before)
        per_inverse = self.mean[:, 1].reciprocal()
        return (
            self.of_stages(self.to_table, self.to_sums, 1.0 - self.table * self.table, own),
            self.of_updates(self.to_cells[:, :2], self.to_cells[:, 2], per_inverse, before),
            self.of_proposals(*self._slopes_of_proposals()),
        )

    def _slopes(self, drift: Tensor, elapsed: Tensor) -> Tensor:
        """Return the derivatives of a drifted cell by `c`, `c̄` and `δ`: [·, 3, D]."""
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

    def stage_back(self, stage: DeductionStage, rows: tuple[Tensor, ...]) -> Tensor:
        to_value, to_inside, slope, slopes = rows
        torch.mul(to_value, slope, out=to_inside)
        if stage.version is not None:
            self.to_cells.index_add_(0, stage.version, slopes * to_inside.unsqueeze(1))
        return to_inside

    def update_back(
        self, number: int, update: CellUpdate, versions: tuple[Tensor, ...], proposals: tuple[Tensor, ...]
    ) -> None:
        to_now, to_decay, per_inverse, slopes = versions
        by_gates, by_candidate, leave, by_weight, by_decay, sign, sides, to_both, to_candidate, to_last = proposals
        # δ = Σw / Σ(w/δ_m)
        mean = spread(to_decay * per_inverse, update.version)
        torch.mul(mean, by_decay, out=to_last)
        weight = mean.mul_(by_weight).unsqueeze(1)
        # gradients of the changes, through pools and weights
        change = self.add_up_back(number, update, to_now)
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
