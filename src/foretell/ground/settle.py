"""Updates one component of the rules; everything that it depends on is final.

In a plain component a fact is true while it has a proof or was added, so counting is enough. In a recursive component facts may
prove one another, so each fact stores one founding proof. If this proof is lost, all facts that depend on it search for another
proof that is not circular. Facts without one become false (an unfounded set).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from foretell.ground.engine import EndedRows, Engine, Work

ADDED = -1  # replaces a founding proof: the fact was added by an event


class ProofGraph:
    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.founded: dict[int, int] = {}  # the founding proof (or ADDED) of each fact of a recursive component
        self.rank: dict[int, int] = {}  # of these facts: above the ranks that its founding proof uses
        self.supports: dict[int, dict[int, None]] = {}  # active proofs by head, in recursive components
        self.touched_facts: dict[int, bool] = {}  # whether each touched fact was true before the component was settled
        self.touched_proofs: dict[int, bool] = {}
        self.queue: list[int] = []  # facts that became true and may trigger rules of their own component

    # Plain components: nothing changes twice

    def settle_plain(self, number: int, work: Work, now: int, rows: EndedRows | None) -> list[int]:
        """Settle a plain component and return the facts whose truth changed."""
        engine = self.engine
        instances, true, support, uses = engine.instances, engine.true, engine.support, engine.uses
        active, heads, watched, absent = instances.active, instances.head, instances.watched, instances.absent
        counted = instances.counted
        changed: list[int] = []
        for fact in work.added:
            if not true[fact]:
                true[fact] = 1
                changed.append(fact)
        found = [one for plan, fact in work.found for one in plan.from_fact(fact, engine)]
        if work.freed:
            found += [one for plan, fact in work.freed for one in plan.from_absence(fact, engine)]
        opened = engine.open_proofs
        for instance in found:
            if active[instance]:
                continue
            active[instance] = 1
            engine.live += 1
            opened[instance] = now
            head = heads[instance]
            support[head] += 1
            for fact in watched[instance]:
                using = uses.get(fact)
                if using is None:
                    uses[fact] = {instance: None}
                else:
                    using[instance] = None
            for index, key in absent[instance]:
                index.bucket(key).watchers[instance] = None
            for one in counted[instance]:
                one.among.bucket(one.key).counters[instance] = None
            if not true[head]:
                true[head] = 1
                changed.append(head)
        if engine.live > engine.limits.instances:
            raise engine.overrun(engine.wiring.rules[instances.rule[found[-1]]])
        doubtful = list(work.removed)
        for instance in work.lost:
            if active[instance]:
                active[instance] = 0
                engine.live -= 1
                since = opened.pop(instance)
                if rows is not None:
                    rows.proofs.append((instance, since, now))
                head = heads[instance]
                support[head] -= 1
                if not support[head]:
                    doubtful.append(head)
                if len(watched[instance]) > 1 or absent[instance] or counted[instance]:
                    self._unregister(instance)  # otherwise it was only registered with the fact that is gone
        for fact in doubtful:
            if true[fact] and not support[fact] and not engine.added[fact]:
                true[fact] = 0
                changed.append(fact)
        self._publish(changed, now, rows)
        return changed

    def _unregister(self, instance: int) -> None:
        instances, uses = self.engine.instances, self.engine.uses
        for fact in instances.watched[instance]:
            using = uses.get(fact)
            if using is not None:
                using.pop(instance, None)
        for index, key in instances.absent[instance]:
            index.bucket(key).watchers.pop(instance, None)
        for one in instances.counted[instance]:
            one.among.bucket(one.key).counters.pop(instance, None)

    def _publish(self, changed: list[int], now: int, rows: EndedRows | None) -> None:
        """Write changes of a plain component to the relations, if anything reads them, and to the records."""
        engine = self.engine
        true, keys, reading, relations = engine.true, engine.keys, engine.wiring.reading, engine.relations
        for fact in changed:
            functor = keys[fact][0]
            if true[fact]:
                engine.open_facts[fact] = now
                if reading[functor].is_read:
                    relations[functor].insert(fact, keys[fact])
            else:
                since = engine.open_facts.pop(fact)
                if rows is not None:
                    rows.holds.append((fact, since, now))
                if reading[functor].is_read:
                    relations[functor].delete(fact, keys[fact])

    # Recursive components, and loading

    def settle_recursive(self, number: int, work: Work, now: int, rows: EndedRows | None) -> list[int]:
        """Settle a recursive component and return the facts whose truth changed in the end."""
        engine = self.engine
        self.touched_facts, self.touched_proofs, self.queue = {}, {}, []
        for fact in work.added:
            if not engine.true[fact]:
                self.founded[fact], self.rank[fact] = ADDED, 0
                self.make_true(fact)
        for plan, fact in work.found:
            for instance in plan.from_fact(fact, engine):
                self.activate(instance)
        for plan, fact in work.freed:
            for instance in plan.from_absence(fact, engine):
                self.activate(instance)
        self.grow()
        doubtful = list(work.removed)
        for instance in work.lost:
            if engine.instances.active[instance]:
                self._deactivate(instance)
                doubtful.append(engine.instances.head[instance])
        self._refound(number, doubtful)
        self._record(now, rows)
        return [fact for fact, was in self.touched_facts.items() if engine.true[fact] != was]

    def activate(self, instance: int) -> None:
        engine, instances = self.engine, self.engine.instances
        if instances.active[instance]:
            return
        self.touched_proofs.setdefault(instance, False)
        instances.active[instance] = 1
        engine.live += 1
        if engine.live > engine.limits.instances and instances.rule[instance] in engine.wiring.rules:
            raise engine.overrun(engine.wiring.rules[instances.rule[instance]])
        head = instances.head[instance]
        engine.support[head] += 1
        if not engine.is_loading:
            for fact in instances.watched[instance]:
                engine.uses.setdefault(fact, {})[instance] = None
            for index, key in instances.absent[instance]:
                index.bucket(key).watchers[instance] = None
            for one in instances.counted[instance]:
                one.among.bucket(one.key).counters[instance] = None
        if engine.wiring.recursive[engine.wiring.component[engine.keys[head][0]]]:
            self.supports.setdefault(head, {})[instance] = None
            if not engine.true[head]:
                self.founded[head], self.rank[head] = instance, self._rank(instance)
        if not engine.true[head]:
            self.make_true(head)

    def _deactivate(self, instance: int) -> None:
        engine, instances = self.engine, self.engine.instances
        self.touched_proofs.setdefault(instance, True)
        instances.active[instance] = 0
        engine.live -= 1
        head = instances.head[instance]
        engine.support[head] -= 1
        self._unregister(instance)
        self.supports[head].pop(instance, None)

    def make_true(self, fact: int) -> None:
        self.touched_facts.setdefault(fact, False)
        self.engine.true[fact] = 1
        key = self.engine.keys[fact]
        if self.engine.wiring.reading[key[0]].is_read:
            self.engine.relations[key[0]].insert(fact, key)
            self.queue.append(fact)

    def _make_false(self, fact: int) -> None:
        self.touched_facts.setdefault(fact, True)
        self.engine.true[fact] = 0
        key = self.engine.keys[fact]
        if self.engine.wiring.reading[key[0]].is_read:
            self.engine.relations[key[0]].delete(fact, key)

    def grow(self) -> None:
        """Apply the rules of the component to facts that became true, until nothing changes."""
        queue = self.queue
        while queue:
            fact = queue.pop()
            key = self.engine.keys[fact]
            for plan in self.engine.wiring.reading[key[0]].inside.of_fact(fact, key):
                for instance in plan.from_fact(fact, self.engine):
                    self.activate(instance)

    def _refound(self, number: int, doubtful: list[int]) -> None:
        """Find new founding proofs for facts that lost theirs, or make these facts false."""
        engine, instances, founded = self.engine, self.engine.instances, self.founded
        lost: dict[int, None] = {}
        stack = []
        for fact in doubtful:
            if engine.true[fact] and not engine.permanent[fact] and not self._is_founded(fact):
                basis = self._lower_basis(fact)
                if basis is None:
                    stack.append(fact)
                else:
                    founded[fact] = basis
        while stack:
            fact = stack.pop()
            if fact in lost:
                continue
            lost[fact] = None
            for instance in engine.uses.get(fact, ()):
                head = instances.head[instance]
                inside = engine.wiring.head_component[instances.rule[instance]] == number
                if inside and founded.get(head) == instance and head not in lost and not engine.permanent[head]:
                    stack.append(head)
        queue = list(lost)
        while queue:
            fact = queue.pop()
            if fact not in lost:
                continue
            basis = self._new_basis(fact, lost)
            if basis is None:
                continue
            founded[fact], self.rank[fact] = basis, 0 if basis == ADDED else self._rank(basis)
            del lost[fact]
            queue.extend(head for head in (instances.head[one] for one in engine.uses.get(fact, ())) if head in lost)
        for fact in lost:
            del founded[fact], self.rank[fact]
            self._make_false(fact)
        for fact in lost:
            for instance in list(engine.uses.get(fact, ())):
                if engine.wiring.head_component[instances.rule[instance]] == number:
                    self._deactivate(instance)

    def _rank(self, instance: int) -> int:
        """Return one more than the highest rank of the same component's facts in the body."""
        component, keys = self.engine.wiring.component, self.engine.keys
        own = component[keys[self.engine.instances.head[instance]][0]]
        body = self.engine.instances.body[instance]
        return 1 + max((self.rank.get(fact, 0) for fact in body if component[keys[fact][0]] == own), default=0)

    def _lower_basis(self, fact: int) -> int | None:
        """Return another proof from facts of lower rank, or None. Facts of lower rank cannot depend on this one."""
        if self.engine.added[fact]:
            self.rank[fact] = 0
            return ADDED
        rank = self.rank[fact]
        return next((one for one in self.supports.get(fact, ()) if self._rank(one) <= rank), None)

    def _is_founded(self, fact: int) -> bool:
        basis = self.founded[fact]
        return bool(self.engine.added[fact]) if basis == ADDED else bool(self.engine.instances.active[basis])

    def _new_basis(self, fact: int, lost: dict[int, None]) -> int | None:
        if self.engine.added[fact]:
            return ADDED
        body = self.engine.instances.body
        for instance in self.supports.get(fact, ()):
            if not any(other in lost for other in body[instance]):
                return instance
        return None

    def _record(self, now: int, rows: EndedRows | None) -> None:
        """Record the net changes. A fact that was removed and restored has not changed."""
        engine = self.engine
        active, true = engine.instances.active, engine.true
        for instance, was in self.touched_proofs.items():
            if active[instance] and not was:
                engine.open_proofs[instance] = now
            elif was and not active[instance]:
                since = engine.open_proofs.pop(instance)
                if rows is not None:
                    rows.proofs.append((instance, since, now))
        for fact, was in self.touched_facts.items():
            if true[fact] and not was:
                engine.open_facts[fact] = now
            elif was and not true[fact]:
                since = engine.open_facts.pop(fact)
                if rows is not None:
                    rows.holds.append((fact, since, now))
