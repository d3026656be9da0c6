"""Program (and the events of data) → all groups that can ever hold: a rule with values for the variables in its parameter names.

This is an over-approximation for all sequences of events. It is the least fixed point in which everything that could be added is added,
nothing is removed, and every `not` holds. Exogenous events may have any constants of the program; with data, those of its events.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from foretell.ground.engine import Engine, ReplayLimits
from foretell.lang.program import BOS, FactTable, Functor, NumberedRule, Program
from foretell.lang.reachable import closure
from foretell.lang.source import Span
from foretell.lang.stratify import edges_of, order
from foretell.lang.syntax import Atom, Compare, Constant, Literal, Rule, Variable, literal_terms, rule_terms

# No program has functors with these names: a name with a space is written in quotes.
CONSTANT, GROUP, OCCURS = "a constant", "a group of", "occurs"
RuleGroup = tuple[
    int, tuple[str, ...]
]  # (position of the rule in the program, values of the variables in its parameter names)


def possible_groups(
    program: Program, happened: Collection[str] | None = None, limits: ReplayLimits | None = None
) -> list[RuleGroup]:
    """Return all groups, sorted. `happened` are the names of events in the data; None: exogenous events may have any constants."""
    named = [
        (place, one)
        for place, one in enumerate(program.rules)
        if one.rule.kind != "remove" and one.rule.parameter_variables
    ]
    if not named:
        return []
    relaxed = _Relaxed(program, happened)
    rules = [replace(one, rule=relaxed.group_rule(place, one.rule)) for place, one in named]
    rules += relaxed.rules_behind(rules)
    tables = [*program.tables, *relaxed.tables(rules)]
    heads = [one.rule.head.functor for one in rules]
    names = dict.fromkeys([*program.functors, *heads, *(one.functor for one in tables)])
    functors = {name: program.functors.get(name) or Functor(name, None, "fact", None, None) for name in names}
    ordered = order(functors, edges_of(rules))
    engine = Engine(
        replace(
            program,
            rules=tuple(rules),
            tables=tuple(tables),
            functors=functors,
            components=ordered.components,
            stratum=ordered.stratum,
        ),
        limits,
    )
    place_of = {engine.symbols.functor(f"{GROUP} {place}"): place for place, _ in named}
    spelled = engine.symbols.constants
    found = [
        (place_of[functor], tuple(spelled[value] for value in values))
        for functor, *values in engine.keys
        if functor in place_of
    ]
    return sorted(found)


class _Relaxed:
    """Rewrites rules as deductions that hold if they could hold at any time."""

    def __init__(self, program: Program, happened: Collection[str] | None) -> None:
        self.program, self.happened = program, happened

    def group_rule(self, place: int, rule: Rule) -> Rule:
        """Return a rule that deduces a fact for each group of the given rule."""
        span = rule.head.span
        values = tuple(Variable(name, span) for name in rule.parameter_variables)
        return self._deduced(rule, Atom(f"{GROUP} {place}", values, span, span))

    def rules_behind(self, rules: Iterable[NumberedRule]) -> list[NumberedRule]:
        """Return all rules on which the conditions of these rules depend."""
        made = [
            replace(one, rule=self._deduced(one.rule, one.rule.head))
            for one in self.program.rules
            if one.rule.kind != "remove"
        ]
        below: dict[str, list[str]] = {}
        for edge in edges_of(made):
            below.setdefault(edge.head, []).append(edge.body)
        needed = closure((edge.body for edge in edges_of(rules)), below)
        return [one for one in made if one.rule.head.functor in needed]

    def tables(self, rules: Iterable[NumberedRule]) -> Iterator[FactTable]:
        """Yield tables for the events that may happen, and for all constants, if the rules use them."""
        asked = {edge.body for edge in edges_of(rules)}
        span = Span(self.program.sources[0], 0, 0)
        if CONSTANT in asked:
            yield FactTable(CONSTANT, 1, [(text,) for text in self._constants()], span, "", ())
        rows: dict[tuple[str, int], list[tuple[str, ...]]] = {}
        for name in self.happened or ():
            functor, args = self.program.split(name)
            rows.setdefault((f"{OCCURS} {functor}", len(args)), []).append(tuple(args))
        for (functor, arity), some in rows.items():
            if functor in asked:
                yield FactTable(functor, arity, some, span, "", ())

    def _constants(self) -> dict[str, None]:
        terms = (term for one in self.program.rules for term in rule_terms(one.rule) if isinstance(term, Constant))
        cells = (cell for table in self.program.tables for row in table.rows for cell in row)
        return dict.fromkeys([*(term.text for term in terms), *cells])

    def _deduced(self, rule: Rule, head: Atom) -> Rule:
        body = tuple(one for one in rule.body if isinstance(one, Atom | Compare))
        first = body[0] if body else None
        if isinstance(first, Atom) and first.functor in self.program.brought:
            body = self._event(first, head, ())
        if rule.kind == "add":
            first = body[0]
            assert isinstance(first, Atom)
            body = (*self._event(first, head, body[1:]), *body[1:])
        return replace(rule, kind="deduce", head=head, body=body, beta=None, matrix=None)

    def _event(self, event: Atom, head: Atom, others: tuple[Literal, ...]) -> tuple[Atom, ...]:
        """Return the conditions under which an event can happen."""
        if event.functor == BOS:
            return ()
        if self.program.functors[event.functor].kind == "event":
            return (event,)
        if self.happened is not None:
            return (replace(event, functor=f"{OCCURS} {event.functor}"),)
        bound = {one.name for atom in others if isinstance(atom, Atom) for one in atom.variables()}
        compared = [term for one in others if isinstance(one, Compare) for term in literal_terms(one)]
        asked = {term.name for term in (*head.args, *compared) if isinstance(term, Variable)}
        wanted = {one.name: one for one in event.variables() if one.name in asked - bound}
        return tuple(Atom(CONSTANT, (one,), event.span, event.functor_span) for one in wanted.values())
