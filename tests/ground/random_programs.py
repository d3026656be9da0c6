"""Random programs with random streams of events: recursion, negation, (in)equality, removal, ties, shared and per-value parameter names."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from foretell.lang.diagnostics import ProgramError
from foretell.lang.program import Program
from foretell.reference.database import changes, is_possible

CONSTANTS = ["a", "b", "c", "4", "'D d'"]
NUMBERS = ["4", "-1", "0", "7"]
SIGNS = ["=", "!=", "<", "<=", ">", ">="]
VARIABLES = ["X", "Y", "Z", "W"]


@dataclass(frozen=True)
class Case:
    text: str
    program: Program
    events: list[str]
    times: list[float] = field(default_factory=list)

    @property
    def t_end(self) -> float:
        return self.times[-1] + 2.0 if self.times else 2.0


def random_case(seed: int, length: int = 8, numbers: bool = False, expiry: bool = False) -> Case:
    """With `numbers`: comparisons, counts, ranges, several heads. With `expiry`: times, with ties, and additions that end."""
    draw = random.Random(seed)
    while True:
        text = _text(draw, numbers)
        if expiry:
            text = "\n".join(_with_duration(draw, line) for line in text.split("\n"))
        try:
            program = Program.from_text(text)
        except ProgramError:
            continue
        times = [0.0] * length
        if expiry:
            times = sorted(draw.choice([0.0, 0.5, 0.25]) + draw.randint(0, 2 * length // 3) for _ in range(length))
        events = _events(draw, program, times)
        return Case(text, program, events, times[: len(events)])


def lifetimes(program: Program) -> dict[int, float]:
    """By the place of a rule, for durations without a unit."""
    made = ((place, one.rule.duration) for place, one in enumerate(program.rules))
    return {place: one.number for place, one in made if one is not None}


def _with_duration(draw: random.Random, line: str) -> str:
    """Some durations end at an event's very time."""
    if "<-" not in line or line.startswith("!") or draw.random() < 0.3:
        return line
    rule, *names = line.removesuffix(".").split(" :: ")
    ends = draw.choice(["1", "2", "3", "0.5", "1.75", "2.5"])
    return f"{rule} for {ends}{f' :: {names[0]}' if names else ''}."


def _text(draw: random.Random, numbers: bool = False) -> str:
    """Functors are ranked; `not` looks down the ranks only, so that most programs are stratified."""
    static = [(f"s{i}", draw.choice([0, 1, 1, 2])) for i in range(draw.randint(1, 3))]
    added = [(f"d{i}", draw.choice([0, 1, 2])) for i in range(draw.randint(1, 3))]
    deduced = [(f"q{i}", draw.choice([0, 1, 2])) for i in range(draw.randint(1, 4))]
    events = [(f"e{i}", draw.choice([0, 1, 2])) for i in range(draw.randint(1, 3))]
    exogenous = [(f"x{i}", draw.choice([0, 1, 2])) for i in range(draw.randint(1, 2))]
    ranked = static + added + deduced + events
    lines = [f":- event({name})." for name, _ in events] + [f":- exogenous({name})." for name, _ in exogenous]
    for functor in static:
        lines += [f"{_ground(draw, functor)}{_suffix(draw, [])}." for _ in range(draw.randint(1, 4))]
    lines += [f"{_ground(draw, functor)}." for functor in added + deduced if draw.random() < 0.2]
    for functor in deduced + events:
        lines += [_rule(draw, functor, ranked) for _ in range(draw.randint(1, 2))]
    for functor in (
        added
        + ([draw.choice(deduced)] if draw.random() < 0.4 else [])
        + ([draw.choice(events)] if draw.random() < 0.4 else [])
    ):
        happening = [*events, *exogenous, ("bos", 0)]
        lines += [_rule(draw, functor, ranked, draw.choice(happening)) for _ in range(draw.randint(1, 3))]
        if draw.random() < 0.7:
            lines.append("!" + _rule(draw, functor, ranked, draw.choice([*events, *exogenous])))
    if numbers:
        for functor in [*static, *added]:
            if functor[1]:
                args = [draw.choice([*NUMBERS, "0..2"]) for _ in range(functor[1])]
                lines.append(f"{_atom(functor[0], args)}.")
        lines = [_with_numbers(draw, line, ranked) for line in lines]
    draw.shuffle(lines)
    return "\n".join(lines) + "\n"


def _ground(draw: random.Random, functor: tuple[str, int]) -> str:
    return _atom(functor[0], [draw.choice(CONSTANTS) for _ in range(functor[1])])


def _atom(name: str, args: list[str]) -> str:
    return f"{name}({', '.join(args)})" if args else name


