"""A second engine: the whole history of a program as one answer set, computed by clingo."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import clingo

from foretell.lang.program import Program
from foretell.lang.syntax import ORDERS, Atom, Compare, Constant, Count, Literal, Not, Term
from foretell.reference.database import Fact
from foretell.terms import is_integer, split


@dataclass(frozen=True)
class Steps:
    """All that may change something, in order: `bos`, events, and every time at which some addition might end."""

    names: list[str | None]  # None: no event
    times: list[float]
    ended: list[tuple[int, int, int]]  # an addition at a step by a rule ends at a step

    @classmethod
    def of(cls, events: list[str], times: list[float], until: float, lifetimes: Mapping[int, float]) -> Steps:
        happened = list(zip(["bos", *events], [0.0, *times], strict=True))
        ends = {time + one: None for _, time in happened for one in lifetimes.values() if time + one < until}
        rows: list[tuple[float, int, str | None]] = [(time, place, name) for place, (name, time) in enumerate(happened)]
        rows += [(time, len(rows), None) for time in ends]  # after the events of the same time
        rows.sort(key=lambda row: row[:2])
        place_of = {time: place for place, (time, _, name) in enumerate(rows) if name is None}
        ended = [
            (place, rule, place_of[time + one])
            for place, (time, _, name) in enumerate(rows)
            if name is not None
            for rule, one in lifetimes.items()
            if time + one in place_of
        ]
        return cls([name for _, _, name in rows], [time for time, _, _ in rows], ended)


def clingo_states(program: Program, events: list[str]) -> list[set[Fact]]:
    """The facts of every state."""
    return clingo_steps(program, Steps.of(events, [0.0] * len(events), 0.0, {}))


def clingo_steps(program: Program, steps: Steps) -> list[set[Fact]]:
    """`t` is true, `a` was added at a step by a rule, `b` at any, `r` is removed; the first argument is the state."""
    names = _Names()
    lines = [f"state(0..{len(steps.names)}).", "#defined ended/3."]
    lines += [f"ended({place},{rule},{end})." for place, rule, end in steps.ended]
    for index, event in enumerate(steps.names):
        if event is None:
            continue
        functor, args = split(event)
        lines.append(f"{names.atom('o', functor, str(index), [names.constant(arg) for arg in args])}.")
    for table in program.tables:
        for row in table.rows:
            lines.append(f"{names.atom('t', table.functor, 'T', [names.constant(one) for one in row])} :- state(T).")
        for functor, args in map(split, (name for name in steps.names if name is not None)):
            log = table.log
            if log is not None and functor == log.functor and len(args) >= log.place:
                value = args[log.place - 1]
                known = any(
                    row == (value,) for one in program.tables if one.functor == table.functor for row in one.rows
                )
                brought = table.functor if known else program.unseen_rows[table.functor]
                lines.append(f"{names.atom('t', brought, 'T', [names.constant(value)])} :- state(T).")
    for functor in program.functors.values():
        if functor.arity is None:
            continue
        args = [f"A{place}" for place in range(functor.arity)]
        true, base, gone = (names.atom(kind, functor.name, "T", args) for kind in "tbr")
        own, later = (names.atom("a", functor.name, state, ["S", "R", *args]) for state in ("T", "T+1"))
        lines.append(f"{true} :- {base}.")
        lines.append(f"{base} :- {own}.")
        lines.append(f"{later} :- {own}, not {gone}, not ended(S,R,T), state(T+1).")
        lines.append(f"#defined {names.functor('a', functor.name)}/{functor.arity + 3}.")
        lines.append(f"#show {names.functor('t', functor.name)}/{functor.arity + 1}.")
        lines.append(f"#defined {names.functor('r', functor.name)}/{functor.arity + 1}.")
        for kind in "tbo":
            lines.append(f"#defined {names.functor(kind, functor.name)}/{functor.arity + 1}.")
    for place, numbered in enumerate(program.rules):
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
        what = ("a", "T+1", ["T", str(place), *head]) if rule.kind == "add" else ("r", "T", head)
        lines.append(f"{names.atom(what[0], rule.head.functor, *what[1:])} :- {', '.join(body)}.")
    lines += [f"int({one})." for one in names.integers]
    lines.append("#defined int/1.")
    control = clingo.Control(["--warn=none"])
    control.add("base", [], "\n".join(lines))
    control.ground([("base", [])])
    found: list[set[Fact]] = [set() for _ in range(len(steps.names) + 1)]
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
        self.integers: dict[str, None] = {}
        self.fresh = 0
        self.functor_of: dict[str, str] = {}
        self.constant_of: dict[str, str] = {}

    def functor(self, kind: str, name: str) -> str:
        number = self._functors.setdefault(name, len(self._functors))
        self.functor_of[f"{kind}{number}"] = name
        return f"{kind}{number}"

    def constant(self, text: str) -> str:
        if is_integer(text):  # clingo knows 4 and not 04
            name = str(int(text))
            self.integers[name] = None
            self.constant_of[name] = text
            return name
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
            left, right = self.term(literal.left), self.term(literal.right)
            plain = f"{left} {literal.sign} {right}"
            return f"{plain}, int({left}), int({right})" if literal.sign in ORDERS else plain
        if isinstance(literal, Count):
            return self.counted(literal)
        atom = literal.atom if isinstance(literal, Not) else literal
        written = self.atom("t", atom.functor, "T", [self.term(arg) for arg in atom.args])
        return f"not {written}" if isinstance(literal, Not) else written

    def counted(self, one: Count) -> str:
        """clingo's aggregates; the smallest and the largest of nothing compare with all, so something must be there."""
        free, args = [], []
        for arg in one.atom.args:
            if not isinstance(arg, Constant) and arg.is_anonymous:
                self.fresh += 1
                free.append(f"F{self.fresh}")
                args.append(free[-1])
            else:
                args.append(self.term(arg))
        atom, right = self.atom("t", one.atom.functor, "T", args), self.term(one.right)
        if one.word == "count":
            return f"#count{{ {','.join(free) or '0'} : {atom} }} {one.sign} {right}, int({right})"
        inside = f"{free[0]} : {atom}, int({free[0]})"
        return f"#{one.word}{{ {inside} }} {one.sign} {right}, int({right}), #count{{ {inside} }} > 0"
