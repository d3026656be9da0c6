"""What is remembered of sequences: slots without draws are, drawn ones never; and a numbering that grows changes nothing."""

from __future__ import annotations

import numpy as np
import pytest

from foretell.batches.timelines import Histories
from foretell.data import EventSequence, Vocabulary
from foretell.lang.program import Program
from foretell.plan import slots as slots_module
from foretell.plan.parameters import DimensionLayout
from foretell.plan.slots import SequenceSlots
from tests.plan.plans import DIM

CLUB = """
:- event(say). :- exogenous(join).
say(X) :- member(X).
member(X) <- join(X).
said(X) <- say(X).
knows(X,Y) <- say(X), said(Y).
say(X) : b(Y) <- say(Y), knows(X,Y) :: heard.
"""
VOCABULARY = Vocabulary(tuple(f"{what}({who})" for what in ("join", "say") for who in "abcd"))


def histories() -> Histories:
    program = Program.from_text(CLUB, dim=DIM)
    return Histories(program, DimensionLayout(program, DIM))


def slots_of(known: Histories, types: list[int], **options) -> SequenceSlots:
    times = np.arange(1.0, len(types) + 1)
    key, timeline = known.timeline(VOCABULARY, EventSequence(times, np.asarray(types), len(types) + 1.0))
    return known.slots(key, timeline, np.arange(1, len(types) + 2), **options)


FIRST, SECOND = [0, 1, 4, 5, 4, 4], [2, 0, 6, 3, 7, 4, 6, 7]


def test_slots_are_remembered_and_drawn_ones_are_not():
    known = histories()
    assert slots_of(known, SECOND, remember=True) is slots_of(known, SECOND, remember=True)
    assert slots_of(known, SECOND) is not slots_of(known, SECOND)
    drawn = [slots_of(known, SECOND, keep=1, rng=np.random.default_rng(0), remember=True) for _ in range(2)]
    assert drawn[0] is not drawn[1]
    assert drawn[0].possible_slot.tolist() == drawn[1].possible_slot.tolist()  # the same seed
    assert len(known._slots) == 1


def test_nothing_is_drawn_where_no_more_are_possible_than_are_kept():
    known = histories()
    found = slots_of(known, SECOND, keep=3, rng=np.random.default_rng(0), remember=True)
    assert found is slots_of(known, SECOND, remember=True)


def described(slots: SequenceSlots) -> list[object]:
    """By name, since numbers depend on what was met before."""
    text = slots.grounding.text
    name = [(text(int(fact)), int(point)) for fact, point in zip(slots.slot_fact, slots.slot_point, strict=True)]
    asked = [
        (name[slot], slots.addition_event[low:high].tolist())
        for slot, low, high in zip(slots.ask_slot, slots.ask_low, slots.ask_high, strict=True)
    ]
    proofs = [
        (name[slot], slots.grounding.rule[instance])
        for slot, instance in zip(slots.proof_slot, slots.proof_instance, strict=True)
    ]
    bodies = [
        (
            int(slots.addition_event[row]),
            [name[slot] if slot >= 0 else None for slot in slots.addition_body[start:stop]],
        )
        for row, (start, stop) in enumerate(zip(slots.addition_start[:-1], slots.addition_start[1:], strict=True))
    ]
    return [sorted(one, key=repr) for one in (name, asked, proofs, bodies)]


def test_what_was_met_before_and_after_changes_nothing_but_numbers():
    alone = [described(slots_of(histories(), types)) for types in (FIRST, SECOND)]
    known = histories()
    assert described(slots_of(known, FIRST)) == alone[0]
    facts = len(known.grounding.keys)
    assert described(slots_of(known, SECOND)) == alone[1]
    assert len(known.grounding.keys) > facts
    known._slots.clear()  # built again, in the numbering that has grown
    assert described(slots_of(known, FIRST)) == alone[0]
    known._fixed.clear()
    known._slots.clear()
    assert described(slots_of(known, FIRST)) == alone[0]


def test_slots_of_conditions_are_the_same_whether_read_from_a_table_or_searched_for(monkeypatch: pytest.MonkeyPatch):
    read = slots_of(histories(), SECOND)
    monkeypatch.setattr(slots_module, "CELLS_A_CONDITION", -1)
    searched = slots_of(histories(), SECOND)
    assert len(read.proof_body[2])
    assert read.proof_body[2].tolist() == searched.proof_body[2].tolist()


def test_what_sequences_fix_is_forgotten_beyond_a_limit(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("foretell.batches.timelines.KEPT_ADDITIONS", 20)
    known = histories()
    for types in (FIRST, SECOND, FIRST[:4], SECOND):
        slots_of(known, types, keep=1, rng=np.random.default_rng(0))
    assert len(known._fixed) == 1
    assert known._fixed.size == sum(
        len(one.timeline.additions) + len(one.timeline.events) for one, _ in known._fixed.entries.values()
    )
