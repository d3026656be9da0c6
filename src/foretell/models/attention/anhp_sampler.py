"""Sampler of an A-NHP: keys and values of all past events are kept, so that one more event costs one more row in each table.

The network at a query is written once, over `ChebyshevPiece`: values at some moments of a window, with how far they can be off in between,
give a bound; the value at one moment is the intensity.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor

from foretell.data import EventSequence
from foretell.models.attention.layers import Dropout
from foretell.models.attention.past_table import PastTable, past_tables, with_decay
from foretell.models.attention.query_layout import GridLayout, QueryLayout, RunLayout
from foretell.sampling.bounds.chebyshev import (
    DEGREE,
    ROUNDED,
    ChebyshevPiece,
    constant,
    decay,
    elapsed,
    exp_off,
    overshoot,
    point,
    tighter,
    unless_known,
    waves,
)
from foretell.sampling.bounds.curves import log1p
from foretell.sampling.bounds.values import side_by_side as beside
from foretell.sampling.core.sampler import Bounds, Sampler, WindowGrowth
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


class ANHPSampler(Sampler):
    shares_out = True
    ragged = True  # on a GPU they cost something, but little; and it draws what a CPU does

    def __init__(
        self, model: ANHP, tables: list[list[PastTable]], rows: Tensor, last: Tensor, stale: Tensor | None = None
    ) -> None:
        self.model, self.tables, self.rows = (
            model,
            tables,
            rows,
        )  # tables of every layer and head; rows: int64 [W], so far
        self.last = last  # float64 [W]: when the last event was
        # Events since tables were centred: int64 [W]
        self._stale = torch.full_like(rows, STALE) if stale is None else stale
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
        last = encoded.times.gather(1, batch.lengths[:, None] + ahead - 1).squeeze(1)
        ages = last[:, None] - encoded.times
        return cls(model, past_tables(model, encoded, inside, ages), batch.lengths + ahead, last)

    @property
    def count(self) -> int:
        return len(self.rows)

    @property
    def width(self) -> float:
        return 0.6 * self._short

    @property
    def _short(self) -> float:
        """What intensities may change in."""
        model = self.model
        if not self._is_timed:
            return model.time.m
        return min(model.time.m, model.short) if model.time_dim else model.short

    @property
    def _is_timed(self) -> bool:
        """Intensities depend on the time since the last event."""
        model = self.model
        return bool(model.elapsed.count or model.scales.count or model.options.head_decay)

    def growth(self) -> WindowGrowth | None:
        return WindowGrowth(self.last, self._short) if self._is_timed else None

    def select(self, rows: Tensor) -> Self:
        tables = [[one.select(rows) for one in layer] for layer in self.tables]
        return type(self)(self.model, tables, self.rows[rows], self.last[rows], self._stale[rows])

    def name(self, row: int, choice: int) -> str:
        return self.model.vocabulary.names[choice]

    @torch.inference_mode()
    def intensities(self, times: Tensor) -> Tensor:
        return self._in_blocks(self._values, times, times * 0.0, 1, None)

    @torch.inference_mode()
    def look(self, times: Tensor) -> Tensor:
        """Intensities; and tables for which it is time are centred for what is typical there. Bounds hold wherever the centre is."""
        stale = (self._stale >= STALE).nonzero().squeeze(1)
        if not len(stale):
            return self.intensities(times)
        seen: dict[int, list[Tensor]] = {}

        def tell(table: PastTable, shares: Tensor) -> None:
            seen.setdefault(id(table), []).append(shares[stale].mean(1, keepdim=True))

        rates = self._rates(GridLayout(), times, times * 0.0, 0, tell).v[0]
        for table in (table for layer in self.tables for table in layer):
            if shares := seen.get(id(table)):  # of all groups of types that look there
                table.centre(stale, torch.stack(shares).mean(0))
        self._stale[stale] = 0
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
        features = self._features(GridLayout(), times[:, None], torch.zeros_like(times)[:, None], 0)
        embedding = model.fine[choices]
        rows = []
        for number, layer in enumerate(model.layer_list()):
            attended = torch.zeros_like(embedding)
            for run, head in enumerate(model.run_heads()):
                if head.serves_history():
                    out = self._attend_run(GridLayout(), None, number, run, features, point(embedding[:, None])).v[
                        0, :, 0
                    ]
                    attended = attended + (out if head.reader is None else out * (choices == head.reader)[:, None])
            whole = torch.cat([features.v[0, :, 0, : model.own], embedding], dim=1)
            embedding = layer.combine(embedding, attended, NO_DROPOUT)
            keys = torch.einsum("hdi,wi->hwd", layer.K, whole) / math.sqrt(model.head_size)
            folded = with_decay(model, layer, torch.einsum("hwd,hdi->hwi", keys, layer.Q), torch.zeros_like(times))
            rows.append((folded, torch.einsum("hdi,wi->hwd", layer.V, whole)))
        wait = (times - self.last)[some]
        for by_head, (folded, values) in zip(self.tables, rows, strict=True):  # only now: an event does not see itself
            for number, (table, head) in enumerate(zip(by_head, model.structure.heads, strict=True)):
                seen = torch.ones_like(which, dtype=torch.bool) if head.source is None else which == head.source
                if model.options.head_decay:
                    table.grow_older(some, wait, model.own)
                table.write(some, row, folded[number, some], values[number, some], seen)
        self.rows[some] += 1
        self.last[some] = times[some]
        self._stale[some] += 1

    # The network at a query

    def _features(self, queries: QueryLayout, middle: Tensor, half: Tensor, degree: int) -> ChebyshevPiece:
        """`[1; time]`, the features of the time since the last event and, where heads decay, that time."""
        model, found = self.model, [waves(middle, half, self._frequency, self._phase, degree)]
        if not self._is_timed:
            return found[0]
        since = self._last_of(queries, middle)
        wait = elapsed(middle, half, since, degree).map(lambda part: part.unsqueeze(-1))
        if model.elapsed.count:
            scales = model.elapsed.scales
            share = wait.map(lambda part: part.expand(*part.shape[:-1], len(scales))).times(1.0 / scales)
            found.append(decay(middle, half, since, (1.0 / scales).expand(*middle.shape, -1), degree))
            found.append(log1p(share).times(model.elapsed.log_factors()))
        if model.options.head_decay:
            found.append(wait)
        return found[0] if len(found) == 1 else beside(found)

    def _last_of(self, queries: QueryLayout, like: Tensor) -> Tensor:
        """When the last event of each query's sequence was."""
        return queries.each(self.last[:, None]).squeeze(-1).expand_as(like)

    def _densities(self, queries: QueryLayout, middle: Tensor, half: Tensor, degree: int) -> ChebyshevPiece:
        """On the time scales of the mixture."""
        scales = self.model.scales.scales
        rates = (1.0 / scales).expand(*middle.shape, -1)
        return decay(middle, half, self._last_of(queries, middle), rates, degree).times(self.model.time_scale / scales)

    def _rates(
        self,
        queries: QueryLayout,
        middle: Tensor,
        half: Tensor,
        degree: int,
        tell: Callable[[PastTable, Tensor], None] | None = None,
    ) -> ChebyshevPiece:
        """Intensities of all types: [., ., K]. At single moments `tell` hears of the shares in all attention there is."""
        features = self._features(queries, middle, half, degree)

        def attend(number: int, run: int, moved: ChebyshevPiece | None, base: Tensor) -> ChebyshevPiece:
            x = base if moved is None else moved + base
            return self._attend_run(queries, tell, number, run, features, x)

        def nothing() -> ChebyshevPiece:
            return constant(middle.new_zeros(*middle.shape, self.model.dim), degree)

        found = self.model.query_embeddings(attend, nothing)
        return self.model.intensities_of_groups(found, lambda: self._densities(queries, middle, half, degree))

    def _attend_run(
        self,
        queries: QueryLayout,
        tell: Callable[[PastTable, Tensor], None] | None,
        layer: int,
        run: int,
        features: ChebyshevPiece,
        x: ChebyshevPiece | Tensor,
    ) -> ChebyshevPiece:
        """What a run of heads finds, side by side: [., ., D]."""
        heads = self.model.dim // self.model.head_size
        tables = self.tables[layer][run * heads : (run + 1) * heads]
        found = [self._attend(queries, tell, table, features, x) for table in tables]
        return found[0] if heads == 1 else beside(found)

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
