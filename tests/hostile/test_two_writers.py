"""A run folder has one writer at a time, and a study may be made by two commands at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from foretell.errors import ForetellError
from foretell.train.config import make_config
from foretell.train.file_lock import FileLock
from foretell.train.fit import TrainingInterrupt, fit
from foretell.train.run import LOCK, RunFolder
from tests.cli.invoking import fine, finished, process, refused
from tests.train.small import exciting, options, small_model

DATA = exciting(6, 0)


def test_a_lock_is_held_by_one_and_taken_over_from_the_dead(tmp_path: Path):
    path = tmp_path / "new" / LOCK
    first, second = FileLock(path), FileLock(path)
    assert first.try_acquire() and first.try_acquire() and not second.try_acquire()
    assert str(os.getpid()) in second.holder()
    first.release()
    assert not second.try_acquire()
    first.release()
    assert second.try_acquire() and not first.try_acquire()
    second.release()
    assert not path.exists()
    path.write_text("process 1 on nowhere\n")  # of somebody who is gone
    assert first.try_acquire()
    first.release()


def test_a_lock_ends_with_a_killed_process(tmp_path: Path):
    code = (
        "import sys, time; from pathlib import Path; from foretell.train.file_lock import FileLock\n"
        "lock = FileLock(Path(sys.argv[1])); print(lock.try_acquire(), flush=True); time.sleep(60)"
    )
    child = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / LOCK)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None and child.stdout.readline() == "True\n"
    mine = FileLock(tmp_path / LOCK)
    assert not mine.try_acquire()
    child.kill()
    child.wait()
    assert (tmp_path / LOCK).exists() and mine.acquire(5.0)
    mine.release()


def test_a_folder_is_claimed_until_its_training_ends(tmp_path: Path):
    run = RunFolder.create(tmp_path / "run", make_config({}))
    with pytest.raises(ForetellError, match="being written by process"):
        RunFolder.create(tmp_path / "run", make_config({}))
    fit(small_model(DATA), DATA, DATA, options(batch=2), run=run)
    assert not (run.path / LOCK).exists()
    with pytest.raises(ForetellError, match="there is a run in this folder already"):
        RunFolder.create(tmp_path / "run", make_config({}))
    assert not (run.path / LOCK).exists()


def test_a_second_resume_is_refused_while_the_first_one_writes(tmp_path: Path):
    run = RunFolder.create(tmp_path / "run", make_config({}))
    with pytest.raises(TrainingInterrupt):
        fit(small_model(DATA), DATA, DATA, options(batch=2), run=run, stop=lambda: True)
    refusals = []

    def resume_too(epoch: int, step: int, steps: int) -> None:
        with pytest.raises(ForetellError, match="being written by process") as caught:
            fit(small_model(DATA), DATA, DATA, options(batch=2), run=RunFolder.open(run.path), resume=True)
        refusals.append(caught.value)

    fit(small_model(DATA), DATA, DATA, options(batch=2), run=run, resume=True, on_step=resume_too)
    assert refusals
    fit(small_model(DATA), DATA, DATA, options(batch=2), run=RunFolder.open(run.path), resume=True)


def test_a_run_that_came_to_nothing_leaves_nothing(tmp_path: Path):
    run = RunFolder.create(tmp_path / "run", make_config({}))
    run.discard()
    assert not run.path.exists()
    RunFolder.create(tmp_path / "run", make_config({})).discard()


TRAIN = ("train", "--data", "robocup", "--model", "anhp", "--dim", "4", "--epochs", "1", "--quiet", "--json")


@pytest.mark.slow
def test_of_trainings_into_one_new_folder_one_goes_on_and_the_others_are_refused(tmp_path: Path):
    for attempt in range(5):
        folder = tmp_path / str(attempt)
        children = [process(*TRAIN, "--out", folder, "--set", f"train.seed={seed}") for seed in range(3)]
        outcomes = [finished(one) for one in children]
        assert sorted(one.code for one in outcomes) == [0, 1, 1], outcomes
        assert all("this folder" in one.err or "being written" in one.err for one in outcomes if one.code)
        fine("evaluate", folder, "--no-times", "--quiet")


@pytest.mark.slow
def test_two_searches_that_make_one_study_at_the_same_moment_both_work(tmp_path: Path):
    pytest.importorskip("optuna")
    config = tmp_path / "space.toml"
    config.write_text('[data]\npath = "robocup"\n[model]\nkind = "anhp"\ndim = [2, 4]\n[train]\nepochs = 1\n')
    for attempt in range(3):
        out = tmp_path / str(attempt)
        children = [process("tune", config, "--out", out, "--storage", "sqlite", "--quiet", "--json") for _ in range(2)]
        outcomes = [finished(one) for one in children]
        assert [one.code for one in outcomes] == [0, 0], outcomes
        settings = [
            json.loads(line)["setting"]["model.dim"] for line in (out / "trials.jsonl").read_text().splitlines()
        ]
        assert sorted(settings) == [2, 4]


def test_a_resumed_run_is_refused_on_the_command_line_while_it_is_written(tmp_path: Path):
    fine(*TRAIN[:-3], "1", "--quiet", "--out", tmp_path / "run")
    run = RunFolder.open(tmp_path / "run")
    with run.writing():
        assert "being written" in refused("train", "--resume", run.path)
