"""The first SIGTERM ends a long step and a long score, too; what is resumed from there is the undisturbed run, bit for bit."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from foretell.batches.batch import Batch
from foretell.cli.step_progress import StepProgress
from foretell.models.attention.anhp import ANHP
from foretell.train import interrupting
from foretell.train import likelihood_task as training
from foretell.train.config import make_config
from foretell.train.fit import TrainingInterrupt, fit
from foretell.train.interrupting import interruptible, stopping
from foretell.train.run import RunFolder
from tests.train.small import exciting, options, small_model
from tests.train.test_resume import same_run, without_seconds

TRAIN, DEV = exciting(24, 0), exciting(8, 1)
ENDLESS = 60.0


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupting, "GRACE", 0.05)


def undisturbed(path: Path) -> RunFolder:
    run = RunFolder.create(path, make_config({}))
    fit(small_model(TRAIN), TRAIN, DEV, options(), run=run)
    return run


def resumed_equals(run: RunFolder, whole: RunFolder) -> None:
    found = fit(small_model(TRAIN), TRAIN, DEV, options(), run=run, resume=True)
    assert without_seconds(found.records) == without_seconds(whole.metrics())
    assert same_run(run.path, whole.path)


def wait_for_ever() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    until = time.monotonic() + ENDLESS
    while time.monotonic() < until:
        time.sleep(0.005)
    raise AssertionError("the signal was not heard")


@pytest.mark.parametrize("at", [1, 4, 9])
def test_a_signal_inside_a_step(at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    encode, left = ANHP.encode, {"steps": at}

    def slow(model: ANHP, batch: Batch) -> Any:
        left["steps"] -= model.training
        if left["steps"] == 0:
            wait_for_ever()
        return encode(model, batch)

    run = RunFolder.create(tmp_path / "two", make_config({}))
    monkeypatch.setattr(ANHP, "encode", slow)
    with stopping() as asked, pytest.raises(TrainingInterrupt):
        fit(small_model(TRAIN), TRAIN, DEV, options(), run=run, stop=lambda: asked["stop"])
    monkeypatch.undo()
    resumed_equals(run, undisturbed(tmp_path / "one"))


def test_a_signal_inside_the_score_of_an_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    scored, left = training.mean_log_likelihood, {"scores": 2}

    def slow(*given: Any, **more: Any) -> float:
        left["scores"] -= 1
        if left["scores"] == 0:
            wait_for_ever()
        return scored(*given, **more)

    run = RunFolder.create(tmp_path / "two", make_config({}))
    monkeypatch.setattr(training, "mean_log_likelihood", slow)
    with stopping() as asked, pytest.raises(TrainingInterrupt):
        fit(small_model(TRAIN), TRAIN, DEV, options(), run=run, stop=lambda: asked["stop"])
    monkeypatch.undo()
    assert len(run.metrics()) == 1
    resumed_equals(run, undisturbed(tmp_path / "one"))


def test_nothing_is_left_elsewhere_and_handlers_are_put_back():
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGALRM)]
    with stopping() as asked:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.2)
        assert asked["stop"]
        with pytest.raises(TrainingInterrupt), interruptible():
            time.sleep(ENDLESS)
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGALRM)] == before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_several_processes_wait_for_the_end_of_the_step():
    with stopping(patient=True) as asked, interruptible():
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.15)
        assert asked["stop"]


def test_a_long_step_is_told_twice_as_late_each_time():
    told: list[str] = []
    watch = StepProgress(told.append, first=0.04)
    watch.passed(2, 3, 10)

    def until(count: int) -> None:
        while len(told) < count:
            time.sleep(0.002)
        watch.over.set()

    import threading

    watcher = threading.Thread(target=watch.watch)
    watcher.start()
    until(3)
    watcher.join()
    assert all(one.startswith("epoch 2: step 4 of 10 has taken") for one in told)
    assert watch.next >= 8 * 0.04
