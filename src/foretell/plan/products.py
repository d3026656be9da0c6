"""Products of possible events as arrays: the number of candidates, which of them are possible, their fact numbers and proofs.

A *candidate* is a choice of one fact for each part of a product. A filter may exclude it, and several candidates (of several products,
or a listed fact) may be the same event. `docs/explanation/products.md` proves that the estimates are unbiased nevertheless.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from foretell.ground.products import ComparedPlaces, EventProduct, PartPattern
from foretell.ground.timeline import Timeline
from foretell.plan.int_arrays import ByKey, Ints
from foretell.plan.possible_by_state import PossibleByState

if TYPE_CHECKING:
    from foretell.plan.history import InstanceArrays


class RowNumbering:
    """Numbers distinct rows of integers, and finds the number of a row."""

    def __init__(self, rows: Ints) -> None:
        self.steps: list[tuple[Ints, Ints]] = []
        code = np.zeros(len(rows), dtype=np.int64)
        for column in rows.T:
            values = np.unique(column)
            code = code * len(values) + np.searchsorted(values, column)
            known = np.unique(code)
            code = np.searchsorted(known, code)
            self.steps.append((values, known))
        self.row = np.argsort(code)
        assert len(rows) <= 1 or len(self.steps), "rows without columns are all alike"
        self.count = len(rows)

    def find(self, rows: Ints) -> Ints:
        """Return the number of each row; -1: not found."""
        if not self.count:
            return np.full(len(rows), -1, dtype=np.int64)
        code = np.zeros(len(rows), dtype=np.int64)
        found = np.ones(len(rows), dtype=bool)
        for column, (values, known) in zip(rows.T, self.steps, strict=True):
            rank = np.minimum(np.searchsorted(values, column), len(values) - 1)
            found &= values[rank] == column
            code = code * len(values) + rank
            place = np.minimum(np.searchsorted(known, code), len(known) - 1)
            found &= known[place] == code
            code = place
        return np.where(found, self.row[code], -1)


class PartArrays:
    """The facts of one part of a product in all states of a sequence, numbered from 0."""

    def __init__(self, timeline: Timeline, part: PartPattern) -> None:
        grounding = timeline.grounding
        keys, head, states = grounding.keys, grounding.head, timeline.states
        whole = np.asarray(
            [(fact, 0, states) for fact in grounding.part_always.tolist() if keys[fact][0] == part.functor],
            dtype=np.int64,
        ).reshape(-1, 3)
        rows = timeline.part_holds.astype(np.int64)
        rows = rows[np.asarray([keys[fact][0] == part.functor for fact in rows[:, 0].tolist()], dtype=bool)]
        facts = np.unique(np.concatenate([whole[:, 0], rows[:, 0]]))
        self.values = np.asarray([keys[fact][1:] for fact in facts.tolist()], dtype=np.int64)
        self.values = self.values.reshape(len(facts), len(part.places))
        self.numbers = RowNumbering(self.values)
        always, item = np.searchsorted(facts, whole[:, 0]), np.searchsorted(facts, rows[:, 0])
        self.cells = PossibleByState(always, item, rows[:, 1], rows[:, 2], states)
        self.count = self.cells.count
        self.during = _Spans.of(
            np.concatenate([always, item]), np.zeros(0), np.concatenate([whole[:, 1:], rows[:, 1:]]), len(facts)
        )
        proofs = [(one, 0, states) for one in grounding.part_always_proofs.tolist()]
        proofs = np.asarray([*proofs, *timeline.part_proofs.tolist()], dtype=np.int64).reshape(-1, 3)
        heads = np.asarray([head[one] for one in proofs[:, 0].tolist()], dtype=np.int64)
        own = np.isin(heads, facts)
        self.proofs = _Spans.of(np.searchsorted(facts, heads[own]), proofs[own, 0], proofs[own, 1:], len(facts))
        self.columns = np.asarray(part.places, dtype=np.int64) - 1

    def conditions(self, instances: InstanceArrays) -> Ints:
        """Return the facts with embeddings that the part's proofs read."""
        return np.unique(instances.bodies(self.proofs.value)[0])

    def find(self, args: Ints) -> Ints:
        """Return the part's fact for each row of event arguments: [n]; -1: no such fact ever holds."""
        if not len(self.columns):
            return np.full(len(args), 0 if len(self.values) else -1, dtype=np.int64)
        return self.numbers.find(args[:, self.columns])


