"""Numbers for events of products: the fact's number if the grounding has one, otherwise a number that is local to one query."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from foretell.ground.database import FactKey
from foretell.ground.products import EventProduct
from foretell.ground.timeline import Grounding
from foretell.plan.int_arrays import Ints, joined
from foretell.plan.products import RowNumbering

if TYPE_CHECKING:
    from foretell.plan.history import FactArrays, GroundingArrays, InstanceArrays, SlotHistory


class KnownEvents:
    """The events of one functor that have fact numbers in a grounding, updated as the grounding grows."""

    def __init__(self, functor: int, arity: int) -> None:
        self.functor, self.arity, self.seen = functor, arity, 0
        self.facts: list[int] = []
        self._args: list[tuple[int, ...]] = []
        self.numbers = RowNumbering(np.zeros((0, arity), dtype=np.int64))
        self.args = np.zeros((0, arity), dtype=np.int64)
        self.fact = np.zeros(0, dtype=np.int64)

    def refresh(self, grounding: Grounding) -> None:
        keys, before = grounding.keys, len(self.facts)
        for fact in range(self.seen, len(keys)):
            if keys[fact][0] == self.functor:
                self.facts.append(fact)
                self._args.append(keys[fact][1:])
        self.seen = len(keys)
        if len(self.facts) > before:
            self.args = np.asarray(self._args, dtype=np.int64).reshape(-1, self.arity)
            self.fact = np.asarray(self.facts, dtype=np.int64)
            self.numbers = RowNumbering(self.args)

    def find(self, args: Ints) -> Ints:
        """Return the fact number of each row of arguments; -1: it has none."""
        found = self.numbers.find(args)
        return np.where(found >= 0, self.fact[found], -1) if len(self.fact) else found

    def args_of(self, facts: Ints) -> Ints:
        return self.args[np.searchsorted(self.fact, facts)]


def row_codes(rows: Ints) -> Ints:
    """Return one integer per row; equal rows have equal integers."""
    code, size = np.zeros(len(rows), dtype=np.int64), 1
    for column in rows.T:
        values = int(column.max(initial=0)) + 1
        if size * values >= 1 << 62:
            _, code = np.unique(code, return_inverse=True)
            size = int(code.max(initial=0)) + 1
        if size * values >= 1 << 62:
            _, column = np.unique(column, return_inverse=True)
            values = int(column.max(initial=0)) + 1
        code, size = code * values + column, size * values
    return code


@dataclass(frozen=True, eq=False)
class LocalRows:
    """Facts and proofs that only one query has. Their numbers follow those of the grounding."""

    facts_from: int
    instances_from: int
    functor: Ints  # of each fact
    args: list[Ints]  # the facts' arguments by functor, each [facts, arity]
    rule: Ints  # of each rule instance
    group: Ints

    def keys(self) -> Iterator[FactKey]:
        """Yield functor and arguments of each fact."""
        functors = iter(self.functor.tolist())
        for rows in self.args:
            yield from ((next(functors), *values) for values in rows.tolist())


class LocalFacts:
    """Gives local numbers to events without a fact number."""

    def __init__(self, first: int, known: dict[int, KnownEvents]) -> None:
        self.first, self.known = first, known
        self.functor: list[Ints] = []
        self.rows: list[Ints] = []
        self.blocks: dict[int, list[tuple[int, Ints]]] = {}  # by functor: (first number, arguments) of each block
        self.next = first

    def facts(self, functor: int, args: Ints) -> Ints:
        """Return the fact numbers of events of one functor. Equal arguments have equal numbers."""
        found = self.known[functor].find(args)
        fresh = np.flatnonzero(found < 0)
        if len(fresh):
            _, where, inverse = np.unique(row_codes(args[fresh]), return_index=True, return_inverse=True)
            found[fresh] = self.next + inverse
            self.blocks.setdefault(functor, []).append((self.next, args[fresh[where]]))
            self.functor.append(np.full(len(where), functor, dtype=np.int64))
            self.rows.append(args[fresh[where]])
            self.next += len(where)
        return found

    def args_of(self, functor: int, facts: Ints) -> Ints:
        found = np.zeros((len(facts), self.known[functor].arity), dtype=np.int64)
        old = facts < self.first
        found[old] = self.known[functor].args_of(facts[old])
        for first, args in self.blocks.get(functor, ()):
            mine = (facts >= first) & (facts < first + len(args))
            found[mine] = args[facts[mine] - first]
        return found

    def extended(self, facts: FactArrays, grounded: GroundingArrays) -> FactArrays:
        """Return the arrays of the grounding's facts, followed by the local facts."""
        functor = joined(self.functor)
        dims, changing = grounded.layout.of_facts(grounded.grounding)
        return replace(
            facts,
            functor=np.concatenate([facts.functor, functor]),
            dim=np.concatenate([facts.dim, np.asarray(dims, dtype=np.int64)[functor]]),
            changing=np.concatenate([facts.changing, np.asarray(changing, dtype=bool)[functor]]),
            is_event=np.concatenate([facts.is_event, np.ones(len(functor), dtype=bool)]),
            always_proofs=facts.always_proofs.for_keys_below(self.next),
        )


