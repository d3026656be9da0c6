"""The possible events at queries for programs with products: all of them, or a weighted draw."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from foretell.errors import ForetellError
from foretell.plan.int_arrays import Ints, joined, spread
from foretell.plan.local_rows import LocalFacts
from foretell.plan.products import FunctorProducts

if TYPE_CHECKING:
    from foretell.plan.history import SlotHistory

LISTED = 20_000_000  # the largest number of candidates, over all queries, that are processed together


def strata(count: Ints, keep: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Draw one number from each of `keep` equal strata below each count. Returns numbers and sizes of strata, both [keep, counts].

    A number represents its stratum: weighted by the sizes, the sum over the drawn numbers is unbiased for the sum over all.
    """
    edges = np.arange(keep + 1)[:, None] * count // keep
    size = np.diff(edges, axis=0)
    return edges[:-1] + rng.integers(0, size), size


class Candidates:
    """Collects the chosen events of queries: listed facts, and candidates of products by number."""

    def __init__(self, history: SlotHistory, local: LocalFacts) -> None:
        assert history.products is not None
        self.history, self.products, self.local = history, history.products, local
        self.fact: list[Ints] = []
        self.query: list[Ints] = []
        self.weight: list[np.ndarray] = []

    def take_listed(self, fact: Ints, query: Ints, state: Ints, weight: np.ndarray) -> None:
        functor, weight = self.history.grounded.facts.functor[fact], weight.astype(np.float64)
        for one in self.products.functors:
            mine = np.flatnonzero(functor == one.functor)
            if len(mine):
                weight[mine] /= one.times(self.local.args_of(one.functor, fact[mine]), state[mine])
        self._take(fact, query, weight)

    def take_numbers(self, number: Ints, query: Ints, state: Ints, weight: np.ndarray) -> None:
        """Add candidates of products by number, without those that a filter excludes."""
        by_functor: dict[int, tuple[FunctorProducts, list[Ints], list[Ints]]] = {}
        for events, one, mine, args in self.products.decoded(number, state):
            kept = np.flatnonzero(one.passes(args, state[mine]))
            _, where, values = by_functor.setdefault(events.functor, (events, [], []))
            where.append(mine[kept])
            values.append(args[kept])
        for events, where, values in by_functor.values():
            mine, args = joined(where), np.concatenate(values)
            times = 1 if events.is_plain else events.times(args, state[mine])
            self._take(self.local.facts(events.functor, args), query[mine], weight[mine] / times)

    def _take(self, fact: Ints, query: Ints, weight: np.ndarray) -> None:
        self.fact.append(fact)
        self.query.append(query)
        self.weight.append(weight)

    def rows(self) -> tuple[Ints, Ints, np.ndarray]:
        """Return fact, query and weight of each chosen event."""
        return joined(self.fact), joined(self.query), np.concatenate([np.zeros(0), *self.weight])


def drawn_candidates(
    history: SlotHistory, local: LocalFacts, state: Ints, keep: int, rng: np.random.Generator
) -> tuple[Ints, Ints, np.ndarray]:
    """Draw `keep` candidates at each query, or all if there are no more. Returns fact, query, weight."""
    count = history.totals[state]
    many, few = np.flatnonzero(count > keep), np.flatnonzero(count <= keep)
    number, size = strata(count[many], keep, rng)
    whose, cell = spread(np.zeros_like(few), count[few])
    query = np.concatenate([np.tile(many, keep), few[whose]])
    number = np.concatenate([number.ravel(), cell])
    weight = np.concatenate([size.ravel(), np.ones(len(cell))])
    found = Candidates(history, local)
    before = history.cells.count[state[query]]
    is_listed = number < before
    mine = np.flatnonzero(is_listed)
    fact = history.cells.events(number[mine], state[query[mine]])
    found.take_listed(fact, query[mine], state[query[mine]], weight[mine])
    others = np.flatnonzero(~is_listed)
    found.take_numbers(number[others] - before[others], query[others], state[query[others]], weight[others])
    return found.rows()


def all_candidates(history: SlotHistory, local: LocalFacts, state: Ints) -> tuple[Ints, Ints]:
    """Return fact and query of all possible events at queries. An event of several products is repeated."""
    assert history.products is not None
    count = history.products.total[state]
    if count.sum() > LISTED:
        raise ForetellError(
            f"{int(count.sum()):,} possible events at {len(state):,} times would be looked at together, expected {LISTED:,} at most: "
            f"they are kept as products; draw some of them (`downsample=`), or ask about fewer"
        )
    query, number = spread(np.zeros_like(count), count)
    found = Candidates(history, local)
    found.take_numbers(number, query, state[query], np.ones(len(number)))
    whose, cell = spread(np.zeros_like(count), history.cells.count[state])
    found.take_listed(history.cells.events(cell, state[whose]), whose, state[whose], np.ones(len(cell)))
    fact, query, _ = found.rows()
    return fact, query
