"""Finds all ways to satisfy a rule's body, given one of its conditions: chooses an order of lookups, then loops over buckets iteratively.

A plan belongs to a rule and a trigger: a fact that became true (or an event), a negated condition that came to hold, or nothing (all
instances at once). Results are cached per trigger, with the versions of the buckets that were read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from foretell.ground.database import (
    FREE,
    AtomPattern,
    Bucket,
    CompiledRule,
    CountPattern,
    FactKey,
    Getter,
    Index,
    OrderPattern,
    Relation,
    getter,
)

NEGATED = -1
Reads = list[tuple[Bucket, int]]
KEPT_READS = 512  # joins that read more buckets are not cached
KEPT_JOINS = 50_000  # the number of cached joins per plan
UNKNOWN_SIZE = 64  # the assumed minimal size of a relation that may grow
OUTGROWN = 4  # a relation that grew by this factor since the order was chosen needs a new order
CANDIDATES = 24  # the number of conditions that are compared at a time


class Database(Protocol):
    """The part of the engine that joins use."""

    relations: list[Relation]
    keys: list[FactKey]
    steps: int

    def overrun(self, rule: CompiledRule) -> Exception: ...

    def instance(self, rule: CompiledRule, facts: tuple[int, ...], binding: list[int]) -> int: ...


@dataclass(frozen=True, slots=True)
class BoundCondition:
    """A condition with all arguments bound, and the bucket to look into."""

    literal: int  # its place among the positive conditions; NEGATED: the bucket must be empty
    index: Index
    key: Getter
    is_static: bool


@dataclass(frozen=True, slots=True)
class JoinLevel(BoundCondition):
    """A condition that binds variables: loop over a bucket, then apply the filters that are now bound."""

    binds: tuple[tuple[int, int], ...]  # (place in the fact's key, slot)
    repeats: tuple[tuple[int, int], ...]  # pairs of places in the fact's key that must be equal
    filters: Filters


@dataclass(frozen=True, slots=True)
class CountedCondition:
    """A count condition with all variables bound, and the bucket to look into."""

    index: Index
    key: Getter
    is_static: bool
    pattern: CountPattern


@dataclass(frozen=True, slots=True)
class Filters:
    unequal: tuple[tuple[int, int], ...]
    conditions: tuple[BoundCondition, ...]
    orders: tuple[OrderPattern, ...] = ()
    counts: tuple[CountedCondition, ...] = ()


class JoinPlan:
    """The plan of one join. It has a `trigger` (a positive condition's place), a `changed` negated or counted condition, or neither."""

    def __init__(self, rule: CompiledRule, trigger: int | None = None, changed: AtomPattern | None = None) -> None:
        self.rule, self.trigger = rule, trigger
        self.levels: list[JoinLevel] | None = None
        self.outgrown: list[tuple[dict[int, None], int]] = []  # facts of a relation, and their limit
        self.first = Filters((), ())
        self.kept: dict[int, tuple[Reads, list[int]]] = {}
        pattern = changed if trigger is None else rule.positives[trigger]
        self.binds, self.repeats = _binds(pattern, set(range(rule.variables, len(rule.template))))
        self.constants = tuple(
            (1 + place, rule.template[slot])
            for place, slot in enumerate(pattern.slots if pattern is not None else ())
            if slot >= rule.variables
        )

    # Order of lookups

    def prepare(self, database: Database) -> list[JoinLevel]:
        """Order conditions by their expected number of facts. Done at the first use, and again when a relation has outgrown the order."""
        rule = self.rule
        bound = set(range(rule.variables, len(rule.template))) | {slot for _, slot in self.binds}
        pending = _Pending(rule, database, self.trigger)
        self.first = pending.bind(bound)
        levels = []
        while pending.open:
            database.steps -= 1 + len(pending.open)  # planning costs steps too, because there can be many conditions
            if database.steps < 0:
                raise database.overrun(rule)
            best = min(pending.candidates(), key=lambda place: _cost(rule.positives[place], bound, database, place))
            pattern = rule.positives[best]
            known = tuple(place for place, slot in enumerate(pattern.slots) if slot in bound)
            binds, repeats = _binds(pattern, bound)
            new = {slot for _, slot in binds}
            bound |= new
            pending.close(best)
            relation = database.relations[pattern.functor]
            index = relation.index(known, database.keys)
            key = getter(tuple(pattern.slots[place] for place in known))
            levels.append(JoinLevel(best, index, key, relation.is_static, binds, repeats, pending.bind(new)))
        self.levels = levels
        changing = {pattern.functor for pattern in rule.positives if not database.relations[pattern.functor].is_static}
        found = [database.relations[functor].facts.facts for functor in changing] if len(levels) > 1 else []
        self.outgrown = [(facts, OUTGROWN * max(len(facts), UNKNOWN_SIZE)) for facts in found]
        return levels

    # Execution

    def from_fact(self, fact: int, database: Database) -> list[int]:
        return self.remembered(fact, database)[1]

    def remembered(self, fact: int, database: Database) -> tuple[Reads, list[int]]:
        """Return the buckets that were read, and the rule instances that have this fact in the trigger's place. Results are cached."""
        kept = self.kept.get(fact)
        if kept is not None:
            for bucket, version in kept[0]:
                if bucket.version != version:
                    break
            else:
                return kept
        key = database.keys[fact]
        reads: Reads = []
        found: list[int] = []
        if all(key[a] == key[b] for a, b in self.repeats):
            binding = list(self.rule.template)
            for place, slot in self.binds:
                binding[slot] = key[place]
            facts = [-1] * len(self.rule.positives)
            assert self.trigger is not None
            facts[self.trigger] = fact
            self._run(binding, facts, database, reads, found)
        if len(reads) <= KEPT_READS:
            if len(self.kept) >= KEPT_JOINS:
                self.kept.clear()
            self.kept[fact] = reads, found
        return reads, found

    def is_hopeless(self, fact: int) -> bool:
        """Whether the join found nothing for this fact and read no fact that can change."""
        kept = self.kept.get(fact)
        return kept is not None and not kept[0] and not kept[1]

    def from_absence(self, fact: int, database: Database) -> list[int]:
        """Return the rule instances whose negated condition this fact violated until now, or whose count includes this fact."""
        key = database.keys[fact]
        if not all(key[a] == key[b] for a, b in self.repeats) or not all(key[a] == c for a, c in self.constants):
            return []
        binding = list(self.rule.template)
        for place, slot in self.binds:
            binding[slot] = key[place]
        found: list[int] = []
        self._run(binding, [-1] * len(self.rule.positives), database, [], found)
        return found

    def everything(self, database: Database) -> list[int]:
        found: list[int] = []
        self._run(list(self.rule.template), [-1] * len(self.rule.positives), database, [], found)
        return found

    def _run(self, binding: list[int], facts: list[int], database: Database, reads: Reads, found: list[int]) -> None:
        levels = self.levels
        if levels is None or (self.outgrown and any(len(facts) > most for facts, most in self.outgrown)):
            levels = self.prepare(database)
        if not _passes(self.first, binding, facts, reads):
            return
        rule, keys = self.rule, database.keys
        if not levels:
            found.append(database.instance(rule, tuple(facts), binding))
            return
        depth, last = 0, len(levels) - 1
        loops: list[Iterator[int]] = [_candidates(levels[0], binding, reads)]
        while loops:
            level = levels[depth]
            fact = next(loops[depth], -1)
            if fact < 0:
                loops.pop()
                depth -= 1
                continue
            database.steps -= 1
            if database.steps < 0:
                raise database.overrun(rule)
            key = keys[fact]
            for place, slot in level.binds:
                binding[slot] = key[place]
            if level.repeats and not all(key[a] == key[b] for a, b in level.repeats):
                continue
            facts[level.literal] = fact
            if not _passes(level.filters, binding, facts, reads):
                continue
            if depth == last:
                found.append(database.instance(rule, tuple(facts), binding))
            else:
                depth += 1
                loops.append(_candidates(levels[depth], binding, reads))


def _candidates(level: JoinLevel, binding: list[int], reads: Reads) -> Iterator[int]:
    bucket = level.index.bucket(level.key(binding))
    if not level.is_static:
        reads.append((bucket, bucket.version))
    return iter(bucket.facts)


def _passes(filters: Filters, binding: list[int], facts: list[int], reads: Reads) -> bool:
    for a, b in filters.unequal:
        if binding[a] == binding[b]:
            return False
    for order in filters.orders:
        if not order.holds(binding):
            return False
    for one in filters.conditions:
        bucket = one.index.bucket(one.key(binding))
        if not one.is_static:
            reads.append((bucket, bucket.version))
        if one.literal == NEGATED:
            if bucket.facts:
                return False
        elif not bucket.facts:
            return False
        else:
            facts[one.literal] = next(iter(bucket.facts))
    for one in filters.counts:
        bucket = one.index.bucket(one.key(binding))
        if not one.is_static:
            reads.append((bucket, bucket.version))
        if not one.pattern.holds(bucket.facts, binding[one.pattern.right]):
            return False
    return True


class _Pending:
    """The conditions that are not placed yet. Filters are returned by `bind` as soon as all their variables are bound."""

    def __init__(self, rule: CompiledRule, database: Database, trigger: int | None) -> None:
        self.rule, self.database = rule, database
        self.open = dict.fromkeys(place for place in range(len(rule.positives)) if place != trigger)
        self.near: dict[int, None] = {}  # open conditions with a bound variable
        self.filters: list[tuple[str, int]] = [("holds", place) for place in self.open]
        self.filters += [("absent", place) for place in range(len(rule.negatives))]
        self.filters += [("unequal", place) for place in range(len(rule.unequal))]
        self.filters += [("order", place) for place in range(len(rule.orders))]
        self.filters += [("count", place) for place in range(len(rule.counts))]
        self.missing: list[int] = []  # the number of unbound slots of each filter
        self.users: dict[int, list[int]] = {}  # filters by slot
        self.ready: list[int] = []
        for number, (kind, place) in enumerate(self.filters):
            slots = {slot for slot in self._slots(kind, place) if slot != FREE}
            self.missing.append(len(slots))
            if not slots:
                self.ready.append(number)
            for slot in slots:
                self.users.setdefault(slot, []).append(number)

    def _slots(self, kind: str, place: int) -> tuple[int, ...]:
        if kind == "unequal":
            return self.rule.unequal[place]
        if kind == "order":
            return self.rule.orders[place].slots
        if kind == "count":
            return *self.rule.counts[place].atom.slots, self.rule.counts[place].right
        return (self.rule.positives if kind == "holds" else self.rule.negatives)[place].slots

    def candidates(self) -> list[int]:
        """Return up to `CANDIDATES` open conditions; conditions with a bound variable come first."""
        return list(islice(self.near or self.open, CANDIDATES))

    def close(self, place: int) -> None:
        self.open.pop(place, None)
        self.near.pop(place, None)

    def bind(self, slots: Iterable[int]) -> Filters:
        """Return the filters that can be applied once these variables are bound."""
        for slot in slots:
            for number in self.users.pop(slot, ()):
                self.missing[number] -= 1
                kind, place = self.filters[number]
                if self.missing[number] == 0:
                    self.ready.append(number)
                elif kind == "holds" and place in self.open:
                    self.near[place] = None
        holds, absent, unequal, orders, counts = [], [], [], [], []
        for number in self.ready:
            kind, place = self.filters[number]
            if kind == "unequal":
                unequal.append(self.rule.unequal[place])
            elif kind == "absent":
                absent.append(self._bound(NEGATED, self.rule.negatives[place]))
            elif kind == "order":
                orders.append(self.rule.orders[place])
            elif kind == "count":
                counts.append(self._counted(self.rule.counts[place]))
            elif place in self.open:
                self.close(place)
                holds.append(self._bound(place, self.rule.positives[place]))
        self.ready = []
        return Filters(tuple(unequal), (*holds, *absent), tuple(orders), tuple(counts))

    def _counted(self, pattern: CountPattern) -> CountedCondition:
        relation = self.database.relations[pattern.atom.functor]
        positions, key = bound_places(pattern.atom)
        return CountedCondition(relation.index(positions, self.database.keys), key, relation.is_static, pattern)

    def _bound(self, literal: int, pattern: AtomPattern) -> BoundCondition:
        relation = self.database.relations[pattern.functor]
        positions, key = bound_places(pattern)
        return BoundCondition(literal, relation.index(positions, self.database.keys), key, relation.is_static)


def bound_places(pattern: AtomPattern) -> tuple[tuple[int, ...], Getter]:
    """Return the bound places of a pattern, and a function that reads their values from a binding."""
    positions = tuple(place for place, slot in enumerate(pattern.slots) if slot != FREE)
    return positions, getter(tuple(pattern.slots[place] for place in positions))


def _binds(
    pattern: AtomPattern | None, bound: set[int]
) -> tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]:
    """Return (place in the key, slot) for slots that the pattern binds, and pairs of places that must be equal."""
    first: dict[int, int] = {}
    repeats = []
    for place, slot in enumerate(pattern.slots if pattern is not None else ()):
        if slot == FREE or slot in bound:
            continue
        if slot in first:
            repeats.append((first[slot], 1 + place))
        else:
            first[slot] = 1 + place
    return tuple((place, slot) for slot, place in first.items()), tuple(repeats)


def _cost(pattern: AtomPattern, bound: set[int], database: Database, place: int) -> tuple[float, int, int]:
    """Return the expected number of facts to loop over, then two numbers that break ties."""
    relation = database.relations[pattern.functor]
    size = len(relation.facts.facts)
    known = tuple(position for position, slot in enumerate(pattern.slots) if slot in bound)
    free = len(pattern.slots) - len(known)
    if relation.is_static:  # measured: an index over a static relation costs nothing to keep
        expected = size / max(len(relation.index(known, database.keys).buckets), 1)
    else:  # guessed: every bound argument divides the size by the same factor
        expected = max(size, UNKNOWN_SIZE) ** (free / max(len(pattern.slots), 1))
    return expected, free, place
