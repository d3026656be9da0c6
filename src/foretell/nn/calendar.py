"""Waves of the calendar: sines and cosines of the week (and the year) in local time, for given moments.

With `v` the local time of a moment, in seconds since a Monday at midnight, features are first the sines and then the cosines of
`2π n v/week` for `n` in `WEEK_TURNS` (7, 14, 21, … are turns of the day) and, for data of several years, of `2π n v/year` for `n` in
`YEAR_TURNS`. Phases are computed in float64 and reduced to one turn; only the result has the dtype of the model.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from foretell.data.calendar import WEEK, YEAR, Calendar, zone_clock

# The day has waves of 24, 12, 8, 6, 4.8 and 4 hours. The waves with 1 to 14 turns distinguish the days of the week.
WEEK_TURNS = (*range(1, 15), 21, 28, 35, 42)
YEAR_TURNS = (1, 2)
SHORTEST_WAVE = WEEK / WEEK_TURNS[-1]  # in seconds


class CalendarWaves(nn.Module):
    """The features of a calendar, a module without parameters."""

    changes: Tensor  # float64 [changes]: moments at which the zone's offset changes
    offsets: Tensor  # float64 [changes + 1]
    moved: Tensor  # float64 [changes + 1]: sum of the absolute changes of the offset so far
    turns: Tensor  # float64 [waves]: per second

    def __init__(self, calendar: Calendar) -> None:
        super().__init__()
        self.calendar = calendar
        self._build(torch.device("cpu"))

    def _build(self, device: torch.device) -> None:
        shifts = zone_clock(self.calendar.zone)
        turns = [number / WEEK for number in WEEK_TURNS]
        if self.calendar.yearly:
            turns += [number / YEAR for number in YEAR_TURNS]
        arrays = {
            "changes": shifts.moments,
            "offsets": shifts.offsets,
            "moved": np.concatenate([[0.0], np.abs(np.diff(shifts.offsets)).cumsum()]),
            "turns": np.array(turns),
        }
        for name, array in arrays.items():
            made = torch.tensor(array, dtype=torch.float64, device=device)
            self.register_buffer(name, made, persistent=False)

    @property
    def width(self) -> int:
        """The number of features."""
        return 2 * len(self.turns)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> CalendarWaves:
        """Move with the model, but stay float64."""
        super()._apply(fn, recurse)
        self._build(self.turns.device)
        return self

    def moments(self, starts: Tensor, times: Tensor) -> Tensor:
        """Return the moments of times in the data's unit; `starts` are the moments of time 0."""
        return torch.add(starts, times, alpha=self.calendar.seconds_per_unit)

    def place(self, moments: Tensor) -> Tensor:
        """Return the number of changes of the offset before or at each moment: int64 [...]."""
        return torch.searchsorted(self.changes, moments.contiguous(), right=True)

    def forward(self, moments: Tensor, dtype: torch.dtype) -> Tensor:
        """Return the features of moments: [...] float64 to [..., width] of `dtype`."""
        local = moments + self.offsets[self.place(moments)] if len(self.changes) else moments
        turns = (local.unsqueeze(-1) * self.turns).frac_()
        phase = torch.empty(turns.shape, dtype=dtype, device=turns.device)
        torch.mul(turns, 2.0 * math.pi, out=phase)
        return torch.cat([phase.sin(), phase.cos()], dim=-1)
