"""A second engine: the whole history of a program as one answer set, computed by clingo."""

from __future__ import annotations

import clingo

from foretell.lang.program import Program
from foretell.lang.syntax import Atom, Compare, Constant, Literal, Not, Term
from foretell.reference.database import Fact
from foretell.terms import split


def clingo_states(program: Program, events: list[str]) -> list[set[Fact]]:
    """The facts of every state. `t` is true, `b` was added, `r` is removed; the first argument is the state."""
    names = _Names()
    lines = [f"state(0..{len(events) + 1})."]
    for index, event in enumerate(["bos", *events]):
        functor, args = split(event)
        lines.append(f"{names.atom('o', functor, str(index), [names.constant(arg) for arg in args])}.")
    for table in program.tables:
        for row in table.rows:
            lines.append(f"{names.atom('t', table.functor, 'T', [names.constant(one) for one in row])} :- state(T).")
    for functor in program.functors.values():
        if functor.arity is None:
            continue
        args = [f"A{place}" for place in range(functor.arity)]
        true, base, gone = (names.atom(kind, functor.name, "T", args) for kind in "tbr")
        lines.append(f"{true} :- {base}.")
        lines.append(f"{names.atom('b', functor.name, 'T+1', args)} :- {base}, not {gone}, state(T+1).")
        lines.append(f"#show {names.functor('t', functor.name)}/{functor.arity + 1}.")
        lines.append(f"#defined {names.functor('r', functor.name)}/{functor.arity + 1}.")
        for kind in "tbo":
            lines.append(f"#defined {names.functor(kind, functor.name)}/{functor.arity + 1}.")
    for numbered in program.rules:
        rule = numbered.rule
        head = [names.term(arg) for arg in rule.head.args]
        if rule.kind == "deduce":
            body = ["state(T)", *(names.literal(one) for one in rule.body)]
            lines.append(f"{names.atom('t', rule.head.functor, 'T', head)} :- {', '.join(body)}.")
            continue
        event = rule.body[0]
        assert isinstance(event, Atom)
        body = [names.atom("o", event.functor, "T", [names.term(arg) for arg in event.args])]
        body += [names.literal(one) for one in rule.body[1:]]
        kind, state = ("b", "T+1") if rule.kind == "add" else ("r", "T")
        lines.append(f"{names.atom(kind, rule.head.functor, state, head)} :- {', '.join(body)}.")
    control = clingo.Control(["--warn=none"])
    control.add("base", [], "\n".join(lines))
    control.ground([("base", [])])
    found: list[set[Fact]] = [set() for _ in range(len(events) + 2)]
    with control.solve(yield_=True) as answers:
        models = list(answers)
        assert len(models) == 1, "a stratified program has one answer set"
        for symbol in models[0].symbols(shown=True):
            state = symbol.arguments[0].number
            found[state].add(
                (names.functor_of[symbol.name], *(names.constant_of[str(a)] for a in symbol.arguments[1:]))
            )
    return found


class _Names:
    """Spellings that clingo takes: f0, f1, … and c0, c1, …"""

    def __init__(self) -> None:
        self._functors: dict[str, int] = {}
        self._constants: dict[str, int] = {}
        self.functor_of: dict[str, str] = {}
        self.constant_of: dict[str, str] = {}

    def functor(self, kind: str, name: str) -> str:
        number = self._functors.setdefault(name, len(self._functors))
        self.functor_of[f"{kind}{number}"] = name
        return f"{kind}{number}"

    def constant(self, text: str) -> str:
        number = self._constants.setdefault(text, len(self._constants))
        self.constant_of[f"c{number}"] = text
        return f"c{number}"

    def term(self, term: Term) -> str:
        if isinstance(term, Constant):
            return self.constant(term.text)
        return "_" if term.is_anonymous else f"V{term.name}"

    def atom(self, kind: str, name: str, state: str, args: list[str]) -> str:
        return f"{self.functor(kind, name)}({', '.join([state, *args])})"

    def literal(self, literal: Literal) -> str:
        if isinstance(literal, Compare):
            return f"{self.term(literal.left)} {'=' if literal.equal else '!='} {self.term(literal.right)}"
        atom = literal.atom if isinstance(literal, Not) else literal
        written = self.atom("t", atom.functor, "T", [self.term(arg) for arg in atom.args])
        return f"not {written}" if isinstance(literal, Not) else written
