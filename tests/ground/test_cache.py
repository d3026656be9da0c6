"""Replays shared out over processes and kept on disk are the replays that one process makes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from foretell.ground import replay as replaying
from foretell.ground.replay import Replay, replay
from foretell.lang.program import Program
from tests.ground.random_programs import random_case
from tests.ground.timelines import event_data

PROGRAM = """
:- exogenous(link). :- exogenous(cut).
edge(X,Y) <- link(X,Y).
!edge(X,Y) <- cut(X,Y).
reach(X,Y) :- edge(X,Y) :: w(X).
reach(X,Z) :- reach(X,Y), edge(Y,Z).
"""


def _data(sequences: int = 6, length: int = 40):
    nodes = [f"n{i}" for i in range(7)]
    made = []
    for number in range(sequences):
        draw = np.random.default_rng(number)
        made.append(
            [
                f"{draw.choice(['link', 'link', 'cut'])}({draw.choice(nodes)},{draw.choice(nodes)})"
                for _ in range(length)
            ]
        )
    return event_data(*made)


def _same(one: Replay, other: Replay) -> None:
    assert len(one.timelines) == len(other.timelines)
    assert one.impossible == other.impossible
    for a, b in zip(one.timelines, other.timelines, strict=True):
        assert a.sequence == b.sequence
        for name in ("times", "events", "possible_events", "holds", "proofs", "additions", "removals"):
            np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)
        for name in ("functors", "constants", "keys", "rule", "group", "head", "body", "groups"):
            assert list(getattr(a.grounding, name)) == list(getattr(b.grounding, name)), name


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replaying, "CHUNK_EVENTS", 50)


@pytest.mark.usefixtures("small_chunks")
def test_processes_and_cache_give_the_same_numbers(tmp_path: Path) -> None:
    program, data = Program.from_text(PROGRAM), _data()
    alone = replay(program, data)
    _same(alone, replay(program, data, workers=2))
    _same(alone, replay(program, data, cache=tmp_path))
    assert len(list((tmp_path / "timelines").glob("*.npz"))) == 3
    _same(alone, replay(program, data, cache=tmp_path))


@pytest.mark.parametrize("seed", range(20))
def test_a_kept_replay_of_a_random_program_is_what_it_was(seed: int, tmp_path: Path) -> None:
    case = random_case(seed)
    data = event_data(case.events, case.events[:3])
    first = replay(case.program, data, cache=tmp_path)
    _same(first, replay(case.program, data, cache=tmp_path))
    _same(first, replay(case.program, data))


def test_an_edited_program_never_meets_the_old_replay(tmp_path: Path) -> None:
    data = _data(1)
    before = replay(Program.from_text(PROGRAM), data, cache=tmp_path)
    edited = PROGRAM.replace("!edge(X,Y) <- cut(X,Y).", "!edge(X,Y) <- cut(Y,X).")
    after = replay(Program.from_text(edited), data, cache=tmp_path)
    assert before.timelines[0].holds.tolist() != after.timelines[0].holds.tolist()
    _same(after, replay(Program.from_text(edited), data))
    relaid = "% a comment\n" + PROGRAM.replace("\n", "\n\n")
    count = len(list((tmp_path / "timelines").iterdir()))
    replay(Program.from_text(relaid), data, cache=tmp_path)
    assert len(list((tmp_path / "timelines").iterdir())) == count, "layout changes nothing"


def test_the_order_of_declarations_changes_no_replay(tmp_path: Path) -> None:
    first = ":- embed(red, 8).\n:- embed(blue, 4).\n:- exogenous(x).\n:- exogenous(y).\n"
    rules = "red(X) <- x(X).\nblue(X) <- x(X), red(X).\nblue(X) <- y(X).\n"
    data = event_data(["x(a)", "x(b)", "y(c)"])
    orders = [first, "".join(reversed(first.splitlines(keepends=True)))]
    facts = []
    for declared in orders:
        timeline = replay(Program.from_text(declared + rules), data, cache=tmp_path).timelines[0]
        facts.append(sorted(timeline.grounding.text(fact) for fact in timeline.facts_at(4)))
    assert facts[0] == facts[1] == ["blue(c)", "red(a)", "red(b)"]


def test_a_damaged_file_is_replayed_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    program, data = Program.from_text(PROGRAM), _data(2)
    first = replay(program, data, cache=tmp_path)
    (kept,) = (tmp_path / "timelines").glob("*.npz")
    for damage in (kept.read_bytes()[:100], b"", b"not a zip", os.urandom(500)):
        kept.write_bytes(damage)
        _same(first, replay(program, data, cache=tmp_path))
        assert "replayed again" in caplog.text
        caplog.clear()


def test_a_cache_that_cannot_be_written_costs_only_time(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    program, data = Program.from_text(PROGRAM), _data(2)
    _same(replay(program, data), replay(program, data, cache=blocked))
    assert "could not be kept" in caplog.text


def _replay_into(folder: str) -> None:
    replay(Program.from_text(PROGRAM), _data(2), cache=Path(folder))


def test_runs_at_the_same_time_leave_one_whole_file(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    runs = [context.Process(target=_replay_into, args=(str(tmp_path),)) for _ in range(3)]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
        assert run.exitcode == 0
    assert [path.suffix for path in (tmp_path / "timelines").iterdir()] == [".npz"]
    _same(replay(Program.from_text(PROGRAM), _data(2)), replay(Program.from_text(PROGRAM), _data(2), cache=tmp_path))


def test_a_kill_in_the_middle_of_writing_leaves_nothing_that_is_read(tmp_path: Path) -> None:
    code = (
        "import sys, time\nfrom pathlib import Path\nimport numpy as np\n"
        "from foretell.ground import replay\nfrom tests.ground.test_cache import _replay_into\n"
        "whole = np.savez\n"
        "def slowly(file, **arrays):\n"
        "    whole(file, **arrays); file.flush(); print('written', flush=True); time.sleep(60)\n"
        "np.savez = slowly\n"
        f"_replay_into({str(tmp_path)!r})\n"
    )
    run = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=Path(__file__).parents[2])
    assert run.stdout is not None
    assert run.stdout.readline().strip() == b"written"
    run.send_signal(signal.SIGKILL)
    run.wait()
    time.sleep(0.01)
    assert not list((tmp_path / "timelines").glob("*.npz"))
    _replay_into(str(tmp_path))
    assert len(list((tmp_path / "timelines").glob("*.npz"))) == 1
