"""Blocks of possible events of products, and an upper bound of the intensities in a block on windows of time.

`docs/explanation/products.md` has the proof that accepted events have exactly the model's distribution.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from foretell.models.rules.event_scores import EventScoreTable, ScoredEvents
from foretell.models.rules.product_rows import FactTables, PartRows, PartTree, ProductRows, Ranges, TwoTables, hulls_of
from foretell.models.rules.sampled_sequences import RuleQuery
from foretell.models.rules.sampler_parameters import DeducedRule, RuleParameters
from foretell.models.rules.slot_tables import BoundedRows, packed, unpacked
from foretell.nn.intensity import softplus
from foretell.plan.history import GroundingArrays
from foretell.plan.int_arrays import Ints, joined
from foretell.plan.products import FunctorProducts, ProductHistory
from foretell.sampling.bounds.chebyshev import ChebyshevPiece, between, point

BLOCKS = 2048  # limit per product
FEW = 256  # below this number of blocks, all are split at once
FLAT = 1  # the degree of pieces for values that are only known to be in a range
SLACK = 1e-9  # relative allowance for rounding, of scores and of the absolute terms of sums
POINT = BoundedRows(0, {})


class RangeRows(BoundedRows):
    """Rows whose values may be anywhere within ranges."""

    def __init__(self) -> None:
        super().__init__(FLAT, {})

    def tanh(self, rows: Tensor) -> Tensor:
        found = unpacked(rows, FLAT)
        return packed(between(torch.tanh(found.lower()), torch.tanh(found.upper()), FLAT))


@dataclass(frozen=True, eq=False)
class ProductWindows:
    """Windows of a sequence [1, P], the time of its last event, and its start."""

    middle: Tensor
    half: Tensor
    last: Tensor  # float64 [1]
    start: Tensor  # float64 [1]


@dataclass(frozen=True, eq=False)
class FunctorRows:
    """All products of one functor that have possible events."""

    events: FunctorProducts
    number: int  # among the functors of events
    dim: int
    products: tuple[ProductRows, ...]

    def highest(self, found: Tensor, parameters: RuleParameters, at: ProductWindows, degree: int) -> Tensor:
        """Return upper bounds of intensities for embeddings in ranges, rows [B, ·, P, D]: [B, P] on windows, then in their middles."""
        ranges = unpacked(found, FLAT)
        low, high = ranges.lower(), ranges.upper()
        if not degree:
            return self._highest(low, high, parameters, at, 0)
        still = ProductWindows(at.middle, torch.zeros_like(at.half), at.last, at.start)
        first = self._highest(low[:, :1], high[:, :1], parameters, at, degree)
        return torch.cat([first, self._highest(low[:, 1:], high[:, 1:], parameters, still, 0)], 1)

    def _highest(
        self, low: Tensor, high: Tensor, parameters: RuleParameters, at: ProductWindows, degree: int
    ) -> Tensor:
        """Return upper bounds of intensities, [B, P], for embeddings in ranges [B, P or 1, D], on windows [1, P]."""
        tau, half = parameters.tau[self.number], at.half
        score = _most(low, high, parameters.w[self.number, : 1 + self.dim] / tau)
        if parameters.clock is not None:
            clock = parameters.clock.heads[self.number].detach() / tau
            below, above = _ends(parameters.clock_waves(at.start, at.middle, half, degree).through(clock))
            score = score + above[:, 0] + _most_products(low, high, below[:, 1:], above[:, 1:])
        rate = softplus(score) * (tau / parameters.time_scale)
        if parameters.mixture:
            _, densities = _ends(parameters.densities(at.middle, half, at.last, degree))
            amplitudes = softplus(_most(low, high, parameters.mixture[self.number]))
            rate = rate * (1.0 + _over(amplitudes, densities.clamp(min=0.0)))
        if parameters.shape:
            least, most = _ends(parameters.shapes(at.middle, half, at.last, degree))
            exponents = _most(low, high, parameters.shape[self.number])
            rate = rate * torch.exp(_over(exponents.clamp(min=0.0), most) + _over(exponents.clamp(max=0.0), least))
        return (rate * (1.0 + SLACK)).expand(-1, at.middle.shape[1])

    def spread(self, found: Tensor, parameters: RuleParameters) -> Tensor:
        """Return about the share of such a bound that may be excess, at one time: [B]."""
        ranges = unpacked(found, FLAT)
        w = parameters.w[self.number, 1 : 1 + self.dim] / parameters.tau[self.number]
        return -torch.expm1(-((ranges.upper() - ranges.lower())[:, 0] @ w.abs()))

    def rates(
        self, deduced: Sequence[Tensor], query: RuleQuery, parameters: RuleParameters, times: Tensor, at: ProductWindows
    ) -> Tensor:
        """Return intensities of events, each at its own time [n], from the deductions for them in each layer [n, D]."""
        count, number = len(times), self.number
        top = query.head(self.dim, [packed(point(one.unsqueeze(1))) for one in deduced], POINT)
        rows = torch.arange(count, device=times.device)
        w = (parameters.w[number, : 1 + self.dim] / parameters.tau[number]).expand(count, -1)
        mixture, shape = (of[number] if of else None for of in (parameters.mixture, parameters.shape))
        clock = None if parameters.clock is None else parameters.clock.heads[number].detach() / parameters.tau[number]
        scored = ScoredEvents(
            (EventScoreTable(self.dim, rows, w, mixture, shape, clock, rows),),
            rows,
            (parameters.tau[number] / parameters.time_scale).expand(count),
            at.last.expand(count),
            at.start.expand(count),
        )
        when = times.unsqueeze(1)
        return scored.rates(parameters, {self.dim: top}, when, torch.zeros_like(when), 0).v[0][:, 0]


def _ends(piece: ChebyshevPiece) -> tuple[Tensor, Tensor]:
    """Return the smallest and largest value on windows: [P, …] each."""
    return (piece.lower()[0], piece.upper()[0]) if piece.degree else (piece.v[0, 0], piece.v[0, 0])


def _over(values: Tensor, factors: Tensor) -> Tensor:
    """Return sums over scales, [B, P], of [B, P or 1, scales] times [P, scales]."""
    if values.shape[1] == 1:
        return values[:, 0] @ factors.T
    return (values * factors).sum(-1)


def _most(low: Tensor, high: Tensor, weights: Tensor) -> Tensor:
    """Return the maximum of `w·[1; x]`, [B, P, ...], for x [B, P, D] within ranges and vectors w [..., 1 + D]."""
    w = weights[..., 1:].movedim(0, -1)
    found = high @ w.clamp(min=0.0) + low @ w.clamp(max=0.0)
    off = weights[..., 0].abs() + torch.maximum(low.abs(), high.abs()) @ w.abs()
    return weights[..., 0] + found + SLACK * off


def _most_products(low: Tensor, high: Tensor, below: Tensor, above: Tensor) -> Tensor:
    """Return the maximum of `v·x`, [B, P], for x [B, P, D] and v [P, D] within ranges."""
    ends = [x * v for x in (low, high) for v in (below, above)]
    most = torch.stack(ends).amax(0)
    return most.sum(-1) + SLACK * torch.maximum(low.abs(), high.abs()).mul(above.abs() + below.abs()).sum(-1)


@dataclass(frozen=True, eq=False)
class StateProducts:
    """The products of a state. Embeddings of facts without a past are the same in all sequences with that state."""

    functors: tuple[FunctorRows, ...]
    history: ProductHistory
    still: FactTables  # at one time, without rounding errors
    bounded: FactTables  # with bounds of rounding errors

    @classmethod
    def of(
        cls,
        history: ProductHistory,
        grounded: GroundingArrays,
        parameters: RuleParameters,
        still: FactTables,
        bounded: FactTables,
    ) -> StateProducts:
        layout, found = parameters.layout, []
        for events in history.functors:
            name = grounded.grounding.functors[events.functor]
            dim, products = layout.dimension(name), []
            for arrays in events.products:
                if arrays.count[1]:
                    rule = DeducedRule(torch.zeros(0, dtype=torch.float64, device=parameters.device), (), 1.0)
                    if dim:
                        proofs = arrays.parts[arrays.one.carrier].proofs.value
                        rule = parameters.deduction(int(grounded.instances.group[proofs[0]]))
                    products.append(ProductRows.of(arrays, rule, grounded))
            found.append(FunctorRows(events, parameters.functors[name], dim, tuple(products)))
        return cls(tuple(found), history, still, bounded)

    @property
    def parts(self) -> list[PartRows]:
        return [part for functor in self.functors for one in functor.products for part in one.parts]

    @cached_property
    def still_ranges(self) -> list[Ranges | None]:
        """Return ranges of all parts: [layers, facts, 2, D]. Index 0 of axis 2 allows for rounding errors, index 1 does not."""
        return [part.ranges(self.bounded) for part in self.parts]

    def moving(self, facts: Ints) -> tuple[tuple[Ints, ...], Ints]:
        """Return the facts of each part that change with time if `facts` do, and all facts whose embeddings they need."""
        found = tuple(part.moving(facts) for part in self.parts)
        bodies = [one for part, own in zip(self.parts, found, strict=True) for one in part.some(own).bodies]
        return found, np.unique(joined([np.zeros(0, dtype=np.int64), *bodies]))

    def ranges(self, moving: Sequence[Ints], tables: FactTables, columns: int) -> Iterator[list[list[Ranges | None]]]:
        """Yield ranges by functor, product and part: at all times, or over all windows together and then in the middle of the first."""
        whole: list[Ranges | None] = []
        for part, cells, own in zip(self.parts, moving, self.still_ranges, strict=True):
            if own is None:
                whole.append(None)
                continue
            low, high = own.low, own.high
            if not tables.degree:
                low, high = (one[:, :, 1:].expand(-1, -1, columns, -1) for one in (low, high))
            more = part.some(cells).ranges(tables)
            if more is not None:
                at = torch.from_numpy(cells).to(low.device)
                more = more.over_time(columns) if tables.degree else more
                low, high = low.index_copy(1, at, more.low), high.index_copy(1, at, more.high)
            whole.append(Ranges(low, high))
        every = iter(whole)
        for functor in self.functors:
            yield [[next(every) for _ in one.parts] for one in functor.products]

    def rates(
        self,
        number: Ints,
        when: Tensor,
        times: Tensor,
        moving: FactTables,
        query: RuleQuery,
        parameters: RuleParameters,
        at: ProductWindows,
    ) -> Tensor:
        """Return intensities of candidates, at the times of `moving` with index `when`; 0 for a duplicate or impossible candidate."""
        found, tables = torch.zeros_like(times), TwoTables(moving, self.still)
        of_events = {one.events.functor: one for one in self.functors}
        for events, product, mine, args in self.history.decoded(number, np.ones_like(number)):
            now = np.ones(len(mine), dtype=np.int64)
            kept = product.passes(args, now) & ~events.is_listed(args, now)
            for other in events.products[: events.products.index(product)]:
                kept &= ~other.has(args, now)
            mine, args = mine[kept], args[kept]
            if not len(mine):
                continue
            functor, rows = of_events[events.functor], torch.from_numpy(mine).to(times.device)
            deduced = [times.new_zeros(len(mine), functor.dim) for _ in moving.layers]
            for one in functor.products:
                has, more = one.deduced(tables, args, when[rows])
                deduced = [x.index_add(0, has, y) for x, y in zip(deduced, more, strict=True)]
            found[rows] = functor.rates(deduced, query, parameters, times[rows], at)
        return found


@dataclass(frozen=True, eq=False)
class ProductBlocks:
    """One product, split into blocks: each is a node of the tree of every part."""

    rows: ProductRows
    trees: tuple[PartTree, ...]
    blocks: Tensor  # int64 [blocks, parts]

    @property
    def sizes(self) -> Tensor:
        """The number of candidates in each block."""
        found = torch.ones(len(self.blocks), dtype=torch.float64, device=self.blocks.device)
        for place, tree in enumerate(self.trees):
            found = found * tree.size[self.blocks[:, place]].double()
        return found

    def candidates(self, block: Ints, which: Ints) -> Ints:
        """Return the candidate at a position of each block. The digits of the position select members of the nodes."""
        number, weight = np.zeros(len(block), dtype=np.int64), 1
        for place in reversed(range(len(self.trees))):
            tree = self.trees[place]
            node = self.blocks[torch.from_numpy(block).to(tree.size.device), place]
            start, size = tree.start[node].cpu().numpy(), tree.size[node].cpu().numpy()
            which, member = np.divmod(which, size)
            number += weight * tree.members.cpu().numpy()[start + member]
            weight *= len(tree.members)
        return number

    def deduced(self, hulls: Sequence[Ranges | None], like: Tensor) -> Ranges:
        return self.rows.block_ranges(hulls, self.trees, self.blocks, like)

    def refined(self, spread: Tensor) -> ProductBlocks:
        """Return blocks in which those with the largest excess (`spread` [blocks] times number of events) are split in two."""
        size = torch.stack([tree.size[self.blocks[:, place]] for place, tree in enumerate(self.trees)], 1)
        excess = torch.where((size > 1).any(1), spread * self.sizes, -1.0)
        most = len(excess) if len(excess) < FEW else len(excess) // 2
        count = min(most, BLOCKS - len(excess), int((excess > 0.0).sum()))
        if count < 1:
            return self
        cut = excess.topk(count).indices
        widths = [tree.width[self.blocks[cut, place]] for place, tree in enumerate(self.trees)]
        part = torch.where(size[cut] > 1, 1.0 + torch.stack(widths, 1), 0.0).argmax(1)
        kept = torch.ones(len(excess), dtype=torch.bool, device=excess.device)
        kept[cut] = False
        halves = self.blocks[cut].repeat(2, 1)
        row = torch.arange(count, device=cut.device)
        for number, rows in ((1, row), (2, count + row)):
            halves[rows, part] = 2 * halves[rows, part] + number
        there = torch.stack([tree.size[halves[:, place]] > 0 for place, tree in enumerate(self.trees)], 1).all(1)
        return ProductBlocks(self.rows, self.trees, torch.cat([self.blocks[kept], halves[there]]))


@dataclass(frozen=True, eq=False)
class SequenceProducts:
    """The products of one sequence. They are split into blocks according to the sequence's own past."""

    state: StateProducts
    moving: tuple[Ints, ...]  # for each part, the facts that change with time
    products: tuple[tuple[ProductBlocks, ...], ...]  # by functor

    @classmethod
    def of(
        cls,
        state: StateProducts,
        moving: tuple[Ints, ...],
        tables: FactTables,
        query: RuleQuery,
        parameters: RuleParameters,
        at: ProductWindows,
    ) -> SequenceProducts:
        """Split the products into blocks. `tables` has the embeddings that change with time, at one time."""
        found = []
        for functor, of_products in zip(state.functors, state.ranges(moving, tables, 1), strict=True):
            weights = parameters.w[functor.number, 1 : 1 + functor.dim]
            made = []
            for one, ranges in zip(functor.products, of_products, strict=True):
                pairs = zip(one.parts, ranges, strict=True)
                trees = tuple(PartTree.of(part, some, weights) for part, some in pairs)
                root = torch.zeros(1, len(trees), dtype=torch.int64, device=weights.device)
                made.append(ProductBlocks(one, trees, root))
            found.append(tuple(made))
        whole, before = cls(state, moving, tuple(found)), 0
        while whole.count > before:
            before = whole.count
            spread = whole._bounds(tables, query, parameters, at, is_spread=True)
            refined = [
                [one.refined(own) for one, own in zip(*pair, strict=True)]
                for pair in zip(whole.products, spread, strict=True)
            ]
            whole = cls(state, moving, tuple(tuple(some) for some in refined))
        return whole

    @property
    def count(self) -> int:
        """The number of blocks."""
        return sum(len(one.blocks) for some in self.products for one in some)

    @cached_property
    def sizes(self) -> Tensor:
        """The number of candidates in each block, for all products: float64 [blocks]."""
        found = [one.sizes for some in self.products for one in some]
        return torch.cat(found) if found else torch.zeros(0, dtype=torch.float64)

    def bounds(self, tables: FactTables, query: RuleQuery, parameters: RuleParameters, at: ProductWindows) -> Tensor:
        """Return upper bounds of the intensities in each block: [blocks, P] on windows, followed by those in their middles."""
        found = self._bounds(tables, query, parameters, at)
        none = at.middle.new_zeros(0, at.middle.shape[1] * (2 if tables.degree else 1))
        return torch.cat([none, *(one for some in found for one in some)])

    def _bounds(
        self,
        tables: FactTables,
        query: RuleQuery,
        parameters: RuleParameters,
        at: ProductWindows,
        is_spread: bool = False,
    ) -> list[list[Tensor]]:
        """Return bounds by functor and product, or, if `is_spread`, about how far they exceed the intensities at one time."""
        columns, on = (2 if tables.degree else at.middle.shape[1]), RangeRows()
        found = []
        for functor, products, ranges in zip(
            self.state.functors, self.products, self.state.ranges(self.moving, tables, at.middle.shape[1]), strict=True
        ):
            like = at.middle.new_zeros(len(tables.layers), 1, columns, functor.dim)
            deduced = []
            for one, some in zip(products, ranges, strict=True):
                pairs = zip(some, one.trees, strict=True)
                hulls = [None if part is None else hulls_of(part.rows(tree.leaf)) for part, tree in pairs]
                deduced.append(one.deduced(hulls, like))
            made = []
            for number, one in enumerate(deduced):
                for place, other in enumerate(deduced):
                    if place != number:  # the other product may deduce the event, too
                        one = one.plus(other.or_nothing())
                pairs = zip(one.low, one.high, strict=True)
                rows = query.head(functor.dim, [packed(between(low, high, FLAT)) for low, high in pairs], on)
                rates = functor.highest(rows, parameters, at, tables.degree)
                if is_spread:
                    rates = rates[:, 0] * functor.spread(rows, parameters)
                made.append(rates)
            found.append(made)
        return found

    def candidates(self, block: Ints, which: Ints) -> Ints:
        """Return the candidate at a position of each block."""
        number, before, first = np.zeros(len(block), dtype=np.int64), 0, 0
        for one in (one for some in self.products for one in some):
            mine = np.flatnonzero((first <= block) & (block < first + len(one.blocks)))
            number[mine] = before + one.candidates(block[mine] - first, which[mine])
            first, before = first + len(one.blocks), before + one.rows.count
        return number
