"""Data structures of the engine: names and facts as integers, rules as patterns over slots, true facts, rule instances.

A bucket holds the true facts with one key. Its version changes with every update, so the result of a join can be cached until a bucket
that it read changes. A rule instance is found once by a join and then stored. A flag says whether it is active.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple

from foretell.lang.syntax import (
    COMPARISONS,
    ORDERS,
    Atom,
    Compare,
    Constant,
    Count,
    Equalities,
    Kind,
    Not,
    Rule,
    Term,
    Variable,
    literal_terms,
)
from foretell.terms import fact as fact_text
from foretell.terms import is_integer, split

FactKey = tuple[int, ...]  # (functor, *arguments)


class _Numbering(dict[Any, int]):
    """Numbers keys from 0 in the order in which they are first looked up. `keys_in_order` lists the keys by number."""

    def __init__(self) -> None:
        self.keys_in_order: list[Any] = []

    def __missing__(self, key: Any) -> int:
        number = self[key] = len(self.keys_in_order)
        self.keys_in_order.append(key)
        return number


class _Constants(_Numbering):
    def __init__(self) -> None:
        super().__init__()
        self.numbers: list[int | None] = []  # the integer that each constant stands for; None: it is no integer

    def __missing__(self, key: str) -> int:
        self.numbers.append(int(key) if is_integer(key) else None)
        return super().__missing__(key)


class Symbols:
    """Numbers functors, constants and facts. Inside the database every name is an integer."""

    def __init__(self, several_arities: Collection[str] = ()) -> None:
        """`several_arities` are names with several arities; each arity is a functor of its own."""
        self.several_arities = several_arities
        functors, constants, facts = _Numbering(), _Constants(), _Numbering()
        self.functor: Callable[[str], int] = functors.__getitem__
        self.constant: Callable[[str], int] = constants.__getitem__
        self.fact: Callable[[FactKey], int] = facts.__getitem__
        self.find: Callable[[FactKey], int | None] = facts.get  # returns None for facts that never occurred
        self.functors: list[str] = functors.keys_in_order
        self.constants: list[str] = constants.keys_in_order
        self.numbers = constants.numbers
        self.keys: list[FactKey] = facts.keys_in_order

    def named(self, name: str) -> int:
        """Return the fact of an event in the data, given by its normalised name."""
        functor, args = split(name)
        functor = f"{functor}/{len(args)}" if functor in self.several_arities else functor
        return self.fact((self.functor(functor), *(self.constant(arg) for arg in args)))

    def text(self, fact: int) -> str:
        functor, *args = self.keys[fact]
        name = self.functors[functor]
        return fact_text(name, [self.constants[arg] for arg in args])


# --- rules


FREE = -1  # the slot of `_` inside `not`


@dataclass(frozen=True, slots=True)
class AtomPattern:
    functor: int
    slots: tuple[int, ...]  # one slot per argument


@dataclass(frozen=True, slots=True)
class OrderPattern:
    """`X < Y` and the like: compares the integer values of two slots."""

    slots: tuple[int, int]
    compare: Callable[[int, int], bool]
    numbers: list[int | None]  # the integer of each constant: a reference to the list in `Symbols`

    def holds(self, binding: list[int]) -> bool:
        left, right = (self.numbers[binding[slot]] for slot in self.slots)
        return left is not None and right is not None and self.compare(left, right)


@dataclass(frozen=True, slots=True)
class CountPattern:
    """`count(cart(U,_)) >= 2`: the number of matching facts, or the smallest or largest number at a place, compared with a slot's value."""

    atom: AtomPattern
    choose: Callable[[Iterable[int]], int] | None  # selects one of the numbers (smallest or largest); None: count facts
    place: int  # the place in a fact's key that has these numbers
    compare: Callable[[int, int], bool]
    right: int
    symbols: Symbols

    def holds(self, facts: dict[int, None], right: int) -> bool:
        """Whether the condition holds for these matching facts; `right` is the constant to compare with."""
        number, numbers, keys = self.symbols.numbers[right], self.symbols.numbers, self.symbols.keys
        if number is None:
            return False
        if self.choose is None:
            return self.compare(len(facts), number)
        found = [one for fact in facts if (one := numbers[keys[fact][self.place]]) is not None]
        return bool(found) and self.compare(self.choose(found), number)


