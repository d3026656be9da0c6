"""Batches and plans made ahead by a thread change no number, are made by that thread alone, and are never many."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
import torch

import foretell as ft
from foretell.batches import rule_collator
from foretell.batches.rule_collator import RuleCollator
from foretell.train import likelihood_task
from foretell.train.ahead import AheadQueue
from tests.train.joined import data, models
from tests.train.small import same_tensors

OPTIONS = {"epochs": 3, "batch": 3, "dtype": "float64", "patience": 0, "piece": 30, "progress": False}


def ahead_threads() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == "ahead"]


@pytest.fixture
def on_this_cpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two steps ahead, as on a GPU; afterwards no thread is left."""
    monkeypatch.setattr(likelihood_task, "steps_ahead", lambda options, model: options.ahead)
    yield
    assert not ahead_threads()


def learned(name: str, **changes: object) -> dict[str, torch.Tensor]:
    return ft.fit(models()[name], data(1), data(2), **OPTIONS | changes).model.state_dict()


@pytest.mark.usefixtures("on_this_cpu")
@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("anhp", {}),
        ("nhp", {"carry_events": 4}),
        ("andtt", {}),
        ("andtt", {"points": 3, "integral": "quadrature"}),
        ("andtt", {"downsample": 2}),
        ("andtt", {"integral": "uniform"}),
        ("ndtt", {}),
        ("nhp by nce", {"objective": "nce"}),
    ],
)
def test_parameters_are_those_of_steps_that_make_their_own_batches(name: str, changes: dict):
    assert same_tensors(learned(name, **changes), learned(name, **changes, ahead=0))


@pytest.mark.usefixtures("on_this_cpu")
@pytest.mark.parametrize("name", ["andtt", "ndtt"])
@pytest.mark.parametrize("threads", [1, 2])
def test_plans_are_made_by_the_thread_alone(name: str, threads: int, monkeypatch: pytest.MonkeyPatch):
    made: list[str] = []
    planned = RuleCollator._planned

    def noted(collator: RuleCollator, *given):
        made.append(threading.current_thread().name)
        return planned(collator, *given)

    monkeypatch.setattr(RuleCollator, "_planned", noted)
    monkeypatch.setattr(rule_collator, "KEPT_SLOTS", 0)  # what is made ahead is handed over, however large it is
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        ft.fit(models()[name], data(1), **OPTIONS)
    finally:
        torch.set_num_threads(before)
    assert set(made) == {"ahead"} and len(made) >= 10


@pytest.mark.usefixtures("on_this_cpu")
def test_a_run_that_is_stopped_inside_an_epoch_leaves_no_thread_and_goes_on_with_the_same_numbers(tmp_path):
    class Stop(ft.Callback):
        def on_step(self, epoch: int, step: int, steps: int) -> None:
            self.now = (epoch, step) == (2, 2)

        def stop(self) -> bool:
            return getattr(self, "now", False)

    from foretell.train.run import RunFolder

    run = RunFolder(tmp_path)
    with pytest.raises(ft.TrainingInterrupt):
        ft.fit(models()["andtt"], data(1), data(2), run=run, callbacks=[Stop()], **OPTIONS)
    assert not ahead_threads()
    resumed = ft.fit(models()["andtt"], data(1), data(2), run=run, resume=True, **OPTIONS).model.state_dict()
    assert same_tensors(resumed, learned("andtt"))


def test_no_more_is_made_than_the_queue_holds():
    made: list[int] = []

    def make(number: int) -> str:
        made.append(number)
        return str(number)

    work = list(range(300, 340))  # not interned: each is itself
    ahead = AheadQueue(make, work, 3)
    deadline = time.monotonic() + 20.0
    while len(made) < 4 and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.3)
    assert made == work[:4]  # three wait, and one waits for room
    assert [ahead.take(one) for one in work[:10]] == [str(one) for one in work[:10]]
    ahead.close()
    assert len(made) <= 14 and not ahead_threads()


def test_an_error_is_raised_at_the_step_it_belongs_to():
    def make(number: int) -> int:
        if number == 302:
            raise ft.ForetellError("no such sequence")
        return number

    work = [300, 301, 302, 303]
    ahead = AheadQueue(make, work, 2)
    assert [ahead.take(one) for one in work[:2]] == [300, 301]
    with pytest.raises(ft.ForetellError, match="no such sequence"):
        ahead.take(work[2])
    ahead.close()
