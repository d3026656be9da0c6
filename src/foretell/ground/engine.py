"""The database through time: the facts that hold and their proofs, updated at every event.

The cost of an event is proportional to the changes that it makes. First, the rules that it fires are joined with the database just before
it. Then the added and removed facts are propagated through the deduction rules, component by component in order of dependence, so all
facts that a component reads are final. New proofs are found from facts that became true (or, for `not`, false); proofs that lost a
condition are withdrawn. `settle.py` updates one component.
"""

from __future__ import annotations

import heapq
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from foretell.errors import ForetellError
from foretell.ground.database import BucketCount, CompiledRule, FactKey, Instances, Symbols
from foretell.ground.estimate import estimate
from foretell.ground.expiry import EXPIRY
from foretell.ground.join import JoinPlan, Reads
from foretell.ground.loading import BOS, Wiring, load
from foretell.ground.products import PartPattern, candidates, large
from foretell.ground.settle import ProofGraph
from foretell.lang.products import ProductRule, product_rules
from foretell.lang.program import Program
from foretell.reading import read_limits


@dataclass(frozen=True)
class ReplayLimits:
    """Limits of a replay. They stop rules with too many instances."""

    instances: int = field(default_factory=lambda: _times(2_000_000))  # the number of proofs that hold at one time
    steps: int = field(
        default_factory=lambda: _times(10_000_000)
    )  # join steps while one event is applied, or one component of the program is loaded


def _times(usual: int) -> int:
    """Return a default limit times the factor of `reading.limits(rules=…)`."""
    return max(1, int(usual * read_limits().rules))


KEPT_EVENTS = 100_000  # the number of events whose effects are cached
INSTANCE_STEPS = 8  # the cost of a new rule instance, counted in facts read


class GroundingError(ForetellError):
    """Raised when a rule has more instances than the limits allow."""


@dataclass(slots=True)
class Work:
    """The pending changes of one component."""

    added: list[int] = field(default_factory=list)  # facts
    removed: list[int] = field(default_factory=list)
    found: list[tuple[JoinPlan, int]] = field(default_factory=list)  # (plan, fact): the fact became true
    freed: list[tuple[JoinPlan, int]] = field(default_factory=list)  # (plan, fact): the fact became false
    lost: list[int] = field(default_factory=list)  # proofs that lost a condition


@dataclass(frozen=True, slots=True)
class EventEffect:
    """The effect of an event. It is valid as long as the facts that were read are unchanged."""

    reads: Reads
    additions: list[int]  # rule instances of `<-` rules
    removals: list[int]
    added: tuple[int, ...]  # their distinct heads, without facts that always hold
    removed: tuple[int, ...]


@dataclass(slots=True)
class EndedRows:
    """The intervals that ended during one sequence, in order. A timeline is built from them."""

    holds: list[tuple[int, int, int]] = field(default_factory=list)  # fact, from, to
    proofs: list[tuple[int, int, int]] = field(default_factory=list)  # instance, from, to


