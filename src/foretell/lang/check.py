"""Statements that were read → a checked program, or a `ProgramError` with all mistakes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from hashlib import sha256

from foretell.lang.arities import one_arity_each
from foretell.lang.brought import brought_facts
from foretell.lang.declarations import ARGUMENTS
from foretell.lang.diagnostics import Diagnostic, ProgramError
from foretell.lang.functors import Functors, resolve
from foretell.lang.program import Program, UncheckedProgram, dimension
from foretell.lang.reach import Reach, check_reach
from foretell.lang.reachable import closure
from foretell.lang.shared_names import check_names
from foretell.lang.source import Span
from foretell.lang.stratify import Order, edges_of, order
from foretell.lang.syntax import (
    Atom,
    Compare,
    Constant,
    Count,
    Equalities,
    GivenDeclaration,
    Not,
    Rule,
    Term,
    Variable,
    conditions,
    literal_terms,
    pretty_rule,
    rule_terms,
)
from foretell.options import Undeclared
from foretell.terms import bare, constant
from foretell.wording import LONGEST, as_functor, shown


def check(gathered: UncheckedProgram, *, undeclared: Undeclared, dim: int) -> Program:
    gathered = one_arity_each(gathered)
    functors = resolve(gathered, undeclared)
    brought = brought_facts(gathered, functors.by_name)
    rules = [*gathered.rules, *brought.rules]
    by_name = {**functors.by_name, **brought.functors}
    dependence = order(by_name, edges_of(rules))
    found = [*gathered.found, *functors.found]
    for rule, beside in _with_heads_beside(gathered):
        found += check_variables(rule, beside)
        found += _names_without_use(rule)
    found += _automatic_names(gathered)
    found += check_reach(Reach(gathered, functors, undeclared))
    found += _repeated(gathered)
    found += _declarations_as_facts(gathered)
    found += _cycles(dependence)
    found += check_names(rules, gathered.tables, by_name, dim)
    found += _cyclic_proofs(gathered, functors, dim)
    found = in_order(_once(found), gathered)
    if any(one.severity == "error" for one in found):
        raise ProgramError(found)
    return Program(
        rules=tuple(rules),
        tables=tuple(gathered.tables),
        promises=tuple(gathered.promises),
        given={name: one.name for name, one in brought.given.items()},
        unseen_rows={name: one.name for name, one in brought.unseen.items()},
        features=functors.features,
        functors=by_name,
        components=dependence.components,
        stratum=dependence.stratum,
        undeclared=undeclared,
        warnings=tuple(found),
        sources=tuple(gathered.sources),
        digest=digest(gathered, functors, undeclared),
    )


def _with_heads_beside(gathered: UncheckedProgram) -> Iterator[tuple[Rule, frozenset[str]]]:
    """Yield every rule with the variables in all heads of its statement."""
    heads: dict[int, set[str]] = {}
    for rule in gathered.bodies():
        heads.setdefault(id(rule.span), set()).update(one.name for one in rule.head.variables())
    for rule in gathered.bodies():
        yield rule, frozenset(heads[id(rule.span)])


def _once(found: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Return distinct diagnostics. A statement that expands to several rules would report the same mistake several times."""
    return list({(one.code, id(one.span.source), one.span.start, one.message): one for one in found}.values())


def _automatic_names(gathered: UncheckedProgram) -> Iterator[Diagnostic]:
    """Report `:: rule3` if the program has a third rule, because the parameters of that rule already have this name."""
    automatic = {one.name: ("the rule", one.rule.span) for one in gathered.rules if not one.rule.is_fact}
    automatic |= {f"features({one.functor})": ("the table", one.span) for one in gathered.tables if one.features}
    for one in gathered.rules:
        for name in (one.rule.beta, one.rule.matrix):
            taken = None if name is None else automatic.get(str(name))
            if name is not None and taken is not None:
                what, span = taken
                message = (
                    f"{shown(str(name))} is what the parameters of {what} at {span.place} are called by themselves"
                )
                hint = "use another name; to share the parameters of two rules, give both a name of your own"
                yield Diagnostic("automatic-name", name.span, message, hint)


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
    """Report `event(admit).` if no rule uses `event`, because its `:-` was probably forgotten."""
    known = {atom.functor for rule in gathered.bodies() for atom, _ in conditions(rule.body)}
    known |= {one.rule.head.functor for one in gathered.rules if not one.rule.is_fact}
    known |= {table.functor for table in gathered.tables} | gathered.unread
    for one in gathered.rules:
        head = one.rule.head
        if not one.rule.is_fact or head.functor in known or len(head.args) not in ARGUMENTS.get(bare(head.functor), ()):
            continue
        text = head.span.source.text[head.span.start : head.span.end]
        if text.startswith(bare(head.functor)):  # a name in quotes is meant literally
            message = f"{shown(text)} is a fact that no rule uses: was a declaration meant?"
            hint = f"did you mean {shown(f':- {text}.')}?"
            yield Diagnostic("declaration-as-fact", head.functor_span, message, hint, "warning")