def _term(draw: random.Random, fresh: float = 0.05) -> str:
    chance = draw.random()
    if chance < fresh:
        return "_"
    return draw.choice(VARIABLES) if chance < 0.85 else draw.choice(CONSTANTS)


def _rule(
    draw: random.Random, head: tuple[str, int], ranked: list[tuple[str, int]], event: tuple[str, int] | None = None
) -> str:
    body = [] if event is None else [_atom(event[0], [_term(draw) for _ in range(event[1])])]
    for name, arity in draw.choices(ranked, k=draw.randint(0 if event else 1, 3)):
        body.append(_atom(name, [_term(draw) for _ in range(arity)]))
    bound = [
        one for one in VARIABLES if any(f"{mark}{one}{end}" in text for text in body for mark in "( " for end in ",)")
    ]
    if bound and draw.random() < 0.25:
        body.append(f"{draw.choice(bound)} != {draw.choice([*bound, *CONSTANTS])}")
    if bound and draw.random() < 0.2:
        name = draw.choice(["V", *bound])
        body.append(f"{name} = {draw.choice([*bound, *CONSTANTS])}")
        bound = [*bound, name] if name == "V" else bound
    if draw.random() < 0.4:
        rank = next(place for place, one in enumerate(ranked) if one == head)
        below = ranked[: max(rank, 1)] if event is None else ranked
        name, arity = draw.choice(below)
        args = [draw.choice([*bound, *CONSTANTS, "_"]) for _ in range(arity)]
        body.append("not " + _atom(name, args))
    first, rest = (body[:1], body[1:]) if event else ([], body)
    draw.shuffle(rest)
    args = [draw.choice(bound) if bound and draw.random() < 0.9 else draw.choice(CONSTANTS) for _ in range(head[1])]
    arrow = "<-" if event else ":-"
    return f"{_atom(head[0], args)} {arrow} {', '.join(first + rest)}{_suffix(draw, bound)}."


def _with_numbers(draw: random.Random, line: str, ranked: list[tuple[str, int]]) -> str:
    """A rule with a comparison or a count more, or a second head."""
    if not ("<-" in line or (":-" in line and not line.startswith(":-"))):
        return line
    arrow = "<-" if "<-" in line else ":-"
    head, rest = line.split(f" {arrow} ", 1)
    body, *names = rest.removesuffix(".").split(" :: ")
    bound = [one for one in VARIABLES if f"{one}," in body or f"{one})" in body]
    more = []
    if bound and draw.random() < 0.4:
        more.append(f"{draw.choice(bound)} {draw.choice(SIGNS[2:])} {draw.choice([*bound, *NUMBERS])}")
    if draw.random() < 0.5:
        own = head.lstrip("!").split("(")[0]
        rank = next(place for place, one in enumerate(ranked) if one[0] == own)
        name, arity = draw.choice(ranked[: max(rank, 1)] if arrow == ":-" else ranked)
        args = [draw.choice([*bound, *NUMBERS, "_", "_"]) for _ in range(arity)]
        word = draw.choice(["min", "max"]) if args.count("_") == 1 else "count"
        right = draw.choice([*bound, "0", "1", "2", "3"])
        more.append(f"{word}({_atom(name, args)}) {draw.choice(SIGNS)} {right}")
    if draw.random() < 0.15 and not names:
        head += f", {head.lstrip('!')}"
    tail = f" :: {names[0]}" if names else ""
    return f"{head} {arrow} {', '.join([body, *more])}{tail}."


def _suffix(draw: random.Random, bound: list[str]) -> str:
    """A parameter name of the rule's own, with or without variables."""
    if draw.random() < 0.7:
        return ""
    name = f"w{draw.randrange(10**6)}"
    return f" :: {_atom(name, draw.sample(bound, min(len(bound), draw.randint(0, 2))))}"


def _events(draw: random.Random, program: Program, times: list[float]) -> list[str]:
    """Exogenous events at random, and declared ones while they are possible."""
    exogenous = [functor for functor in program.functors.values() if functor.kind == "exogenous"]
    happened: list[str] = []
    for place, time in enumerate(times):
        *_, last = changes(program, happened, times[:place], time, lifetimes(program))
        state = last.state
        possible = sorted(
            f"{fact[0]}({','.join(fact[1:])})" if fact[1:] else fact[0]
            for fact in state.facts
            if program.functors[fact[0]].kind == "event"
        )
        if possible and (draw.random() < 0.6 or not exogenous):
            event = draw.choice(possible)
        elif exogenous:
            functor = draw.choice(exogenous)
            event = _ground(draw, (functor.name, functor.arity or 0)).replace(", ", ",")
        else:
            break
        assert is_possible(program, state, event)
        happened.append(event)
    return happened
