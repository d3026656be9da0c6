"""The length of the next pieces of time of each sequence, chosen by how tight their bounds were so far.

The length only changes after a fixed number of pieces, after a piece whose bound is too loose, and after an event,
so that it does not depend on pending draws (`thinning.py` says why).
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from foretell.sampling.core.sampler import Sampler

# How loose the loosest of some pieces of one length should be, beside these; it is so by about that power of the length.
AIM, ORDER = 0.08, 10.0
CUT, GROWTH = 0.6, 1.2  # of the length of pieces, at most
ALIKE = 128  # pieces of one length after each other; twice as many of the next, and so on up to as many as a window has
MOST_PIECES = 512  # of a sequence's window


@dataclass(frozen=True)
class Pace:
    """The state for each sequence: the length of pieces, and the number of events per unit of time."""

    width: Tensor  # float64 [W]
    left: Tensor  # int64 [W]: pieces until the width may change
    alike: Tensor  # int64 [W]: how many that were at first
    worst: Tensor  # float64 [W]: how loose the loosest of them is so far
    rate: Tensor  # float64 [W]; 0: not known

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
        """Something happened there (bool [W]), after which there may be more events, or fewer; up to the horizon there is room [W]."""
        self._change(rows, torch.full_like(self.alike, ALIKE))
        self.width.copy_(torch.where(rows & (room > 0.0), torch.minimum(self.width, 2.0 * room), self.width))
        self.rate.masked_fill_(rows, 0.0)

    def passed(self, pieces: Tensor, loose: Tensor, worst: Tensor) -> None:
        """As many more pieces [W], behind which one may have been too loose (bool [W]); and how loose the loosest of all of these was."""
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