def _cycles(dependence: Order) -> Iterator[Diagnostic]:
    for edge, way in dependence.negated_cycles:
        shown_way = " :- ".join([edge.head, f"{edge.word} {edge.body}", *way[1:]][:8])
        message = f"{shown(edge.head)} depends on itself through `{edge.word}`: {shown(shown_way)}"
        what = "absence" if edge.word == "not" else "number"
        hint = f"what is true must not depend on its own {what}: break the cycle, or use `<-`, which looks at the past"
        yield Diagnostic("negation-cycle", edge.atom.span, message, hint)


def _cyclic_proofs(gathered: UncheckedProgram, functors: Functors, dim: int) -> Iterator[Diagnostic]:
    """Warn about rules that are recursive in functors with embeddings, because embeddings need proofs without cycles."""
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
    """Sort by file and position. Diagnostics outside program files, such as table rows, come last."""
    place = {id(source): number for number, source in enumerate(gathered.sources)}
    return sorted(found, key=lambda one: (place.get(id(one.span.source), len(place)), one.span.start))


def digest(gathered: UncheckedProgram, functors: Functors, undeclared: Undeclared) -> str:
    """Return a hash of the program's meaning; comments, layout, paths and the order of declarations do not change it."""
    made = sha256()
    made.update(f"undeclared={undeclared}\n".encode())
    for functor in sorted(functors.by_name.values(), key=lambda one: one.name):
        made.update(f"{functor.name} {functor.arity} {functor.kind} {functor.dim} {functor.key}\n".encode())
    for one in gathered.rules:
        made.update(f"{pretty_rule(one.rule)}\n".encode())
    for functor in sorted({one.functor for one in gathered.declarations if isinstance(one, GivenDeclaration)}):
        made.update(f"given {functor}\n".encode())
    for table in gathered.tables:
        made.update(f"table {table.functor} {table.arity}\n".encode())
        if table.log is not None:
            made.update(f"{table.log}\n".encode())
        made.update("\n".join(map(",".join, table.rows)).encode())
        if table.features:
            made.update(f"features {table.features} {table.numbers}\n".encode())
    for name, columns in sorted(functors.features.items()):
        made.update(f"features {name} {columns}\n".encode())
    return made.hexdigest()


def check_variables(rule: Rule, beside: frozenset[str] = frozenset()) -> Iterator[Diagnostic]:
    """Check that variables are bound. `beside` has the variables of other heads with the same body."""
    bound = bound_variables(rule)
    unbound: set[str] = set()
    for variable, code, message, hint in _unbound(rule, bound):
        if variable.name not in unbound:  # an unbound variable is reported only once
            unbound.add(variable.name)
            yield Diagnostic(code, variable.span, message, hint)
    yield from _used_once(rule, unbound | (beside - {one.name for one in rule.head.variables()}))
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
    """Yield (variable, code, message, hint). Each variable is reported once per role, the head first."""
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
            continue
        if isinstance(literal, Count):
            for variable in _distinct(literal.atom.args, bound):
                if not variable.is_anonymous:
                    message = f"{shown(str(variable))} inside `{literal.word}` is not bound by another condition"
                    yield variable, "unbound-count", message, "bind it, or write `_` where any value will do"
        if isinstance(literal, Compare | Count):
            sides = literal_terms(literal) if isinstance(literal, Compare) else (literal.right,)
            for variable in _distinct(sides, bound):
                message = f"{shown(str(variable))} is compared and not bound by another condition"
                yield variable, "unbound-comparison", message, f"{bind}{_constant_meant(variable)}"


def _constants(variable: Variable, form: str) -> str:
    """Return the constants that an upper-case word may be a misspelling of, as text for a hint."""
    name = variable.name
    if variable.is_anonymous or name[0] == "_" or len(name) > LONGEST:
        return ""
    return form.format(f"{shown(as_functor(name))} or `{constant(name)}`")


def _constant_meant(variable: Variable) -> str:
    """Return `_constants` as a hint; empty for single letters, which are rarely constants."""
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
    """Return the first comparison or negation that contradicts the rest of the body, with a message; None if there is none."""
    equalities = Equalities()
    root = equalities.root
    for one in rule.body:
        if isinstance(one, Compare) and one.equal:
            left, right = root(one.left), root(one.right)
            if not equalities.unite(left, right):
                return one.span, f"{shown(str(left))} is not {shown(str(right))}"
    for one in rule.body:
        if not isinstance(one, Compare) or one.equal:
            continue
        left, right = root(one.left), root(one.right)
        if left == right and one.sign in ("!=", "<", ">"):
            return one.span, f"both sides of {shown(str(one))} are the same"
        if isinstance(left, Constant) and isinstance(right, Constant) and not one.holds(left.text, right.text):
            return one.span, f"{shown(f'{left} {one.sign} {right}')} is false"
    # an event that happens need not be a fact, so the first condition of `<-` contradicts nothing
    required = rule.body if rule.kind == "deduce" else rule.body[1:]
    holds = {(one.functor, tuple(map(root, one.args))) for one in required if isinstance(one, Atom)}
    for one in rule.body:
        if isinstance(one, Not) and (one.atom.functor, tuple(map(root, one.atom.args))) in holds:
            return one.span, f"{shown(str(one.atom))} is asked for and ruled out"
    return None
