"""A checked program → the rules whose possible events are a product: their conditions consist of parts without common variables.

`watch(U,P) :- user(U), program(P), U != P.` has the parts `user(U)` and `program(P)`; the condition that connects them is a filter.
The possible events are all pairs of facts of the parts that pass the filters, so they need not be listed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from foretell.lang.program import NumberedRule, Program
from foretell.lang.syntax import Atom, Compare, Count, Literal, Not, Rule, Variable, conditions, literal_terms


@dataclass(frozen=True)
class RulePart:
    """One part: a rule that deduces its facts, which have an internal functor."""

    rule: Rule
    variables: tuple[str, ...]  # the arguments of its head
    atoms: tuple[int, ...] = ()  # places among the positive conditions of the whole rule

    @property
    def functor(self) -> str:
        return self.rule.head.functor


@dataclass(frozen=True)
class ProductRule:
    place: int  # the position in the program's rules
    rule: Rule
    parts: tuple[RulePart, ...]
    blockers: tuple[RulePart, ...]  # parts that must not hold, from conditions under `not` that connect parts
    compares: tuple[Compare, ...]  # comparisons that connect parts
    carrier: int  # the part that binds the variables in parameter names


def product_rules(program: Program) -> tuple[tuple[ProductRule, ...], dict[int, str]]:
    """Return the product rules; and, by position, why other rules with independent parts are no products."""
    found: list[ProductRule] = []
    refused: dict[int, str] = {}
    read = _read_functors(program)
    for place, numbered in enumerate(program.rules):
        rule = numbered.rule
        if rule.kind != "deduce" or program.functors[rule.head.functor].kind != "event":
            continue
        parts = _independent(rule)
        if len(parts) < 2:
            continue
        reason = "the program has additions that expire" if program.expires else _reason(rule, parts, read)
        if reason is None:
            found.append(_product(place, numbered, parts))
        else:
            refused[place] = reason
    return tuple(found), refused


def _read_functors(program: Program) -> set[str]:
    """Return the functors that occur in conditions. Other functors only matter as possible events."""
    read = {*program.given, *program.unseen_rows}
    for one in program.rules:
        body = one.rule.body if one.rule.kind == "deduce" else one.rule.body[1:]
        read.update(atom.functor for atom, _ in conditions(body))
    return read


def _independent(rule: Rule) -> list[tuple[int, ...]]:
    """Return groups of positive conditions that share variables, as places of conditions."""
    atoms = [one for one in rule.body if isinstance(one, Atom)]
    names = [{one.name for one in atom.variables()} for atom in atoms]
    parts: list[tuple[list[int], set[str]]] = []
    for place, own in enumerate(names):
        touched = [part for part in parts if part[1] & own]
        joined = [place], set(own)
        for part in touched:
            joined[0].extend(part[0])
            joined[1].update(part[1])
            parts.remove(part)
        parts.append(joined)
    return sorted(tuple(sorted(places)) for places, _ in parts)


def _variables(rule: Rule, places: Iterable[int]) -> set[str]:
    atoms = [one for one in rule.body if isinstance(one, Atom)]
    return {one.name for place in places for one in atoms[place].variables()}


def _named(literal: Literal) -> list[str]:
    """Return the variables of a condition, without anonymous ones."""
    terms = (one for one in literal_terms(literal) if isinstance(one, Variable))
    return list(dict.fromkeys(one.name for one in terms if not one.is_anonymous))


def _reason(rule: Rule, parts: list[tuple[int, ...]], read: set[str]) -> str | None:
    """Return why the possible events of a rule with several parts must be listed; None: they need not be."""
    head = {one.name for one in rule.head.variables()}
    own = [_variables(rule, places) for places in parts]
    if rule.head.functor in read:
        return f"a condition of another rule asks for `{rule.head.functor}`"
    if any(isinstance(one, Compare) and one.equal for one in rule.body):
        return "a condition is an equality"
    for literal in rule.body:
        if isinstance(literal, Atom):
            continue
        names = set(_named(literal))
        if any(names <= some for some in own):
            continue
        if isinstance(literal, Count):
            return f"`{literal}` counts across its parts"
        if not names <= head:
            return f"`{literal}` joins its parts by a variable that is not in the head"
    if not any(set(rule.parameter_variables) <= some for some in own):
        return "the variables in its parameter names are of several parts"
    return None


def _product(place: int, numbered: NumberedRule, parts: list[tuple[int, ...]]) -> ProductRule:
    rule = numbered.rule
    atoms = [one for one in rule.body if isinstance(one, Atom)]
    head = list(dict.fromkeys(one.name for one in rule.head.variables()))
    own = [_variables(rule, places) for places in parts]
    bodies: list[list[Literal]] = [[atoms[one] for one in places] for places in parts]
    crossing: list[Literal] = []
    for literal in rule.body:
        if not isinstance(literal, Atom):
            names = set(_named(literal))
            home = next((number for number, some in enumerate(own) if names <= some), None)
            (crossing if home is None else bodies[home]).append(literal)
    carrier = next(number for number, some in enumerate(own) if set(rule.parameter_variables) <= some)
    made = [
        _part(
            numbered, f"part {number + 1} of", [one for one in head if one in own[number]], body, number == carrier, at
        )
        for number, (body, at) in enumerate(zip(bodies, parts, strict=True))
    ]
    negated = [one for one in crossing if isinstance(one, Not)]
    blockers = [
        _part(numbered, f"blocker {number + 1} of", _named(one), [one.atom], False)
        for number, one in enumerate(negated)
    ]
    compares = tuple(one for one in crossing if isinstance(one, Compare))
    return ProductRule(place, rule, tuple(made), tuple(blockers), compares, carrier)


def _part(
    numbered: NumberedRule,
    name: str,
    variables: list[str],
    body: list[Literal],
    is_carrier: bool,
    atoms: tuple[int, ...] = (),
) -> RulePart:
    rule = numbered.rule
    span = rule.head.span
    head = Atom(f"{name} rule {numbered.place}", tuple(Variable(one, span) for one in variables), span, span)
    beta, matrix = (rule.beta, rule.matrix) if is_carrier else (None, None)
    return RulePart(Rule("deduce", head, tuple(body), beta, matrix, rule.span), tuple(variables), atoms)
