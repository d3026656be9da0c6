"""The database through time (docs/explanation/database.md) as loops and sets: everything is recomputed after every change.

A fact is a tuple: a functor, then constants. This code is slow and simple: read it first. It is the test oracle for `ground/`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from foretell.lang.program import Program
from foretell.lang.syntax import Atom, Compare, Constant, Count, Literal, Not, Rule, Term
from foretell.terms import bare

Fact = tuple[str, ...]
Binding = dict[str, str]
BOS: Fact = ("bos",)
EXPIRY: Fact = ("(expiry)",)  # takes the place of an event where additions expire


@dataclass(frozen=True)
class Instantiation:
    """A rule with values for its variables: the head, and the facts that match its positive conditions."""

    rule: int  # its number in the program
    head: Fact
    body: tuple[Fact, ...]
    parameters: tuple[str, ...]  # values of the variables in its parameter names


@dataclass(frozen=True)
class Added:
    instantiation: Instantiation
    event: int  # the number of the change: 0 for bos and, if nothing expires, i for the i-th event
    ends: float = math.inf  # the time of expiry; the addition is still in force at this time


@dataclass(frozen=True)
class State:
    facts: frozenset[Fact]
    proofs: frozenset[Instantiation]
    additions: tuple[Added, ...]  # in force: neither removed nor expired


@dataclass(frozen=True)
class Change:
    """The transition from one state to the next."""

    what: Fact  # bos, an event, or EXPIRY
    time: float
    state: State  # the state after the change


def states(program: Program, events: Sequence[str], given: Sequence[str] = ()) -> Iterator[State]:
    """Yield the states of a program in which nothing expires: 0 before `bos`, 1 after it, i + 1 after the i-th event.

    `given` are facts that come with the sequence.
    """
    yield first_state(program, given, events)
    for change in changes(program, events, [0.0] * len(events), 0.0, {}, given):
        yield change.state


def first_state(program: Program, given: Sequence[str] = (), events: Sequence[str] = ()) -> State:
    """Return the state before `bos`; `events` are all events of the sequence, whose values may be rows that training did not have."""
    return _state(program, (), _brought(program, given, events))


def changes(
    program: Program,
    events: Sequence[str],
    times: Sequence[float],
    until: float,
    lifetimes: Mapping[int, float],
    given: Sequence[str] = (),
) -> Iterator[Change]:
    """Yield `bos`, events, and expiries before the time `until`; `lifetimes` has the lifetime of a rule's additions, by rule number.

    An addition at `s` expires after `s + d`: an event at exactly that time happens before the expiry.
    """
    brought = _brought(program, given, events)
    additions: tuple[Added, ...] = ()
    state = _state(program, additions, brought)
    number = 0
    for event, time in zip([BOS, *(_fact(program, name) for name in events)], [0.0, *times], strict=True):
        for ends in _ends(additions, time):
            additions = tuple(one for one in additions if one.ends > ends)
            state = _state(program, additions, brought)
            yield Change(EXPIRY, ends, state)
            number += 1
        added, removed = _fire(program, state.facts, event, number)
        added = tuple(
            Added(one.instantiation, number, time + lifetimes.get(one.instantiation.rule, math.inf)) for one in added
        )
        additions = tuple(one for one in additions if one.instantiation.head not in removed) + added
        state = _state(program, additions, brought)
        yield Change(event, time, state)
        number += 1
    for ends in _ends(additions, until):
        additions = tuple(one for one in additions if one.ends > ends)
        yield Change(EXPIRY, ends, _state(program, additions, brought))


def _ends(additions: Sequence[Added], before: float) -> list[float]:
    """Return the distinct times before `before` at which additions expire, in order."""
    return sorted({one.ends for one in additions if one.ends < before})


def _brought(program: Program, given: Sequence[str], events: Sequence[str]) -> set[Fact]:
    """Return the facts that come with a sequence: given facts, and rows of tables from a log that were not in training."""
    found = {(program.given[one[0]], *one[1:]) for one in (_fact(program, name) for name in given)}
    rows = {(table.functor, *row) for table in program.tables for row in table.rows}
    for table in program.tables:
        for event in (_fact(program, name) for name in events):
            if table.log is None or bare(event[0]) != table.log.functor or len(event) <= table.log.place:
                continue
            row = table.functor, event[table.log.place]
            if row not in rows:
                found.add((program.unseen_rows[table.functor], row[1]))
    return found


def is_possible(program: Program, state: State, event: str) -> bool:
    functor = program.functors[_fact(program, event)[0]]
    return functor.kind == "exogenous" or _fact(program, event) in state.facts


def _fact(program: Program, name: str) -> Fact:
    functor, args = program.split(name)
    return (functor, *args)


def _state(program: Program, additions: tuple[Added, ...], brought: set[Fact]) -> State:
    """Return the least fixed point over the rules, stratum by stratum, starting from the additions in force."""
    facts = {one.instantiation.head for one in additions} | brought
    facts |= {(table.functor, *row) for table in program.tables for row in table.rows}
    proofs: set[Instantiation] = set()
    for stratum in range(1 + max(program.stratum.values(), default=0)):
        rules = [
            (number, numbered.rule)
            for number, numbered in enumerate(program.rules)
            if numbered.rule.kind == "deduce" and program.stratum[numbered.rule.head.functor] == stratum
        ]
        before = -1
        while len(facts) > before:
            before = len(facts)
            proofs |= {
                proof for number, rule in rules for proof in _instantiations(number, rule, rule.body, facts, {}, ())
            }
            facts |= {proof.head for proof in proofs}
    return State(frozenset(facts), frozenset(proofs), additions)


def _fire(program: Program, facts: frozenset[Fact], event: Fact, index: int) -> tuple[tuple[Added, ...], set[Fact]]:
    """Return what the event adds, and the facts that it removes, given the database just before it."""
    added: list[Added] = []
    removed: set[Fact] = set()
    for number, numbered in enumerate(program.rules):
        rule = numbered.rule
        if rule.kind == "deduce":
            continue
        first = rule.body[0]
        assert isinstance(first, Atom)
        binding = _match(first, event, {})
        if binding is None:
            continue
        found = list(_instantiations(number, rule, rule.body[1:], facts, binding, (event,)))
        if rule.kind == "add":
            added += [Added(one, index) for one in found]
        else:
            removed |= {one.head for one in found}
    return tuple(dict.fromkeys(added)), removed


def _instantiations(
    number: int,
    rule: Rule,
    body: Sequence[Literal],
    facts: set[Fact] | frozenset[Fact],
    binding: Binding,
    used: tuple[Fact, ...],
) -> Iterator[Instantiation]:
    """Yield all instantiations: positive conditions bind variables first, then equalities; then all conditions are checked."""
    atoms = [literal for literal in body if isinstance(literal, Atom)]
    for found, matched in _all_matches(atoms, facts, binding):
        solved = _equalities([one for one in body if isinstance(one, Compare) and one.equal], found)
        if solved is None or not all(_holds(literal, solved, facts) for literal in body):
            continue
        names = [name for name in (rule.matrix, rule.beta) if name is not None]
        variables = dict.fromkeys(variable.name for name in names for variable in name.variables())
        yield Instantiation(
            number,
            (rule.head.functor, *(_value(arg, solved) for arg in rule.head.args)),
            used + matched,
            tuple(solved[variable] for variable in variables),
        )


def _all_matches(
    atoms: Sequence[Atom], facts: set[Fact] | frozenset[Fact], binding: Binding
) -> Iterator[tuple[Binding, tuple[Fact, ...]]]:
    if not atoms:
        yield binding, ()
        return
    for fact in facts:
        found = _match(atoms[0], fact, binding)
        if found is not None:
            for further, matched in _all_matches(atoms[1:], facts, found):
                yield further, (fact, *matched)


def _match(atom: Atom, fact: Fact, binding: Binding) -> Binding | None:
    if fact[0] != atom.functor or len(fact) != 1 + len(atom.args):
        return None
    found = dict(binding)
    for arg, value in zip(atom.args, fact[1:], strict=True):
        if isinstance(arg, Constant):
            if arg.text != value:
                return None
        elif found.setdefault(arg.name, value) != value:
            return None
    return found


def _equalities(equalities: Sequence[Compare], binding: Binding) -> Binding | None:
    found = dict(binding)
    for _ in equalities:
        for one in equalities:
            for side, other in ((one.left, one.right), (one.right, one.left)):
                value = other.text if isinstance(other, Constant) else found.get(other.name)
                if not isinstance(side, Constant) and value is not None:
                    found.setdefault(side.name, value)
    return found


def _holds(literal: Literal, binding: Binding, facts: set[Fact] | frozenset[Fact]) -> bool:
    if isinstance(literal, Compare):
        return literal.holds(_value(literal.left, binding), _value(literal.right, binding))
    if isinstance(literal, Count):
        matching = [fact[1:] for fact in facts if _match(literal.atom, fact, binding) is not None]
        return literal.holds(literal.of(matching), _value(literal.right, binding))
    if isinstance(literal, Not):
        known = {name: value for name, value in binding.items()}
        return not any(_match(literal.atom, fact, known) is not None for fact in facts)
    return True


def _value(term: Term, binding: Binding) -> str:
    return term.text if isinstance(term, Constant) else binding[term.name]
