"""The calendar in models of rules: it changes the weights of intensities, and the proposals that move cells and states of
facts.

With `φ(t)` the waves of the week (and the year) at a time `t`, in the zone of the data:

    w_e + C_e φ(t)            instead of `w_e`, in the intensities of events of functor `e`
    time(t) + A φ(t)          instead of the time embedding of an A-NDTT, at additions and at queries
    G_r [1; emb; …] + B_h φ(s)   instead of `G_r [1; emb; …]`, where an event at `s` updates the cell or state of a fact of functor `h`

All matrices start at 0, so that an untrained model computes what it would without a calendar. They are stored transposed: [features, …].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from foretell.batches.batch import Batch, Queries
from foretell.data.calendar import Calendar
from foretell.models.calendar import ModelCalendar, starts_of
from foretell.nn.lookup import lookup
from foretell.plan.plan import Intensities


@dataclass(frozen=True)
class ClockRows:
    """The waves at all queries, followed by the waves at all events of a batch."""

    waves: Tensor  # [B·Q + B·N, features]
    row: Tensor  # int64: for each possible event, then each observed event, its row in `waves`

    def turned(self, heads: Sequence[Tensor], part: Intensities, rows: Tensor) -> Tensor:
        """Return `φᵀ Cᵀ [1; emb]`, [n], for events of one dimension from embeddings [n, dim]; `heads` are the `Cᵀ` of their functors."""
        moved = (self.waves @ torch.stack(list(heads))).flatten(0, 1)  # for every functor and moment: [·, 1 + dim]
        own = lookup(moved, part.column * len(self.waves) + self.row.index_select(0, part.place))
        return own[:, 0] + (own[:, 1:] * rows).sum(-1)


class RuleCalendar(ModelCalendar):
    """The matrices `Cᵀ`, `Aᵀ` and `Bᵀ`.

    Args:
        calendar: the calendar of the training data.
        dims: the dimension of each functor of events.
        cells: functors whose facts have cells or states, with the size of their proposals.
        time_dim: the size of the time embedding; 0: there is none.
    """

    def __init__(self, calendar: Calendar, dims: Mapping[str, int], cells: Mapping[str, int], time_dim: int) -> None:
        super().__init__(calendar)
        width = self.phases.width
        self.functors, self.added = tuple(dims), tuple(cells)
        self.heads = nn.ParameterList(torch.zeros(width, 1 + dim) for dim in dims.values())
        self.cells = nn.ParameterList(torch.zeros(width, rows) for rows in cells.values())
        self.time = nn.Parameter(torch.zeros(width, time_dim)) if time_dim else None

    def rows(self, batch: Batch, queries: Queries) -> ClockRows:
        """Return the waves for planned queries about a batch."""
        starts, asked = starts_of(batch)[:, None], queries.times.expand(len(batch), -1)
        inside, ends = self.waves(starts, asked), self.waves(starts, batch.times)
        row = torch.cat([queries.plan.query, asked.numel() + queries.plan.event])
        return ClockRows(torch.cat([inside.flatten(0, 1), ends.flatten(0, 1)]), row)

    def at(self, moments: Tensor) -> Tensor:
        """Return `φ` at moments [n]: [n, features]."""
        return self.phases(moments, self.heads[0].dtype)

    def added_time(self, moments: Tensor) -> Tensor | None:
        """Return the term in the time embedding at moments [n]: [n, T]; None: there is no time embedding."""
        return None if self.time is None else self.at(moments) @ self.time

    def named_arrays(self, unit: float) -> dict[str, Tensor]:
        """Return parameters under their public names; those of intensities in the data's unit of time. `unit` is the model's unit."""
        found: dict[str, Tensor] = {
            f"intensity.{name}.calendar": one / unit for name, one in zip(self.functors, self.heads, strict=True)
        }
        return found | self._plain_arrays()

    def _plain_arrays(self) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {} if self.time is None else {"calendar.time": self.time}
        return found | {f"calendar.add.{name}": one for name, one in zip(self.added, self.cells, strict=True)}

    @torch.no_grad()
    def load_named_arrays(self, arrays: Mapping[str, Tensor], unit: float) -> None:
        """Set parameters from arrays like those of `named_arrays`."""
        for name, one in zip(self.functors, self.heads, strict=True):
            one.copy_(arrays[f"intensity.{name}.calendar"] * unit)
        for name, one in self._plain_arrays().items():
            one.copy_(arrays[name])
