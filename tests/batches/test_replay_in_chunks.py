"""Sequences replayed in chunks, in processes or from disk give a store the numbering and timelines that they get one after another."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from foretell.batches.timelines import Histories
from foretell.data import EventData
from foretell.ground import replay as replaying
from foretell.ground.timeline import Timeline
from foretell.lang.program import Program
from foretell.plan.parameters import DimensionLayout
from tests.ground.random_programs import random_case
from tests.ground.test_cache import PROGRAM, _data
from tests.ground.timelines import event_data

LISTS = ("functors", "constants", "keys", "rule", "group", "head", "body", "groups")
ARRAYS = ("times", "events", "possible_events", "holds", "proofs", "additions", "removals")


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FORETELL_CACHE", str(tmp_path))
    monkeypatch.setattr(replaying, "CHUNK_EVENTS", 3)


def store(program: Program) -> Histories:
    return Histories(program, DimensionLayout(program, 4))


def timelines(made: Histories, data: EventData) -> list[Timeline]:
    return [made.timeline(data.vocabulary, one)[1] for one in data]


def assert_same(one: Histories, other: Histories, data: EventData) -> None:
    for a, b in zip(timelines(one, data), timelines(other, data), strict=True):
        for name in ARRAYS:
            np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)
    for name in LISTS:
        assert list(getattr(one.grounding, name)) == list(getattr(other.grounding, name)), name


@pytest.mark.parametrize("seed", range(40))
def test_chunks_of_random_programs_are_numbered_as_sequences_in_turn(seed: int):
    case = random_case(seed)
    cut = len(case.events)
    data = event_data(*(case.events[:n] for n in sorted({cut, cut // 2, cut // 3}) if n))
    in_chunks, in_turn = store(case.program), store(case.program)
    in_chunks.replay(data, workers=1)
    timelines(in_turn, data)
    assert_same(in_chunks, in_turn, data)


@pytest.mark.parametrize("workers", [1, 2])
def test_processes_and_files_give_the_same_numbers_and_the_engine_goes_on_from_there(
    workers: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(replaying, "CHUNK_EVENTS", 50)
    program, data = Program.from_text(PROGRAM), _data(8)
    train, later = data.select(range(6)), data.select([6, 7])
    in_turn = store(program)
    timelines(in_turn, train)
    for _ in range(2):  # the second time from disk
        in_chunks = store(program)
        in_chunks.replay(train, workers=workers)
        assert_same(in_chunks, in_turn, train)
    assert_same(in_chunks, in_turn, later)


def test_equal_sequences_are_replayed_once(monkeypatch: pytest.MonkeyPatch):
    program, data = Program.from_text(PROGRAM), _data(2)
    both = EventData([data[0], data[0], data[1]], data.vocabulary)
    made = store(program)
    seen: list[int] = []
    whole = replaying.replay_chunk
    monkeypatch.setattr(
        replaying,
        "replay_chunk",
        lambda engine, part, options: (seen.append(len(part)), whole(engine, part, options))[1],
    )
    made.replay(both)
    made.replay(both)
    assert seen == [1, 1]
