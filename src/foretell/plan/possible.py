"""Which events are possible in every state of a timeline, by functor: how many, and which one has a given number."""

from __future__ import annotations

import numpy as np

from foretell.plan.history import SlotHistory
from foretell.plan.int_arrays import Ints
from foretell.plan.sample import PossibleByState


class PossibleByFunctor:
    """Numbers of facts are those of the timeline's grounding; `functors` are named in the order of the columns of `count`."""

    def __init__(self, history: SlotHistory, functors: list[str]) -> None:
        column = {name: number for number, name in enumerate(functors)}
        of_name = np.asarray([column.get(str(name), -1) for name in history.grounding.functors], dtype=np.int64)
        of_fact = of_name[history.grounded.facts.functor]
        always, possible = history.always, history.possible
        self.cells: list[PossibleByState] = []
        for number in range(len(functors)):
            mine = of_fact[possible.item] == number
            self.cells.append(
                PossibleByState(
                    always[of_fact[always] == number],
                    possible.item[mine],
                    possible.start[mine],
                    possible.stop[mine],
                    history.states,
                )
            )
        counts = [one.count for one in self.cells]
        self.count = np.stack(counts, axis=1) if counts else np.zeros((history.states, 0), dtype=np.int64)

    def facts(self, functor: Ints, number: Ints, state: Ints) -> Ints:
        """The fact with each number, below its functor's count in that state."""
        found = np.empty(len(functor), dtype=np.int64)
        for which in np.unique(functor).tolist():
            mine = functor == which
            found[mine] = self.cells[which].events(number[mine], state[mine])
        return found