@dataclass(frozen=True, eq=False)
class _Spans:
    """Values with intervals of states; each value belongs to a number, and a number may have several."""

    by_number: ByKey  # number → rows of the intervals
    value: Ints
    start: Ints
    stop: Ints

    @classmethod
    def of(cls, numbers: Ints, value: Ints, spans: Ints, size: int) -> _Spans:
        return cls(ByKey(numbers, np.arange(len(numbers)), size), value, spans[:, 0], spans[:, 1])

    def at(self, number: Ints, state: Ints) -> tuple[Ints, Ints]:
        """Return the rows of `value` that hold for each number in a state, as (position of the number, row). Number -1 has none."""
        asked = np.flatnonzero(number >= 0)
        place, row = self.by_number.expand(number[asked])
        place = asked[place]
        now = (self.start[row] <= state[place]) & (state[place] < self.stop[row])
        return place[now], row[now]

    def holds(self, number: Ints, state: Ints) -> np.ndarray:
        found = np.zeros(len(number), dtype=bool)
        found[self.at(number, state)[0]] = True
        return found


class ProductArrays:
    """The product of one rule in all states of a sequence."""

    def __init__(self, timeline: Timeline, one: EventProduct) -> None:
        self.one = one
        self.parts = [PartArrays(timeline, part) for part in one.parts]
        self.blockers = [PartArrays(timeline, part) for part in one.blockers]
        self.sizes = np.stack([part.count for part in self.parts])  # [parts, states]
        self.count = self.sizes.prod(0)  # [states]: the number of candidates
        self.numbers = np.asarray([np.nan if one is None else one for one in _numbers(one)], dtype=np.float64)

    def args(self, number: Ints, state: Ints) -> Ints:
        """Return the arguments of candidates: [n, arity]. A candidate's number is below the count of its state."""
        found = np.zeros((len(number), self.one.arity), dtype=np.int64)
        left = number
        for part, size in zip(reversed(self.parts), reversed(self.sizes), strict=True):
            left, cell = np.divmod(left, size[state])
            found[:, part.columns] = part.values[part.cells.events(cell, state)]
        for place, constant in self.one.fixed:
            found[:, place - 1] = constant
        for first, again in self.one.repeats:
            found[:, again - 1] = found[:, first - 1]
        return found

    def passes(self, args: Ints, state: Ints) -> np.ndarray:
        """Return bool [n]: True for candidates that pass the filters."""
        kept = np.ones(len(args), dtype=bool)
        for one in self.one.compares:
            kept &= self._compared(one, args[:, one.left - 1], args[:, one.right - 1])
        for part in self.blockers:
            kept &= ~part.during.holds(part.find(args), state)
        return kept

    def _compared(self, one: ComparedPlaces, left: Ints, right: Ints) -> np.ndarray:
        if one.compare is None:
            return left != right
        numbers = self.numbers
        if max(left.max(initial=-1), right.max(initial=-1)) >= len(numbers):
            numbers = self.numbers = np.asarray([np.nan if x is None else x for x in one.numbers], dtype=np.float64)
        return np.asarray(one.compare(numbers[left], numbers[right]), dtype=bool)  # pyright: ignore[reportArgumentType]

    def has(self, args: Ints, state: Ints) -> np.ndarray:
        """Return bool [n]: True for events that this rule makes possible."""
        return self._fits(args) & self._parts_hold(args, state) & self.passes(args, state)

    def _fits(self, args: Ints) -> np.ndarray:
        kept = np.ones(len(args), dtype=bool)
        for place, constant in self.one.fixed:
            kept &= args[:, place - 1] == constant
        for first, again in self.one.repeats:
            kept &= args[:, first - 1] == args[:, again - 1]
        return kept

    def _parts_hold(self, args: Ints, state: Ints) -> np.ndarray:
        kept = np.ones(len(args), dtype=bool)
        for part in self.parts:
            kept &= part.during.holds(part.find(args), state)
        return kept

    def proofs(self, args: Ints, state: Ints) -> tuple[Ints, Ints]:
        """Return all proofs by this rule: the event's row, and rule instances [R, parts] that prove its parts."""
        row = np.flatnonzero(self._fits(args))
        row = row[self.passes(args[row], state[row])]
        chosen = np.zeros((len(row), 0), dtype=np.int64)
        for part in self.parts:
            place, proof = part.proofs.at(part.find(args[row]), state[row])
            row, chosen = row[place], np.column_stack([chosen[place], part.proofs.value[proof]])
        return row, chosen


