"""The length of the next pieces of time of each sequence, chosen by how tight the bounds of earlier pieces were.

The length changes only after a fixed number of pieces, after a piece whose bound is too loose, and after an event,
so that it does not depend on pending draws (`thinning.py` says why).
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from foretell.sampling.core.sampler import Sampler

# AIM: the wanted looseness of the loosest piece of a group. Looseness grows about as this power (ORDER) of the length.
AIM, ORDER = 0.08, 10.0
CUT, GROWTH = 0.6, 1.2  # limits of the factor by which the length changes
ALIKE = 128  # pieces of equal length in a row; the next group has twice as many, up to MOST_PIECES
MOST_PIECES = 512  # limit of the pieces in a sequence's window


@dataclass(frozen=True)
class Pace:
    """The state of each sequence: the length of its pieces, and its number of events per unit of time."""

    width: Tensor  # float64 [W]
    left: Tensor  # int64 [W]: pieces until the length may change
    alike: Tensor  # int64 [W]: the value at which `left` started
    worst: Tensor  # float64 [W]: looseness of the loosest of these pieces so far
    rate: Tensor  # float64 [W]; 0: unknown

    @classmethod
    def first(cls, sampler: Sampler, device: torch.device) -> Pace:
        width = torch.full((sampler.count,), sampler.width, dtype=torch.float64, device=device)
        left = torch.full_like(width, ALIKE, dtype=torch.int64)
        return cls(width, left, left.clone(), torch.zeros_like(width), torch.zeros_like(width))

    def select(self, rows: Tensor) -> Pace:
        return Pace(*(getattr(self, one.name)[rows] for one in fields(self)))

    def put(self, rows: Tensor, other: Pace) -> None:
        if other is not self:
            for one in fields(self):
                getattr(self, one.name)[rows] = getattr(other, one.name)

    def happened(self, rows: Tensor, room: Tensor) -> None:
        """Update sequences `rows` (bool [W]) in which an event has happened; `room` [W] is the time left until the horizon."""
        self._change(rows, torch.full_like(self.alike, ALIKE))
        self.width.copy_(torch.where(rows & (room > 0.0), torch.minimum(self.width, 2.0 * room), self.width))
        self.rate.masked_fill_(rows, 0.0)

    def passed(self, pieces: Tensor, loose: Tensor, worst: Tensor) -> None:
        """Count `pieces` [W] more pieces, the last of which was possibly too `loose` (bool [W]); `worst` [W] is their largest looseness."""
        self.left.sub_(pieces)
        torch.maximum(self.worst, worst, out=self.worst)
        again = torch.where(loose, ALIKE, (2 * self.alike).clamp(max=MOST_PIECES))
        self._change(loose | (self.left <= 0), again)

    def _change(self, rows: Tensor, alike: Tensor) -> None:
        change = ((AIM / self.worst.clamp(min=1e-9)) ** (1.0 / ORDER)).clamp(CUT, GROWTH)
        self.width.copy_(torch.where(rows, self.width * change, self.width))
        self.alike.copy_(torch.where(rows, alike, self.alike))
        self.left.copy_(torch.where(rows, self.alike, self.left))
        self.worst.masked_fill_(rows, 0.0)