class LocalProofs:
    """Makes the proofs of events of products by combining the proofs of their parts."""

    def __init__(self, history: SlotHistory, facts: LocalFacts) -> None:
        assert history.products is not None
        self.products, self.grounded, self.facts = history.products, history.grounded, facts
        self.instances = history.grounded.instances
        self.first = len(self.instances.head)
        self.rule: list[Ints] = []
        self.group: list[Ints] = []
        self.head: list[Ints] = []
        self.bodies: list[Ints] = []  # per block: [rule instances, embedded conditions]
        self.next = self.first

    def of(self, fact: Ints, functor: Ints, state: Ints) -> tuple[Ints, Ints]:
        """Return all proofs of facts in states by products: position of the fact, and rule instance."""
        places, instances = [], []
        for events in self.products.functors:
            mine = np.flatnonzero(functor == events.functor)
            args = self.facts.args_of(events.functor, fact[mine])
            for one in events.products:
                row, chosen = one.proofs(args, state[mine])
                _, where, inverse = np.unique(row_codes(chosen), return_index=True, return_inverse=True)
                places.append(mine[row])
                instances.append(self.next + inverse)
                self._add(one.one, chosen[where], fact[mine[row[where]]])
        return joined(places), joined(instances)

    def _add(self, one: EventProduct, chosen: Ints, head: Ints) -> None:
        base = self.instances
        self.rule.append(np.full(len(chosen), one.rule, dtype=np.int64))
        self.group.append(base.group[chosen[:, one.carrier]])
        self.head.append(head)
        columns = [
            base.body_fact[base.body_start[chosen[:, part]] + place]
            for part, place in self.grounded.conditions[one.rule]
        ]
        self.bodies.append(np.stack(columns, axis=1) if columns else np.zeros((len(chosen), 0), dtype=np.int64))
        self.next += len(chosen)

    def extended(self) -> InstanceArrays:
        """Return the arrays of the grounding's rule instances, followed by the local ones."""
        base, group = self.instances, joined(self.group)
        r = np.asarray([self.grounded.r_of_group(one) for one in range(int(group.max(initial=-1)) + 1)], dtype=np.int64)
        counts = joined([np.full(len(one), one.shape[1], dtype=np.int64) for one in self.bodies])
        return replace(
            base,
            head=np.concatenate([base.head, *self.head]),
            rule=np.concatenate([base.rule, *self.rule]),
            group=np.concatenate([base.group, group]),
            r=np.concatenate([base.r, r[group]]),
            body_start=np.concatenate([base.body_start, base.body_start[-1] + np.cumsum(counts)]),
            body_fact=np.concatenate([base.body_fact, *(one.ravel() for one in self.bodies)]),
        )

    def rows(self) -> LocalRows:
        return LocalRows(
            self.facts.first,
            self.first,
            joined(self.facts.functor),
            self.facts.rows,
            joined(self.rule),
            joined(self.group),
        )


class LocalNumbering:
    """One numbering for the facts and rule instances of several sequences: the grounding's numbers, then each sequence's local ones."""

    def __init__(self, grounded: GroundingArrays, parts: Sequence[LocalRows | None]) -> None:
        self.parts = parts
        facts, instances = len(grounded.facts.functor), len(grounded.instances.rule)
        self.starts: list[tuple[int, int]] = []
        for part in parts:
            self.starts.append((facts, instances))
            if part is not None:
                facts, instances = facts + len(part.functor), instances + len(part.rule)
        own = [part for part in parts if part is not None]
        self.functor = joined([grounded.facts.functor, *(part.functor for part in own)])
        self.rule = joined([grounded.instances.rule, *(part.rule for part in own)])
        self.group = joined([grounded.instances.group, *(part.group for part in own)])

    def facts(self, place: int, facts: Ints) -> Ints:
        part = self.parts[place]
        return facts if part is None else _moved(facts, part.facts_from, self.starts[place][0])

    def instances(self, place: int, instances: Ints) -> Ints:
        part = self.parts[place]
        return instances if part is None else _moved(instances, part.instances_from, self.starts[place][1])

    def keys(self) -> dict[int, FactKey]:
        """Return functor and arguments of the local facts, by number."""
        return {
            first + place: key
            for part, (first, _) in zip(self.parts, self.starts, strict=True)
            if part is not None
            for place, key in enumerate(part.keys())
        }


def _moved(numbers: Ints, old: int, new: int) -> Ints:
    return np.where(numbers >= old, numbers + (new - old), numbers)
