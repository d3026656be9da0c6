"""Facts that come with a sequence: makes the rules for them, and internal functors for these facts before any rule is applied.

`:- given(age).` allows sequences to bring facts. `:- table(user, from_log(buy, 1)).` allows sequences to bring table rows, for values
in their events that training did not have.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from foretell.lang.program import Functor, NumberedRule, UncheckedProgram
from foretell.lang.source import Span
from foretell.lang.syntax import Atom, Constant, GivenDeclaration, Rule, Variable
from foretell.terms import constant, plain


@dataclass
class BroughtFacts:
    """The rules made for a program's declarations. `given` and `unseen` map functors of the program to the internal functors."""

    rules: list[NumberedRule] = field(default_factory=list)
    given: dict[str, Functor] = field(default_factory=dict)
    unseen: dict[str, Functor] = field(default_factory=dict)

    @property
    def functors(self) -> dict[str, Functor]:
        return {one.name: one for one in (*self.given.values(), *self.unseen.values())}


def brought_facts(gathered: UncheckedProgram, functors: Mapping[str, Functor]) -> BroughtFacts:
    """Make `age(X1,X2) :- 'given age'(X1,X2) :: given(age).` for `:- given(age).`; functors that no rule uses get no such rule.

    Make `user(X1) :- 'unseen user'(X1) :: user(X1).` for a table from a log. Such a row has its own vector, named like other rows.
    """
    made = BroughtFacts()
    for one in gathered.declarations:
        arity = functors[one.functor].arity if isinstance(one, GivenDeclaration) and one.functor in functors else None
        if not isinstance(one, GivenDeclaration) or arity is None or one.functor in made.given:
            continue
        shared = _shared(one.functor, one.span)
        made.given[one.functor] = _rule(made, gathered, functors, "given", (one.functor, arity, one.span), shared)
    for table in gathered.tables:
        if table.log is None or table.functor in made.unseen:
            continue
        made.unseen[table.functor] = _rule(
            made, gathered, functors, "unseen", (table.functor, table.arity, table.span), None
        )
    return made


def _shared(functor: str, span: Span) -> Atom:
    return Atom("given", (Constant(functor, span),), span, span)


def _rule(
    made: BroughtFacts,
    gathered: UncheckedProgram,
    functors: Mapping[str, Functor],
    word: str,
    about: tuple[str, int, Span],
    matrix: Atom | None,
) -> Functor:
    """Make the rule and return the functor of its condition. Without `matrix`, each fact has a matrix with its own name."""
    functor, arity, span = about
    name = constant(f"{word} {plain(functor)}")
    while name in functors:
        name = constant(f"{plain(name)} too")
    args = tuple(Variable(f"X{place + 1}", span) for place in range(arity))
    head, body = (Atom(one, args, span, span) for one in (functor, name))
    rule = Rule("deduce", head, (body,), _shared(functor, span), matrix or head, span)
    place = len(gathered.rules) + len(made.rules) + 1
    made.rules.append(NumberedRule(0, rule, place))
    return Functor(name, arity, "fact", 0, None)
