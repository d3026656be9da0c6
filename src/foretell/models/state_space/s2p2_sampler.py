"""Sampler of an S2P2: the whole past is one state per layer, which an event updates.

Between events every state decays and rotates, and the stream passes through the layers. The equations are written once, for
`ChebyshevPiece`: values at some moments of a window with their error in between give a bound; the value at one moment is the intensity. The
output of the last LayerNorm has a norm of at most `√H` and a sum of 0, which bounds every score at all times. Bounds from pieces are
never looser than that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor

from foretell.data import EventSequence
from foretell.models.attention.layers import Dropout
from foretell.models.covariates import plus
from foretell.models.future_covariates import CovariateSampler, DrawnCovariates
from foretell.models.state_space.layer import Rotation
from foretell.sampling.bounds.chebyshev import DEGREE, SLACK, ChebyshevPiece, tighter, unless_known
from foretell.sampling.bounds.curves import spiral
from foretell.sampling.core.sampler import Bounds
from foretell.sampling.core.start import in_float64, read_past

if TYPE_CHECKING:
    from foretell.models.state_space.s2p2 import S2P2

NO_DROPOUT = Dropout(0.0, None)
MOST_WASTE, LEAST_WASTE = 300.0, 0.02  # proposals per piece; pieces settle at about a tenth of it


@dataclass(frozen=True)
class SystemState:
    """The state of a layer of every sequence, right after its last event: float64."""

    state: Tensor  # [W, 2P]
    step: Tensor  # [W, P]: Δ per unit of the data's time

    def select(self, rows: Tensor) -> SystemState:
        return SystemState(self.state[rows], self.step[rows])


class S2p2Sampler(CovariateSampler):
    together = 32

    def __init__(self, model: S2P2, systems: list[SystemState], since: Tensor, future: DrawnCovariates) -> None:
        self.model, self.systems, self.since = model, systems, since  # float64 [W]: the time of the last event
        self.future = future
        self._range = _intensity_range(model, future)

    @classmethod
    @torch.inference_mode()
    def start(cls, model: S2P2, histories: Sequence[EventSequence], seen: Sequence[int]) -> S2p2Sampler:
        """Return a sampler of sequences that start with the first `seen` events of each history."""
        model = in_float64(model)
        read = read_past(histories, seen, model)
        batch, past = read.batch, read.history
        row, last = torch.arange(len(batch), device=model.device), batch.lengths
        systems = [SystemState(one.state[row, last], one.step[row, last] / model.time_scale) for one in past.layers]
        return cls(
            model, systems, past.since[row, last], DrawnCovariates.start(model.covariates, batch, model.calendar)
        )

    @property
    def count(self) -> int:
        return len(self.since)

    @property
    def width(self) -> float:
        return self.model.time_scale

    def waste(self, draws: float) -> float:
        """Accept more waste for few draws: a bound costs a dozen intensities, and states may rotate hundreds of times per mean gap."""
        return max(MOST_WASTE / draws, LEAST_WASTE)

    def select(self, rows: Tensor) -> Self:
        systems = [one.select(rows) for one in self.systems]
        return type(self)(self.model, systems, self.since[rows], self.future.select(rows))

    def name(self, row: int, choice: int) -> str:
        return self.model.vocabulary.names[choice]

    @torch.inference_mode()
    def intensities(self, times: Tensor) -> Tensor:
        return self._rates(times, torch.zeros_like(times), 0).v[0]

    @torch.inference_mode()
    def bounds(self, start: Tensor, end: Tensor) -> Bounds:
        middle = (start + end) / 2.0
        rates = self._rates(middle, (end - start) / 2.0, DEGREE)
        total = ChebyshevPiece(rates.v.sum(-1), rates.remainder.sum(-1))
        upper = torch.minimum(unless_known(total.upper()), self._range[1].sum(-1))
        return Bounds(upper, self.future.judged(upper, self.intensities(middle).sum(-1), start, end), rates)

    @torch.inference_mode()
    def append(self, times: Tensor, choices: Tensor) -> None:
        some = (choices >= 0).nonzero().squeeze(1)
        if not len(some):
            return
        model, mark = self.model, self.model.embedding[choices[some]]
        mark = plus(mark, self.future.of_events(some, choices[some], times[some]))
        elapsed = (times - self.since)[some, None]
        before = after = None
        for layer, system in zip(model.layer_list(), self.systems, strict=True):
            g = layer.rotation(system.step[some], elapsed)
            moved = layer.moved(g, system.state[some], layer.pushed(g, before))
            jumped = moved + layer.jumps(mark)
            system.state[some], system.step[some] = jumped, layer.step_after(after) / model.time_scale
            before, after = layer.out(moved, before, NO_DROPOUT), layer.out(jumped, after, NO_DROPOUT)
        self.since[some] = times[some]

    def _rates(self, middle: Tensor, half: Tensor, degree: int) -> ChebyshevPiece:
        """Return the intensities of all types on windows [W, P]: [W, P, K]."""
        stream = None
        for layer, system in zip(self.model.layer_list(), self.systems, strict=True):
            step = system.step[:, None].expand(*middle.shape, -1)
            decay, frequency = layer.log_decay.exp() * step, layer.frequency * step
            real, imaginary = spiral(middle, half, self.since[:, None], decay, frequency, degree)
            g = Rotation(real, imaginary, real.plus(real.v.new_tensor(-1.0)))
            moved = layer.moved(g, system.state[:, None], layer.pushed(g, stream))
            stream = layer.out(moved, stream, NO_DROPOUT)
        assert stream is not None
        rates = self.model.intensities(self.future.on_windows(stream, middle, half, degree))
        return tighter(rates, *(one.expand_as(rates.remainder) for one in self._range)) if degree else rates


def _intensity_range(model: S2P2, future: DrawnCovariates) -> tuple[Tensor, Tensor]:
    """Return the smallest and largest possible intensity of each type: [1, 1, K] each, or [W, 1, K] with covariates at queries."""
    query = future.query
    norm = model.layer_list()[-1].norm
    weights = model.w / model.log_tau.exp()[:, None]
    turned = weights * norm.weight
    swing = math.sqrt(model.dim) * (turned - turned.mean(-1, keepdim=True)).norm(dim=-1)
    middle = plus(norm.bias.expand(1, 1, -1), None if query is None else query.unsqueeze(1))
    if model.calendar is not None:  # a sine and cosine pair changes a score by at most its length
        swing = swing + torch.hypot(*(weights @ model.calendar.query.T).chunk(2, dim=-1)).sum(-1)
    centre, size = model.scores(middle), norm.bias.abs() + (middle - norm.bias).abs()
    # Rounding errors of the network, as a share of the absolute terms of all sums
    slack = SLACK * (swing + turned.abs().sum(-1) + size @ weights.abs().T + centre.abs())
    return (
        model.intensities_at(centre - swing - slack) * (1.0 - SLACK),
        model.intensities_at(centre + swing + slack) * (1.0 + SLACK),
    )