class Engine:
    def __init__(self, program: Program, limits: ReplayLimits | None = None) -> None:
        self.program, self.limits = program, limits or ReplayLimits()
        some = candidates(program)
        self._load(some)
        if some:
            many = large(program, some, self.wiring.products.products, self._part_size)
            if len(many) < len(some):
                self._load(many)

    def _load(self, products: Sequence[ProductRule]) -> None:
        """Load the program, with these of its rules as products."""
        program = self.program
        self.symbols = Symbols(program.several_arities)
        self.keys = self.symbols.keys
        self.wiring = Wiring(program, self.symbols, products)
        self.relations, self.instances = self.wiring.relations, Instances()
        self.steps = self.limits.steps
        self.live = 0  # the number of active proofs
        self.true, self.added, self.permanent = bytearray(), bytearray(), bytearray()  # one byte per fact
        self.support: list[int] = []  # the number of active proofs of each fact
        self.uses: dict[int, dict[int, None]] = {}  # active proofs by each body fact that can become false
        self.open_facts: dict[int, int] = {}  # facts that are true now but not always → first state of the interval
        self.open_proofs: dict[int, int] = {}
        self.permanent_proofs: set[int] = set()
        self._now_added: dict[int, None] = {}
        self._fired: dict[int, EventEffect] = {}
        self.is_loading = True
        self.founding = ProofGraph(self)
        load(self)
        self.is_loading = False
        self.bos = self.fact((self.symbols.functor(BOS),))
        if program.expires:
            self.event(EXPIRY)  # numbered before any chunk, so chunks do not store it
        self._initial_facts, self._initial_proofs = dict(self.open_facts), dict(self.open_proofs)
        self.base_functors = len(self.symbols.functors)
        self.base_constants, self.base_facts = len(self.symbols.constants), len(self.keys)
        self.base_groups, self.base_instances = len(self.instances.groups), len(self.instances)

    def _part_size(self, part: PartPattern) -> int:
        """Return the number of facts of a part; if they can change, an upper limit from the number of the program's constants."""
        count = sum(key[0] == part.functor and self.true[fact] for fact, key in enumerate(self.keys))
        if self.relations[part.functor].is_static:
            return count
        return max(1, count, self.base_constants ** len(part.places))

    @property
    def is_fresh(self) -> bool:
        """Whether the engine only has the loaded program."""
        known = len(self.symbols.functors), len(self.symbols.constants), len(self.keys), len(self.instances)
        return known == (self.base_functors, self.base_constants, self.base_facts, self.base_instances)

    # Names and rule instances

    def fact(self, key: FactKey) -> int:
        fact = self.symbols.fact(key)
        while len(self.true) <= fact:
            self.true.append(0)
            self.added.append(0)
            self.permanent.append(0)
            self.support.append(0)
        return fact

    def event(self, name: str) -> int:
        """Return the fact of an event in the data."""
        fact = self.symbols.named(name)
        self.wiring.know(self.keys[fact][0])
        return self.fact(self.keys[fact])

    def is_possible(self, event: int) -> bool:
        """Whether an event is possible now: declared events while their fact is true, other events always."""
        return bool(self.true[event]) or not self.is_declared_event(event) or self.is_in_product(event)

    def is_in_product(self, event: int) -> bool:
        """Whether a product makes the event possible now."""
        key = self.keys[event]
        return any(one.allows(key, self._is_true) for one in self.wiring.products_of.get(key[0], ()))

    def _is_true(self, key: FactKey) -> bool:
        fact = self.symbols.find(key)
        return fact is not None and bool(self.true[fact])

    def is_declared_event(self, event: int) -> bool:
        return self.wiring.is_event[self.keys[event][0]]

    def instance(self, rule: CompiledRule, facts: tuple[int, ...], binding: list[int]) -> int:
        found = self.instances.find(rule.index, facts)
        if found is not None:
            return found
        self.steps -= INSTANCE_STEPS + len(facts)
        if self.steps < 0:
            raise self.overrun(rule)
        head = self.fact((rule.head.functor, *[binding[slot] for slot in rule.head.slots]))
        group = (rule.index, *[binding[slot] for slot in rule.group])
        absent = [(index, key(binding)) for index, key in self.wiring.absent[rule.index]]
        counted: Sequence[BucketCount] = ()
        if rule.counts:
            places = self.wiring.counted[rule.index]
            counted = [BucketCount(index, key(binding), one, binding[one.right]) for index, key, one in places]
        watched = [] if self.is_loading or rule.kind != "deduce" else self.breakable(facts)
        if (
            rule.head.functor in self.wiring.part_functors
        ):  # rules of parts have the groups of the whole rule, not their own
            whole = self.wiring.products.group_rule.get(rule.index)
            group = () if whole is None else (whole, *group[1:])
        return self.instances.make(rule.index, facts, head, group, absent, counted, watched)

    def breakable(self, body: Sequence[int]) -> list[int]:
        """Return the facts of a body that can become false."""
        return [fact for fact in dict.fromkeys(body) if not self.permanent[fact]]

    def overrun(self, rule: CompiledRule, tried: bool = True) -> GroundingError:
        place = self.wiring.written.get(rule.index, rule.index)
        numbered = self.program.rules[place]
        reason = product_rules(self.program)[1].get(place)
        listed = (
            "" if reason is None else f"; its possible events are listed, and not kept as a product, because {reason}"
        )
        about = estimate(rule, self.relations, self.keys, self.symbols.functors)
        most = f"{self.limits.steps:,} steps, or {self.limits.instances:,} proofs that hold at one time"
        return GroundingError(
            f"{numbered.rule.span.place}: {numbered.name} has too many instantiations, {about}: "
            f"{'gave up after' if tried else 'not tried, since the limit is'} {most}; join its conditions on shared variables, or "
            f"split it into rules with fewer variables (`foretell.reading.limits(rules=…)` raises the limit){listed}"
        )

    # Propagation of added and removed facts

    def _transition(self, removed: Iterable[int], added: Iterable[int], now: int, rows: EndedRows | None) -> None:
        """Propagate the change to the next state, whose number is `now`. Facts and proofs that end are written to `rows`."""
        wiring, true, keys = self.wiring, self.true, self.keys
        component, reading, head_component = wiring.component, wiring.reading, wiring.head_component
        rule_of = self.instances.rule
        waiting: list[int] = []
        work: dict[int, Work] = {}
        self.steps = self.limits.steps

        def of(number: int) -> Work:
            found = work.get(number)
            if found is None:
                found = work[number] = Work()
                heapq.heappush(waiting, number)
            return found

        for fact in removed:
            self.added[fact] = 0
            del self._now_added[fact]
            of(component[keys[fact][0]]).removed.append(fact)
        for fact in added:
            self.added[fact] = 1
            self._now_added[fact] = None
            of(component[keys[fact][0]]).added.append(fact)
        while waiting:
            number = heapq.heappop(waiting)
            settle = self.founding.settle_recursive if wiring.recursive[number] else self.founding.settle_plain
            changed = settle(number, work.pop(number), now, rows)
            negated: dict[int, None] = {}
            for fact in changed:
                key = keys[fact]
                readers = reading[key[0]]
                if not readers.is_read:
                    continue
                if readers.negated or readers.counted:
                    negated[key[0]] = None
                if true[fact]:
                    for plan in readers.above.of_fact(fact, key):
                        of(head_component[plan.rule.index]).found.append((plan, fact))
                else:
                    # All of them end now: in this component they have ended already, in others they end when it is their turn.
                    last, lost = -1, []
                    for instance in self.uses.pop(fact, ()):
                        target = head_component[rule_of[instance]]
                        if target != last:
                            last, lost = target, of(target).lost
                        lost.append(instance)
            for functor in negated:
                for plan, instance, fact in self._negations(functor, changed):
                    if plan is None:
                        of(head_component[self.instances.rule[instance]]).lost.append(instance)
                    else:
                        of(head_component[plan.rule.index]).freed.append((plan, fact))

    def _negations(self, functor: int, changed: Iterable[int]) -> list[tuple[JoinPlan | None, int, int]]:
        """Return changes of negated and counted conditions: (plan, -1, fact) if one may hold now, (None, proof, fact) if a proof lost one.

        `not` changes when a key loses its last fact or gets its first one; a count may change with any fact of its key.
        """
        found: list[tuple[JoinPlan | None, int, int]] = []
        for index, plans in self.wiring.reading[functor].negated:
            change: dict[object, tuple[int, int]] = {}  # key → (net change of the number of facts, one of these facts)
            for fact in changed:
                key = self.keys[fact]
                if key[0] == functor:
                    place = index.key_of(key)
                    change[place] = (change.get(place, (0, 0))[0] + (1 if self.true[fact] else -1), fact)
            for place, (net, fact) in change.items():
                bucket = index.buckets.get(place)
                size = len(bucket.facts) if bucket is not None else 0
                if bucket is not None and size and size == net:  # the bucket was empty before
                    found.extend((None, instance, fact) for instance in bucket.watchers)
                elif not size and net < 0:
                    found.extend((plan, -1, fact) for plan in plans)
        for index, plans in self.wiring.reading[functor].counted:
            of_key = {index.key_of(self.keys[fact]): fact for fact in changed if self.keys[fact][0] == functor}
            for place, fact in of_key.items():
                bucket = index.buckets.get(place)
                for instance in bucket.counters if bucket is not None else ():
                    if not all(one.holds() for one in self.instances.counted[instance]):
                        found.append((None, instance, fact))
                found.extend((plan, -1, fact) for plan in plans)
        return found

    # Events

    def start(self, given: Iterable[str] = ()) -> None:
        """Return to the state before `bos`, where only the facts given with the sequence were added."""
        self._transition(list(self._now_added), (), 0, None)
        self.open_facts, self.open_proofs = dict(self._initial_facts), dict(self._initial_proofs)
        facts = [self.event(name) for name in given]
        if facts:
            self._transition((), facts, 0, None)

    def fire(self, event: int) -> EventEffect:
        """Return the effect of an event in the current state."""
        kept = self._fired.get(event)
        if kept is not None:
            for bucket, version in kept.reads:
                if bucket.version != version:
                    break
            else:
                return kept
        self.steps = self.limits.steps
        key, heads = self.keys[event], self.instances.head
        reads: Reads = []
        additions: list[int] = []
        removals: list[int] = []
        for plan in self.wiring.reading[key[0]].as_event.of(key):
            read, found = plan.remembered(event, self)
            reads.extend(read)
            (additions if plan.rule.kind == "add" else removals).extend(found)
        added = tuple([head for head in dict.fromkeys([heads[one] for one in additions]) if not self.permanent[head]])
        removed = tuple(dict.fromkeys([heads[one] for one in removals]))
        if len(self._fired) >= KEPT_EVENTS:
            self._fired.clear()
        fired = self._fired[event] = EventEffect(reads, additions, removals, added, removed)
        return fired

    def apply(self, fired: EventEffect, now: int, rows: EndedRows) -> None:
        """Apply the effect of an event; `now` is the number of the next state."""
        flags = self.added
        new = [fact for fact in fired.added if not flags[fact]]
        gone = [fact for fact in fired.removed if flags[fact] and fact not in fired.added] if fired.removed else ()
        if new or gone:
            self._transition(gone, new, now, rows)


def __getattr__(name: str) -> type[ReplayLimits]:
    if name == "Limits":
        warnings.warn("foretell.ground.engine.Limits is now ReplayLimits", DeprecationWarning, stacklevel=2)
        return ReplayLimits
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
