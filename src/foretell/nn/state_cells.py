"""The state-space cell of S2-NDTT, in waves: layers of complex states, which decay and rotate between additions and jump at them.

With `u_0` the deduced part of the fact, in layer `ℓ` of `L`:

    x_ℓ(t) = g (x_ℓ(s+) + b) − b,   g = exp(Λ_ℓ Δ_ℓ (t − s)),   b = B_ℓ u_{ℓ−1}(t)
    u_ℓ = u_{ℓ−1} + GELU(2 Re(C_ℓ x_ℓ)),   without GELU for ℓ = L

and the embedding is `tanh(u_L)`. Instantiations propose jumps of all `x_ℓ` and new steps, `Δ_ℓ = softplus(bias_ℓ + …)`. A fact without a
cell has `x = 0` and `Δ = 0`, so that `u_L = u_0`. Gradients of complex numbers are `∂/∂Re + i ∂/∂Im`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from foretell.nn.cells import CellUpdate, DeductionStage, Slices, WaveRun, WaveTables
from foretell.nn.intensity import softplus


@dataclass(frozen=True)
class SystemParameters:
    """Parameters of all functors whose facts are added, padded to one dimension.

    A complex number in `B` and `C` is a pair of rows or columns.
    """

    decay: Tensor  # [F, L, P]
    frequency: Tensor  # [F, L, P]
    B: Tensor  # [F, L, 2P, D]
    C: Tensor  # [F, L, D, 2P]: twice the real part, minus twice the imaginary part
    bias: Tensor  # [F, L, P]: of steps


class StateCells(WaveRun):
    """A pass for versions [V, 3L, P], layer by layer: real part, imaginary part, step; version 0 is zero."""

    def __init__(self, given: WaveTables, *parameters: Tensor) -> None:
        super().__init__(given)
        systems = self.systems = SystemParameters(*(one.detach() for one in parameters))
        waves, (_, self.layers, self.states) = self.waves, systems.decay.shape
        self.reads = _Drifts(systems, waves.functor, self.elapsed, self.dim)
        self.moves = _Drifts(systems, waves.made_functor, self.elapsed_before, self.dim)
        shape = waves.versions, self.layers, self.states
        self.x, self.step = torch.complex(self.new(shape), self.new(shape)), self.new(shape)
        self.raw = systems.bias.index_select(0, waves.made_functor)  # arguments of the softplus that gives the steps

    # Forwards

    def ahead(self) -> None:
        super().ahead()
        by_part = torch.stack([self.x.real, self.x.imag, self.step], dim=2)
        self.cells = by_part.view(len(by_part), -1, self.states)

    def slices(self) -> tuple[Slices, Slices, Slices]:
        return (
            self.of_stages(self.sums, self.table, *self.reads.tables()),
            self.of_updates(self.x, self.step, self.raw, *self.moves.tables()),
            self.of_proposals(self.gates.view(len(self.gates), self.layers, 3, self.states)),
        )

    def stage(self, stage: DeductionStage, rows: tuple[Tensor, ...]) -> None:
        deduced, value, *tables = rows
        if stage.version is not None:
            before = self.x.index_select(0, stage.version), self.step.index_select(0, stage.version)
            _, deduced = self.reads.ahead(deduced, *before, tables)
        torch.tanh(deduced, out=value)

    def update(
        self, number: int, update: CellUpdate, versions: tuple[Tensor, ...], proposals: tuple[Tensor, ...]
    ) -> None:
        x, step, raw, *tables = versions
        assert update.own is not None
        before = self.x.index_select(0, update.before), self.step.index_select(0, update.before)
        now, _ = self.moves.ahead(self.sums.index_select(0, update.own), *before, tables)
        jump = self.new(update.size, self.layers, 3, self.states)
        self.add_up(number, update, proposals[0], jump)
        real, imaginary, more = jump.unbind(2)
        torch.add(now, torch.complex(real, imaginary), out=x)
        raw += more
        step.copy_(softplus(raw))

    # Backwards

    def slices_back(self) -> tuple[Slices, Slices, Slices]:
        by_part = self.to_cells.view(-1, self.layers, 3, self.states)
        self.to_x, self.to_step = torch.complex(by_part[:, :, 0], by_part[:, :, 1]), by_part[:, :, 2]
        self.to_raw = torch.zeros_like(self.raw)
        return (
            self.of_stages(self.to_table, self.to_sums, 1.0 - self.table * self.table, *self.reads.slopes()),
            self.of_updates(self.to_x, self.to_step, self.to_raw, torch.sigmoid(self.raw), *self.moves.slopes()),
            self.of_proposals(self.to_gates.view(len(self.to_gates), self.layers, 3, self.states)),
        )

    def stage_back(self, stage: DeductionStage, rows: tuple[Tensor, ...]) -> Tensor:
        to_value, to_inside, slope, *tables = rows
        grad = to_value * slope
        if stage.version is not None:
            grad, to_x, to_step = self.reads.back(grad, None, tables)
            self.to_x.index_add_(0, stage.version, to_x)
            self.to_step.index_add_(0, stage.version, to_step)
        to_inside += grad  # versions that have this deduced part as an input have added their gradients before
        return to_inside

    def update_back(
        self, number: int, update: CellUpdate, versions: tuple[Tensor, ...], proposals: tuple[Tensor, ...]
    ) -> None:
        to_x, to_step, to_raw, slope, *tables = versions
        assert update.own is not None
        torch.mul(to_step, slope, out=to_raw)
        grads = torch.stack([to_x.real, to_x.imag, to_raw], dim=2)
        proposals[0].copy_(self.add_up_back(number, update, grads))
        to_deduced, to_before, to_step_before = self.moves.back(None, to_x, tables)
        self.to_sums.index_add_(0, update.own, to_deduced)
        self.to_x.index_add_(0, update.before, to_before)
        self.to_step.index_add_(0, update.before, to_step_before)

    def of_parameters(self) -> tuple[Tensor, ...]:
        of_bias = torch.zeros_like(self.systems.bias).index_add_(0, self.waves.made_functor, self.to_raw)
        of_reads, of_moves = self.reads.of_parameters(), self.moves.of_parameters()
        return *(one + other for one, other in zip(of_reads, of_moves, strict=True)), of_bias


class _Drifts:
    """Advance states from right after an addition to a later time, for some rows of a table at a time."""

    def __init__(self, systems: SystemParameters, functor: Tensor, elapsed: Tensor, dim: int) -> None:
        self.systems, self.functor, self.elapsed = systems, functor, elapsed.unsqueeze(-1)
        self.rate = torch.complex(-systems.decay, systems.frequency).index_select(0, functor)  # [n, L, P]
        rows, layers, states = self.rate.shape
        self.layers = range(layers)
        new = elapsed.new_zeros
        self.scaled = new(rows, layers, states)  # Δ (t − s)
        self.g = torch.zeros_like(self.rate)
        self.above = torch.zeros_like(self.rate)  # x(s+) + b
        self.x = torch.zeros_like(self.rate)
        self.u, self.y = new(rows, layers, dim), new(rows, layers, dim)  # the input of each layer, and 2 Re(C x)

    def tables(self) -> tuple[Tensor, ...]:
        """Return the tables whose slices are the inputs of `ahead`."""
        return self.functor, self.elapsed, self.rate, self.scaled, self.g, self.above, self.x, self.u, self.y

    def ahead(self, deduced: Tensor, x: Tensor, step: Tensor, tables: list[Tensor]) -> tuple[Tensor, Tensor]:
        """Return the states at the later time [n, L, P], and the output of the last layer [n, D]."""
        functor, elapsed, rate, scaled, g, above, now, below, read = tables
        torch.mul(step, elapsed, out=scaled)
        torch.exp(rate * scaled, out=g)
        rows, stream = len(functor), deduced
        for layer, B, C in self._matrices(functor):
            below[:, layer] = stream
            pushed = torch.view_as_complex(torch.bmm(B, stream.unsqueeze(-1)).view(rows, -1, 2))
            above[:, layer] = x[:, layer] + pushed
            now[:, layer] = g[:, layer] * above[:, layer] - pushed
            y = torch.bmm(C, torch.view_as_real(now[:, layer]).reshape(rows, -1, 1)).squeeze(-1)
            read[:, layer] = y
            stream = stream + (y if layer == self.layers[-1] else F.gelu(y))
        return now, stream

    def _matrices(self, functor: Tensor) -> Iterator[tuple[int, Tensor, Tensor]]:
        for layer in self.layers:
            B, C = (one[:, layer].index_select(0, functor) for one in (self.systems.B, self.systems.C))
            yield layer, B, C

    def slopes(self) -> tuple[Tensor, ...]:
        """Return the tables whose slices are the inputs of `back`, which writes gradients into some of them."""
        moved = self.g * self.above
        by_step = (self.rate * moved).conj_physical_() * self.elapsed
        self.by_rate = moved.conj_physical_() * self.scaled
        cdf = torch.special.ndtr(self.y)
        by_read = (
            cdf + self.y * torch.exp(-0.5 * self.y * self.y) * 0.3989422804014327
        )  # derivative of GELU; 0.398… = 1/√(2π)
        self.to_now, self.to_pushed = torch.zeros_like(self.x), torch.zeros_like(self.x)
        self.to_read = torch.zeros_like(self.y)
        return self.functor, self.g.conj_physical(), by_step, by_read, self.to_now, self.to_pushed, self.to_read

    def back(
        self, to_stream: Tensor | None, to_states: Tensor | None, tables: list[Tensor]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return gradients of deduced parts, and of states and steps right after the addition; the gradient of one output may be None."""
        functor, turned_back, by_step, by_read, to_now, to_pushed, to_read = tables
        rows = len(functor)
        for layer, B, C in reversed(list(self._matrices(functor))):
            to_x = to_now[:, layer]
            if to_stream is not None:
                grad = to_stream if layer == self.layers[-1] else to_stream * by_read[:, layer]
                to_read[:, layer] = grad
                to_x += torch.view_as_complex(torch.bmm(grad.unsqueeze(1), C).view(rows, -1, 2))
            if to_states is not None:
                to_x += to_states[:, layer]
            pushed = to_x * turned_back[:, layer] - to_x
            to_pushed[:, layer] = pushed
            down = torch.bmm(torch.view_as_real(pushed).view(rows, 1, -1), B).squeeze(1)
            to_stream = down if to_stream is None else to_stream + down
        assert to_stream is not None
        return to_stream, to_now * turned_back, (to_now * by_step).real

    def of_parameters(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the gradients of decays, frequencies, `B` and `C`."""
        systems = self.systems
        to_rate = torch.zeros_like(torch.complex(systems.decay, systems.frequency))
        to_rate.index_add_(0, self.functor, self.by_rate * self.to_now)
        to_B, to_C = torch.zeros_like(systems.B), torch.zeros_like(systems.C)
        for functor in range(len(to_B)):
            mine = (self.functor == functor).nonzero().squeeze(1)
            pushed, x = (torch.view_as_real(one.index_select(0, mine)).flatten(2) for one in (self.to_pushed, self.x))
            u, read = (one.index_select(0, mine) for one in (self.u, self.to_read))
            to_B[functor] = torch.einsum("nlp,nld->lpd", pushed, u)
            to_C[functor] = torch.einsum("nld,nlp->ldp", read, x)
        return -to_rate.real, to_rate.imag, to_B, to_C
