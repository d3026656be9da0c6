"""Events of the data against the declarations of the program, before anything is replayed."""

from __future__ import annotations

import difflib

import numpy as np

from foretell.data import EventData
from foretell.errors import DataError
from foretell.lang.program import Program
from foretell.terms import split


def check_declared(program: Program, data: EventData) -> int:
    """How many events nothing declares, where they are accepted as exogenous; where not, an error that names them all."""
    counts = data.type_counts()
    undeclared = 0
    problems = []
    for kind in np.flatnonzero(counts).tolist():
        functor, args = split(data.vocabulary.names[kind])
        known = program.functors.get(functor)
        if known is not None and known.kind != "fact":
            if known.arity is not None and known.arity != len(args):
                problems.append(
                    f"{data.name}: event `{data.vocabulary.names[kind]}` ({counts[kind]} times) has {len(args)} arguments, "
                    f"but the program has `{known}`"
                )
        elif program.undeclared == "exogenous":
            undeclared += int(counts[kind])
        else:
            problems.append(_problem(program, data, kind, functor, int(counts[kind])))
    if problems:
        raise DataError(problems)
    return undeclared


def _problem(program: Program, data: EventData, kind: int, functor: str, count: int) -> str:
    events = [name for name, one in program.functors.items() if one.kind != "fact"]
    close = difflib.get_close_matches(functor, events, n=1)
    hint = f"did you mean `{close[0]}`? " if close else ""
    return (
        f"{data.name}: event `{data.vocabulary.names[kind]}` ({count} times) is declared neither event nor exogenous: {hint}"
        f"write `:- event({functor}).` or `:- exogenous({functor}).` in the program, or say --undeclared=exogenous"
    )
