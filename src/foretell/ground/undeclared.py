"""Events of the data against the declarations of the program, before anything is replayed."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from foretell.data import EventData
from foretell.errors import DataError
from foretell.lang.program import Program
from foretell.terms import split
from foretell.wording import did_you_mean

RESERVED = ("bos", "eos")


@dataclass
class _Kind:
    """Events with one functor and number of arguments."""

    functor: str
    arity: int
    events: int = 0
    names: list[str] = field(default_factory=list)

    def words(self) -> str:
        times = "once" if self.events == 1 else f"{self.events} times"
        other = f" and {len(self.names) - 1} others" if len(self.names) > 1 else ""
        return f"event `{self.names[0]}`{other} ({times})"


def check_declared(program: Program, data: EventData) -> int:
    """How many events nothing declares, where they are accepted as exogenous; where not, an error that names each functor once."""
    counts = data.type_counts()
    kinds: dict[tuple[str, int], _Kind] = {}
    for number in np.flatnonzero(counts).tolist():
        name = data.vocabulary.names[number]
        functor, args = split(name)
        kind = kinds.setdefault((functor, len(args)), _Kind(functor, len(args)))
        kind.events += int(counts[number])
        kind.names.append(name)
    undeclared = 0
    problems = []
    for kind in kinds.values():
        known = program.functors.get(kind.functor)
        if kind.functor in RESERVED:
            problems.append(
                f"{data.name}: {kind.words()}: `{kind.functor}` is reserved, it stands for the beginning or the end of a sequence; "
                f"rename the event in the data, or leave it out"
            )
        elif known is not None and (known.kind != "fact" or known.arity != kind.arity):
            if known.arity is not None and known.arity != kind.arity:
                arguments = (
                    "no arguments" if not kind.arity else "1 argument" if kind.arity == 1 else f"{kind.arity} arguments"
                )
                hint = "" if kind.arity else "; columns of a table are named with --columns …,arg1=…,arg2=…"
                problems.append(f"{data.name}: {kind.words()} has {arguments}, but the program has `{known}`{hint}")
        elif program.undeclared == "exogenous":
            undeclared += kind.events
        else:
            problems.append(f"{data.name}: {_problem(program, kind)}")
    for functor, arities in _arities(kinds).items():
        if len(arities) > 1 and (functor not in program.functors or program.functors[functor].arity is None):
            problems.append(
                f"{data.name}: events `{functor}` have {' and '.join(map(str, arities))} arguments: expected always as many"
            )
    if problems:
        raise DataError(problems)
    return undeclared


def _arities(kinds: dict[tuple[str, int], _Kind]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for functor, arity in kinds:
        found.setdefault(functor, []).append(arity)
    return found


def _problem(program: Program, kind: _Kind) -> str:
    events = [name for name, one in program.functors.items() if one.kind != "fact"]
    hint = did_you_mean(kind.functor, events, before=" ")
    return (
        f"{kind.words()} is declared neither event nor exogenous:{hint} write `:- event({kind.functor}).` or "
        f"`:- exogenous({kind.functor}).` in the program, or say --undeclared=exogenous"
    )
