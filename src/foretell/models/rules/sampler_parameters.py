"""The parameters of a model of rules as its samplers use them: its network in float64, and intensities.

As in the model, parameters of untrained names are the mean of the trained ones.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from foretell.batches.batch import starts_of
from foretell.data import EventSequence
from foretell.nn.calendar import SHORTEST_WAVE
from foretell.sampling.bounds.calendar_windows import calendar_waves, changes_within
from foretell.sampling.bounds.chebyshev import ChebyshevPiece, decay

if TYPE_CHECKING:
    from foretell.models.rules.rule_model import RuleModel


class RowBank:
    """Rows of one shape, in a buffer that grows."""

    def __init__(self, shape: tuple[int, ...], device: torch.device) -> None:
        self._rows = torch.zeros(0, *shape, dtype=torch.float64, device=device)
        self._count = 0

    @property
    def rows(self) -> Tensor:
        return self._rows[: self._count]

    def append(self, more: Tensor) -> range:
        """Append rows and return their numbers."""
        first, last = self._count, self._count + len(more)
        if last > len(self._rows):
            room = self._rows.new_zeros(max(last, 2 * len(self._rows), 64), *self._rows.shape[1:])
            room[:first] = self._rows[:first]
            self._rows = room
        self._rows[first:last] = more
        self._count = last
        return range(first, last)


@dataclass(frozen=True)
class GateRows:
    """The proposals of one `r`."""

    matrix: int  # row of `gates`
    beta: float


@dataclass(frozen=True, eq=False)
class DeducedRule:
    """The deduction of a rule without variables in its parameter names: `W [1; emb; …]`, pooled."""

    bias: Tensor  # float64 [D]
    blocks: tuple[Tensor, ...]  # for each condition with an embedding, transposed: [dim, D]
    beta: float


class RuleParameters:
    def __init__(self, model: RuleModel) -> None:
        model.rule_network.settle_unseen()
        self.network = copy.deepcopy(model.rule_network).double().eval()
        self.book, self.layout = self.network.book, model.layout
        self.grounding, self.lock = model.histories.grounding, model.histories._lock
        self.vocabulary = model.vocabulary
        self._start_dtype = model.dtype
        self.device = model.device
        self.dim = max(self.layout.dims, default=1)
        self.conditions = max(
            (len(one.dims) for one in self.layout.rules if one is not None and one.kind == "add"), default=0
        )
        self._met = len(self.book.order)
        self._arrays = self.network.named_arrays()
        with torch.no_grad():
            self.w = torch.zeros(len(model.functors), 1 + self.dim, dtype=torch.float64, device=self.device)
            for number, w in enumerate(model.w):
                self.w[number, : len(w)] = w.double()
            self.tau = model.log_tau.detach().double().exp()
            self.mixture = [one.detach().double() for one in model.mixture.v]  # per functor, [scales, 1 + dim]
            self.shape = [one.detach().double() for one in model.mixture.a]  # per functor, [scales, 1 + dim]
        self.scales, self.shape_scales = model.mixture.scales.scales, model.mixture.shape_scales.scales
        self.clock = None if model.clock is None else copy.deepcopy(model.clock).double()
        # Whether functors have different factors of elapsed time or of the calendar
        self.by_functor = model.mixture.timed or self.clock is not None
        self.short = model.short_time
        self.functors = {name: number for number, name in enumerate(model.functors)}
        self.time_scale = model.time_scale

    def densities(self, middle: Tensor, half: Tensor, since: Tensor, degree: int) -> ChebyshevPiece:
        """Return densities of the mixture, [..., P, scales], on windows [..., P] after events at `since` [...]."""
        return _decays(self.scales, middle, half, since, degree).times(self.time_scale / self.scales)

    def shapes(self, middle: Tensor, half: Tensor, since: Tensor, degree: int) -> ChebyshevPiece:
        """Return `exp(−u/s)` on the scales of the shape, [..., P, scales], on windows [..., P] after events at `since` [...]."""
        return _decays(self.shape_scales, middle, half, since, degree)

    def start_of(self, history: EventSequence) -> float:
        """Return the moment at time 0; 0 if the model has no calendar."""
        return 0.0 if self.clock is None else float(starts_of([history])[0])

    @property
    def shortest_wave(self) -> float:
        """The length of the calendar's shortest wave, in the data's unit; infinite without a calendar."""
        return math.inf if self.clock is None else SHORTEST_WAVE / self.clock.calendar.seconds_per_unit

    def clock_waves(self, starts: Tensor, middle: Tensor, half: Tensor, degree: int) -> ChebyshevPiece:
        """Return the calendar's waves, [..., P, features], on windows [..., P] of sequences that start at moments [...]."""
        assert self.clock is not None
        return calendar_waves(self.clock.phases, starts.unsqueeze(-1).expand_as(middle), middle, half, degree)

    def clock_changes(self, starts: Tensor, begin: Tensor, end: Tensor) -> Tensor:
        """Return whether clocks are put forward or back on windows [..., P]: bool [..., P]."""
        if self.clock is None:
            return torch.zeros_like(begin, dtype=torch.bool)
        return changes_within(self.clock.phases, starts.unsqueeze(-1).expand_as(begin), begin, end)

    def deduction(self, group: int) -> DeducedRule:
        """Return the deduction by the rule of a group, for a head with an embedding."""
        family, number, of_beta, which = self.book.of_group(self.grounding, group)
        written = self.layout.rules[self.grounding.groups[group][0]]
        assert written is not None
        whole = self.array(f"deduce.{family.names[number]}.W")
        beta = 1.0 if of_beta is None else float(self.array(f"{of_beta.prefix}.{of_beta.names[which]}.beta"))
        return DeducedRule(whole[:, 0], tuple(one.T for one in whole[:, 1:].split(list(written.dims), 1)), beta)

    def grow(self) -> None:
        """Create parameters for new names of the book."""
        if len(self.book.order) > self._met:
            self._met = len(self.book.order)
            self.network.grow(self._start_dtype, self.device)
            self.network.double()  # a float64 copy of the model's network
            self._arrays = self.network.named_arrays()

    def array(self, name: str) -> Tensor:
        self.grow()
        return self._arrays[name].detach().double()


def _decays(scales: Tensor, middle: Tensor, half: Tensor, since: Tensor, degree: int) -> ChebyshevPiece:
    rates = (1.0 / scales).expand(*middle.shape, -1)
    return decay(middle, half, since.unsqueeze(-1).expand_as(middle), rates, degree)
