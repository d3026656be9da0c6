"""The calendar in models of rules: it changes the weights of intensities, and the proposals of events for cells and states of
facts.

With `φ(t)` the waves of the week (and the year) at a time `t`, in the zone of the data:

    w_e + C_e φ(t)            instead of `w_e`, in the intensities of events of functor `e`
    time(t) + A φ(t)          instead of the time embedding of an A-NDTT, at additions and at queries
    G_r [1; emb; …] + B_h φ(s)   instead of `G_r [1; emb; …]`, where an event at `s` moves the cell or state of a fact of functor `h`

All matrices start at 0: a fresh model is the one without a calendar. Parameters are their transposes: [features, …].
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
    """Waves at all queries and then at all events of a batch."""

    waves: Tensor  # [B·Q + B·N, features]
    row: Tensor  # int64: of each possible event, and of each that happened

    def turned(self, heads: Sequence[Tensor], part: Intensities, rows: Tensor) -> Tensor:
        """`φᵀ Cᵀ [1; emb]` of the events of one dimension, whose functors have these `Cᵀ`, from embeddings [n, dim]: [n]."""
        moved = (self.waves @ torch.stack(list(heads))).flatten(0, 1)  # of every functor at every moment: [·, 1 + dim]
        own = lookup(moved, part.column * len(self.waves) + self.row.index_select(0, part.place))
        return own[:, 0] + (own[:, 1:] * rows).sum(-1)


class RuleCalendar(ModelCalendar):
    """`Cᵀ`, `Aᵀ` and `Bᵀ`.

    Args:
        calendar: that of the training data.
        dims: dimensions of the functors of events.
        cells: functors whose facts have cells or states, with the numbers of what is proposed for them.
        time_dim: components of the time embedding; 0: there is none.
    """

    def __init__(self, calendar: Calendar, dims: Mapping[str, int], cells: Mapping[str, int], time_dim: int) -> None:
        super().__init__(calendar)
        width = self.phases.width
        self.functors, self.added = tuple(dims), tuple(cells)
        self.heads = nn.ParameterList(torch.zeros(width, 1 + dim) for dim in dims.values())
        self.cells = nn.ParameterList(torch.zeros(width, rows) for rows in cells.values())
        self.time = nn.Parameter(torch.zeros(width, time_dim)) if time_dim else None

    def rows(self, batch: Batch, queries: Queries) -> ClockRows:
        """For planned queries about a batch."""
        starts, asked = starts_of(batch)[:, None], queries.times.expand(len(batch), -1)
        inside, ends = self.waves(starts, asked), self.waves(starts, batch.times)
        row = torch.cat([queries.plan.query, asked.numel() + queries.plan.event])
        return ClockRows(torch.cat([inside.flatten(0, 1), ends.flatten(0, 1)]), row)

    def at(self, moments: Tensor) -> Tensor:
        """`φ` at moments [n]: [n, features]."""
        return self.phases(moments, self.heads[0].dtype)

    def added_time(self, moments: Tensor) -> Tensor | None:
        """What is added to the time embedding at moments [n]: [n, T]."""
        return None if self.time is None else self.at(moments) @ self.time

    def named_arrays(self, unit: float) -> dict[str, Tensor]:
        """Parameters under their public names; those of intensities are in the data's unit of time, of which the model's is `unit`."""
        found: dict[str, Tensor] = {
            f"intensity.{name}.calendar": one / unit for name, one in zip(self.functors, self.heads, strict=True)
        }
        return found | self._plain_arrays()

    def _plain_arrays(self) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {} if self.time is None else {"calendar.time": self.time}
        return found | {f"calendar.add.{name}": one for name, one in zip(self.added, self.cells, strict=True)}

    @torch.no_grad()
    def load_named_arrays(self, arrays: Mapping[str, Tensor], unit: float) -> None:
        """The inverse of `named_arrays`."""
        for name, one in zip(self.functors, self.heads, strict=True):
            one.copy_(arrays[f"intensity.{name}.calendar"] * unit)
        for name, one in self._plain_arrays().items():
            one.copy_(arrays[name])
