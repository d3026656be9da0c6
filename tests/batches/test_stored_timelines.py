"""Timelines that do not fit into memory are read from the files of their chunks, one sequence at a time."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from foretell.batches import timelines as remembering
from foretell.batches.timelines import Histories
from foretell.data import EventData
from foretell.ground import replay as replaying
from foretell.ground.replay import chunks_of, groups_of
from foretell.lang.program import Program
from foretell.plan.parameters import DimensionLayout
from tests.batches.test_replay_in_chunks import assert_same, timelines
from tests.ground.random_programs import random_case
from tests.ground.test_cache import PROGRAM, _data
from tests.ground.timelines import event_data

EXPIRING = ":- exogenous(on). :- exogenous(off). lit <- on for 3. !lit <- off. dark :- not lit."

MOODS = "mood <- a. !mood <- b. a :- mood. a :- base. b :- base. base. :- event(a). :- event(b)."


@pytest.fixture(autouse=True)
def little_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Room for the timelines of one sequence, and for one chunk while it is replayed."""
    monkeypatch.setenv("FORETELL_CACHE", str(tmp_path))
    monkeypatch.setattr(replaying, "CHUNK_EVENTS", 50)
    monkeypatch.setattr(remembering, "KEPT_EVENTS", 1)
    monkeypatch.setattr(remembering, "GROUP_EVENTS", 1)


def store(program: Program) -> Histories:
    return Histories(program, DimensionLayout(program, 4))


def stored_and_in_turn(program: Program, data: EventData) -> tuple[Histories, Histories]:
    """A store that keeps one timeline alone, and one that has replayed all of them, one after the other, and keeps them."""
    made, in_turn = store(program), store(program)
    with mock.patch.object(remembering, "KEPT_EVENTS", 10**6):
        timelines(in_turn, data)
    made.replay(data, workers=1)
    assert len(made._timelines) == 1
    return made, in_turn


def no_walk(*given: object) -> None:
    raise AssertionError("this sequence is replayed again")


def test_timelines_that_are_no_longer_remembered_come_from_files(monkeypatch: pytest.MonkeyPatch):
    program, data = Program.from_text(PROGRAM), _data(8)
    made, in_turn = stored_and_in_turn(program, data)
    assert len(made._stored.chunks) == 4
    monkeypatch.setattr(remembering, "walk", no_walk)
    for one in data.select([3, 0, 7, 1, 2, 6, 5, 4]):
        found, expected = made.timeline(data.vocabulary, one)[1], in_turn.timeline(data.vocabulary, one)[1]
        np.testing.assert_array_equal(found.holds, expected.holds)
    assert_same(made, in_turn, data)


@pytest.mark.parametrize("seed", range(12))
def test_stored_timelines_of_random_programs_are_those_of_a_replay(seed: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(replaying, "CHUNK_EVENTS", 2)
    case = random_case(seed)
    data = event_data(*(case.events[:n] for n in range(len(case.events), 1, -2)))
    made, in_turn = stored_and_in_turn(case.program, data)
    monkeypatch.setattr(remembering, "walk", no_walk)
    assert_same(made, in_turn, data)


def test_additions_that_expire_are_stored_with_their_times(monkeypatch: pytest.MonkeyPatch):
    program = Program.from_text(EXPIRING)
    monkeypatch.setattr(replaying, "CHUNK_EVENTS", 3)
    data = EventData.from_names(
        [["on", "off"], ["on", "on"], ["on", "off", "off"]], [[1.0, 2.0], [1.0, 5.5], [0.5, 1.0, 1.5]], t_ends=[9.0] * 3
    )
    made, in_turn = stored_and_in_turn(program, data)
    monkeypatch.setattr(remembering, "walk", no_walk)
    assert sum(one.is_expiry.sum() for one in timelines(made, data)) == 2
    assert_same(made, in_turn, data)


@pytest.mark.parametrize("damage", [lambda path: path.unlink(), lambda path: path.write_bytes(b"no archive")])
def test_what_is_gone_or_damaged_is_replayed_again(damage, tmp_path: Path, caplog: pytest.LogCaptureFixture):
    program, data = Program.from_text(PROGRAM), _data(6)
    made, in_turn = stored_and_in_turn(program, data)
    for path in (tmp_path / "timelines").iterdir():
        damage(path)
    assert_same(made, in_turn, data)
    assert caplog.text.count("its sequences are replayed again") == 3  # once per file


def test_a_cache_that_cannot_be_written_costs_time_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("FORETELL_CACHE", str(tmp_path / "file"))
    program, data = Program.from_text(PROGRAM), _data(4)
    made, in_turn = stored_and_in_turn(program, data)
    assert not made._stored.chunks
    assert_same(made, in_turn, data)


@pytest.mark.parametrize("most", [1, 70, 120, 10_000])
def test_groups_have_the_chunks_of_the_whole(most: int):
    data = event_data(*(["x"] * length for length in (40, 5, 60, 7, 7, 7, 49, 1, 2, 3)))
    groups = list(groups_of(data, range(len(data)), most))
    assert [place for group in groups for place in group] == list(range(len(data)))
    assert len(groups) == {1: 3, 70: 3, 120: 2, 10_000: 1}[most]
    cut = [[one.ids for one in (part.columns for part in chunks_of(data.select(group)))] for group in groups]
    assert [list(ids) for part in cut for ids in part] == [list(part.columns.ids) for part in chunks_of(data)]


def test_parameters_learned_do_not_depend_on_what_is_remembered(monkeypatch: pytest.MonkeyPatch):
    import torch

    import foretell as ft

    program = Program.from_text(MOODS)
    data = event_data(*([["a", "b", "b", "a"] * 4] * 3), ["a"] * 40, ["b", "a"] * 12)

    def learned() -> dict[str, torch.Tensor]:
        model = ft.ANDTT(program, dim=4, seed=1)
        return ft.fit(model, data, epochs=2, batch=2, progress=False).model.state_dict()

    little = learned()
    monkeypatch.setattr(remembering, "KEPT_EVENTS", 10**6)
    monkeypatch.setattr(remembering, "GROUP_EVENTS", 10**6)
    much = learned()
    assert little.keys() == much.keys()
    assert all(torch.equal(little[name], much[name]) for name in little)