@dataclass(frozen=True, slots=True)
class CompiledRule:
    index: int  # the position in the program's rules
    kind: Kind
    head: AtomPattern
    positives: tuple[AtomPattern, ...]  # in program order; for `add` and `remove` the event comes first
    negatives: tuple[AtomPattern, ...]
    unequal: tuple[tuple[int, int], ...]
    orders: tuple[OrderPattern, ...]
    counts: tuple[CountPattern, ...]
    group: tuple[int, ...]  # slots of the variables in parameter names; each binding of them is one `r`
    template: tuple[int, ...]  # an empty binding: -1 for each variable, then the constants
    variables: int


def compile_rule(index: int, rule: Rule, symbols: Symbols) -> CompiledRule | None:
    """Compile a rule after solving its `=` conditions. Returns None if the rule can never fire."""
    equalities = Equalities()
    if not all([equalities.unite(one.left, one.right) for one in rule.body if isinstance(one, Compare) and one.equal]):
        return None
    slots = _Slots(rule, symbols, equalities)
    head = slots.pattern(rule.head)
    positives, negatives, unequal, orders, counts = [], [], [], [], []
    for literal in rule.body:
        if isinstance(literal, Atom):
            positives.append(slots.pattern(literal))
        elif isinstance(literal, Not):
            negatives.append(slots.pattern(literal.atom, negated=True))
        elif isinstance(literal, Count):
            counts.append(slots.count(literal))
        elif literal.sign == "!=":
            unequal.append((slots.of(literal.left), slots.of(literal.right)))
        elif not literal.equal:
            sides = slots.of(literal.left), slots.of(literal.right)
            orders.append(OrderPattern(sides, ORDERS[literal.sign], symbols.numbers))
    if any(a == b for a, b in unequal):
        return None
    count = len(slots.variables)
    return CompiledRule(
        index,
        rule.kind,
        head,
        tuple(positives),
        tuple(negatives),
        tuple((a, b) for a, b in unequal if min(a, b) < count),
        tuple(orders),
        tuple(counts),
        tuple(slots.of(Variable(name, rule.span)) for name in rule.parameter_variables),
        (*[-1] * count, *slots.constants),
        count,
    )


class _Slots:
    """The slots of a rule: first its variables in order of occurrence, then its constants."""

    def __init__(self, rule: Rule, symbols: Symbols, equalities: Equalities) -> None:
        self.symbols, self.equalities = symbols, equalities
        self.constants: dict[int, int] = {}
        self.variables: dict[str, int] = {}
        met = list(rule.head.args)
        for one in rule.body:
            if isinstance(one, Not | Count):
                met += [arg for arg in one.atom.args if isinstance(arg, Constant) or not arg.is_anonymous]
                met += [one.right] if isinstance(one, Count) else []
            elif isinstance(one, Atom) or not one.equal:
                met += literal_terms(one)
        for term in map(equalities.root, met):
            if isinstance(term, Variable):
                self.variables.setdefault(term.name, len(self.variables))

    def of(self, term: Term) -> int:
        root = self.equalities.root(term)
        if isinstance(root, Variable):
            return self.variables[root.name]
        number = self.symbols.constant(root.text)
        return len(self.variables) + self.constants.setdefault(number, len(self.constants))

    def pattern(self, atom: Atom, negated: bool = False) -> AtomPattern:
        slots = tuple(
            FREE if negated and isinstance(arg, Variable) and arg.is_anonymous else self.of(arg) for arg in atom.args
        )
        return AtomPattern(self.symbols.functor(atom.functor), slots)

    def count(self, one: Count) -> CountPattern:
        choose = {"count": None, "min": min, "max": max}[one.word]
        place = 0 if choose is None else 1 + one.place
        atom = self.pattern(one.atom, negated=True)
        return CountPattern(atom, choose, place, COMPARISONS[one.sign], self.of(one.right), self.symbols)


# --- true facts


SWEEP = 10_000  # the number of buckets in an index from which empty buckets are removed
Getter = Callable[[Any], Any]  # from a sequence of numbers to a key: the number itself, or a tuple of several


def getter(places: tuple[int, ...]) -> Getter:
    return itemgetter(*places) if places else lambda _: ()


class Bucket:
    __slots__ = ("counters", "facts", "version", "watchers")

    def __init__(self) -> None:
        self.facts: dict[int, None] = {}
        self.version = 0
        self.watchers: dict[int, None] = {}  # active proofs that need this bucket to be empty
        self.counters: dict[int, None] = {}  # active proofs that count the facts in this bucket

    @property
    def is_idle(self) -> bool:
        return not (self.facts or self.watchers or self.counters)


