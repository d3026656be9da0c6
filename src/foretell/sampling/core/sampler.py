"""The interface that a model must offer so that its events can be drawn exactly: sequences that can be continued.

A sampler holds some sequences side by side, with the state of their past. It computes the intensities of possible events at any time
after the last event, bounds the total intensity on windows of time, and appends one more event per sequence.
Intensities and bounds describe the same function, in float64.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal, Protocol, Self

import torch
from torch import Tensor

from foretell.sampling.bounds.chebyshev import ChebyshevPiece

WASTE = 0.2  # proposals per draw; a bound costs about as much as one or two intensities


FutureCovariates = Literal["drawn", "missing"]  # covariates of a training event of the same type, or none


class ManyChoices(Protocol):
    """Choices of proposals on windows, for models with too many possible events to compute each intensity."""

    def chosen(self, row: Tensor, piece: Tensor, times: Tensor, level: Tensor) -> Tensor:
        """Return the choice of each proposal [n] at a level below its window's bound: int64 [n], -1 where nothing happens.

        If the level is uniform, a choice has the probability of its intensity at that time divided by the bound.
        """
        ...


@dataclass(frozen=True)
class Bounds:
    """Bounds of the total intensity on windows, valid if nothing happens before the end of the window."""

    upper: Tensor  # float64 [W, P]: upper bound of the total intensity on the window, if its length is not 0; may be infinite
    middle: Tensor  # float64 [W, P]: about the total intensity in the middle, which shows how tight the bound is
    rates: ChebyshevPiece | None = None  # [W, P, C]: the intensity of every choice on the window, if available
    origin: Tensor | None = None  # float64 [W]: polynomials are of the logarithm of the time since then; None: of time
    proposals: ManyChoices | None = None  # for models with too many choices for `Sampler.intensities`


@dataclass(frozen=True)
class WindowGrowth:
    """The length of windows is proportional to `short` plus the time since the last event, up to `limit`."""

    last: Tensor  # float64 [W]: the time of each sequence's last event
    short: float
    limit: float = math.inf  # elapsed time after which the length stays constant


class Sampler(ABC):
    """A sampler of `W` sequences. Times are float64 [W, …], absolute, and not before the sequence's last event."""

    shares_out: bool = False  # whether it divides its work among the threads of a CPU itself
    together: int = 3  # proposals that are computed together after the first one was rejected
    pieces: int = 0  # fixed number of pieces per window; 0: about as many as are needed
    ragged: bool = False  # whether empty windows at the end of a row cost nothing

    @property
    @abstractmethod
    def count(self) -> int:
        """The number of sequences, W."""

    @property
    @abstractmethod
    def width(self) -> float:
        """The length of the first windows, on which bounds should be tight; later lengths adapt."""

    def growth(self) -> WindowGrowth | None:
        """Return how windows grow with the time since the last event; None if their length does not depend on it."""
        return None

    @abstractmethod
    def intensities(self, times: Tensor) -> Tensor:
        """Return the intensities of every choice at times [W, Q]: float64 [W, Q, C]; 0 where a sequence does not have the choice."""

    def look(self, times: Tensor) -> Tensor:
        """Return intensities; bounds will be needed at these times, too. The times must not depend on pending draws."""
        return self.intensities(times)

    @abstractmethod
    def bounds(self, start: Tensor, end: Tensor) -> Bounds:
        """Return bounds on windows from `start` to `end`, [W, P] each."""

    def waste(self, draws: float) -> float:
        """Return how many rejected proposals per draw a piece may cause, if this many draws share the piece."""
        return WASTE

    @abstractmethod
    def append(self, times: Tensor, choices: Tensor) -> None:
        """Append an event per sequence: times [W] and choices int64 [W], columns of `intensities`; -1 leaves a sequence unchanged."""

    def draw_covariates(self, random: torch.Generator, how: FutureCovariates) -> None:  # noqa: B027 (most have none)
        """Choose how appended events get covariates: drawn with this generator, or missing."""

    def changes(self) -> Tensor | None:
        """Return the next time at which intensities change without an event: float64 [W]; None if that never happens.

        Intensities and bounds are valid up to this time.
        """
        return None

    def passed(self, now: Tensor) -> Self:
        """Return the sequences right after times [W], with all changes up to then applied."""
        return self

    @abstractmethod
    def select(self, rows: Tensor) -> Self:
        """Return a sampler with copies of the sequences with these numbers [any length], which continue separately."""

    @abstractmethod
    def name(self, row: int, choice: int) -> str:
        """Return the name of the event in a column of `intensities` of this sequence."""


class InverseSampler(Sampler):
    """A sampler that can invert the integral of the total intensity: the next event is drawn directly, without thinning."""

    @abstractmethod
    def invert(self, start: Tensor, mass: Tensor) -> Tensor:
        """Return the time at which the integral from `start` [W] reaches `mass` [W], if nothing happens before: [W], or infinity."""
