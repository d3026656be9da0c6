"""What a sampler of an A-NHP keeps of the past: for each layer and head, keys (times Q) and values of all events, with their centre."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from foretell.models.attention.layers import AttentionHistory, AttentionLayer

if TYPE_CHECKING:
    from foretell.models.attention.anhp import ANHP

NOWHERE = -1e4  # the logit of what is not visible: that of the extra 1 is 0


@dataclass
class PastTable:
    """What one head of one layer offers to queries: first a row of zeros for the extra 1, then events.

    A row that it may not look at, such as those beyond a sequence's events, is zeros, too, with a logit that makes its weight nothing.
    The same vector taken from all rows of `folded` changes no share of attention, and one taken from all values just moves their mean: what
    remainders do is small if both are told from about their mean, the centre.
    """

    folded: Tensor  # float64 [W, rows, F + D]: keys times Q, for the F features of a query and its embedding
    values: Tensor  # float64 [W, rows, size of the head]
    low: Tensor  # float64 [W, D]: the least and the largest values
    high: Tensor
    folded_centre: Tensor  # float64 [W, F + D]
    values_centre: Tensor  # float64 [W, D]
    folded_off: Tensor  # absolute values of `folded` and `values` less the centre; and in front, for rounding, plus those of all of a row
    values_off: Tensor

    @classmethod
    def of(cls, folded: Tensor, values: Tensor, visible: Tensor) -> PastTable:
        """`visible`: bool [W, rows]. Nothing is centred yet."""
        folded, values = _seen(folded, values, visible)
        centres = torch.zeros_like(folded[:, 0]), torch.zeros_like(values[:, 0])
        return cls(
            folded,
            values,
            values.amin(1),
            values.amax(1),
            *centres,
            _from(folded, centres[0].unsqueeze(1)),
            values.abs(),
        )

    def centre(self, sequences: Tensor, shares: Tensor) -> None:
        """Some sequences are centred for queries that look at rows by about these shares: [w] and [w, 1, rows]."""
        folded, values, rows = self.folded[sequences], self.values[sequences], shares.shape[-1]
        by_key, by_value = shares @ folded[:, :rows], shares @ values[:, :rows]
        self.folded_centre[sequences], self.values_centre[sequences] = by_key.squeeze(1), by_value.squeeze(1)
        self.folded_off[sequences], self.values_off[sequences] = _from(folded, by_key), (values - by_value).abs_()

    def select(self, rows: Tensor) -> PastTable:
        return PastTable(*(getattr(self, one.name)[rows] for one in fields(self)))

    def write(self, sequences: Tensor, row: Tensor, folded: Tensor, values: Tensor, visible: Tensor) -> None:
        """One more row for some sequences."""
        folded, values = _seen(folded, values, visible)
        self.folded[sequences, row], self.values[sequences, row] = folded, values
        self.low[sequences] = torch.minimum(self.low[sequences], values)
        self.high[sequences] = torch.maximum(self.high[sequences], values)
        self.folded_off[sequences, row] = _from(folded, self.folded_centre[sequences])
        self.values_off[sequences, row] = (values - self.values_centre[sequences]).abs_()

    def grow_older(self, sequences: Tensor, wait: Tensor, column: int) -> None:
        """Time [w] has passed for some sequences: what meets the time since the last event is counted from a later one."""
        change = self.folded[sequences, :, column] * wait[:, None]
        self.folded[sequences, :, 0] += change
        self.folded_off[sequences, :, 0] += 2.0 * change.abs()  # no less than what it would be, if it were made anew

    def widen(self) -> None:
        """Room for half as many events again."""
        more = max(16, self.values.shape[1] // 2)
        for name in ("folded", "values", "folded_off", "values_off"):
            setattr(self, name, nn.functional.pad(getattr(self, name), (0, 0, 0, more)))
        self.folded[:, -more:, 0] = NOWHERE
        self.folded_off[:, -more:] = _from(self.folded[:, -more:], self.folded_centre.unsqueeze(1))
        self.values_off[:, -more:] = self.values_centre.abs().unsqueeze(1)


def _seen(folded: Tensor, values: Tensor, visible: Tensor) -> tuple[Tensor, Tensor]:
    keep = visible.unsqueeze(-1)
    folded = folded * keep
    folded[..., 0].masked_fill_(~visible, NOWHERE)
    return folded, values * keep


def _from(folded: Tensor, centre: Tensor) -> Tensor:
    off = (folded - centre).abs_()
    off[..., 0] += folded.abs().sum(-1)
    return off


def past_tables(model: ANHP, encoded: AttentionHistory, inside: Tensor, ages: Tensor) -> list[list[PastTable]]:
    """Of every layer and head; `inside` tells rows of events from padding, and `ages` how old they are: [W, rows] each."""
    heads = model.dim // model.head_size
    tables = []
    for layer, by_run in zip(model.layer_list(), encoded.tables, strict=True):
        made = []
        for run, one in enumerate(by_run):
            visible = inside if one.hidden is None else inside & ~one.hidden
            keys, values = (part if heads > 1 else part.unsqueeze(1) for part in (one.keys, one.values))
            for copy in range(heads):
                number = run * heads + copy
                folded = with_decay(model, layer, (keys[:, copy] @ layer.Q[number]).unsqueeze(0), ages, number).squeeze(
                    0
                )
                folded[:, 0] = 0.0  # the null event
                made.append(PastTable.of(folded, values[:, copy], visible))
        tables.append(made)
    return tables


def with_decay(model: ANHP, layer: AttentionLayer, folded: Tensor, ages: Tensor, head: int | None = None) -> Tensor:
    """Keys times Q of all heads, or of one, [heads, ..., own + D], with what meets the time since the last event; ages are [...]."""
    if layer.log_decay is None:
        return folded
    rates = layer.log_decay.exp() / model.time_scale
    rates = (rates if head is None else rates[head : head + 1]).view(-1, *[1] * ages.dim())
    folded = folded.clone()
    folded[..., 0] -= rates * ages
    column = -rates.expand(len(folded), *ages.shape).unsqueeze(-1)
    return torch.cat([folded[..., : model.own], column, folded[..., model.own :]], dim=-1)
