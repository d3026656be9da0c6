"""What loading noticed about a split that is no mistake: ties, times on a grid, ends that were not given.

In: checked columns. Out: `LoadReport`. A density on a grid can be gamed, so the shares belong beside any score.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

GRIDS = (1.0, 0.1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
ON_A_GRID = 0.99  # this share of the times on a grid makes it the grid of the data


@dataclass(frozen=True)
class LoadReport:
    """Facts about a split's times; `lines()` says them in words."""

    path: str
    sequences: int
    events: int
    ties: float  # share of the gaps between neighbouring events that are zero
    grid_shares: tuple[tuple[float, float], ...]  # (spacing, share of the times on it), coarse to fine
    missing_ends: int  # sequences whose t_end was taken from their last event
    ignored_columns: tuple[str, ...] = ()

    @property
    def grid(self) -> float | None:
        """The coarsest grid that holds at least 99 % of the times, or None."""
        return next((spacing for spacing, share in self.grid_shares if share >= ON_A_GRID), None)

    @property
    def grid_share(self) -> float:
        """The share of the times on `grid`; 0 without one."""
        return next((share for _, share in self.grid_shares if share >= ON_A_GRID), 0.0)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the reader of a score should know, one sentence each."""
        said: list[str] = []
        if self.missing_ends:
            said.append(
                f"{self.missing_ends} of {self.sequences} sequences have no t_end; the time of their last event is "
                f"used, so the quiet after it is not scored"
            )
        if self.ignored_columns:
            said.append(f"columns not used: {', '.join(self.ignored_columns)}")
        return tuple(said)

    def lines(self) -> tuple[str, ...]:
        """The warnings, then the shares of ties and of grid-aligned times where there are any."""
        said = list(self.warnings)
        if self.ties:
            said.append(f"{percent(self.ties)} of the gaps are zero (ties)")
        if self.grid is not None:
            said.append(f"{percent(self.grid_share)} of the times are {grid_name(self.grid)}")
        return tuple(said)


def percent(share: float) -> str:
    """A share in words, never rounded to 0 or 100 when it is neither."""
    for digits in (0, 1, 2, 3):
        text = f"{100 * share:.{digits}f}"
        if share in (0.0, 1.0) or float(text) not in (0.0, 100.0):
            return f"{text} %"
    return f"{100 * share:g} %"


def grid_name(spacing: float) -> str:
    """`whole units`, or `multiples of 0.01`."""
    return "whole units" if spacing == 1 else f"multiples of {spacing:g}"


def tie_share(times: np.ndarray, offsets: np.ndarray) -> float:
    """Share of the gaps between neighbouring events of one sequence that are zero."""
    gaps = gaps_of(times, offsets)
    return float(np.mean(gaps == 0)) if len(gaps) else 0.0


def gaps_of(times: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """The gaps between neighbouring events, all sequences in one array (the first event has none)."""
    gaps = np.diff(times)
    inside = np.ones(len(gaps), dtype=bool)
    borders = offsets[1:-1] - 1
    inside[borders[(borders >= 0) & (borders < len(gaps))]] = False
    return gaps[inside]


def grid_shares(times: np.ndarray) -> tuple[tuple[float, float], ...]:
    """For every grid that float64 can resolve at these times, the share of the times on it."""
    if not len(times):
        return ()
    shares: list[tuple[float, float]] = []
    rounding = 2 * np.spacing(times)
    for spacing in GRIDS:
        # at 1e10, every float64 is a multiple of 1e-6 or so: such a grid says nothing
        if float(rounding.max()) * 50 > spacing:
            break
        steps = np.round(1 / spacing)
        shares.append((spacing, float(np.mean(np.abs(np.round(times * steps) / steps - times) <= rounding))))
    return tuple(shares)
