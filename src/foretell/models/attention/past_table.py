"""The past as a sampler of an A-NHP stores it: keys (times Q) and values of all events, for each layer and run of heads."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from foretell.models.attention.layers import AttentionHistory

if TYPE_CHECKING:
    from foretell.models.attention.anhp import ANHP

NOWHERE = -1e4  # the logit of an event that is not visible; the extra 1 has logit 0
ROOM = 16  # rows added to a full table


@dataclass
class PastTable:
    """Keys and values for the H heads of a run of one layer. Row 0 is zeros, for the extra 1, unless heads decay; then come the events.

    A row that is not visible, such as one beyond a sequence's events, is zeros with a logit that makes its weight 0. Subtracting one vector
    from all rows of `folded` changes no attention weight, and subtracting one from all values only shifts their mean. So both are taken
    relative to about their mean, the centre, which keeps remainders small. The decay of heads is equal for all events and is not in the
    table.
    """

    folded: Tensor  # float64 [W, H, rows, F + D]: keys times Q, for the F features of a query and its embedding
    values: Tensor  # float64 [W, H, rows, size of a head]
    low: Tensor  # float64 [W, H, size]: the smallest and, below, the largest values
    high: Tensor
    folded_centre: Tensor  # float64 [W, H, F + D]
    values_centre: Tensor  # float64 [W, H, size]
    # Factors for remainders, from differences to the centre. For keys: absolute values of the features (the first plus the row's absolute
    # sum, for rounding) and a length for the embedding, [W, H, rows, F + 1]. Values: absolute values, length, 1: [W, H, rows, size + 2].
    folded_off: Tensor
    values_off: Tensor

    @classmethod
    def of(cls, folded: Tensor, values: Tensor, visible: Tensor, features: int) -> PastTable:
        """Build a table from `visible`, bool [W, rows], and keys whose first columns belong to features. Nothing is centred yet."""
        folded, values = _seen(folded, values, visible.unsqueeze(1))
        centres = torch.zeros_like(folded[:, :, 0]), torch.zeros_like(values[:, :, 0])
        return cls(
            folded,
            values,
            *_range(values),
            *centres,
            _keys_from(folded, centres[0].unsqueeze(2), features),
            _values_from(values, centres[1].unsqueeze(2)),
        )

    @property
    def features(self) -> int:
        return self.folded_off.shape[-1] - 1

    def centre(self, sequences: Tensor, shares: Tensor) -> None:
        """Set the centres of some sequences, [w], for queries with about these attention weights, [w, H, 1, rows]."""
        folded, values = self.folded[sequences], self.values[sequences]
        by_key, by_value = shares @ folded, shares @ values
        self.folded_centre[sequences], self.values_centre[sequences] = by_key.squeeze(2), by_value.squeeze(2)
        self.folded_off[sequences] = _keys_from(folded, by_key, self.features)
        self.values_off[sequences] = _values_from(values, by_value)

    def select(self, rows: Tensor) -> PastTable:
        return PastTable(*(getattr(self, one.name)[rows] for one in fields(self)))

    def write(self, sequences: Tensor, row: Tensor, folded: Tensor, values: Tensor, visible: Tensor) -> None:
        """Write one more row for some sequences: [w, H, …]."""
        folded, values = _seen(folded, values, visible.unsqueeze(1))
        self.folded[sequences, :, row], self.values[sequences, :, row] = folded, values
        self.low[sequences] = torch.minimum(self.low[sequences], values)
        self.high[sequences] = torch.maximum(self.high[sequences], values)
        self.folded_off[sequences, :, row] = _keys_from(folded, self.folded_centre[sequences], self.features)
        self.values_off[sequences, :, row] = _values_from(values, self.values_centre[sequences])

    def grow_older(self, sequences: Tensor, change: Tensor) -> None:
        """Add `change` [w, H] to the logits of all events of some sequences, whose ages are now counted from a later event."""
        self.folded[sequences, :, :, 0] += change.unsqueeze(-1)
        self.folded_centre[sequences, :, 0] += change
        self.folded_off[sequences, :, :, 0] += change.abs().unsqueeze(-1)

    def widen(self) -> None:
        """Make room for more events."""
        for name in ("folded", "values", "folded_off", "values_off"):
            setattr(self, name, nn.functional.pad(getattr(self, name), (0, 0, 0, ROOM)))
        self.folded[:, :, -ROOM:, 0] = NOWHERE
        new = self.folded[:, :, -ROOM:], self.values[:, :, -ROOM:]
        self.folded_off[:, :, -ROOM:] = _keys_from(new[0], self.folded_centre.unsqueeze(2), self.features)
        self.values_off[:, :, -ROOM:] = _values_from(new[1], self.values_centre.unsqueeze(2))


def _range(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return the smallest and largest of 0 and the values: [W, H, size] each."""
    values = nn.functional.pad(values, (0, 0, 1, 0))
    return values.amin(2), values.amax(2)


def _seen(folded: Tensor, values: Tensor, visible: Tensor) -> tuple[Tensor, Tensor]:
    keep = visible.unsqueeze(-1)
    folded = folded * keep
    folded[..., 0].masked_fill_(~visible, NOWHERE)
    return folded, values * keep


def _keys_from(folded: Tensor, centre: Tensor, features: int) -> Tensor:
    off = folded - centre
    length = torch.linalg.vector_norm(off[..., features:], dim=-1, keepdim=True)
    off = torch.cat([off[..., :features].abs(), length], dim=-1)
    off[..., 0] += folded.abs().sum(-1)
    return off


def _values_from(values: Tensor, centre: Tensor) -> Tensor:
    off = values - centre
    length = torch.linalg.vector_norm(off, dim=-1, keepdim=True)
    return torch.cat([off.abs(), length, torch.ones_like(length)], dim=-1)


def past_tables(model: ANHP, encoded: AttentionHistory, inside: Tensor, ages: Tensor) -> list[list[PastTable]]:
    """Return a table for every layer and run. `inside` is True for events, False for padding; `ages` of the events: [W, rows] each."""
    heads = model.dim // model.head_size
    tables = []
    for layer, by_run in zip(model.layer_list(), encoded.tables, strict=True):
        made = []
        for run, one in enumerate(by_run):
            visible = inside if one.hidden is None else inside & ~one.hidden
            keys, values = (part if heads > 1 else part.unsqueeze(1) for part in (one.keys, one.values))
            folded = keys @ layer.Q[run * heads : (run + 1) * heads]
            rates = layer.decay(run, heads, model.time_scale)
            if rates is None:
                folded[:, :, 0] = 0.0  # the null event
            else:
                folded[..., 0] -= rates[:, None] * ages.unsqueeze(1)
                folded, values, visible = folded[:, :, 1:], values[:, :, 1:], visible[:, 1:]
            if not visible.shape[1]:  # no history has an event: room for the first one, not visible yet
                folded, values = (nn.functional.pad(part, (0, 0, 0, 1)) for part in (folded, values))
                visible = nn.functional.pad(visible, (0, 1))
            made.append(PastTable.of(folded, values, visible, model.own))
        tables.append(made)
    return tables
