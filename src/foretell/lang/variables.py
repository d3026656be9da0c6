"""The variables of one rule: which are bound, which stand alone, and whether its comparisons can ever agree.

A variable is bound by a condition that is not negated, or by `=` with something bound; the order of a body means nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from foretell.lang.diagnostics import Diagnostic
from foretell.lang.source import Span
from foretell.lang.statement import literal_terms, rule_terms
from foretell.lang.syntax import Atom, Compare, Constant, Not, Rule, Term, Variable
from foretell.terms import constant
from foretell.wording import LONGEST, as_functor, shown


def check_variables(rule: Rule) -> Iterator[Diagnostic]:
    bound = bound_variables(rule)
    unbound: set[str] = set()
    for variable, code, message, hint in _unbound(rule, bound):
        if variable.name not in unbound:  # one mistake, wherever else it shows
            unbound.add(variable.name)
            yield Diagnostic(code, variable.span, message, hint)
    yield from _used_once(rule, unbound)
    never = never_fires(rule)
    if never is not None:
        span, message = never
        hint = "correct the comparison, or remove the rule"
        yield Diagnostic("never-fires", span, f"the rule never fires: {message}", hint, "warning")


def bound_variables(rule: Rule) -> set[str]:
    bound = {variable.name for one in rule.body if isinstance(one, Atom) for variable in one.variables()}
    equal: dict[str, list[str]] = {}
    for one in rule.body:
        if not isinstance(one, Compare) or not one.equal:
            continue
        left, right = one.left, one.right
        if isinstance(left, Variable) and isinstance(right, Variable):
            equal.setdefault(left.name, []).append(right.name)
            equal.setdefault(right.name, []).append(left.name)
        else:
            bound.update(term.name for term in (left, right) if isinstance(term, Variable))
    queue = list(bound)
    while queue:
        for name in equal.pop(queue.pop(), ()):
            if name not in bound:
                bound.add(name)
                queue.append(name)
    return bound


def _unbound(rule: Rule, bound: set[str]) -> Iterator[tuple[Variable, str, str, str]]:
    """Variable, code, message, hint: each variable once in each role, the head first."""
    name_of = str
    uses = Counter(term.name for term in rule_terms(rule) if isinstance(term, Variable))
    for variable in _distinct(rule.head.args, bound):
        if rule.is_fact:
            yield (
                variable,
                "unbound-head",
                f"a fact holds for constants: {shown(name_of(variable))} is a variable",
                f"write a constant{_constants(variable, ', {}')}, or a rule with a body that binds it",
            )
        else:
            message = f"head variable {shown(name_of(variable))} is not bound by the body"
            meant = _constants(variable, ": {}") if len(variable.name) > 1 else ""
            hint = f"use it in a condition that is not negated, or write a constant{meant}"
            yield variable, "unbound-head", message, hint
    for name in (rule.beta, rule.matrix):
        for variable in _distinct(name.args if name is not None else (), bound):
            message = f"{shown(name_of(variable))} names parameters and is not bound by the body"
            yield variable, "unbound-name", message, "use it in a condition that is not negated"
    for literal in rule.body:
        if isinstance(literal, Not):
            for variable in _distinct(literal.atom.args, bound):
                if not variable.is_anonymous:
                    message = f"{shown(name_of(variable))} under `not` is not bound by another condition"
                    hint = "bind it, or write `_` for 'no value at all'"
                    if uses[variable.name] > 1:
                        hint = "use it in a condition that is not negated"
                    yield variable, "unbound-negation", message, f"{hint}{_constant_meant(variable)}"
        elif isinstance(literal, Compare):
            for variable in _distinct(literal_terms(literal), bound):
                message = f"{shown(name_of(variable))} is compared and not bound by another condition"
                hint = f"use it in a condition that is not negated{_constant_meant(variable)}"
                yield variable, "unbound-comparison", message, hint


def _constants(variable: Variable, form: str) -> str:
    """The constants that a word in upper case may have been meant for."""
    name = variable.name
    if variable.is_anonymous or name[0] == "_" or len(name) > LONGEST:
        return ""
    return form.format(f"{shown(as_functor(name))} or `{constant(name)}`")


def _constant_meant(variable: Variable) -> str:
    """Hardly anyone means a constant by a single letter."""
    return _constants(variable, "; a constant? write {}") if len(variable.name) > 1 else ""


def _distinct(terms: Iterable[Term], bound: set[str]) -> list[Variable]:
    found: dict[str, Variable] = {}
    for term in terms:
        if isinstance(term, Variable) and term.name not in bound:
            found.setdefault(term.name, term)
    return list(found.values())


def _used_once(rule: Rule, unbound: set[str]) -> Iterator[Diagnostic]:
    variables = [term for term in rule_terms(rule) if isinstance(term, Variable)]
    uses = Counter(variable.name for variable in variables)
    for variable in variables:
        if uses[variable.name] == 1 and variable.name[0] != "_" and variable.name not in unbound:
            yield Diagnostic(
                "used-once",
                variable.span,
                f"variable {shown(variable.name)} is used once",
                "a typo? write `_` where any value will do",
                "warning",
            )


def never_fires(rule: Rule) -> tuple[Span, str] | None:
    """The first comparison, or negation, that contradicts the rest of the body."""
    parent: dict[tuple[str, str], tuple[str, str]] = {}

    def root(term: Term) -> tuple[str, str]:
        node = ("constant", term.text) if isinstance(term, Constant) else ("variable", term.name)
        path = []
        while node in parent:
            path.append(node)
            node = parent[node]
        for passed in path:
            parent[passed] = node
        return node

    for one in rule.body:
        if isinstance(one, Compare) and one.equal:
            left, right = root(one.left), root(one.right)
            if left == right:
                continue
            if left[0] == right[0] == "constant":
                return one.span, f"{shown(left[1])} is not {shown(right[1])}"
            if left[0] == "constant":
                left, right = right, left
            parent[left] = right
    for one in rule.body:
        if isinstance(one, Compare) and not one.equal and root(one.left) == root(one.right):
            return one.span, f"both sides of {shown(str(one))} are the same"
    # an event that occurs need not be a fact, so the first condition of `<-` contradicts nothing
    required = rule.body if rule.kind == "deduce" else rule.body[1:]
    holds = {(one.functor, tuple(map(root, one.args))) for one in required if isinstance(one, Atom)}
    for one in rule.body:
        if isinstance(one, Not) and (one.atom.functor, tuple(map(root, one.atom.args))) in holds:
            return one.span, f"{shown(str(one.atom))} is asked for and ruled out"
    return None
