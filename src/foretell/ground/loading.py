"""The database before anything happens: facts, tables and everything that follows from them, computed component by component."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from foretell.ground.database import (
    AtomPattern,
    CompiledRule,
    CountPattern,
    FactKey,
    Getter,
    Index,
    Relation,
    Symbols,
    compile_rule,
    getter,
)
from foretell.ground.estimate import is_hopeless
from foretell.ground.join import JoinPlan, bound_places
from foretell.ground.products import EventProduct, compile_products
from foretell.lang.products import ProductRule
from foretell.lang.program import BOS, Program
from foretell.lang.reachable import chained, closure

if TYPE_CHECKING:
    from foretell.ground.engine import Engine


KEPT_FACTS = 500_000


@dataclass(slots=True)
class Triggers:
    """The plans that facts of one functor trigger, indexed by constants in their patterns, so other rules cost nothing."""

    groups: list[tuple[Getter, dict[object, list[JoinPlan]]]] = field(default_factory=list)
    places: list[tuple[int, ...]] = field(default_factory=list)
    met: dict[int, list[JoinPlan] | None] = field(
        default_factory=dict
    )  # by fact: None after the first use; then the plans that may still find something

    def add(self, plan: JoinPlan, pattern: AtomPattern) -> None:
        rule = plan.rule
        fixed = tuple(1 + place for place, slot in enumerate(pattern.slots) if slot >= rule.variables)
        if fixed not in self.places:
            self.places.append(fixed)
            self.groups.append((getter(fixed), {}))
        key_of, table = self.groups[self.places.index(fixed)]
        full = (pattern.functor, *(rule.template[slot] if slot >= rule.variables else -1 for slot in pattern.slots))
        table.setdefault(key_of(full), []).append(plan)

    def of(self, key: FactKey) -> Iterable[JoinPlan]:
        for key_of, table in self.groups:
            yield from table.get(key_of(key), ())

    def of_fact(self, fact: int, key: FactKey) -> Iterable[JoinPlan]:
        """Return the plans that this fact triggers, without plans that are known to find nothing for it."""
        if not self.groups:
            return ()
        met = self.met.get(fact)
        if met is not None:
            return met
        if fact not in self.met:  # the first use
            if len(self.met) >= KEPT_FACTS:
                self.met.clear()
            self.met[fact] = None
            return self.of(key)
        left = self.met[fact] = [plan for plan in self.of(key) if not plan.is_hopeless(fact)]
        return left


@dataclass(slots=True)
class Reading:
    """The plans that read the facts of one functor."""

    above: Triggers = field(default_factory=Triggers)  # rules whose heads are in other components
    inside: Triggers = field(default_factory=Triggers)  # rules of the same component, which is recursive
    as_event: Triggers = field(default_factory=Triggers)  # `<-` rules
    negated: list[tuple[Index, list[JoinPlan]]] = field(default_factory=list)  # by the places that `not` binds
    counted: list[tuple[Index, list[JoinPlan]]] = field(default_factory=list)  # by the places that a count binds
    is_read: bool = False  # whether a condition other than an event reads it


class Wiring:
    def __init__(self, program: Program, symbols: Symbols, products: Sequence[ProductRule] = ()) -> None:
        self.program, self.symbols = program, symbols
        for name in program.functors:
            symbols.functor(name)
        symbols.functor(BOS)
        compiled = (compile_rule(place, one.rule, symbols) for place, one in enumerate(program.rules))
        self.rules = {rule.index: rule for rule in compiled if rule is not None}
        self.products = compile_products(program, symbols, products)
        self.rules |= {rule.index: rule for rule in self.products.rules}
        self.products_of: dict[int, list[EventProduct]] = {}  # by functor of the events
        for one in self.products.products:
            self.products_of.setdefault(one.functor, []).append(one)
        count = len(symbols.functors)
        self.component = [0] * count  # by functor
        self.recursive: list[bool] = []  # by component
        for number, one in enumerate(program.components):
            self.recursive.append(one.recursive)
            for name in one.functors:
                self.component[symbols.functor(name)] = number
        for name in self.products.heads:  # heads of products come after everything that they are deduced from
            self.component[symbols.functor(name)] = len(self.recursive)
            self.recursive.append(False)
        patterns = ((one.rule, part) for one in self.products.products for part in (*one.parts, *one.blockers))
        self.written = {part.rule: place for place, part in patterns}  # rule of a part → rule of the program
        self.part_functors = frozenset(map(symbols.functor, self.products.heads))
        dynamic = self._dynamic_functors()
        self.relations = [Relation(number not in dynamic) for number in range(count)]
        kinds = {symbols.functor(name): functor.kind for name, functor in program.functors.items()}
        self.is_event = [kinds.get(number) == "event" for number in range(count)]
        self.reading = [Reading() for _ in range(count)]
        self.facts_of: list[list[CompiledRule]] = [[] for _ in self.recursive]  # rules without conditions
        self.all_of: list[list[JoinPlan]] = [[] for _ in self.recursive]
        self.head_component: dict[int, int] = {}  # by rule
        self.absent: dict[int, list[tuple[Index, Getter]]] = {}  # the negated conditions of each rule
        self.counted: dict[int, list[tuple[Index, Getter, CountPattern]]] = {}  # the counts of each rule
        for rule in self.rules.values():
            if rule.index not in self.products.by_rule:
                self._place(rule)
        for place, table in enumerate(program.tables):
            self.head_component[len(program.rules) + place] = self.component[symbols.functor(table.functor)]

    def _place(self, rule: CompiledRule) -> None:
        target = self.component[rule.head.functor]
        self.head_component[rule.index] = target
        self.absent[rule.index] = []
        for pattern in rule.negatives:
            positions, key = bound_places(pattern)
            index = self.relations[pattern.functor].index(positions, self.symbols.keys)
            self.absent[rule.index].append((index, key))
            self.reading[pattern.functor].is_read = True
        self.counted[rule.index] = []
        for count in rule.counts:
            positions, key = bound_places(count.atom)
            index = self.relations[count.atom.functor].index(positions, self.symbols.keys)
            self.counted[rule.index].append((index, key, count))
            self.reading[count.atom.functor].is_read = True
        for pattern in rule.positives if rule.kind == "deduce" else rule.positives[1:]:
            self.reading[pattern.functor].is_read = True
        if rule.kind != "deduce":
            event = rule.positives[0]
            self.reading[event.functor].as_event.add(JoinPlan(rule, trigger=0), event)
            return
        if not rule.positives and not rule.negatives and not rule.counts and not rule.orders:
            self.facts_of[target].append(rule)
            return
        self.all_of[target].append(JoinPlan(rule))
        for place, pattern in enumerate(rule.positives):
            reading = self.reading[pattern.functor]
            is_inside = self.component[pattern.functor] == target and self.recursive[target]
            (reading.inside if is_inside else reading.above).add(JoinPlan(rule, trigger=place), pattern)
        for place, pattern in enumerate(rule.negatives):
            index = self.absent[rule.index][place][0]
            _watch(self.reading[pattern.functor].negated, index, JoinPlan(rule, changed=pattern))
        for index, _, count in self.counted[rule.index]:
            _watch(self.reading[count.atom.functor].counted, index, JoinPlan(rule, changed=count.atom))

    def _dynamic_functors(self) -> set[int]:
        """Return the functors whose facts can change by events or with the sequence: added, brought, or deduced from such."""
        readers: dict[int, list[int]] = {}
        for rule in self.rules.values():
            if rule.kind == "deduce":
                for pattern in (*rule.positives, *rule.negatives, *(one.atom for one in rule.counts)):
                    readers.setdefault(pattern.functor, []).append(rule.head.functor)
        changing = [rule.head.functor for rule in self.rules.values() if rule.kind == "add"]
        return closure([*changing, *map(self.symbols.functor, self.program.brought)], readers)

    def know(self, functor: int) -> None:
        """Make room for a functor that only the data have."""
        while len(self.component) <= functor:
            self.component.append(0)
            self.relations.append(Relation(True))
            self.is_event.append(False)
            self.reading.append(Reading())


def _watch(watched: list[tuple[Index, list[JoinPlan]]], index: Index, plan: JoinPlan) -> None:
    for known, plans in watched:
        if known is index:
            plans.append(plan)
            return
    watched.append((index, [plan]))


def load(engine: Engine) -> None:
    """Load facts, tables and deductions into an empty engine. Then mark facts that always hold, so events need not watch them."""
    wiring, founding = engine.wiring, engine.founding
    tables: dict[int, list[int]] = {}
    for place in range(len(engine.program.tables)):
        tables.setdefault(wiring.head_component[len(engine.program.rules) + place], []).append(place)
    for number in range(len(wiring.recursive)):
        engine.steps = engine.limits.steps
        founding.queue = []
        for rule in wiring.facts_of[number]:
            founding.activate(engine.instance(rule, (), list(rule.template)))
        for place in tables.get(number, ()):
            _load_table(engine, place)
        for plan in wiring.all_of[number]:
            if is_hopeless(plan.rule, engine.relations, engine.keys, engine.limits.steps):
                raise engine.overrun(plan.rule, tried=False)
            for instance in plan.everything(engine):
                founding.activate(instance)
        founding.grow()
    founding.touched_facts, founding.touched_proofs = {}, {}
    _settle_permanent(engine)
    _watch_the_rest(engine)


def _load_table(engine: Engine, place: int) -> None:
    table = engine.program.tables[place]
    functor = engine.symbols.functor(table.functor)
    constant, rule = engine.symbols.constant, len(engine.program.rules) + place
    for row in table.rows:
        key = (functor, *[constant(cell) for cell in row])
        engine.founding.activate(engine.instances.make(rule, (), engine.fact(key), (rule, *key[1:]), remember=False))


def _settle_permanent(engine: Engine) -> None:
    """Mark facts that can never become false: their proofs use only such facts, and no `not` that events could violate."""
    instances, relations = engine.instances, engine.relations
    breakable = {
        rule.index
        for rule in engine.wiring.rules.values()
        if any(
            not relations[pattern.functor].is_static
            for pattern in (*rule.negatives, *(one.atom for one in rule.counts))
        )
    }
    sound = [number for number in range(len(instances)) if instances.rule[number] not in breakable]
    rules = [(instances.head[number], instances.body[number]) for number in sound]
    for place in chained(rules, ()):
        engine.permanent_proofs.add(sound[place])
        engine.permanent[rules[place][0]] = 1


def _watch_the_rest(engine: Engine) -> None:
    instances = engine.instances
    for instance in range(len(instances)):
        if instance in engine.permanent_proofs:
            continue
        engine.open_proofs[instance] = 0
        watched = instances.watched[instance] = engine.breakable(instances.body[instance])
        for fact in watched:
            engine.uses.setdefault(fact, {})[instance] = None
        for index, key in instances.absent[instance]:
            index.bucket(key).watchers[instance] = None
        for one in instances.counted[instance]:
            one.among.bucket(one.key).counters[instance] = None
    for fact in range(len(engine.keys)):
        if engine.true[fact] and not engine.permanent[fact]:
            engine.open_facts[fact] = 0
