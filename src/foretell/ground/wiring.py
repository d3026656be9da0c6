"""A program's rules → what sets them off: for every functor the plans that a fact of it, its absence, or an event of it starts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from foretell.ground.join import JoinPlan, bound_places
from foretell.ground.relation import Getter, Index, Relation, getter
from foretell.ground.rules import AtomPattern, CompiledRule, compile_rule
from foretell.ground.symbols import FactKey, Symbols
from foretell.lang.program import Program

BOS = "bos"
KEPT_FACTS = 500_000


@dataclass(slots=True)
class Triggers:
    """Plans that a fact of some functor sets off, found by the constants that they ask for: other rules cost nothing."""

    groups: list[tuple[Getter, dict[object, list[JoinPlan]]]] = field(default_factory=list)
    places: list[tuple[int, ...]] = field(default_factory=list)
    met: dict[int, list[JoinPlan] | None] = field(
        default_factory=dict
    )  # by fact: what is left of its plans, once they have run

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
        """The same, without those that can never find anything for this fact, once that is known."""
        if not self.groups:
            return ()
        met = self.met.get(fact)
        if met is not None:
            return met
        if fact not in self.met:  # the first time
            if len(self.met) >= KEPT_FACTS:
                self.met.clear()
            self.met[fact] = None
            return self.of(key)
        left = self.met[fact] = [plan for plan in self.of(key) if not plan.is_hopeless(fact)]
        return left


@dataclass(slots=True)
class Reading:
    """Who looks at the facts of one functor."""

    above: Triggers = field(default_factory=Triggers)  # rules whose heads lie in other components
    inside: Triggers = field(default_factory=Triggers)  # rules of the same, recursive component
    as_event: Triggers = field(default_factory=Triggers)  # `<-` rules
    negated: list[tuple[Index, list[JoinPlan]]] = field(default_factory=list)  # by the places that `not` binds
    is_read: bool = False  # whether any condition but an event's asks for it


class Wiring:
    def __init__(self, program: Program, symbols: Symbols) -> None:
        self.program, self.symbols = program, symbols
        for name in program.functors:
            symbols.functor(name)
        symbols.functor(BOS)
        compiled = (compile_rule(place, one.rule, symbols) for place, one in enumerate(program.rules))
        self.rules = {rule.index: rule for rule in compiled if rule is not None}
        count = len(symbols.functors)
        self.component = [0] * count  # of each functor
        self.recursive: list[bool] = []  # of each component
        for number, one in enumerate(program.components):
            self.recursive.append(one.recursive)
            for name in one.functors:
                self.component[symbols.functor(name)] = number
        dynamic = self._dynamic_functors()
        self.relations = [Relation(number not in dynamic) for number in range(count)]
        kinds = {symbols.functor(name): functor.kind for name, functor in program.functors.items()}
        self.is_event = [kinds.get(number) == "event" for number in range(count)]
        self.reading = [Reading() for _ in range(count)]
        self.facts_of: list[list[CompiledRule]] = [[] for _ in self.recursive]  # rules without conditions
        self.all_of: list[list[JoinPlan]] = [[] for _ in self.recursive]
        self.head_component: dict[int, int] = {}  # of each rule
        self.absent: dict[int, list[tuple[Index, Getter]]] = {}  # the negated conditions of each rule
        for rule in self.rules.values():
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
        for pattern in rule.positives if rule.kind == "deduce" else rule.positives[1:]:
            self.reading[pattern.functor].is_read = True
        if rule.kind != "deduce":
            event = rule.positives[0]
            self.reading[event.functor].as_event.add(JoinPlan(rule, trigger=0), event)
            return
        if not rule.positives and not rule.negatives:
            self.facts_of[target].append(rule)
            return
        self.all_of[target].append(JoinPlan(rule))
        for place, pattern in enumerate(rule.positives):
            reading = self.reading[pattern.functor]
            is_inside = self.component[pattern.functor] == target and self.recursive[target]
            (reading.inside if is_inside else reading.above).add(JoinPlan(rule, trigger=place), pattern)
        for place, pattern in enumerate(rule.negatives):
            self._negate(
                self.reading[pattern.functor], self.absent[rule.index][place][0], JoinPlan(rule, negated=place)
            )

    def _negate(self, reading: Reading, index: Index, plan: JoinPlan) -> None:
        for known, plans in reading.negated:
            if known is index:
                plans.append(plan)
                return
        reading.negated.append((index, [plan]))

    def _dynamic_functors(self) -> set[int]:
        """Functors whose facts events can change: those that are added, and all that is deduced from such."""
        dynamic = {rule.head.functor for rule in self.rules.values() if rule.kind == "add"}
        readers: dict[int, list[int]] = {}
        for rule in self.rules.values():
            if rule.kind == "deduce":
                for pattern in (*rule.positives, *rule.negatives):
                    readers.setdefault(pattern.functor, []).append(rule.head.functor)
        waiting = list(dynamic)
        while waiting:
            for reader in readers.get(waiting.pop(), ()):
                if reader not in dynamic:
                    dynamic.add(reader)
                    waiting.append(reader)
        return dynamic

    def know(self, functor: int) -> None:
        """Room for a functor that only the data have."""
        while len(self.component) <= functor:
            self.component.append(0)
            self.relations.append(Relation(True))
            self.is_event.append(False)
            self.reading.append(Reading())
