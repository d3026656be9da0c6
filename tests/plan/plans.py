"""A program and events in, slots and plans out; slots by name."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from foretell.ground.timeline import Timeline
from foretell.lang.program import Program
from foretell.plan.parameters import DimensionLayout, ParameterBook
from foretell.plan.plan import Plan, make_plan
from foretell.plan.slots import SequenceSlots, sequence_slots
from tests.ground.timelines import replay_of

DIM, TIME_DIM = 2, 3


def slots_of(text: str, events: list[str], states: Sequence[int]) -> tuple[Timeline, SequenceSlots]:
    """`states` are those that are asked about: 1 before the first event, 2 after it, …"""
    timeline = replay_of(Program.from_text(text, dim=DIM), events).timelines[0]
    return timeline, sequence_slots(timeline, DimensionLayout(timeline.grounding.program, DIM), np.asarray(states))


def plan_of(text: str, *sequences: list[str], states: Sequence[Sequence[int]] | None = None) -> Plan:
    program = Program.from_text(text, dim=DIM)
    layout = DimensionLayout(program, DIM)
    timelines = replay_of(program, *sequences).timelines
    asked = [range(1, one.states) for one in timelines] if states is None else states
    parts = [sequence_slots(one, layout, np.asarray(own)) for one, own in zip(timelines, asked, strict=True)]
    book = ParameterBook(layout, TIME_DIM)
    book.read(timelines[0].grounding)
    return make_plan(parts, layout, book, torch.device("cpu"))


def names(slots: SequenceSlots, state: int | None = None) -> list[str]:
    """Facts that have slots, each as often as it has; in one state, or in all."""
    states = slots.point_state[slots.slot_point]
    return sorted(
        slots.grounding.text(int(fact))
        for fact, own in zip(slots.slot_fact, states, strict=True)
        if state is None or own == state
    )


def level_of(slots: SequenceSlots, fact: str) -> set[int]:
    return {
        int(level)
        for number, level in zip(slots.slot_fact, slots.slot_level, strict=True)
        if slots.grounding.text(int(number)) == fact
    }
