"""Versions of cells and the waves in which they are computed: what depends on nothing new is computed together."""

from __future__ import annotations

import numpy as np
import torch

from foretell.lang.program import Program
from foretell.models.rules.ndtt import NDTT
from foretell.nn.cells import CellUpdate, DeductionStage, Waves
from foretell.plan.history import versions_of
from foretell.plan.waves import Recurrence
from tests.ground.timelines import event_data

USERS = ":- event(click).\nuser(a). user(b). user(c).\nclick(U) :- user(U).\nuser(U) <- click(U).\n"


def recurrence(text: str, *sequences: list[str]) -> Recurrence:
    data = event_data(*sequences)
    model = NDTT(Program.from_text(text, dim=2), data.vocabulary, dim=2, dtype=torch.float64)
    model.ground(data)
    rows = model.collator.batch(data, range(len(data))).rules
    assert rows is not None
    found = rows.plan.recurrence
    assert found is not None
    return found


def updates(waves: Waves) -> list[CellUpdate]:
    return [step for step in waves.steps if isinstance(step, CellUpdate)]


def test_users_who_know_nothing_of_each_other_are_moved_side_by_side():
    events = [f"click({user})" for user in "abacabcab"]  # four of a, three of b, two of c
    assert [one.size for one in updates(recurrence(USERS, events).waves)] == [3, 3, 2, 1]


def test_sequences_of_a_batch_are_moved_side_by_side():
    found = recurrence(USERS, ["click(a)"] * 4, ["click(b)"] * 3, [], ["click(a)", "click(c)"])
    assert [one.size for one in updates(found.waves)] == [4, 2, 2, 1]
    assert found.place.shape == (4, 5) and sorted(found.place[found.place > 0].tolist()) == list(range(1, 10))


def test_a_cell_that_all_read_makes_a_wave_of_every_event():
    text = USERS.replace("click(U) :- user(U).", "world.\nclick(U) :- user(U), world.\nworld <- click(U).")
    found = recurrence(text, [f"click({user})" for user in "abacab"])
    assert [one.size for one in updates(found.waves)] == [2] * 6


def test_what_no_addition_looks_at_is_left_out():
    text = f"{USERS}:- event(idle).\nidle(U,V) :- user(U), user(V).\n"
    one, two = (recurrence(one, ["click(a)", "click(b)"]).waves for one in (USERS, text))
    assert one.embeddings == two.embeddings
    assert sum(step.size for step in one.steps if isinstance(step, DeductionStage)) == one.embeddings


def test_rows_with_one_matrix_share_a_tile():
    found = recurrence(USERS, *[["click(a)", "click(a)"] for _ in range(8)])
    assert found.gate_tiles[-1] == 1 and updates(found.waves)[-1].proposals == 8


def test_a_removal_destroys_a_cell_and_an_addition_by_the_same_event_begins_anew():
    head, event = np.asarray([5, 5, 5, 7, 5]), np.asarray([1, 2, 4, 2, 6])
    until = np.asarray([4, 4, 99, 99, 99])
    found = versions_of(head, event, until, np.ones(5, dtype=bool))
    assert found.before.tolist() == [0, 0, 1, 0, 3, 0]  # event 4 removes and adds
    states = np.arange(8)
    assert found.at(np.full(8, 5), states).tolist() == [0, 0, 1, 2, 2, 3, 3, 4]
    assert found.at(np.full(8, 7), states).tolist() == [0, 0, 0, 5, 5, 5, 5, 5]
    assert found.at(np.full(8, 6), states).tolist() == [0] * 8


def test_facts_without_embeddings_have_no_cells():
    found = versions_of(np.asarray([1, 2]), np.asarray([1, 1]), np.asarray([9, 9]), np.asarray([True, False]))
    assert len(found) == 2 and found.addition.tolist() == [0] and found.at(np.asarray([2]), np.asarray([3])) == 0
