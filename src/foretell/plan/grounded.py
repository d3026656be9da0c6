"""A grounding as arrays, computed once and continued as the grounding grows: what is needed of facts and instantiations to find slots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foretell.ground.timeline import Grounding
from foretell.plan.int_arrays import ByKey, Ints, spread
from foretell.plan.layout import DimensionLayout

NO_INTS = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class FactArrays:
    functor: Ints
    dim: Ints
    changing: np.ndarray  # bool: whether the embedding can change with time
    is_event: np.ndarray  # bool
    always_proofs: ByKey  # by head with an embedding: instantiations that hold for ever


@dataclass(frozen=True, eq=False)
class InstanceArrays:
    head: Ints
    rule: Ints
    group: Ints
    r: Ints  # the `r` of the equations, as the first group that belongs to it
    body_start: Ints  # [instantiations + 1]
    body_fact: Ints  # the conditions with embeddings, of all instantiations

    def bodies(self, instances: Ints) -> tuple[Ints, Ints, Ints]:
        """Embedded conditions of instantiations: fact, row, and place among the embedded ones."""
        start = self.body_start[instances]
        row, where = spread(start, self.body_start[instances + 1] - start)
        return self.body_fact[where], row, where - start[row]


class GroundingArrays:
    """`facts` and `instances` are those of the grounding when `refresh` was called last; numbers given before stay as they are."""

    def __init__(self, grounding: Grounding, layout: DimensionLayout) -> None:
        self.grounding, self.layout = grounding, layout
        nowhere = NO_INTS.astype(bool)
        self.facts = FactArrays(NO_INTS, NO_INTS, nowhere, nowhere, ByKey(NO_INTS, NO_INTS, 0))
        self.instances = InstanceArrays(NO_INTS, NO_INTS, NO_INTS, NO_INTS, np.zeros(1, dtype=np.int64), NO_INTS)
        self._r_of_group: list[int] = []
        self._first: dict[tuple[int, ...], int] = {}
        embedded = [() if one is None else one.embedded for one in layout.rules]
        self._embedded: Sequence[tuple[int, ...]] = embedded
        self.refresh()

    def refresh(self) -> None:
        """Take in what the grounding has learned since."""
        if len(self.grounding.rule) > len(self.instances.head):
            self._more_instances()
        if len(self.grounding.keys) > len(self.facts.dim):
            self._more_facts()

    def _more_instances(self) -> None:
        grounding, old = self.grounding, self.instances
        new = range(len(old.head), len(grounding.rule))
        for number in range(len(self._r_of_group), len(grounding.groups)):
            self._r_of_group.append(self._r(number))
        bodies = [[grounding.body[one][place] for place in self._embedded[grounding.rule[one]]] for one in new]
        counts = np.asarray([len(one) for one in bodies], dtype=np.int64)
        self.instances = InstanceArrays(
            _continued(old.head, [grounding.head[one] for one in new]),
            _continued(old.rule, [grounding.rule[one] for one in new]),
            _continued(old.group, [grounding.group[one] for one in new]),
            _continued(old.r, [self._r_of_group[grounding.group[one]] for one in new]),
            np.concatenate([old.body_start, old.body_start[-1] + np.cumsum(counts)]),
            _continued(old.body_fact, [fact for one in bodies for fact in one]),
        )

    def _r(self, number: int) -> int:
        """A group, or the first of several that only the values of `: b(X)` tell apart."""
        rule, *values = self.grounding.groups[number]
        count = self.layout.values_of_heads.get(rule)
        return number if count is None else self._first.setdefault((rule, *values[:count]), number)

    def _more_facts(self) -> None:
        grounding = self.grounding
        keys = grounding.keys
        old = self.facts.functor
        functor = _continued(old, [keys[fact][0] for fact in range(len(old), len(keys))])
        dims, changing = self.layout.of_facts(grounding)
        known = [grounding.program.functors.get(name) for name in grounding.functors]
        is_event = [one is not None and one.kind == "event" for one in known]
        dim = np.asarray(dims, dtype=np.int64)[functor]
        always = grounding.always_proofs.astype(np.int64)
        head = self.instances.head[always]
        shown = dim[head] > 0
        self.facts = FactArrays(
            functor,
            dim,
            np.asarray(changing, dtype=bool)[functor],
            np.asarray(is_event, dtype=bool)[functor],
            ByKey(head[shown], always[shown], len(functor)),
        )


def _continued(values: Ints, more: Sequence[int]) -> Ints:
    return np.concatenate([values, np.asarray(more, dtype=np.int64)])
