"""All ways to satisfy a rule's body, given one of its conditions: an order of lookups, then nested loops over buckets without recursion.

A plan belongs to a rule and to what triggers it: a fact that became true (or an event that happened), a negated condition that came to
hold, or nothing (all instantiations at once). What it finds is kept per trigger, together with the versions of the buckets it read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from foretell.ground.relation import Bucket, Getter, Index, Relation, getter
from foretell.ground.rules import FREE, CompiledRule, Pattern
from foretell.ground.symbols import FactKey

Reads = list[tuple[Bucket, int]]
KEPT_READS = 512  # a join that read more buckets is not remembered
KEPT_JOINS = 200_000  # remembered joins of a plan
UNKNOWN_SIZE = 64  # what a relation that may grow is taken to hold at the least


class Database(Protocol):
    """What a join needs to know of the engine."""

    relations: list[Relation]
    keys: list[FactKey]
    steps: int

    def overrun(self, rule: CompiledRule) -> Exception: ...

    def instance(self, rule: CompiledRule, facts: tuple[int, ...], binding: list[int]) -> int: ...


@dataclass(frozen=True, slots=True)
class Holds:
    """A condition whose arguments are all bound: its fact is true, or there is nothing."""

    literal: int
    index: Index
    key: Getter
    is_static: bool


@dataclass(frozen=True, slots=True)
class Absent:
    """A negated condition: nothing matches."""

    index: Index
    key: Getter
    is_static: bool


@dataclass(frozen=True, slots=True)
class Level:
    """A condition that binds variables: loop over a bucket, then apply what can be decided."""

    literal: int
    index: Index
    key: Getter
    is_static: bool
    binds: tuple[tuple[int, int], ...]  # (place in the fact's key, slot)
    repeats: tuple[tuple[int, int], ...]  # places in the fact's key that must be equal
    filters: Filters


@dataclass(frozen=True, slots=True)
class Filters:
    unequal: tuple[tuple[int, int], ...]
    holds: tuple[Holds, ...]
    absent: tuple[Absent, ...]


class Plan:
    """`trigger`: the place of a positive condition, or `negated` the place of a negated one, or neither."""

    def __init__(self, rule: CompiledRule, trigger: int | None = None, negated: int | None = None) -> None:
        self.rule, self.trigger, self.negated = rule, trigger, negated
        self.levels: list[Level] | None = None
        self.first = Filters((), (), ())
        self.kept: dict[int, tuple[Reads, list[int]]] = {}
        pattern = None
        if trigger is not None:
            pattern = rule.positives[trigger]
        elif negated is not None:
            pattern = rule.negatives[negated]
        self.binds, self.repeats = _binds(pattern, set(range(rule.variables, len(rule.template))))
        self.constants = tuple(
            (1 + place, rule.template[slot])
            for place, slot in enumerate(pattern.slots if pattern is not None else ())
            if slot >= rule.variables
        )

    # Order of lookups

    def prepare(self, database: Database) -> list[Level]:
        """Bound arguments first, then the smaller relation: decided when the plan is first used."""
        rule = self.rule
        bound = set(range(rule.variables, len(rule.template))) | {slot for _, slot in self.binds}
        open_literals = [place for place in range(len(rule.positives)) if place != self.trigger]
        pending = _Pending(rule, database)
        self.first = pending.decided(bound, open_literals)
        levels = []
        while open_literals:
            best = min(open_literals, key=lambda place: _cost(rule.positives[place], bound, database, place))
            open_literals.remove(best)
            pattern = rule.positives[best]
            known = tuple(place for place, slot in enumerate(pattern.slots) if slot in bound)
            binds, repeats = _binds(pattern, bound)
            bound |= {slot for _, slot in binds}
            relation = database.relations[pattern.functor]
            index = relation.index(known, database.keys)
            key = getter(tuple(pattern.slots[place] for place in known))
            filters = pending.decided(bound, open_literals)
            levels.append(Level(best, index, key, relation.is_static, binds, repeats, filters))
        self.levels = levels
        return levels

    # Running it

    def from_fact(self, fact: int, database: Database) -> list[int]:
        return self.remembered(fact, database)[1]

    def remembered(self, fact: int, database: Database) -> tuple[Reads, list[int]]:
        """Instantiations with this fact in the trigger's place, and what was read to find them."""
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
        """Nothing was found for this fact, and nothing that can change was looked at."""
        kept = self.kept.get(fact)
        return kept is not None and not kept[0] and not kept[1]

    def from_absence(self, fact: int, database: Database) -> list[int]:
        """Instantiations in which the negated condition is one that this fact, now false, used to break."""
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
        levels = self.levels if self.levels is not None else self.prepare(database)
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


