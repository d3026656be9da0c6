"""The possible events of each functor, by number. Noise events are drawn from them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from foretell.ground.database import FactKey
from foretell.plan.history import SlotHistory
from foretell.plan.int_arrays import Ints
from foretell.plan.possible_by_state import PossibleByState
from foretell.plan.products import FunctorProducts

NO_FACT = -1


class PossibleByFunctor:
    """The possible events of each functor in every state: `count` [states, functors] has their number, in the order of `functors`.

    Facts are numbered as in the timeline's grounding. For functors with products, `count` is the number of candidates. A candidate that is
    no possible event, or repeats an earlier candidate, is `NO_FACT`. `fact_of` turns an event that is drawn from a product into a fact.
    """

    def __init__(self, history: SlotHistory, functors: list[str], fact_of: Callable[[FactKey], int]) -> None:
        self.fact_of = fact_of
        column = {name: number for number, name in enumerate(functors)}
        of_name = np.asarray([column.get(str(name), -1) for name in history.grounding.functors], dtype=np.int64)
        of_fact = of_name[history.grounded.facts.functor]
        always, possible = history.always, history.possible
        self.cells: list[PossibleByState] = []
        self.products: dict[int, FunctorProducts] = {}
        self.count = np.zeros((history.states, len(functors)), dtype=np.int64)
        for number in range(len(functors)):
            mine = of_fact[possible.item] == number
            fact, start, stop = (column[mine] for column in (possible.item, possible.start, possible.stop))
            self.cells.append(PossibleByState(always[of_fact[always] == number], fact, start, stop, history.states))
            self.count[:, number] = self.cells[-1].count
        for events in history.products.functors if history.products is not None else ():
            number = int(of_name[events.functor])
            self.products[number] = events
            self.count[:, number] += events.counts.sum(0)

    def facts(self, functor: Ints, number: Ints, state: Ints) -> Ints:
        """Return the fact with each number, which is below the functor's count in that state."""
        found = np.full(len(functor), NO_FACT, dtype=np.int64)
        for which in np.unique(functor).tolist():
            mine = np.flatnonzero(functor == which)
            before = self.cells[which].count[state[mine]]
            rows = mine[number[mine] < before]
            found[rows] = self.cells[which].events(number[rows], state[rows])
            if which in self.products:
                left = mine[number[mine] >= before]
                candidate = number[left] - self.cells[which].count[state[left]]
                found[left] = self._of_products(self.products[which], candidate, state[left])
        return found

    def _of_products(self, events: FunctorProducts, number: Ints, state: Ints) -> Ints:
        found = np.full(len(number), NO_FACT, dtype=np.int64)
        stop = np.cumsum(events.counts, axis=0)[:, state]
        source = (number[None] >= stop).sum(0)
        for place, one in enumerate(events.products):
            mine = np.flatnonzero(source == place)
            args = one.args(number[mine] - (stop[place - 1, mine] if place else 0), state[mine])
            kept = one.passes(args, state[mine]) & ~events.is_listed(args, state[mine])
            for other in events.products[:place]:
                kept &= ~other.has(args, state[mine])
            found[mine[kept]] = [self.fact_of((events.functor, *row)) for row in args[kept].tolist()]
        return found
