"""All that was read → a checked program, or a `ProgramError` with every mistake."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256

from foretell.lang.diagnostics import Diagnostic, ProgramError
from foretell.lang.functors import Functors, resolve
from foretell.lang.pretty import pretty_rule
from foretell.lang.program import Program, UncheckedProgram, Undeclared
from foretell.lang.reach import Reach, check_reach
from foretell.lang.shapes import check_names, dimension
from foretell.lang.statement import ARGUMENTS
from foretell.lang.stratify import Order, edges_of, order
from foretell.lang.syntax import Rule, conditions
from foretell.lang.variables import check_variables
from foretell.wording import shown


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
        rules=gathered.rules,
        tables=gathered.tables,
        functors=functors.by_name,
        components=dependence.components,
        stratum=dependence.stratum,
        undeclared=undeclared,
        warnings=tuple(found),
        sources=gathered.sources,
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
        yield Diagnostic(
            "negation-cycle",
            edge.atom.span,
            f"{shown(edge.head)} depends on itself through `not`: {shown(shown_way)}",
            "what is true must not depend on its own absence: break the cycle, or use `<-`, which looks at the past",
        )


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
        yield Diagnostic(
            "cyclic-proof",
            edge.atom.span,
            f"{shown(edge.head)} is deduced from itself: a fact whose proof needs that same fact has no embedding",
            f"fine where proofs never come back to their start; else declare `:- embed({edge.head[:40]}, 0).`",
            "warning",
        )


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
