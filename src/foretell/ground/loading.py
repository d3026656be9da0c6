"""What is true before anything happens: facts, tables and all that follows from them, component by component."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from foretell.ground.engine import Engine


def load(engine: Engine) -> None:
    """Fill an empty engine; then tell apart what holds for ever, so that events need not watch it."""
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
        engine.founding.activate(engine.instances.make(rule, (), engine.fact(key), key[1:], remember=False))


def _settle_permanent(engine: Engine) -> None:
    """Facts that nothing can ever make false: proved from such facts alone, without a `not` that events could break."""
    instances, relations = engine.instances, engine.relations
    breakable = {
        rule.index
        for rule in engine.wiring.rules.values()
        if any(not relations[pattern.functor].is_static for pattern in rule.negatives)
    }
    missing: list[int] = []
    users: dict[int, list[int]] = {}
    ready: list[int] = []
    for instance in range(len(instances)):
        body = set(instances.body[instance])
        missing.append(len(body))
        if instances.rule[instance] in breakable:
            continue
        if not body:
            ready.append(instance)
        for fact in body:
            users.setdefault(fact, []).append(instance)
    while ready:
        instance = ready.pop()
        engine.permanent_proofs.add(instance)
        head = instances.head[instance]
        if engine.permanent[head]:
            continue
        engine.permanent[head] = 1
        for other in users.get(head, ()):
            missing[other] -= 1
            if missing[other] == 0:
                ready.append(other)


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
    for fact in range(len(engine.keys)):
        if engine.true[fact] and not engine.permanent[fact]:
            engine.open_facts[fact] = 0
