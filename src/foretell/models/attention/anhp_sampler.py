"""Sampler of an A-NHP: keys and values of all past events are kept, so that one more event costs one more row in each table.

The network at a query is written once, over `ChebyshevPiece`: values at some moments of a window, with how far they can be off in between,
give a bound; the value at one moment is the intensity.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor, nn

from foretell.data import EventSequence
from foretell.models.attention.layers import Dropout
from foretell.models.attention.query_layout import GridLayout, QueryLayout, RunLayout
from foretell.sampling.bounds.chebyshev import (
    DEGREE,
    ROUNDED,
    ChebyshevPiece,
    constant,
    exp_off,
    overshoot,
    point,
    tighter,
    unless_known,
    waves,
)
from foretell.sampling.core.sampler import Bounds, Sampler
from foretell.sampling.core.start import in_float64, past_batch
from foretell.sampling.core.threads import side_by_side

if TYPE_CHECKING:
    from foretell.models.attention.anhp import ANHP

# Numbers of a layer's attention weights that are worked on together; fewer are not worth another thread.
IN_CACHE = 1 << 17
KNOWN = 0.5  # of a total intensity: a remainder below which the polynomial tells it well enough to judge a bound
AT_ONCE = 4  # times as many numbers, above which queries of many sequences are not looked at together
STALE = 24  # events of a sequence after which its tables are centred anew
NO_DROPOUT = Dropout(0.0, None)
NOWHERE = -1e4  # the logit of what is not visible: that of the extra 1 is 0


@dataclass
class PastTable:
    """What one head of one layer offers to queries: first a row of zeros for the extra 1, then events.

    A row that it may not look at, such as those beyond a sequence's events, is zeros, too, with a logit that makes its weight nothing.
    The same vector taken from all rows of `folded` changes no share of attention, and one taken from all values just moves their mean: what
    remainders do is small if both are told from about their mean, the centre.
    """

    folded: Tensor  # float64 [W, rows, 1 + T + D]: keys times Q
    values: Tensor  # float64 [W, rows, D]
    low: Tensor  # float64 [W, D]: the least and the largest values
    high: Tensor
    folded_centre: Tensor  # float64 [W, 1 + T + D]
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


class ANHPSampler(Sampler):
    shares_out = True
    ragged = True  # on a GPU they cost something, but little; and it draws what a CPU does

    def __init__(self, model: ANHP, tables: list[list[PastTable]], rows: Tensor, since: Tensor | None = None) -> None:
        self.model, self.tables, self.rows = model, tables, rows  # rows: int64 [W], so far
        # Events since tables were centred: int64 [W]
        self._since = torch.full_like(rows, STALE) if since is None else since
        time = model.time
        # Of `[1; time]`: in front is a wave that stands still at 1.
        self._frequency = 2.0 * math.pi * time.turns_per_unit[: 1 + time.dim]
        self._phase = 2.0 * math.pi * time.quarter_turns[: 1 + time.dim]

    @classmethod
    @torch.inference_mode()
    def start(cls, model: ANHP, histories: Sequence[EventSequence], seen: Sequence[int]) -> ANHPSampler:
        """Sequences that start with the first `seen` events of each history."""
        model = in_float64(model)
        batch = past_batch(histories, seen, model.vocabulary, model.device)
        encoded = model.encode(batch)
        ahead = 2 if model.options.bos else 1
        inside = torch.arange(batch.times.shape[1] + ahead, device=model.device)[None] < batch.lengths[:, None] + ahead
        tables = []
        for layer, by_head in zip(model.layer_list(), encoded.tables, strict=True):
            made = []
            for number, one in enumerate(by_head):
                visible = inside if one.hidden is None else inside & ~one.hidden
                made.append(PastTable.of(one.keys @ layer.Q[number], one.values, visible))
            tables.append(made)
        return cls(model, tables, batch.lengths + ahead)

    @property
    def count(self) -> int:
        return len(self.rows)

    @property
    def width(self) -> float:
        return 0.6 * self.model.time.m

    def select(self, rows: Tensor) -> Self:
        tables = [[one.select(rows) for one in layer] for layer in self.tables]
        return type(self)(self.model, tables, self.rows[rows], self._since[rows])

    def name(self, row: int, choice: int) -> str:
        return self.model.vocabulary.names[choice]

    @torch.inference_mode()
    def intensities(self, times: Tensor) -> Tensor:
        return self._in_blocks(self._values, times, times * 0.0, 1, None)

    @torch.inference_mode()
    def look(self, times: Tensor) -> Tensor:
        """Intensities; and tables for which it is time are centred for what is typical there. Bounds hold wherever the centre is."""
        stale = (self._since >= STALE).nonzero().squeeze(1)
        if not len(stale):
            return self.intensities(times)
        seen: dict[int, list[Tensor]] = {}

        def tell(table: PastTable, shares: Tensor) -> None:
            seen.setdefault(id(table), []).append(shares[stale].mean(1, keepdim=True))

        rates = self._rates(GridLayout(), times, times * 0.0, 0, tell).v[0]
        for table in (table for layer in self.tables for table in layer):
            if shares := seen.get(id(table)):  # of all groups of types that look there
                table.centre(stale, torch.stack(shares).mean(0))
        self._since[stale] = 0
        return rates

    @torch.inference_mode()
    def bounds(self, start: Tensor, end: Tensor) -> Bounds:
        found = self._in_blocks(self._bounded, (start + end) / 2.0, (end - start) / 2.0, DEGREE + 1, end > start)
        upper, middle, remainder, v = found.split([1, 1, self.model.types, (DEGREE + 1) * self.model.types], dim=-1)
        rates = ChebyshevPiece(v.unflatten(-1, (DEGREE + 1, -1)).movedim(-2, 0), remainder)
        return Bounds(upper.squeeze(-1), middle.squeeze(-1), rates)

    def _values(self, queries: QueryLayout, middle: Tensor, half: Tensor) -> Tensor:
        return self._rates(queries, middle, half, 0).v[0]

    def _bounded(self, queries: QueryLayout, middle: Tensor, half: Tensor) -> Tensor:
        """The upper bound, the middle, and of all types how far they can be off, and their values at the nodes, side by side."""
        rates = self._rates(queries, middle, half, DEGREE)
        total = ChebyshevPiece(rates.v.sum(-1), rates.remainder.sum(-1))
        shape = total.shape()
        upper, here = unless_known(shape.upper(total.remainder)), shape.centre
        sure = total.remainder < KNOWN * here
        if not bool(sure.all()):  # then only the network itself knows its middle
            if isinstance(queries, RunLayout):
                some = (~sure[0]).nonzero().squeeze(1)
                asked = self._values(queries.select(some), middle[:, some], half[:, some]).sum(-1)
                here = here.index_copy(1, some, asked)
            else:
                here = torch.where(sure, here, self._values(queries, middle, half).sum(-1))
        return torch.cat([upper.unsqueeze(-1), here.unsqueeze(-1), rates.remainder, *rates.v.unbind(0)], dim=-1)

    def _in_blocks(
        self,
        work: Callable[[QueryLayout, Tensor, Tensor], Tensor],
        one: Tensor,
        other: Tensor,
        nodes: int,
        some: Tensor | None,
    ) -> Tensor:
        """`work` on [W, P] and [W, P], or where `some` says so; elsewhere there may be nothing but 0.

        On a CPU a block that fits a cache is done at a time, and blocks side by side on its threads.
        """
        rows = int(self.rows.max())
        few = some is None and self.count > 1 and one.numel() * nodes * rows <= AT_ONCE * IN_CACHE
        if few or one.device.type != "cpu" or (some is not None and not bool(some.any())):
            return work(GridLayout(), one, other)
        where = torch.ones_like(one, dtype=torch.bool) if some is None else some
        sequence = where.nonzero()[:, 0]
        one, other = one[where], other[where]
        room = max(1, IN_CACHE // (rows * nodes))
        count = max(1, -(-len(sequence) // room))
        ends = [len(sequence) * number // count for number in range(count + 1)]  # equal parts

        def done(block: tuple[int, int]) -> Tensor:
            inside = slice(*block)
            with torch.inference_mode():  # which a thread does not inherit
                return work(RunLayout(sequence[inside]), one[None, inside], other[None, inside])

        found = torch.cat(side_by_side(done, list(pairwise(ends)), one.device), dim=1)[0]
        if len(sequence) == where.numel():
            return found.unflatten(0, where.shape)
        out = found.new_zeros(*where.shape, found.shape[-1])
        out[where] = found
        return out

    @torch.inference_mode()
    def append(self, times: Tensor, choices: Tensor) -> None:
        model = self.model
        some = (choices >= 0).nonzero().squeeze(1)
        row, which = self.rows[some], choices[some]
        choices = choices.clamp(min=0)
        if len(some) and int(row.max()) >= self.tables[0][0].values.shape[1]:
            for table in (table for layer in self.tables for table in layer):
                table.widen()
        features = self._features(times[:, None], torch.zeros_like(times)[:, None], 0)
        heads = [(i, head) for i, head in enumerate(model.structure.heads) if head.serves_history()]
        embedding = model.fine[choices]
        rows = []
        for layer, by_head in zip(model.layer_list(), self.tables, strict=True):
            attended = torch.zeros_like(embedding)
            for number, head in heads:
                out = self._attend(GridLayout(), None, by_head[number], features, point(embedding[:, None])).v[0, :, 0]
                attended = attended + (out if head.reader is None else out * (choices == head.reader)[:, None])
            whole = torch.cat([features.v[0, :, 0], embedding], dim=1)
            embedding = layer.combine(embedding, attended, NO_DROPOUT)
            keys = torch.einsum("hdi,wi->hwd", layer.K, whole) / math.sqrt(model.dim)
            rows.append((torch.einsum("hwd,hdi->hwi", keys, layer.Q), torch.einsum("hdi,wi->hwd", layer.V, whole)))
        for by_head, (folded, values) in zip(self.tables, rows, strict=True):  # only now: an event does not see itself
            for number, (table, head) in enumerate(zip(by_head, model.structure.heads, strict=True)):
                seen = torch.ones_like(which, dtype=torch.bool) if head.source is None else which == head.source
                table.write(some, row, folded[number, some], values[number, some], seen)
        self.rows[some] += 1
        self._since[some] += 1

    # The network at a query

    def _features(self, middle: Tensor, half: Tensor, degree: int) -> ChebyshevPiece:
        """`[1; time]`."""
        return waves(middle, half, self._frequency, self._phase, degree)

    def _rates(
        self,
        queries: QueryLayout,
        middle: Tensor,
        half: Tensor,
        degree: int,
        tell: Callable[[PastTable, Tensor], None] | None = None,
    ) -> ChebyshevPiece:
        """Intensities of all types: [., ., K]. At single moments `tell` hears of the shares in all attention there is."""
        features = self._features(middle, half, degree)

        def attend(number: int, head: int, moved: ChebyshevPiece | None, base: Tensor) -> ChebyshevPiece:
            x = base if moved is None else moved + base
            return self._attend(queries, tell, self.tables[number][head], features, x)

        def nothing() -> ChebyshevPiece:
            return constant(middle.new_zeros(*middle.shape, self.model.dim), degree)

        return self.model.intensities_of_groups(self.model.query_embeddings(attend, nothing))

    def _attend(
        self,
        queries: QueryLayout,
        tell: Callable[[PastTable, Tensor], None] | None,
        table: PastTable,
        features: ChebyshevPiece,
        x: ChebyshevPiece | Tensor,
    ) -> ChebyshevPiece:
        """`Σ α v / (1 + Σ α)`: [., ., D]; `x` may be a vector that all queries share."""
        rows, ahead = int(self.rows.max()), features.v.shape[-1]
        folded, values = table.folded[:, :rows], table.values[:, :rows]
        if isinstance(x, ChebyshevPiece):
            whole = ChebyshevPiece(torch.cat([features.v, x.v], -1), torch.cat([features.remainder, x.remainder], -1))
            alike, size = None, x.v.abs().amax((0, -1))
        else:
            whole, alike, size = features, folded[..., ahead:] @ x, x.abs().max()
            folded = folded[..., :ahead]
        logits = queries.times(whole.v, folded.mT, alike)
        if not features.degree:
            shares = logits.softmax(-1)
            if tell is not None:
                tell(table, shares[0])
            return point(queries.times(shares, values)[0])
        logits = logits.log_softmax(-1)
        means = queries.times(logits.exp(), values)
        off = whole.remainder.clone()
        off[..., 0] = ROUNDED * size.clamp(min=1.0)
        remainder = queries.times(off[None], table.folded_off[:, :rows, : off.shape[-1]].mT)[0]
        # Shares of the whole, whose own sum is 1 at all nodes: what they are off by elsewhere is all that there is to bound.
        off = exp_off(ChebyshevPiece(logits, remainder).shape(), remainder)
        of_whole = off.sum(-1, keepdim=True)
        of_values = queries.times(off[None], table.values_off[:, :rows])[0]
        size = (means - queries.each(table.values_centre)).abs_().amax(0) * overshoot(features.degree)
        low, high = queries.each(table.low), queries.each(table.high)
        rounded = ROUNDED * torch.maximum(-low, high)
        found = ChebyshevPiece(means, (of_values + size * of_whole) / (1.0 - of_whole).clamp(min=0.0) + rounded)
        # Whatever the weights are, the outcome lies among 0 and the values.
        return tighter(found, low, high)
