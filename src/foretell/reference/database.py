"""The database through time (docs/explanation/database.md) as loops and sets: everything is recomputed after every event.

A fact is a tuple, functor first, then constants. Slow and obvious: the oracle for `ground/`, and the text to read first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from foretell.lang.program import Program
from foretell.lang.syntax import Atom, Compare, Constant, Literal, Not, Rule, Term
from foretell.terms import split

Fact = tuple[str, ...]
Binding = dict[str, str]


@dataclass(frozen=True)
class Instantiation:
    """A rule with its variables replaced: the head, and the facts that its positive conditions became."""

    rule: int  # its place in the program
    head: Fact
    body: tuple[Fact, ...]
    parameters: tuple[str, ...]  # values of the variables in its parameter names


@dataclass(frozen=True)
class Added:
    instantiation: Instantiation
    event: int  # 0 for bos, i for the i-th event


@dataclass(frozen=True)
class State:
    facts: frozenset[Fact]
    proofs: frozenset[Instantiation]
    additions: tuple[Added, ...]  # in force: not erased by a removal


def states(program: Program, events: Sequence[str]) -> Iterator[State]:
    """State 0 before `bos`, state 1 after it, state i + 1 after the i-th event."""
    additions: tuple[Added, ...] = ()
    state = _state(program, additions)
    yield state
    for index, event in enumerate([("bos",), *(_fact(event) for event in events)]):
        added, removed = _fire(program, state.facts, event, index)
        additions = tuple(one for one in additions if one.instantiation.head not in removed) + added
        state = _state(program, additions)
        yield state


def is_possible(program: Program, state: State, event: str) -> bool:
    functor = program.functors[_fact(event)[0]]
    return functor.kind == "exogenous" or _fact(event) in state.facts


def _fact(name: str) -> Fact:
    functor, args = split(name)
    return (functor, *args)


def _state(program: Program, additions: tuple[Added, ...]) -> State:
    """The least fixed point over the rules, stratum by stratum, from what was added and is still there."""
    facts = {one.instantiation.head for one in additions}
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
    """What the event adds and removes, judged by the database just before it."""
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
    """Positive conditions bind, then equalities, then everything else is checked."""
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
        return (_value(literal.left, binding) == _value(literal.right, binding)) == literal.equal
    if isinstance(literal, Not):
        known = {name: value for name, value in binding.items()}
        return not any(_match(literal.atom, fact, known) is not None for fact in facts)
    return True


def _value(term: Term, binding: Binding) -> str:
    return term.text if isinstance(term, Constant) else binding[term.name]
