"""Sampler of an A-NHP. Keys and values of all past events are kept, so that a new event costs one new row per table.

The network at a query is written once, for `ChebyshevPiece`: several nodes and a remainder give a bound on a window, one node gives
the intensity.
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
from foretell.models.attention.past_attention import ForgettingHeads, Tell, attend
from foretell.models.attention.past_table import PastTable, past_tables
from foretell.models.attention.query_layout import GridLayout, QueryLayout, RunLayout
from foretell.models.future_covariates import CovariateSampler, DrawnCovariates
from foretell.sampling.bounds.chebyshev import DEGREE, ChebyshevPiece, constant, point, unless_known, waves
from foretell.sampling.bounds.time_windows import LogWindows, PlainWindows, TimeWindows
from foretell.sampling.bounds.values import side_by_side as beside
from foretell.sampling.core.sampler import Bounds, WindowGrowth
from foretell.sampling.core.start import in_float64, past_batch
from foretell.sampling.core.threads import side_by_side

if TYPE_CHECKING:
    from foretell.models.attention.anhp import ANHP

# The number of attention weights of a layer in one block of work; smaller blocks are not worth another thread.
IN_CACHE = 1 << 19
KNOWN = 0.5  # a total intensity with a smaller relative remainder is known well enough to judge a bound
AT_ONCE = 4  # up to this multiple of IN_CACHE, all sequences are computed in one block
STALE = 24  # after this many new events of a sequence, its tables are centred again
# Where time pieces are as long as the elapsed time, degree 3 needs 14 per event. Degree 4 needs 13 and degree 2 needs 17; both are slower.
LOG_DEGREE = 3
FIRST, NEAR = (
    0.8,
    0.5,
)  # length of the first time piece in log time; initial part as a share of the shortest scale
NO_DROPOUT = Dropout(0.0, None)


class ANHPSampler(CovariateSampler):
    shares_out = True
    ragged = True  # sequences may have different numbers of queries, on a GPU too, so that its draws equal a CPU's

    def __init__(
        self,
        model: ANHP,
        tables: list[list[PastTable]],
        rows: Tensor,
        last: Tensor,
        future: DrawnCovariates,
        stale: Tensor | None = None,
        raised: Tensor | None = None,
    ) -> None:
        self.model, self.tables, self.rows = (
            model,
            tables,
            rows,
        )  # tables of every layer and run; rows in use: int64 [W]
        self.last, self.future = last, future  # float64 [W]: the time of the last event
        self.raised = raised  # the Hawkes term right after the last event: float64 [W, J, K]
        # The number of events since tables were centred: int64 [W]
        self._stale = torch.full_like(rows, STALE) if stale is None else stale
        time = model.time
        # The waves of `[1; time]`; the first has frequency 0 and is the 1.
        self._frequency = 2.0 * math.pi * time.turns_per_unit[: 1 + time.dim]
        self._phase = 2.0 * math.pi * time.quarter_turns[: 1 + time.dim]

    @classmethod
    @torch.inference_mode()
    def start(cls, model: ANHP, histories: Sequence[EventSequence], seen: Sequence[int]) -> ANHPSampler:
        """Return a sampler of sequences that start with the first `seen` events of each history."""
        model = in_float64(model)
        batch = past_batch(histories, seen, model)
        encoded = model.encode(batch)
        ahead = 2 if model.options.bos else 1
        inside = torch.arange(batch.times.shape[1] + ahead, device=model.device)[None] < batch.lengths[:, None] + ahead
        last = encoded.times.gather(1, batch.lengths[:, None] + ahead - 1).squeeze(1)
        ages = last[:, None] - encoded.times
        row, place = torch.arange(len(batch), device=model.device), batch.lengths + ahead - 1
        raised = None if encoded.excitation is None else encoded.excitation.raised[row, place]
        tables = past_tables(model, encoded, inside, ages)
        if model.options.head_decay:  # without the row for the extra 1
            ahead -= 1
        return cls(
            model,
            tables,
            batch.lengths + ahead,
            last,
            DrawnCovariates.start(model.covariates, batch, model.calendar),
            raised=raised,
        )

    @property
    def count(self) -> int:
        return len(self.rows)

    @property
    def width(self) -> float:
        return (FIRST * NEAR if self._in_log else 0.6) * self._short

    @property
    def _short(self) -> float:
        """The variables that intensities depend on."""
        model = self.model
        if not self._is_timed:
            return model.time.m
        return min(model.time.m, model.short) if model.time_dim else model.short

    @property
    def _is_timed(self) -> bool:
        """Whether intensities depend on the time since the last event."""
        model = self.model
        return bool(model.elapsed.count or model.scales.count or model.options.head_decay or model.hawkes)

    def growth(self) -> WindowGrowth | None:
        if not self._is_timed:
            return None
        clock = self.future.clock
        periods = [one for one in self.model.elapsed.periods if one] + ([] if clock is None else [clock.shortest])
        shortest_period = min(periods, default=math.inf)
        return WindowGrowth(self.last, self._short * (NEAR if self._in_log else 1.0), shortest_period)

    def select(self, rows: Tensor) -> Self:
        tables = [[one.select(rows) for one in layer] for layer in self.tables]
        raised = None if self.raised is None else self.raised[rows]
        known = self.rows[rows], self.last[rows], self.future.select(rows), self._stale[rows]
        return type(self)(self.model, tables, *known, raised)

    def name(self, row: int, choice: int) -> str:
        return self.model.vocabulary.names[choice]

    @torch.inference_mode()
    def intensities(self, times: Tensor) -> Tensor:
        return self._in_blocks(self._values, times, times * 0.0, 1, None)

    @torch.inference_mode()
    def look(self, times: Tensor) -> Tensor:
        """Return intensities at `times`. Tables that are due are centred for their attention weights there; bounds hold for any centre."""
        stale = (self._stale >= STALE).nonzero().squeeze(1)
        if not len(stale):
            return self.intensities(times)
        seen: dict[int, list[Tensor]] = {}

        def tell(table: PastTable, shares: Tensor) -> None:
            seen.setdefault(id(table), []).append(shares[stale].mean(1).unsqueeze(2))

        rates = self._rates(GridLayout(), times, times * 0.0, 0, tell).v[0]
        for table in (table for layer in self.tables for table in layer):
            if shares := seen.get(id(table)):  # one per group of types that uses this table
                table.centre(stale, torch.stack(shares).mean(0))
        self._stale[stale] = 0
        return rates

    @torch.inference_mode()
    def bounds(self, start: Tensor, end: Tensor) -> Bounds:
        nodes, types = self._degree + 1, self.model.types
        found = self._in_blocks(self._bounded, (start + end) / 2.0, (end - start) / 2.0, nodes, end > start)
        upper, middle, remainder, v = found.split([1, 1, types, nodes * types], dim=-1)
        rates = ChebyshevPiece(v.unflatten(-1, (nodes, -1)).movedim(-2, 0), remainder)
        origin = self.last - self.model.short if self._in_log else None
        upper, middle = upper.squeeze(-1), middle.squeeze(-1)
        return Bounds(upper, self.future.judged(upper, middle, start, end), rates, origin)

    def _values(self, queries: QueryLayout, middle: Tensor, half: Tensor) -> Tensor:
        return self._rates(queries, middle, half, 0).v[0]

    def _bounded(self, queries: QueryLayout, middle: Tensor, half: Tensor) -> Tensor:
        """Return the upper bound, the middle value, and for all types the remainders and the values at the nodes, concatenated."""
        rates = self._rates(queries, middle, half, self._degree)
        total = ChebyshevPiece(rates.v.sum(-1), rates.remainder.sum(-1))
        shape = total.shape()
        upper, here = unless_known(shape.upper(total.remainder)), shape.centre
        # With a large remainder, the middle is taken to be at its lower end, so that the bound is only used if it wastes almost nothing.
        least = (here - total.remainder).nan_to_num(nan=0.0, neginf=0.0).clamp(min=0.0)
        here = torch.where(total.remainder < KNOWN * here, here, least)
        return torch.cat([upper.unsqueeze(-1), here.unsqueeze(-1), rates.remainder, *rates.v.unbind(0)], dim=-1)

    def _in_blocks(
        self,
        work: Callable[[QueryLayout, Tensor, Tensor], Tensor],
        one: Tensor,
        other: Tensor,
        nodes: int,
        some: Tensor | None,
    ) -> Tensor:
        """Return `work(queries, one, other)` for [W, P] inputs, computed where `some` is True; other places may be 0.

        On a CPU, work is split into blocks that fit a cache, which run on several threads.
        """
        rows = self.tables[0][0].folded[0, :, :, 0].numel()
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
            with torch.inference_mode():  # threads do not inherit this mode
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
        if len(some) and int(row.max()) >= self.tables[0][0].values.shape[2]:
            for table in (table for layer in self.tables for table in layer):
                table.widen()
        moment, no_length = times[:, None], torch.zeros_like(times)[:, None]
        windows = self._windows(GridLayout(), moment, no_length, 0)
        features = self._features(windows, moment, no_length, 0)
        embedding, added = model.fine[choices], self.future.of_events(some, which, times[some])
        if added is not None:
            embedding[some] += added
        heads, rows = model.dim // model.head_size, []
        for number, layer in enumerate(model.layer_list()):
            attended = torch.zeros_like(embedding)
            for run, head in enumerate(model.run_heads()):
                if head.serves_history():
                    x = point(embedding[:, None])
                    out = self._attend(GridLayout(), None, number, run, features, x, windows).v[0, :, 0]
                    attended = attended + (out if head.reader is None else out * (choices == head.reader)[:, None])
            whole = torch.cat([features.v[0, :, 0], embedding], dim=1)
            embedding = layer.combine(embedding, attended, NO_DROPOUT)
            keys = torch.einsum("hdi,wi->whd", layer.K, whole) / math.sqrt(model.head_size)
            folded = torch.einsum("whd,hdi->whi", keys, layer.Q)
            rows.append((folded, torch.einsum("hdi,wi->whd", layer.V, whole)))
        wait = (times - self.last)[some, None]
        # After the row was computed: an event does not see itself.
        for layer, by_run, (folded, values) in zip(model.layer_list(), self.tables, rows, strict=True):
            for run, (table, head) in enumerate(zip(by_run, model.run_heads(), strict=True)):
                seen = torch.ones_like(which, dtype=torch.bool) if head.source is None else which == head.source
                rates = layer.decay(run, heads, model.time_scale)
                if rates is not None:
                    table.grow_older(some, -rates * wait)
                mine = slice(run * heads, (run + 1) * heads)
                table.write(some, row, folded[some, mine], values[some, mine], seen)
        if self.raised is not None and model.hawkes is not None:
            left = torch.exp(-wait * model.hawkes.rates())
            added = model.hawkes.alpha.permute(1, 2, 0)[which]  # [n, J, K]
            self.raised[some] = self.raised[some] * left.unsqueeze(-1) + added
        self.rows[some] += 1
        self.last[some] = times[some]
        self._stale[some] += 1

    # The network at a query

    def _windows(self, queries: QueryLayout, middle: Tensor, half: Tensor, degree: int) -> TimeWindows | None:
        """Return the windows of the time since the last event; None if nothing depends on it."""
        if not self._is_timed:
            return None
        since = queries.each(self.last[:, None]).squeeze(-1).expand_as(middle)
        if self._in_log:
            return LogWindows.of(middle, half, since, self.model.short, degree)
        return PlainWindows(middle, half, since, degree)

    @property
    def _in_log(self) -> bool:
        """Whether pieces are polynomials of the logarithm of the time since the last event."""
        model = self.model
        turning = model.time_dim or any(model.elapsed.periods) or model.calendar is not None
        return bool(model.elapsed.count or model.scales.count) and not turning

    @property
    def _degree(self) -> int:
        return LOG_DEGREE if self._in_log else DEGREE

    def _features(self, windows: TimeWindows | None, middle: Tensor, half: Tensor, degree: int) -> ChebyshevPiece:
        """Return `[1; time]` and the features of the time since the last event."""
        scales = self.model.elapsed
        found = waves(middle, half, self._frequency, self._phase, degree)
        if windows is None or not scales.count:
            return found
        logs = windows.logs(scales.scales).times(scales.log_factors())
        parts = [found, windows.exponentials(1.0 / scales.scales), logs]
        if scales.most:
            parts += windows.waves(scales.turns, scales.is_set())
        return beside(parts)

    def _rates(
        self, queries: QueryLayout, middle: Tensor, half: Tensor, degree: int, tell: Tell | None = None
    ) -> ChebyshevPiece:
        """Return the intensities of all types: [., ., K]. At single moments, `tell` is called with all attention weights."""
        windows = self._windows(queries, middle, half, degree)
        features = self._features(windows, middle, half, degree)

        def attend_run(number: int, run: int, moved: ChebyshevPiece | None, base: Tensor) -> ChebyshevPiece:
            x = base if moved is None else moved + base
            return self._attend(queries, tell, number, run, features, x, windows)

        def nothing() -> ChebyshevPiece:
            return constant(middle.new_zeros(*middle.shape, self.model.dim), degree)

        def densities() -> ChebyshevPiece:
            assert windows is not None
            scales = self.model.scales.scales
            return windows.exponentials(1.0 / scales).times(self.model.time_scale / scales)

        def raised() -> ChebyshevPiece:
            assert windows is not None and self.raised is not None and self.model.hawkes is not None
            left = windows.exponentials(self.model.hawkes.rates())  # [., ., J]
            whole = queries.times(left.v, self.raised)
            return ChebyshevPiece(whole, queries.times(left.remainder[None], self.raised)[0])

        found = self.model.query_embeddings(attend_run, nothing)
        if self.future.query is not None:
            found = [one + queries.each(self.future.query) for one in found]
        clock = self.future.clock
        if clock is not None:
            starts = queries.each(clock.starts[:, None]).squeeze(-1).expand_as(middle)
            moved = clock.on_windows(middle, half, degree, starts)
            found = [one + moved for one in found]
        return self.model.intensities_of_groups(found, densities, raised)

    def _attend(
        self,
        queries: QueryLayout,
        tell: Tell | None,
        layer: int,
        run: int,
        features: ChebyshevPiece,
        x: ChebyshevPiece | Tensor,
        windows: TimeWindows | None,
    ) -> ChebyshevPiece:
        """Return the concatenated outputs of a run of heads: [., ., D]."""
        model = self.model
        rates = model.layer_list()[layer].decay(run, model.dim // model.head_size, model.time_scale)
        forgetting = None if rates is None or windows is None else ForgettingHeads(rates, windows)
        return attend(queries, self.tables[layer][run], features, x, forgetting, tell)
