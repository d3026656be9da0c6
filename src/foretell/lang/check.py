"""All that was read → a checked program, or a `ProgramError` with every mistake."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256

from foretell.lang.diagnostics import Diagnostic, ProgramError
from foretell.lang.functors import Functors, Reach, check_reach, resolve
from foretell.lang.program import Component, NumberedRule, Program, UncheckedProgram, check_names, dimension
from foretell.lang.source import Span
from foretell.lang.statement import ARGUMENTS
from foretell.lang.syntax import (
    Atom,
    Compare,
    Equalities,
    Not,
    Rule,
    Term,
    Variable,
    closure,
    conditions,
    literal_terms,
    pretty_rule,
    rule_terms,
)
from foretell.options import Undeclared
from foretell.terms import constant
from foretell.wording import LONGEST, as_functor, shown


def check(gathered: UncheckedProgram, *, undeclared: Undeclared, dim: int) -> Program:
    functors = resolve(gathered, undeclared)
    dependence = order(functors.by_name, edges_of(gathered.rules))
    found = [*gathered.found, *functors.found]
    for one in gathered.rules:
        found += check_variables(one.rule)
        found += _names_without_use(one.rule)
    found += check_reach(Reach(gathered, functors, undeclared))
    found += _repeated(gathered)
    found += _declarations_as_facts(gathered)
    found += _cycles(dependence)
    found += check_names(gathered.rules, gathered.tables, functors.by_name, dim)
    found += _cyclic_proofs(gathered, functors, dim)
    found = in_order(found, gathered)
    if any(one.severity == "error" for one in found):
        raise ProgramError(found)
    return Program(
        rules=tuple(gathered.rules),
        tables=tuple(gathered.tables),
        functors=functors.by_name,
        components=dependence.components,
        stratum=dependence.stratum,
        undeclared=undeclared,
        warnings=tuple(found),
        sources=tuple(gathered.sources),
        digest=digest(gathered, functors, undeclared),
    )


def _names_without_use(rule: Rule) -> Iterator[Diagnostic]:
    what = "a removal has no parameters" if rule.kind == "remove" else "a fact has no pool exponent"
    for name in (rule.beta, rule.matrix if rule.kind == "remove" else None):
        if name is not None and (rule.is_fact or rule.kind == "remove"):
            message = f"{what}: {shown(str(name))} names nothing"
            yield Diagnostic("unused-name", name.span, message, "remove the name", "warning")


def _repeated(gathered: UncheckedProgram) -> Iterator[Diagnostic]:
    first: dict[Rule, Rule] = {}
    for one in gathered.rules:
        before = first.setdefault(one.rule, one.rule)
        if before is one.rule:
            continue
        what = "fact" if one.rule.is_fact else "rule"
        hint = "remove one of the two"
        if one.rule.kind != "remove":
            hint += ", or, for parameters of its own, name those of one: `:: w2`"
        message = f"the {what} is there already, at {before.span.place}"
        yield Diagnostic("repeated-rule", one.rule.span, message, hint, "warning")


def _declarations_as_facts(gathered: UncheckedProgram) -> Iterator[Diagnostic]:
    """`event(admit).` where no rule knows an `event`: its `:-` was forgotten."""
    known = {atom.functor for one in gathered.rules for atom, _ in conditions(one.rule.body)}
    known |= {one.rule.head.functor for one in gathered.rules if not one.rule.is_fact}
    known |= {table.functor for table in gathered.tables} | gathered.unread
    for one in gathered.rules:
        head = one.rule.head
        if not one.rule.is_fact or head.functor in known or len(head.args) not in ARGUMENTS.get(head.functor, ()):
            continue
        text = head.span.source.text[head.span.start : head.span.end]
        if text.startswith(head.functor):  # in quotes it is meant as it stands
            message = f"{shown(text)} is a fact that no rule uses: was a declaration meant?"
            hint = f"did you mean {shown(f':- {text}.')}?"
            yield Diagnostic("declaration-as-fact", head.functor_span, message, hint, "warning")


def _cycles(dependence: Order) -> Iterator[Diagnostic]:
    for edge, way in dependence.negated_cycles:
        shown_way = " :- ".join([edge.head, f"not {edge.body}", *way[1:]][:8])
        message = f"{shown(edge.head)} depends on itself through `not`: {shown(shown_way)}"
        hint = "what is true must not depend on its own absence: break the cycle, or use `<-`, which looks at the past"
        yield Diagnostic("negation-cycle", edge.atom.span, message, hint)


def _cyclic_proofs(gathered: UncheckedProgram, functors: Functors, dim: int) -> Iterator[Diagnostic]:
    """Embeddings need proofs without cycles; rules that are recursive in functors with embeddings may have some."""
    carries = {name for name in functors.by_name if dimension(functors.by_name, name, dim) > 0}
    edges = [one for one in edges_of(gathered.rules) if {one.head, one.body} <= carries and not one.negated]
    inner = order((), edges)
    group = {name: number for number, one in enumerate(inner.components) if one.recursive for name in one.functors}
    told: set[int] = set()
    for edge in edges:
        number = group.get(edge.head)
        if number is None or group.get(edge.body) != number or number in told:
            continue
        told.add(number)
        message = f"{shown(edge.head)} is deduced from itself: a fact whose proof needs that same fact has no embedding"
        hint = f"fine where proofs never come back to their start; else declare `:- embed({edge.head[:40]}, 0).`"
        yield Diagnostic("cyclic-proof", edge.atom.span, message, hint, "warning")


def in_order(found: list[Diagnostic], gathered: UncheckedProgram) -> list[Diagnostic]:
    """By file and place; what is not in a program file (a table's rows) comes last."""
    place = {id(source): number for number, source in enumerate(gathered.sources)}
    return sorted(found, key=lambda one: (place.get(id(one.span.source), len(place)), one.span.start))


def digest(gathered: UncheckedProgram, functors: Functors, undeclared: Undeclared) -> str:
    """Of what the program means: comments, layout, paths and the order of declarations leave it as it is."""
    made = sha256()
    made.update(f"undeclared={undeclared}\n".encode())
    for functor in sorted(functors.by_name.values(), key=lambda one: one.name):
        made.update(f"{functor.name} {functor.arity} {functor.kind} {functor.dim} {functor.key}\n".encode())
    for one in gathered.rules:
        made.update(f"{pretty_rule(one.rule)}\n".encode())
    for table in gathered.tables:
        made.update(f"table {table.functor} {table.arity}\n".encode())
        made.update("\n".join(map(",".join, table.rows)).encode())
    return made.hexdigest()


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
    return closure(bound, equal)


def _unbound(rule: Rule, bound: set[str]) -> Iterator[tuple[Variable, str, str, str]]:
    """Variable, code, message, hint: each variable once in each role, the head first."""
    uses = Counter(term.name for term in rule_terms(rule) if isinstance(term, Variable))
    bind = "use it in a condition that is not negated"
    for variable in _distinct(rule.head.args, bound):
        if rule.is_fact:
            message = f"a fact holds for constants: {shown(str(variable))} is a variable"
            hint = f"write a constant{_constants(variable, ', {}')}, or a rule with a body that binds it"
        else:
            message = f"head variable {shown(str(variable))} is not bound by the body"
            hint = f"{bind}, or write a constant{_constants(variable, ': {}') if len(variable.name) > 1 else ''}"
        yield variable, "unbound-head", message, hint
    for name in (rule.beta, rule.matrix):
        for variable in _distinct(name.args if name is not None else (), bound):
            message = f"{shown(str(variable))} names parameters and is not bound by the body"
            yield variable, "unbound-name", message, bind
    for literal in rule.body:
        if isinstance(literal, Not):
            for variable in _distinct(literal.atom.args, bound):
                if not variable.is_anonymous:
                    message = f"{shown(str(variable))} under `not` is not bound by another condition"
                    hint = bind if uses[variable.name] > 1 else "bind it, or write `_` for 'no value at all'"
                    yield variable, "unbound-negation", message, f"{hint}{_constant_meant(variable)}"
        elif isinstance(literal, Compare):
            for variable in _distinct(literal_terms(literal), bound):
                message = f"{shown(str(variable))} is compared and not bound by another condition"
                yield variable, "unbound-comparison", message, f"{bind}{_constant_meant(variable)}"


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
            message, hint = f"variable {shown(variable.name)} is used once", "a typo? write `_` where any value will do"
            yield Diagnostic("used-once", variable.span, message, hint, "warning")


def never_fires(rule: Rule) -> tuple[Span, str] | None:
    """The first comparison, or negation, that contradicts the rest of the body."""
    equalities = Equalities()
    root = equalities.root
    for one in rule.body:
        if isinstance(one, Compare) and one.equal:
            left, right = root(one.left), root(one.right)
            if not equalities.unite(left, right):
                return one.span, f"{shown(str(left))} is not {shown(str(right))}"
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


# --- which functor is deduced from which


MOST_CYCLES = 20  # that are searched for and shown


@dataclass(frozen=True)
class Edge:
    """`head :- …, body, …`."""

    head: str
    body: str
    negated: bool
    atom: Atom


@dataclass(frozen=True)
class Order:
    components: tuple[Component, ...]
    stratum: Mapping[str, int]
    negated_cycles: tuple[tuple[Edge, tuple[str, ...]], ...]  # an edge through `not`, and the functors of the way back


def edges_of(rules: Iterable[NumberedRule]) -> list[Edge]:
    return [
        Edge(one.rule.head.functor, atom.functor, negated, atom)
        for one in rules
        if one.rule.kind == "deduce"
        for atom, negated in conditions(one.rule.body)
    ]


def order(functors: Iterable[str], edges: Iterable[Edge]) -> Order:
    edges = list(edges)
    below: dict[str, dict[str, None]] = {functor: {} for functor in functors}
    for edge in edges:
        below.setdefault(edge.head, {})[edge.body] = None
        below.setdefault(edge.body, {})
    groups = strong_components({name: list(found) for name, found in below.items()})
    group_of = {name: number for number, group in enumerate(groups) for name in group}
    recursive = {group_of[edge.head] for edge in edges if group_of[edge.head] == group_of[edge.body]}
    negated = [edge for edge in edges if edge.negated and group_of[edge.head] == group_of[edge.body]]
    negated = list({(edge.head, edge.body): edge for edge in reversed(negated)}.values())[::-1][:MOST_CYCLES]
    cycles = tuple((edge, path(edge.body, edge.head, below, set(groups[group_of[edge.head]]))) for edge in negated)
    level = [0] * len(groups)
    out: list[list[Edge]] = [[] for _ in groups]
    for edge in edges:
        out[group_of[edge.head]].append(edge)
    for number in range(len(groups)):  # a group comes after those it depends on
        for edge in out[number]:
            if group_of[edge.body] != number:
                level[number] = max(level[number], level[group_of[edge.body]] + edge.negated)
    places = sorted(range(len(groups)), key=lambda number: level[number])  # stable: dependence stays in order
    components = tuple(Component(tuple(groups[number]), number in recursive) for number in places)
    return Order(components, {name: level[group_of[name]] for name in group_of}, cycles)


def strong_components(below: Mapping[str, list[str]]) -> list[list[str]]:
    """Tarjan's algorithm with a stack of its own; each group comes after all that it depends on."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    on_stack: set[str] = set()
    stack: list[str] = []
    groups: list[list[str]] = []
    for root in below:
        if root in index:
            continue
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        work = [(root, iter(below[root]))]
        while work:
            node, rest = work[-1]
            after = next(rest, None)
            if after is None:
                work.pop()
                if work:
                    parent = work[-1][0]
                    low[parent] = min(low[parent], low[node])
                if low[node] == index[node]:
                    group = []
                    while True:
                        member = stack.pop()
                        on_stack.discard(member)
                        group.append(member)
                        if member == node:
                            break
                    groups.append(sorted(group, key=index.__getitem__))
            elif after not in index:
                index[after] = low[after] = len(index)
                stack.append(after)
                on_stack.add(after)
                work.append((after, iter(below[after])))
            elif after in on_stack:
                low[node] = min(low[node], index[after])
    return groups


def path(start: str, goal: str, below: Mapping[str, Iterable[str]], within: set[str]) -> tuple[str, ...]:
    """A shortest way from one functor down to another inside a group."""
    came: dict[str, str | None] = {start: None}
    queue = [start]
    for node in queue:
        if node == goal:
            break
        for after in below[node]:
            if after in within and after not in came:
                came[after] = node
                queue.append(after)
    way = []
    step: str | None = goal
    while step is not None:
        way.append(step)
        step = came[step]
    return tuple(reversed(way))
