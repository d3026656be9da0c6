"""Handles events that a program does not declare, or that its rules make impossible: refuse, leave out, or keep as unscored history."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np

from foretell.data import EventData, EventSequence
from foretell.errors import DataError
from foretell.ground.chunk import ReplayOptions, SequenceRows, replay_chunk
from foretell.ground.engine import Engine, ReplayLimits
from foretell.lang.program import Program
from foretell.options import Impossible
from foretell.terms import split
from foretell.wording import counted, did_you_mean

RESERVED = ("bos", "eos")


@dataclass
class _Kind:
    """The events with one functor and number of arguments."""

    functor: str
    arity: int
    events: int = 0
    names: list[str] = field(default_factory=list)

    def words(self) -> str:
        times = "once" if self.events == 1 else f"{self.events} times"
        other = f" and {len(self.names) - 1} others" if len(self.names) > 1 else ""
        return f"event `{self.names[0]}`{other} ({times})"


def check_declared(program: Program, data: EventData) -> int:
    """Return the number of undeclared events if they are accepted as exogenous. Otherwise raise an error that lists their functors."""
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
        known = program.functors.get(program.functor_of(kind.functor, kind.arity))
        if kind.functor in RESERVED:
            problems.append(
                f"{data.name}: {kind.words()}: `{kind.functor}` is reserved, it stands for the beginning or the end of a sequence; "
                f"rename the event in the data, or leave it out"
            )
        elif known is not None and (known.kind != "fact" or known.arity != kind.arity):
            if known.arity is not None and known.arity != kind.arity:
                arguments = counted(kind.arity, "argument") if kind.arity else "no arguments"
                hint = "" if kind.arity else "; columns of a table are named with `columns={'arg1': …, 'arg2': …}`"
                problems.append(f"{data.name}: {kind.words()} has {arguments}, but the program has `{known}`{hint}")
        elif program.undeclared == "exogenous":
            undeclared += kind.events
        else:
            problems.append(f"{data.name}: {_problem(program, kind)}")
    for functor, arities in _arities(kinds).items():
        known = program.functors.get(functor)
        if len(arities) > 1 and functor not in program.several_arities and (known is None or known.arity is None):
            each = " ".join(f"`:- exogenous({functor}/{arity}).`" for arity in arities)
            problems.append(
                f"{data.name}: events `{functor}` have {' and '.join(map(str, arities))} arguments: these are different events, "
                f"which the program has to tell apart: {each}"
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
        f'`:- exogenous({kind.functor}).` in the program, or say `undeclared="exogenous"`'
    )


@dataclass(frozen=True)
class WithoutImpossible:
    data: EventData
    impossible: int  # the number of impossible events, left out or marked


def settle_impossible(
    program: Program, data: EventData, impossible: Impossible, limits: ReplayLimits | None = None
) -> WithoutImpossible:
    """Find the events that a program makes impossible, and leave them out or mark them as unscored.

    Args:
        program: the rules.
        data: one split.
        impossible: "error" raises; "skip" leaves such events out, so that they fire nothing; "exogenous" keeps them: they fire rules and
            are not scored.
        limits: how large the database may get.

    Returns:
        The data (`data`), and how many events were impossible (`impossible`).

    Raises:
        DataError: with "error", every impossible event.

    Example:
        >>> program = ft.Program.from_text("user(ann). :- event(buy). buy(U) :- user(U).")
        >>> data = ft.EventData.from_names([["buy(ann)", "buy(bob)"]], [[1.0, 2.0]])
        >>> ft.settle_impossible(program, data, "skip").impossible
        1
    """
    check_declared(program, data)
    found = replay_chunk(Engine(program), data, ReplayOptions(impossible, limits or ReplayLimits()))
    if not found.impossible:
        return WithoutImpossible(data, 0)
    if impossible == "skip" and data.origin == "first-event":
        _check_first_kept(data, found.sequences)
    is_event = np.asarray([_is_event(program, name) for name in data.vocabulary.names], dtype=bool)
    change = _without if impossible == "skip" else _marked
    sequences = [change(one, rows, is_event) for one, rows in zip(data, found.sequences, strict=True)]
    return WithoutImpossible(replace(data, sequences=sequences, report=None), found.impossible)


@contextmanager
def naming_impossible(program: Program | None, data: EventData) -> Iterator[None]:
    """Report impossible events with the ids of all their sequences if a model raises `DataError`. Does nothing if `program` is None.

    A model replays histories without sequence ids, one at a time, and stops at the first impossible event.
    """
    try:
        yield
    except DataError:
        if program is not None:
            settle_impossible(program, data, "error")
        raise


def _check_first_kept(data: EventData, sequences: Sequence[SequenceRows]) -> None:
    """Raise an error if a sequence would lose its first event although it is conditioned on this event."""
    problems = [
        f'{data.name}: sequence {one.id!r} is conditioned on its first event (origin = "first-event"), '
        f"`{data.vocabulary.names[int(one.types[0])]}`, and the program makes that very event impossible: it cannot be left out; "
        'say `impossible="exogenous"`, which keeps it as history, or correct the program'
        for one, rows in zip(data, sequences, strict=True)
        if len(one) and 0 not in rows.kept_events[:1]
    ]
    if problems:
        raise DataError(problems)


def _without(sequence: EventSequence, rows: SequenceRows, is_event: np.ndarray) -> EventSequence:
    kept = rows.kept_events
    marks = None if sequence.unscored is None else sequence.unscored[kept]
    further = None if sequence.attributes is None else sequence.attributes.keep(np.asarray(kept))
    events = {"times": sequence.times[kept], "types": sequence.types[kept], "attributes": further}
    return replace(sequence, **events, unscored=marks)


def _marked(sequence: EventSequence, rows: SequenceRows, is_event: np.ndarray) -> EventSequence:
    """Mark impossible events as unscored. Events that are declared exogenous need no mark."""
    marks = ~rows.possible_events & is_event[sequence.types]
    return replace(sequence, unscored=marks if sequence.unscored is None else marks | sequence.unscored)


def _is_event(program: Program, name: str) -> bool:
    known = program.functors.get(program.split(name)[0])
    return known is not None and known.kind == "event"
