"""Facts that come with a sequence: `"facts": ["age(p1,old)"]` in its metadata, checked against `:- given(…).`, and new table rows.

Tables `from_log` have the values of the training data as rows. Values that only occur in this sequence are rows for it alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

import numpy as np

from foretell.data import EventData, EventSequence
from foretell.data.sequence import FACTS
from foretell.errors import DataError
from foretell.lang.program import Program
from foretell.terms import NameProblem, normalise, split
from foretell.wording import counted, did_you_mean, shown


def brought_facts(program: Program, sequence: EventSequence, names: Sequence[str]) -> tuple[str, ...]:
    """Return the internal names of all facts that a sequence brings. `names` are the names of the event types."""
    given = given_facts(program, sequence.id, sequence.metadata)
    if not program.unseen_rows:
        return given
    kinds: list[int] = np.unique(np.asarray(sequence.types)).tolist()
    return *given, *unseen_rows(program, [names[kind] for kind in kinds])


def unseen_rows(program: Program, events: Sequence[str]) -> Iterator[str]:
    """Yield the internal names of values in events that are not yet rows of the tables from a log, in order."""
    split_up = [_split(name) for name in events]
    for functor, name in program.unseen_rows.items():
        tables = [one for one in program.tables if one.functor == functor]
        values = {value for one in tables if one.log is not None for value in one.log.values(split_up)}
        known = _known(program, functor) if values else frozenset()
        yield from (f"{name}({value})" for value in sorted(values - known))


@lru_cache(maxsize=1 << 16)
def _split(name: str) -> tuple[str, tuple[str, ...]]:
    return split(name)


@lru_cache(maxsize=64)
def _known(program: Program, functor: str) -> frozenset[str]:
    return frozenset(row[0] for one in program.tables if one.functor == functor for row in one.rows if len(row) == 1)


def with_log(program: Program, data: EventData) -> Program:
    """Return the program with the data's values in its tables `from_log` if these still have no rows; otherwise the program itself."""
    if not program.waits_for_log:
        return program
    names = data.vocabulary.names
    return program.with_log(names[kind] for kind in np.flatnonzero(data.type_counts()).tolist())


def given_facts(program: Program, sequence: str, metadata: Mapping[str, object]) -> tuple[str, ...]:
    """Return the internal names of the facts in a sequence's metadata, distinct and sorted; () for programs without `given`."""
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
    functor = program.functor_of(functor, len(args))
    if functor not in program.given:
        what = f"the program has no `:- given({functor}).`" if functor in program.functors else "the program knows none"
        raise ValueError(f"{shown(fact)}: {what}{did_you_mean(functor, program.given, before='; ')}")
    known = program.functors[functor]
    if known.arity != len(args):
        raise ValueError(f"{shown(fact)} has {counted(len(args), 'argument')}; the program has `{known}`")
    name = program.given[functor]
    return f"{name}({','.join(args)})" if args else name  # the internal name is in quotes
