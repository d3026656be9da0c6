"""Sampler of an NHP: the whole past is one cell, which an event replaces.

Between events every memory decays to its target. The rest of the network is written once, for `ChebyshevPiece`: several nodes and a
remainder give a bound on a window, one node gives the intensity.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor

from foretell.data import EventSequence
from foretell.models.covariates import plus
from foretell.models.future_covariates import CovariateSampler, DrawnCovariates
from foretell.nn.ctlstm import gated
from foretell.sampling.bounds.chebyshev import DEGREE, ChebyshevPiece, decay, tanh, unless_known
from foretell.sampling.core.sampler import Bounds
from foretell.sampling.core.start import in_float64, read_past

if TYPE_CHECKING:
    from foretell.models.recurrent.nhp import NHP


@dataclass(frozen=True)
class Cell:
    """The cell of every sequence after its last event, float64 [W, D] each, and the time of that event [W]."""

    memory: Tensor
    target: Tensor
    rate: Tensor  # δ per unit of the data's time
    output: Tensor
    since: Tensor

    def select(self, rows: Tensor) -> Cell:
        return Cell(*(getattr(self, one.name)[rows] for one in fields(self)))

    def put(self, sequences: Tensor, other: Cell) -> None:
        for one in fields(self):
            getattr(self, one.name)[sequences] = getattr(other, one.name)


class NHPSampler(CovariateSampler):
    def __init__(self, model: NHP, cell: Cell, future: DrawnCovariates) -> None:
        self.model, self.cell, self.future = model, cell, future

    @classmethod
    @torch.inference_mode()
    def start(cls, model: NHP, histories: Sequence[EventSequence], seen: Sequence[int]) -> NHPSampler:
        """Return a sampler of sequences that start with the first `seen` events of each history."""
        model = in_float64(model)
        read = read_past(histories, seen, model)
        batch, past = read.batch, read.history
        cells, row, last = past.cells, torch.arange(len(batch), device=model.device), batch.lengths
        rate = cells.decay[row, last] / model.time_scale
        memory, target, output = (one[row, last] for one in (cells.memory, cells.target, cells.output))
        cell = Cell(memory, target, rate, output, past.since[row, last])
        return cls(model, cell, DrawnCovariates.start(model.covariates, batch, model.calendar))

    @property
    def count(self) -> int:
        return len(self.cell.since)

    @property
    def width(self) -> float:
        return 0.5 * self.model.time_scale

    def select(self, rows: Tensor) -> Self:
        return type(self)(self.model, self.cell.select(rows), self.future.select(rows))

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
        upper = unless_known(total.upper())
        return Bounds(upper, self.future.judged(upper, self.intensities(middle).sum(-1), start, end))

    @torch.inference_mode()
    def append(self, times: Tensor, choices: Tensor) -> None:
        some = (choices >= 0).nonzero().squeeze(1)
        if not len(some):
            return
        model, cell = self.model, self.cell.select(some)
        memory = _memory(cell, times[some, None], torch.zeros_like(times[some, None]), 0).v[0, :, 0]
        h = cell.output * torch.tanh(memory)
        embedding = plus(model.embedding[choices[some]], self.future.of_events(some, choices[some], times[some]))
        raw = embedding @ model.W.flatten(0, 1).T + h @ model.U.flatten(0, 1).T + model.b.flatten()
        gates = gated(raw.unflatten(1, (-1, model.dim)))
        output, enter, enter_target, keep, keep_target, candidate, rate = gates.unbind(1)
        self.cell.put(
            some,
            Cell(
                keep * memory + enter * candidate,
                keep_target * cell.target + enter_target * candidate,
                rate / model.time_scale,
                output,
                times[some],
            ),
        )

    def _rates(self, middle: Tensor, half: Tensor, degree: int) -> ChebyshevPiece:
        """Return the intensities of all types: [W, P, K]."""
        h = tanh(_memory(self.cell, middle, half, degree)).times(self.cell.output[:, None])
        return self.model.intensities(self.future.on_windows(h, middle, half, degree))


def _memory(cell: Cell, middle: Tensor, half: Tensor, degree: int) -> ChebyshevPiece:
    """Return `c(t)` on windows [W, P]: [W, P, D]."""
    target = cell.target[:, None]
    faded = decay(middle, half, cell.since[:, None], cell.rate[:, None].expand(*middle.shape, -1), degree)
    return faded.times(cell.memory[:, None] - target).plus(target)
