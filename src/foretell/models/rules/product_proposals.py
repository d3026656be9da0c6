"""Proposals of events of products, drawn hierarchically: a block of possible events, then a fact of each part, under one bound.

`docs/explanation/products.md` has the proof that what is accepted has the exact law.
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
    """All possible events of a sequence: those that are listed, and products."""

    listed: ScoredEvents
    count: int  # of the listed ones
    products: SequenceProducts
    tables: Callable[[Tensor, Tensor, int], FactTables]  # of what changes, on windows [1, P]
    query: RuleQuery
    parameters: RuleParameters

    @property
    def candidates(self) -> int:
        return int(self.products.state.history.total[1])

    def at(self, middle: Tensor, half: Tensor) -> ProductWindows:
        return ProductWindows(middle, half, self.listed.last, self.listed.starts)

    def bounds(self, middle: Tensor, half: Tensor, degree: int) -> Tensor:
        """No intensity of a listed event, or of one of a block, is higher: [P, items] on windows [1, P], then in their middles."""
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
        """How many events each item of `bounds` stands for."""
        return torch.cat([self.products.sizes.new_ones(self.count), self.products.sizes])

    def rates(self, number: Tensor, times: Tensor) -> Tensor:
        """Intensities of possible events by their numbers, at one time each [n]."""
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
        """The numbers of possible events that have a place in an item of `bounds` each."""
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
    each: Tensor  # float64 [P, items]: of each event of an item
    steps: Tensor  # float64 [P, items]: bounds of the sums over events, added up

    @classmethod
    def of(cls, events: SequenceEvents, each: Tensor) -> DrawnItems:
        return cls(events, each, (each * events.sizes).cumsum(1))

    @property
    def total(self) -> Tensor:
        """[P]; 0 where nothing is possible."""
        return self.steps[:, -1] if self.steps.shape[1] else self.steps.sum(1)

    def chosen(self, column: Tensor, times: Tensor, level: Tensor) -> Tensor:
        """What proposals on windows are."""
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
    """Proposals of some sequences, several of which may be the same so far."""

    kinds: tuple[DrawnItems, ...]
    kind: Tensor  # int64 [W]
    number: Tensor  # int64 [W]: which of its kind
    pieces: int  # of each sequence

    def chosen(self, row: Tensor, piece: Tensor, times: Tensor, level: Tensor) -> Tensor:
        found, kind = torch.full_like(row, -1), self.kind[row]
        for which in kind.unique().tolist():
            mine = torch.nonzero(kind == which).squeeze(1)
            column = self.number[row[mine]] * self.pieces + piece[mine]
            found[mine] = self.kinds[which].chosen(column, times[mine], level[mine])
        return found
