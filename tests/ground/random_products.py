"""Random programs whose events are products: several rules for one event, parts that change, filters, rows beside them, additions."""

from __future__ import annotations

import random

from foretell.lang.diagnostics import ProgramError
from foretell.lang.program import Program
from foretell.reference.database import states

CONSTANTS = ["a", "b", "c", "4", "7"]
FACTS = {"s0": 1, "s1": 1, "s2": 2, "d0": 1, "d1": 2, "q0": 1, "q1": 2}


def random_product_text(seed: int) -> str:
    draw = random.Random(seed)
    lines = [":- event(e).", ":- event(f).", ":- exogenous(x).", ":- exogenous(y)."]
    for name in ("s0", "s1", "s2", "d0", "d1"):
        lines += [
            f"{_fact(draw, name)}{draw.choice(['', f' :: w{draw.randrange(3)}'])}." for _ in range(draw.randint(1, 4))
        ]
    lines += ["q0(X) :- d0(X).", "q0(X) :- s2(X,Y), d0(Y).", "q1(X,Y) :- s2(X,Y), not d1(X,Y)."]
    lines += ["d0(X) <- x(X,Y).", "!d0(Y) <- y(X,Y).", "d1(X,Y) <- e(X,Y).", "!d1(X,X) <- y(X,Y)."]
    lines += [_rule(draw, "e") for _ in range(draw.randint(1, 3))] + [_rule(draw, "f")]
    if draw.random() < 0.4:
        lines.append("e(X,Y) :- s2(X,Y).")
    if draw.random() < 0.4:
        lines.append(f"e(X,Y) <- {draw.choice(['x', 'y', 'e', 'f'])}(X,Y).")
    if draw.random() < 0.3:
        lines.append("!e(X,Y) <- y(X,Y).")
    return "\n".join(dict.fromkeys(lines)) + "\n"


def _fact(draw: random.Random, name: str) -> str:
    return f"{name}({', '.join(draw.choice(CONSTANTS) for _ in range(FACTS[name]))})"


def _part(draw: random.Random, variable: str) -> list[str]:
    """Conditions that share one variable, and perhaps others with nobody."""
    name = draw.choice(sorted(FACTS))
    args = [variable, *(draw.choice(["_", f"{variable}1", draw.choice(CONSTANTS)]) for _ in range(FACTS[name] - 1))]
    draw.shuffle(args)
    body = [f"{name}({', '.join(args)})"]
    if draw.random() < 0.3:
        body.append(f"{draw.choice(['s0', 'd0', 'q0'])}({variable})")
    if draw.random() < 0.2:
        body.append(f"not {draw.choice(['s1', 'd0'])}({variable})")
    return body


def _rule(draw: random.Random, head: str) -> str:
    body = [*_part(draw, "X"), *_part(draw, "Y")]
    if draw.random() < 0.2:
        body.append(f"{draw.choice(['s1', 'd0'])}({draw.choice(['Z', *CONSTANTS])})")
    for chance, literal in ((0.3, "X != Y"), (0.15, "X < Y"), (0.3, "not d1(X,Y)"), (0.15, "not d1(Y,X)")):
        if draw.random() < chance:
            body.append(literal)
    if draw.random() < 0.1:
        body.append("not s2(X,_)")
    draw.shuffle(body)
    args = draw.choice([["X", "Y"]] * 6 + [["Y", "X"], ["X", "X"], ["X", draw.choice(CONSTANTS)]])
    names = draw.choice(["", "", "", f" :: w{draw.randrange(10**6)}({draw.choice('XY')})"])
    exponent = draw.choice(["", "", f" : b{draw.randrange(10**6)}"])
    return f"{head}({','.join(args)}){exponent} :- {', '.join(body)}{names}."


def random_products(seed: int, length: int = 8) -> tuple[Program, list[str]]:
    """A program, and events that it makes possible."""
    while True:
        text = random_product_text(seed)
        try:
            program = Program.from_text(text)
            return program, _events(random.Random(seed), program, length)
        except ProgramError:
            seed += 1_000_000


def _events(draw: random.Random, program: Program, length: int) -> list[str]:
    happened: list[str] = []
    for _ in range(length):
        *_, state = states(program, happened)
        possible = sorted(f"{fact[0]}({','.join(fact[1:])})" for fact in state.facts if fact[0] in ("e", "f"))
        args = f"({draw.choice(CONSTANTS)},{draw.choice(CONSTANTS)})"
        others = [f"{draw.choice('xy')}{args}"]
        happened.append(draw.choice(possible if possible and draw.random() < 0.6 else others))
    return happened