def _numbers(one: EventProduct) -> list[int | None]:
    return next((compare.numbers for compare in one.compares if compare.compare is not None), [])


class FunctorProducts:
    """All products of one event functor, and its listed facts."""

    def __init__(self, timeline: Timeline, products: list[EventProduct]) -> None:
        self.functor, self.arity = products[0].functor, products[0].arity
        self.products = [ProductArrays(timeline, one) for one in products]
        self.counts = np.stack([one.count for one in self.products])  # [products, states]
        grounding = timeline.grounding
        facts = [*((fact, 0, timeline.states) for fact in grounding.always.tolist()), *timeline.holds.tolist()]
        listed = [row for row in facts if grounding.keys[row[0]][0] == self.functor]
        rows = np.asarray(listed, dtype=np.int64).reshape(-1, 3)
        self.listed_facts = np.unique(rows[:, 0])
        values = np.asarray([grounding.keys[fact][1:] for fact in self.listed_facts.tolist()], dtype=np.int64)
        self.listed_values = values.reshape(-1, self.arity)
        self.listed_numbers = RowNumbering(self.listed_values)
        item = np.searchsorted(self.listed_facts, rows[:, 0])
        self.listed = _Spans.of(item, rows[:, 0], rows[:, 1:], len(self.listed_facts))

    @property
    def is_plain(self) -> bool:
        """Whether all candidates and listed facts are distinct events."""
        return len(self.products) == 1 and not len(self.listed_facts)

    def is_listed(self, args: Ints, state: Ints) -> np.ndarray:
        return self.listed.holds(self.listed_numbers.find(args), state)

    def times(self, args: Ints, state: Ints) -> Ints:
        """Return how many products and listed facts contain each event; 0: the event is not possible."""
        found = self.is_listed(args, state).astype(np.int64)
        for one in self.products:
            found += one.has(args, state)
        return found


class ProductHistory:
    """The events that the products of a program make possible in each state of a sequence."""

    def __init__(self, timeline: Timeline) -> None:
        grounding = timeline.grounding
        by_functor: dict[int, list[EventProduct]] = {}
        for one in grounding.products:
            by_functor.setdefault(one.functor, []).append(one)
        self.functors = [FunctorProducts(timeline, found) for found in by_functor.values()]
        self.of_functor = {one.functor: one for one in self.functors}
        self.sources = [(one, product) for one in self.functors for product in one.products]
        self.parts = [part for _, product in self.sources for part in product.parts]
        self.count = np.stack([product.count for _, product in self.sources])  # candidates [sources, states]
        self.total = self.count.sum(0)  # [states]

    def decoded(self, number: Ints, state: Ints) -> list[tuple[FunctorProducts, ProductArrays, Ints, Ints]]:
        """Decode candidates' numbers below the total: for each source, the positions of its candidates, and their arguments."""
        stop = (
            np.cumsum(self.count, axis=0)[:, state] if len(number) else np.zeros((len(self.sources), 0), dtype=np.int64)
        )
        source = (number[None] >= stop).sum(0)
        found = []
        for place, (functor, one) in enumerate(self.sources):
            mine = np.flatnonzero(source == place)
            before = stop[place - 1, mine] if place else 0
            found.append((functor, one, mine, one.args(number[mine] - before, state[mine])))
        return found
