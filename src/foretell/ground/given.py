"""The facts that come with a sequence, `"facts": ["age(p1,old)"]`: read from its metadata and checked against `:- given(…).`"""

from __future__ import annotations

from collections.abc import Mapping

from foretell.data.sequence import FACTS
from foretell.errors import DataError
from foretell.lang.program import Program
from foretell.terms import NameProblem, normalise, split
from foretell.wording import counted, did_you_mean, shown


def given_facts(program: Program, sequence: str, metadata: Mapping[str, object]) -> tuple[str, ...]:
    """Names of the facts that they are before any rule, each once and in order; a program without `given` looks at none."""
    if not program.given or FACTS not in metadata:
        return ()
    found, problems = metadata[FACTS], []
    if not isinstance(found, list | tuple):
        raise DataError(f'sequence {sequence}: {FACTS} is {type(found).__name__}, expected a list: ["age(p1,old)"]')
    names: dict[str, None] = {}
    for place, one in enumerate(found):
        try:
            names[_brought(program, one)] = None
        except ValueError as problem:
            problems.append(f"sequence {sequence}: {FACTS}[{place}]: {problem}")
    if problems:
        raise DataError(problems)
    return tuple(sorted(names))


def _brought(program: Program, fact: object) -> str:
    if not isinstance(fact, str):
        raise ValueError(f'{shown(repr(fact))} is no text; write a fact: "age(p1,old)"')
    try:
        functor, args = split(normalise(fact.strip()))
    except NameProblem as problem:
        raise ValueError(str(problem).replace("event `", "`").replace("an event name", "a fact")) from None
    if functor not in program.given:
        what = f"the program has no `:- given({functor}).`" if functor in program.functors else "the program knows none"
        raise ValueError(f"{shown(fact)}: {what}{did_you_mean(functor, program.given, before='; ')}")
    known = program.functors[functor]
    if known.arity != len(args):
        raise ValueError(f"{shown(fact)} has {counted(len(args), 'argument')}; the program has `{known}`")
    name = program.given[functor]
    return f"{name}({','.join(args)})" if args else name
