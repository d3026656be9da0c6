"""Sequences that are continued: what every model must offer so that its events can be drawn exactly.

A model has a sampler, which holds some sequences side by side with all that is kept of their past. It can tell the intensities of what may
happen next at any times after the last event, bound the total intensity on windows of time, and take in one more event per sequence.
Intensities and bounds are of one and the same function, in float64.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal, Protocol, Self

import torch
from torch import Tensor

from foretell.sampling.bounds.chebyshev import ChebyshevPiece

WASTE = 0.2  # proposals: a bound costs about as much as an intensity or two


FutureCovariates = Literal["drawn", "missing"]  # of drawn events: those of a training event of the type, or none


class ManyChoices(Protocol):
    """Choices of proposals on windows, where choices are too many to be told one by one."""

    def chosen(self, row: Tensor, piece: Tensor, times: Tensor, level: Tensor) -> Tensor:
        """For each proposal [n], at a level below its window's bound, a choice: int64 [n], -1 where nothing happens.

        With a uniform level a choice comes with probability its intensity at that time over the bound.
        """
        ...


@dataclass(frozen=True)
class Bounds:
    """Bounds of the total intensity on windows, given that nothing happens before their ends."""

    upper: Tensor  # float64 [W, P]: no smaller than the total intensity anywhere on the window, if it has length; may be infinite
    middle: Tensor  # float64 [W, P]: about the intensity in its middle, to see how tight that is
    rates: ChebyshevPiece | None = None  # [W, P, C]: the intensity of every choice on the window, if that is known
    origin: Tensor | None = None  # float64 [W]: polynomials are of the logarithm of the time since then; None: of time
    proposals: ManyChoices | None = None  # where choices are too many for `Sampler.intensities`


@dataclass(frozen=True)
class WindowGrowth:
    """Windows have a length in proportion to `short` plus the time since the last event, up to `limit`."""

    last: Tensor  # float64 [W]: when each sequence's last event was
    short: float
    limit: float = math.inf  # from this time after the last event on windows have one length


class Sampler(ABC):
    """`W` sequences. Times are float64 [W, …], absolute, and not before the sequence's last event."""

    shares_out: bool = False  # whether it shares its work out among the threads of a CPU itself
    together: int = 3  # proposals that are looked at together once the first one was not accepted
    pieces: int = 0  # of every window, whatever is due; 0: about as many as are due
    ragged: bool = False  # whether windows without length, behind a sequence's others, cost nothing

    @property
    @abstractmethod
    def count(self) -> int:
        """W."""

    @property
    @abstractmethod
    def width(self) -> float:
        """The width of a first window, which a bound should follow easily; windows adapt from there."""

    def growth(self) -> WindowGrowth | None:
        """How windows grow with the time since the last event; None: their length does not depend on it."""
        return None

    @abstractmethod
    def intensities(self, times: Tensor) -> Tensor:
        """Intensities of every choice at times [W, Q]: float64 [W, Q, C]; 0 where a choice is none of the sequence's."""

    def look(self, times: Tensor) -> Tensor:
        """Intensities, with a hint that bounds will be needed there. The times must not depend on pending draws."""
        return self.intensities(times)

    @abstractmethod
    def bounds(self, start: Tensor, end: Tensor) -> Bounds:
        """On windows [start, end], [W, P] each."""

    def waste(self, draws: float) -> float:
        """The number of proposals per draw that a piece may waste, whatever its bound, if this many draws share it."""
        return WASTE

    @abstractmethod
    def append(self, times: Tensor, choices: Tensor) -> None:
        """One more event: times [W], choices int64 [W] as columns of `intensities`; a sequence whose choice is -1 stays as it is."""

    def draw_covariates(self, random: torch.Generator, how: FutureCovariates) -> None:  # noqa: B027 (most have none)
        """Events that are appended have covariates that are drawn by this generator, or missing ones."""

    def changes(self) -> Tensor | None:
        """The times at which intensities change without an event: float64 [W]; None: they never do. Intensities and bounds hold up
        to these times.
        """
        return None

    def passed(self, now: Tensor) -> Self:
        """The sequences as they are right after times [W], with all changes up to then behind them."""
        return self

    @abstractmethod
    def select(self, rows: Tensor) -> Self:
        """A sampler with copies of the given sequences [any length], which continue separately."""

    @abstractmethod
    def name(self, row: int, choice: int) -> str:
        """The event of a column of `intensities` in that sequence."""


class InverseSampler(Sampler):
    """A sampler whose integral of the total intensity can be inverted: the next event is drawn at once, without thinning."""

    @abstractmethod
    def invert(self, start: Tensor, mass: Tensor) -> Tensor:
        """When the integral from `start` [W] on reaches `mass` [W], if nothing happens before: [W], infinite where it never does."""
