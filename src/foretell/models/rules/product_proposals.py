"""Proposals of events of products, drawn in two steps: a block of possible events, then one of its events, under one bound.

`docs/explanation/products.md` has the proof that accepted events have exactly the model's distribution.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from foretell.models.rules.event_scores import ScoredEvents
from foretell.models.rules.product_blocks import ProductWindows, SequenceProducts
from foretell.models.rules.product_rows import FactTables
from foretell.models.rules.sampled_sequences import RuleQuery
from foretell.models.rules.sampler_parameters import RuleParameters
from foretell.sampling.bounds.chebyshev import unless_known
from foretell.sampling.core.thinning import BoundViolation

TIMES_AT_A_TIME = 64


@dataclass(frozen=True, eq=False)
class SequenceEvents:
    """All possible events of a sequence: listed events and products."""

    listed: ScoredEvents
    count: int  # the number of listed events
    products: SequenceProducts
    tables: Callable[[Tensor, Tensor, int], FactTables]  # embeddings that change with time, on windows [1, P]
    query: RuleQuery
    parameters: RuleParameters

    @property
    def candidates(self) -> int:
        return int(self.products.state.history.total[1])

    def at(self, middle: Tensor, half: Tensor) -> ProductWindows:
        return ProductWindows(middle, half, self.listed.last, self.listed.starts)

    def bounds(self, middle: Tensor, half: Tensor, degree: int) -> Tensor:
        """Return upper bounds of a listed event or of a block's events: [P, items] on windows [1, P], then in their middles."""
        tables = self.tables(middle, half, degree)
        blocks = self.products.bounds(tables, self.query, self.parameters, self.at(middle, half))
        if not self.count:
            return blocks.T
        rates = self.listed.rates(self.parameters, tables.layers[-1], middle, half, degree)
        shape = rates.shape()
        upper = [unless_known(shape.upper(rates.remainder)), shape.centre] if degree else [rates.v[0]]
        return torch.cat([torch.cat(upper, 1), blocks]).T

    @property
    def sizes(self) -> Tensor:
        """The number of events in each item of `bounds`."""
        return torch.cat([self.products.sizes.new_ones(self.count), self.products.sizes])

    def rates(self, number: Tensor, times: Tensor) -> Tensor:
        """Return intensities of possible events by their numbers, each at its own time [n]."""
        parts = zip(number.split(TIMES_AT_A_TIME), times.split(TIMES_AT_A_TIME), strict=True)
        return torch.cat([self._rates(*one) for one in parts]) if len(number) else times.new_zeros(0)

    def _rates(self, number: Tensor, times: Tensor) -> Tensor:
        when, zero = times[None], torch.zeros_like(times)[None]
        tables, found = self.tables(when, zero, 0), torch.zeros_like(times)
        column = torch.arange(len(times), device=times.device)
        listed = number < self.count
        if bool(listed.any()):
            rates = self.listed.rates(self.parameters, tables.layers[-1], when, zero, 0).v[0]
            found[listed] = rates[number[listed], column[listed]]
        others = torch.nonzero(~listed).squeeze(1)
        if len(others):
            candidate = (number[others] - self.count).cpu().numpy()
            found[others] = self.products.state.rates(
                candidate, column[others], times[others], tables, self.query, self.parameters, self.at(when, zero)
            )
        return found

    def named(self, item: Tensor, which: Tensor) -> Tensor:
        """Return the number of the possible event at a position of each item of `bounds`."""
        found = item.clone()
        blocks = torch.nonzero(item >= self.count).squeeze(1)
        if len(blocks):
            block, place = (item[blocks] - self.count).cpu().numpy(), which[blocks].cpu().numpy()
            numbers = torch.from_numpy(self.products.candidates(block, place)).to(item.device)
            found[blocks] = self.count + numbers
        return found


@dataclass(frozen=True, eq=False)
class DrawnItems:
    """Bounds of the items of one kind of sequence on windows."""

    events: SequenceEvents
    each: Tensor  # float64 [P, items]: for one event of an item
    steps: Tensor  # float64 [P, items]: cumulative sums over items of bound times number of events

    @classmethod
    def of(cls, events: SequenceEvents, each: Tensor) -> DrawnItems:
        return cls(events, each, (each * events.sizes).cumsum(1))

    @property
    def total(self) -> Tensor:
        """The bound of the total intensity: [P]; 0 where nothing is possible."""
        return self.steps[:, -1] if self.steps.shape[1] else self.steps.sum(1)

    def chosen(self, column: Tensor, times: Tensor, level: Tensor) -> Tensor:
        """Return the event that each proposal selects, or -1 if the proposal is rejected."""
        steps = self.steps[column]
        item = torch.searchsorted(steps, level[:, None], right=True).squeeze(1).clamp(max=steps.shape[1] - 1)
        row = torch.arange(len(item), device=item.device)
        each = self.each[column, item]
        inside = (level - torch.where(item > 0, steps[row, item - 1], 0.0)).clamp(min=0.0)
        sizes = self.events.sizes[item]
        which = torch.minimum((inside / each).nan_to_num(nan=0.0).floor(), sizes - 1.0)
        number = self.events.named(item, which.long())
        rates = self.events.rates(number, times)
        if bool((rates > each).any()):
            worst = int((rates / each).argmax())
            raise BoundViolation(
                f"intensity {rates[worst]:.17g} above its bound {each[worst]:.17g} at {times[worst]:.17g}"
            )
        return torch.where(inside - which * each < rates, number, -1)


@dataclass(frozen=True, eq=False)
class ProductProposals:
    """Proposals for some sequences, several of which may be equal so far."""

    kinds: tuple[DrawnItems, ...]
    kind: Tensor  # int64 [W]
    number: Tensor  # int64 [W]: the number within its kind
    pieces: int  # per sequence

    def chosen(self, row: Tensor, piece: Tensor, times: Tensor, level: Tensor) -> Tensor:
        found, kind = torch.full_like(row, -1), self.kind[row]
        for which in kind.unique().tolist():
            mine = torch.nonzero(kind == which).squeeze(1)
            column = self.number[row[mine]] * self.pieces + piece[mine]
            found[mine] = self.kinds[which].chosen(column, times[mine], level[mine])
        return found