class Index:
    """Buckets by the arguments at some positions. Looking up a new key creates an empty bucket, which can be watched."""

    __slots__ = ("buckets", "key_of", "sweep_at")

    def __init__(self, positions: tuple[int, ...]) -> None:
        self.key_of = getter(tuple(1 + position for position in positions))  # position 0 of a key is the functor
        self.buckets: dict[Any, Bucket] = {}
        self.sweep_at = SWEEP

    def bucket(self, key: Any) -> Bucket:
        found = self.buckets.get(key)
        if found is None:
            if len(self.buckets) >= self.sweep_at:
                self._sweep()
            found = self.buckets[key] = Bucket()
        return found

    def _sweep(self) -> None:
        """Drop empty, unused buckets. Joins that read them are invalidated by a new version number."""
        empty = [key for key, one in self.buckets.items() if one.is_idle and key != ()]
        for key in empty:
            self.buckets.pop(key).version += 1
        self.sweep_at = max(SWEEP, 2 * len(self.buckets))

    def insert(self, fact: int, fact_key: FactKey) -> None:
        bucket = self.bucket(self.key_of(fact_key))
        bucket.facts[fact] = None
        bucket.version += 1

    def delete(self, fact: int, fact_key: FactKey) -> None:
        key = self.key_of(fact_key)
        bucket = self.buckets[key]
        del bucket.facts[fact]
        bucket.version += 1
        if key != () and bucket.is_idle:
            del self.buckets[key]  # cached joins that read it see the new version


class Relation:
    def __init__(self, is_static: bool) -> None:
        self.is_static = is_static  # whether no event can change it
        self.indexes: dict[tuple[int, ...], Index] = {}
        self._list: list[Index] = []
        self.facts = self.index(()).bucket(())

    def index(self, positions: tuple[int, ...], keys: list[FactKey] | None = None) -> Index:
        found = self.indexes.get(positions)
        if found is None:
            found = self.indexes[positions] = Index(positions)
            if self._list:
                assert keys is not None, "an index over present facts needs their keys"
                for fact in self.facts.facts:
                    found.insert(fact, keys[fact])
            self._list.append(found)
        return found

    def insert(self, fact: int, key: FactKey) -> None:
        for index in self._list:
            index.insert(fact, key)

    def delete(self, fact: int, key: FactKey) -> None:
        for index in self._list:
            index.delete(fact, key)


# --- rule instances


class BucketCount(NamedTuple):
    """A count condition of one rule instance."""

    among: Index
    key: Any
    pattern: CountPattern
    right: int  # the constant to compare with

    def holds(self) -> bool:
        return self.pattern.holds(self.among.bucket(self.key).facts, self.right)


NO_GROUP = -1  # the group of rule instances without parameters


class Instances:
    """All rule instances so far. Each (rule, body facts) has an integer, a head and a group `r`."""

    def __init__(self) -> None:
        self.rule: list[int] = []
        self.group: list[int] = []
        self.head: list[int] = []
        self.body: list[tuple[int, ...]] = []
        self.absent: list[Sequence[tuple[Index, Any]]] = []  # buckets that must stay empty (`not`)
        self.counted: list[Sequence[BucketCount]] = []
        self.watched: list[Sequence[int]] = []  # body facts that can become false
        self.active = bytearray()
        self._ids: dict[tuple[int, tuple[int, ...]], int] = {}
        self._group_ids = _Numbering()
        self.groups: list[tuple[int, ...]] = (
            self._group_ids.keys_in_order
        )  # (rule, *values of the variables in its names)

    def __len__(self) -> int:
        return len(self.rule)

    def find(self, rule: int, body: tuple[int, ...]) -> int | None:
        return self._ids.get((rule, body))

    def make(
        self,
        rule: int,
        body: tuple[int, ...],
        head: int,
        group: tuple[int, ...],
        absent: Sequence[tuple[Index, Any]] = (),
        counted: Sequence[BucketCount] = (),
        watched: Sequence[int] = (),
        remember: bool = True,
    ) -> int:
        """Store a rule instance and return its number. `group`: (rule, *values), or empty. `remember=False`: never looked up again."""
        number = len(self.rule)
        if remember:
            self._ids[rule, body] = number
        self.rule.append(rule)
        self.group.append(self._group_ids[group] if group else NO_GROUP)
        self.head.append(head)
        self.body.append(body)
        self.absent.append(absent)
        self.counted.append(counted)
        self.watched.append(watched)
        self.active.append(0)
        return number
