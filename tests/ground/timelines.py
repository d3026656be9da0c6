"""Small bridges for tests: a program and names of events in, a timeline out; facts as tuples, as the slow twin has them."""

from __future__ import annotations

from foretell.data import EventData, EventSequence
from foretell.ground.replay import Replay, replay
from foretell.ground.timeline import Grounding, Timeline
from foretell.lang.program import Program
from foretell.reference.database import Fact


def event_data(*sequences: list[str]) -> EventData:
    """Events one unit of time apart; ids s0, s1, …"""
    made = EventData.from_names(sequences, [[*map(float, range(1, len(events) + 1))] for events in sequences])
    renamed = [EventSequence(one.times, one.types, 1000.0, f"s{place}") for place, one in enumerate(made)]
    return EventData(renamed, made.vocabulary)


def timeline_of(program: Program | str, events: list[str], **options: object) -> Timeline:
    return replay_of(program, events, **options).timelines[0]


def replay_of(program: Program | str, *sequences: list[str], **options: object) -> Replay:
    checked = Program.from_text(program) if isinstance(program, str) else program
    return replay(checked, event_data(*sequences), **options)  # pyright: ignore[reportArgumentType]


def fact_of(grounding: Grounding, fact: int) -> Fact:
    functor, *args = grounding.keys[fact]
    return (grounding.functors[functor], *(grounding.constants[arg] for arg in args))


def names_at(timeline: Timeline, state: int) -> list[str]:
    return sorted(timeline.grounding.text(fact) for fact in timeline.facts_at(state))


def proofs_at(timeline: Timeline, state: int) -> list[tuple]:
    """(rule, head, body, values of parameter variables), without rows of tables."""
    grounding = timeline.grounding
    rules = len(grounding.program.rules)
    return [_instantiation(grounding, one) for one in timeline.proofs_at(state) if grounding.rule[one] < rules]


def additions_at(timeline: Timeline, state: int) -> list[tuple]:
    rows = timeline.additions_at(state).tolist()
    return [(*_instantiation(timeline.grounding, one), event) for one, event, _ in rows]


def _instantiation(grounding: Grounding, one: int) -> tuple:
    values = grounding.groups[grounding.group[one]][1:]
    return (
        grounding.rule[one],
        fact_of(grounding, grounding.head[one]),
        tuple(fact_of(grounding, fact) for fact in grounding.body[one]),
        tuple(grounding.constants[value] for value in values),
    )