def _candidates(level: Level, binding: list[int], reads: Reads) -> Iterator[int]:
    bucket = level.index.bucket(level.key(binding))
    if not level.is_static:
        reads.append((bucket, bucket.version))
    return iter(bucket.facts)


def _passes(filters: Filters, binding: list[int], facts: list[int], reads: Reads) -> bool:
    for a, b in filters.unequal:
        if binding[a] == binding[b]:
            return False
    for holds in filters.holds:
        bucket = holds.index.bucket(holds.key(binding))
        if not holds.is_static:
            reads.append((bucket, bucket.version))
        if not bucket.facts:
            return False
        facts[holds.literal] = next(iter(bucket.facts))
    for absent in filters.absent:
        bucket = absent.index.bucket(absent.key(binding))
        if not absent.is_static:
            reads.append((bucket, bucket.version))
        if bucket.facts:
            return False
    return True


class _Pending:
    """Conditions that only filter, each handed out as soon as all its variables are bound."""

    def __init__(self, rule: CompiledRule, database: Database) -> None:
        self.rule, self.database = rule, database
        self.unequal = list(rule.unequal)
        self.negatives = list(rule.negatives)

    def decided(self, bound: set[int], open_literals: list[int]) -> Filters:
        unequal = tuple(pair for pair in self.unequal if bound.issuperset(pair))
        self.unequal = [pair for pair in self.unequal if pair not in unequal]
        absent = [one for one in self.negatives if all(slot in bound for slot in one.slots if slot != FREE)]
        self.negatives = [one for one in self.negatives if one not in absent]
        holds = []
        for place in list(open_literals):
            pattern = self.rule.positives[place]
            if bound.issuperset(pattern.slots):
                open_literals.remove(place)
                relation, index, key = self._looked_up(pattern)
                holds.append(Holds(place, index, key, relation.is_static))
        return Filters(unequal, tuple(holds), tuple(self._absent(pattern) for pattern in absent))

    def _absent(self, pattern: Pattern) -> Absent:
        relation, index, key = self._looked_up(pattern)
        return Absent(index, key, relation.is_static)

    def _looked_up(self, pattern: Pattern) -> tuple[Relation, Index, Getter]:
        relation = self.database.relations[pattern.functor]
        positions, key = bound_places(pattern)
        return relation, relation.index(positions, self.database.keys), key


def bound_places(pattern: Pattern) -> tuple[tuple[int, ...], Getter]:
    """The positions of a pattern that are not free, and how to read their values off a binding."""
    positions = tuple(place for place, slot in enumerate(pattern.slots) if slot != FREE)
    return positions, getter(tuple(pattern.slots[place] for place in positions))


def _binds(pattern: Pattern | None, bound: set[int]) -> tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]:
    """Which places of a fact's key bind which slots, and which places must repeat an earlier one."""
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


def _cost(pattern: Pattern, bound: set[int], database: Database, place: int) -> tuple[Any, ...]:
    """Fewest facts to loop over, as far as sizes tell: each bound argument is taken to cut the relation by as much as any."""
    relation = database.relations[pattern.functor]
    size = len(relation.facts.facts)
    if not relation.is_static:
        size = max(size, UNKNOWN_SIZE)
    arity = len(pattern.slots)
    free = sum(slot not in bound for slot in pattern.slots)
    expected = size ** (free / arity) if arity and size else float(size)
    return expected, free, place
