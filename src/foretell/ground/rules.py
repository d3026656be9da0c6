"""A rule of the program → patterns over integers, equalities solved: what joins run on.

A rule's variables and constants have slots in its binding, variables first. `X = Y` and `X = a` are gone: they only say that two
names share a slot. A rule that can never fire (`a = b`, `X != X`) compiles to nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from foretell.ground.symbols import Symbols
from foretell.lang.syntax import Atom, Compare, Kind, Not, Rule, Term, Variable

FREE = -1  # the slot of `_` inside `not`


@dataclass(frozen=True, slots=True)
class AtomPattern:
    functor: int
    slots: tuple[int, ...]  # of each argument


@dataclass(frozen=True, slots=True)
class CompiledRule:
    index: int  # place in the program's rules
    kind: Kind
    head: AtomPattern
    positives: tuple[AtomPattern, ...]  # in program order; on `add` and `remove` the event comes first
    negatives: tuple[AtomPattern, ...]
    unequal: tuple[tuple[int, int], ...]
    group: tuple[
        int, ...
    ]  # slots of the variables in parameter names, in order: each binding of them is an `r` of its own
    template: tuple[int, ...]  # a binding before anything is bound: -1 for variables, then the constants
    variables: int


def compile_rule(index: int, rule: Rule, symbols: Symbols) -> CompiledRule | None:
    representative = _equal_names(rule)
    if representative is None:
        return None
    slots = _Slots(representative, symbols)
    head = slots.pattern(rule.head)
    positives, negatives, unequal = [], [], []
    for literal in rule.body:
        if isinstance(literal, Atom):
            positives.append(slots.pattern(literal))
        elif isinstance(literal, Not):
            negatives.append(slots.pattern(literal.atom, negated=True))
        elif not literal.equal:
            unequal.append((slots.of(literal.left), slots.of(literal.right)))
    group: dict[str, int] = {}
    for name in (rule.matrix, rule.beta):
        for variable in name.variables() if name is not None else ():
            group[variable.name] = slots.of(variable)
    count = len(slots.variables)
    place = [*range(count)]
    constants = list(slots.constants)

    def settled(slot: int) -> int:
        """Constants were numbered -2, -3, … while the number of variables was not known."""
        return slot if slot >= FREE else count + (-2 - slot)

    def settle(pattern: AtomPattern) -> AtomPattern:
        return AtomPattern(pattern.functor, tuple(settled(slot) for slot in pattern.slots))

    pairs = tuple((settled(a), settled(b)) for a, b in unequal)
    template = (*(-1 for _ in place), *constants)
    for a, b in pairs:
        if a == b or (min(a, b) >= count and template[a] == template[b]):
            return None
    return CompiledRule(
        index,
        rule.kind,
        settle(head),
        tuple(settle(one) for one in positives),
        tuple(settle(one) for one in negatives),
        tuple((a, b) for a, b in pairs if min(a, b) < count),
        tuple(settled(slot) for slot in group.values()),
        template,
        count,
    )


class _Slots:
    """Hands out slots: 0, 1, … to variables, -2, -3, … to constants until all variables are known."""

    def __init__(self, representative: dict[str, Term], symbols: Symbols) -> None:
        self.representative, self.symbols = representative, symbols
        self.variables: dict[str, int] = {}
        self.constants: dict[int, int] = {}

    def of(self, term: Term) -> int:
        if isinstance(term, Variable):
            term = self.representative.get(term.name, term)
        if isinstance(term, Variable):
            return self.variables.setdefault(term.name, len(self.variables))
        number = self.symbols.constant(term.text)
        return -2 - self.constants.setdefault(number, len(self.constants))

    def pattern(self, atom: Atom, negated: bool = False) -> AtomPattern:
        slots = tuple(
            FREE if negated and isinstance(arg, Variable) and arg.is_anonymous else self.of(arg) for arg in atom.args
        )
        return AtomPattern(self.symbols.functor(atom.functor), slots)


def _equal_names(rule: Rule) -> dict[str, Term] | None:
    """What each variable of an equality stands for; None if the equalities contradict one another."""
    stands_for: dict[str, Term] = {}

    def find(term: Term) -> Term:
        passed = []
        while isinstance(term, Variable) and term.name in stands_for:
            passed.append(term.name)
            term = stands_for[term.name]
        for name in passed:  # the next search is short
            stands_for[name] = term
        return term

    for literal in rule.body:
        if not (isinstance(literal, Compare) and literal.equal):
            continue
        left, right = find(literal.left), find(literal.right)
        if left == right:
            continue
        if isinstance(left, Variable):
            stands_for[left.name] = right
        elif isinstance(right, Variable):
            stands_for[right.name] = left
        else:
            return None
    return {name: find(term) for name, term in stands_for.items()}
