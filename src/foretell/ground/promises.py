"""Promises of a program, `:- never(…).`, checked on a log: which are broken, where they are first broken, and by which facts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

from foretell.ground.explain import why
from foretell.ground.timeline import Timeline
from foretell.lang.program import Component, Functor, NumberedRule, Program, promise_rule
from foretell.lang.syntax import Promise, pretty_statement


@dataclass(frozen=True)
class BrokenPromise:
    """A broken promise, with the first state of the first sequence in which its body is true."""

    promise: str  # the promise as written in the program
    place: str
    sequence: str
    state: int
    time: float
    after: str | None  # the event that led to the state
    change: str  # the change that led to the state, in words
    facts: tuple[str, ...]  # the facts that make the body true
    reasons: tuple[str, ...]  # lines that explain why each of these facts holds
    sequences: int  # the number of sequences in which it is broken

    def lines(self) -> list[str]:
        when = "before the first event" if self.state <= 1 else f"after {self.change} at {self.time:g}"
        more = f"; in {self.sequences} sequences in all" if self.sequences > 1 else ""
        said = f"{self.place}: broken promise: {self.promise}"
        return [said, f"  sequence {self.sequence}, {when}{more}", *(f"  {line}" for line in self.reasons)]

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "change"}


def with_promises(program: Program) -> tuple[Program, list[str]]:
    """Return the program with one more rule per promise, which deduces a fact if the promise is broken; and these rules' functors."""
    rules, functors, names = list(program.rules), dict(program.functors), []
    for number, promise in enumerate(program.promises, 1):
        name = f"'never {number}'"
        while name in functors:
            name = f"'{name[1:-1]} again'"
        rule = promise_rule(promise, name)
        rules.append(NumberedRule(len(rules) + 1, rule, len(rules) + 1))
        functors[name] = Functor(name, len(rule.head.args), "fact", 0, None)
        names.append(name)
    top = 1 + max(program.stratum.values(), default=0)
    text = "".join(map(pretty_statement, program.promises))
    made = replace(
        program,
        rules=tuple(rules),
        functors=functors,
        components=(*program.components, *(Component((name,), False) for name in names)),
        stratum={**program.stratum, **dict.fromkeys(names, top)},
        digest=sha256(f"{program.digest} {text}".encode()).hexdigest(),
    )
    return made, names


def broken_promises(
    promises: Sequence[Promise], names: Sequence[str], timelines: Sequence[Timeline]
) -> list[BrokenPromise]:
    """Return the broken promises. `timelines` and `names` must be from the program that `with_promises` returns."""
    found = []
    for promise, name in zip(promises, names, strict=True):
        first: tuple[Timeline, int, int] | None = None
        sequences = 0
        for timeline in timelines:
            rows = _rows(timeline, name)
            sequences += bool(rows)
            if rows and first is None:
                state, fact = min(rows)
                first = timeline, state, fact
        if first is not None:
            found.append(_broken(promise, *first, sequences))
    return found


def _rows(timeline: Timeline, name: str) -> list[tuple[int, int]]:
    grounding = timeline.grounding
    rows = [(0, fact) for fact in grounding.always.tolist()] + [
        (start, fact) for fact, start, _ in timeline.holds.tolist()
    ]
    return [(state, fact) for state, fact in rows if grounding.functors[grounding.keys[fact][0]] == name]


def _broken(promise: Promise, timeline: Timeline, state: int, fact: int, sequences: int) -> BrokenPromise:
    answer = why(timeline, timeline.grounding.text(fact), state)
    body = answer.because[answer.fact].proofs[0].body
    reasons = [line for one in body for line in why(timeline, one, state).lines()]
    return BrokenPromise(
        pretty_statement(promise),
        promise.span.place,
        timeline.sequence,
        state,
        timeline.time_of(state),
        timeline.after(state),
        timeline.change_in_words(state),
        body,
        tuple(dict.fromkeys(reasons)),
        sequences,
    )
