"""The events that a query computes intensities for: all possible events that match a pattern, and a weighted random sample of the others.

Sampling the others is the paper's "down-sampling". Only the events that match are grounded; each free argument of a pattern adds its
possible values as one factor of a product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from foretell.errors import ForetellError
from foretell.plan.int_arrays import Ints, joined
from foretell.plan.local_rows import LocalFacts, row_codes
from foretell.plan.product_draws import drawn_candidates
from foretell.plan.products import FunctorProducts, ProductArrays

if TYPE_CHECKING:
    from foretell.plan.history import SlotHistory

MATCHED = 1_000_000  # the largest number of events that may match a pattern


@dataclass(frozen=True)
class PlacePattern:
    """A pattern for events of one functor: constants at some places, and pairs of places that must be equal. Places count from 0."""

    functor: int
    fixed: tuple[tuple[int, int], ...]  # (place, constant); constant -1 occurs in no event
    repeats: tuple[tuple[int, int], ...]

    def fits(self, args: Ints) -> np.ndarray:
        kept = np.ones(len(args), dtype=bool)
        for place, constant in self.fixed:
            kept &= args[:, place] == constant
        for first, again in self.repeats:
            kept &= args[:, first] == args[:, again]
        return kept


@dataclass(frozen=True, eq=False)
class AskedEvents:
    """Possible events of one state and their weights in sums: first the events with fact numbers, then the others by functor."""

    facts: Ints
    rows: tuple[tuple[int, Ints], ...]  # (functor, arguments [n, arity]) of each block of events without a fact number
    weight: np.ndarray  # float64: one weight per fact, then one per row
    matching: int  # the number of events that match; each has weight 1
    names: tuple[str, ...]  # the names of the matching events
    drawn: int  # the number of weighted draws

    def numbered(self, local: LocalFacts) -> Ints:
        """Return the events as fact numbers, in the order of their weights."""
        return joined([self.facts, *(local.facts(functor, args) for functor, args in self.rows)])


def facts_alone(facts: Ints) -> AskedEvents:
    """Return these numbered facts with weight 1, whether or not they are possible events."""
    return AskedEvents(facts, (), np.ones(len(facts)), 0, (), 0)


def rows_alone(functor: int, args: Ints) -> AskedEvents:
    """Return the events of one functor with these arguments, with weight 1."""
    return AskedEvents(np.zeros(0, dtype=np.int64), ((functor, args),), np.ones(len(args)), 0, (), 0)


def asked_events(
    history: SlotHistory, state: int, pattern: PlacePattern | None, keep: int, rng: np.random.Generator
) -> AskedEvents:
    """Return all possible events of a state that match the pattern, and the others among `keep` weighted draws."""
    assert history.products is not None
    grounded = history.grounded
    local = LocalFacts(len(grounded.facts.dim), grounded.known)
    rows, weights = [], []
    listed, matching_rows = _matching(history, state, pattern)
    fact, _, weight = drawn_candidates(history, local, np.asarray([state]), keep, rng)
    functor = np.concatenate([grounded.facts.functor, joined(local.functor)])[fact]
    for one in history.products.functors:
        mine = np.flatnonzero(functor == one.functor)
        args = local.args_of(one.functor, fact[mine])
        left = np.ones(len(mine), dtype=bool)
        if pattern is not None and pattern.functor == one.functor:
            left = ~pattern.fits(args)
            rows.append((one.functor, matching_rows))
            weights.append(np.ones(len(matching_rows)))
        rows.append((one.functor, args[left]))
        weights.append(weight[mine[left]])
    products = [one.functor for one in history.products.functors]
    others = np.flatnonzero(~np.isin(functor, products))
    others = others[~np.isin(fact[others], listed)]
    facts = joined([listed, fact[others]])
    weights = [np.ones(len(listed)), weight[others], *weights]
    text = grounded.grounding.text_of
    names = [grounded.grounding.text(one) for one in listed.tolist()]
    if pattern is not None:
        names += [text((pattern.functor, *args)) for args in matching_rows.tolist()]
    return AskedEvents(facts, tuple(rows), np.concatenate(weights), len(names), tuple(names), len(fact))


def _matching(history: SlotHistory, state: int, pattern: PlacePattern | None) -> tuple[Ints, Ints]:
    """Return the matching facts, and the arguments of matching events of products. Each event is in exactly one of the two."""
    nothing = np.zeros(0, dtype=np.int64)
    if pattern is None:
        return nothing, np.zeros((0, 0), dtype=np.int64)
    assert history.products is not None
    events = history.products.of_functor.get(pattern.functor)
    if events is None:
        keys = history.grounded.grounding.keys
        cell = np.arange(int(history.cells.count[state]))
        facts = history.cells.events(cell, np.full(len(cell), state))
        facts = facts[history.grounded.facts.functor[facts] == pattern.functor]
        args = np.asarray([keys[one][1:] for one in facts.tolist()], dtype=np.int64).reshape(len(facts), -1)
        return facts[pattern.fits(args)], np.zeros((0, 0), dtype=np.int64)
    return nothing, _matching_rows(events, state, pattern)


def _matching_rows(events: FunctorProducts, state: int, pattern: PlacePattern) -> Ints:
    listed = events.listed_values
    found = [listed[pattern.fits(listed) & events.is_listed(listed, np.full(len(listed), state))]]
    for one in events.products:
        number = _fitting_numbers(one, state, pattern)
        when = np.full(len(number), state)
        args = one.args(number, when)
        found.append(args[pattern.fits(args) & one.passes(args, when)])
    rows = np.concatenate(found)
    _, where = np.unique(row_codes(rows), return_index=True)
    return rows[where]


def _fitting_numbers(one: ProductArrays, state: int, pattern: PlacePattern) -> Ints:
    """Return the numbers of the candidates that have the pattern's constants in every part."""
    cells: list[Ints] = []
    for part, size in zip(one.parts, one.sizes[:, state].tolist(), strict=True):
        cell = np.arange(size)
        values = part.values[part.cells.events(cell, np.full(size, state))]
        kept = np.ones(size, dtype=bool)
        for place, constant in pattern.fixed:
            for column in np.flatnonzero(part.columns == place).tolist():
                kept &= values[:, column] == constant
        cells.append(np.flatnonzero(kept))
    count = prod(len(cell) for cell in cells)
    if count > MATCHED:
        raise ForetellError(
            f"{count:,} possible events match the pattern, expected {MATCHED:,} at most: leave fewer places open"
        )
    return _combined(cells, one.sizes[:, state].tolist())


def _combined(cells: Sequence[Ints], sizes: Sequence[int]) -> Ints:
    """Return all combinations of one cell per part, as numbers in mixed radix."""
    number = np.zeros(1, dtype=np.int64)
    for cell, size in zip(cells, sizes, strict=True):
        number = (number[:, None] * size + cell).ravel()
    return number
