"""The trainer's decisions, from scores that are made up: which epoch is kept, when it stops, when the learning rate falls."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch
from torch import nn

from foretell.errors import ForetellError
from foretell.train.adam import Adam
from foretell.train.trainer import WARM_UP, Callback, StepLoss, TaskScore, Trainer, TrainingInterrupt, cosine
from tests.samples import event_data
from tests.train.small import options

DATA = event_data([([1.0], [0])] * 7)  # in batches of 3: three steps per epoch


class Counter(nn.Module):
    """Its parameter is the number of steps that were made."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = nn.Parameter(torch.zeros(()))
        self.noise, self.device = object(), torch.device("cpu")


class Scripted:
    """A task whose score after each epoch is given."""

    def __init__(self, scores: list[float], losses: tuple[float, ...] = ()) -> None:
        self.model = Counter()
        self.adam = Adam(self.model.parameters(), 1.0, 0.0, 0.0, torch.device("cpu"))
        self.scores, self.losses, self.rates, self.sizes = scores, losses, [], []

    def step(self, indices, number: int) -> StepLoss:
        with torch.no_grad():
            self.model.steps += 1.0
        self.rates.append(self.adam.optimizer.param_groups[0]["lr"])
        self.sizes.append(len(indices))
        loss = self.losses[number] if self.losses else float(number)
        return StepLoss(torch.tensor(loss, dtype=torch.float64), count=len(indices))

    def looking_ahead(self, order, first: int):
        return contextlib.nullcontext()

    def score(self, data) -> TaskScore:
        return TaskScore(self.scores[max(int(self.model.steps.item()) // 3 - 1, 0)], {"more": 1.0})

    def train_metrics(self, mean: float, progress, dev) -> dict[str, Any]:
        return {"train": mean}


def trained(scores: list[float], dev: bool = True, losses: tuple[float, ...] = (), **changes: Any):
    task = Scripted(scores, losses)
    made = options(**{"epochs": len(scores), "batch": 3, "lr": 1.0, "patience": 0, "cool": 0, **changes})
    return task, Trainer(task, DATA, DATA if dev else None, made, Callback()).run()


def test_the_best_epoch_on_dev_is_kept_and_of_equals_the_first():
    task, found = trained([-3.0, -1.0, -2.0, -1.0])
    assert (found.best, found.best_epoch) == (-1.0, 2)
    assert float(task.model.steps.detach()) == 6.0  # of the second epoch, though four were trained
    assert [one["best_epoch"] for one in found.records] == [1, 2, 2, 2] and [
        one["dev"] for one in found.records
    ] == task.scores
    assert (
        [one["step"] for one in found.records] == [3, 6, 9, 12] and not task.model.training and task.model.noise is None
    )


@pytest.mark.parametrize(("patience", "epochs"), [(0, 6), (1, 3), (2, 4), (3, 5), (9, 6)])
def test_training_stops_after_patience_epochs_without_a_better_score(patience, epochs):
    _, found = trained([-3.0, -1.0, -2.0, -2.0, -2.0, -2.0], patience=patience)
    assert len(found.records) == epochs and found.best_epoch == 2


def test_a_better_score_resets_the_patience():
    _, found = trained([-3.0, -4.0, -2.0, -4.0, -1.0, -4.0, -4.0, 0.0], patience=2)
    assert len(found.records) == 7 and found.best_epoch == 5


def test_the_learning_rate_is_halved_after_cool_epochs_and_again_after_as_many():
    task, found = trained([-1.0, -2.0, -2.0, -2.0, -2.0, 0.0, -2.0, -2.0], cool=2)
    assert [one["lr"] for one in found.records] == [1.0, 1.0, 1.0, 0.5, 0.5, 0.25, 0.25, 0.25]
    assert task.rates[::3] == [1.0, 1.0, 1.0, 0.5, 0.5, 0.25, 0.25, 0.25]
    assert {one["lr"] for one in trained([-1.0, -2.0, -2.0, -2.0])[1].records} == {1.0}


def test_without_dev_the_score_on_train_decides():
    """The mean is over the events of the epoch, and the sign that of a log-likelihood."""
    losses = (14.0, 7.0, 7.0, 7.0, 0.0, 7.0, 21.0, 21.0, 0.0)
    _, found = trained([0.0] * 3, dev=False, losses=losses)
    assert [one["train"] for one in found.records] == pytest.approx([-28 / 7, -14 / 7, -42 / 7])
    assert found.best_epoch == 2 and found.records[0]["dev"] is None and found.best == pytest.approx(-2.0)


def test_an_epoch_that_was_interrupted_goes_on_with_what_it_had():
    """One step of three is done, with a loss of 7 over three sequences: the two others add 7 and 0."""
    task = Scripted([0.0], losses=(99.0, 7.0, 0.0))
    trainer = Trainer(task, DATA, DATA, options(epochs=1, batch=3, lr=1.0), Callback())
    trainer.progress.epoch_loss, trainer.progress.epoch_events = 7.0, 3
    trainer.progress.step_in_epoch, trainer.progress.step, trainer.progress.states = 1, 1, 10
    (record,) = trainer.run().records
    assert record["step"] == 3 and record["train"] == pytest.approx(-14.0 / (3 + trained_sequences(task)))
    assert trainer.progress.states == 10 and trainer.progress.intensities == 0


def trained_sequences(task: Scripted) -> int:
    return sum(task.sizes)


def test_numbers_that_are_none_end_a_run_with_their_epoch():
    with pytest.raises(ForetellError, match=r"the loss is inf in epoch 2; lower train.lr \(now 1\)"):
        trained([0.0] * 2, losses=(0.0,) * 5 + (float("inf"),))
    with pytest.raises(ForetellError, match="is not a number in epoch 2"):
        trained([0.0, float("nan")])


def test_the_cosine_schedule_warms_up_and_falls_to_nothing():
    steps = 1000
    values = [cosine(step, steps) for step in range(steps)]
    up = int(WARM_UP * steps)
    assert values[0] == pytest.approx(1.0 / (up + 1)) and values[up] == pytest.approx(1.0, abs=2e-3)
    assert values[500] == pytest.approx(0.5) and values[-1] < 1e-5
    assert values[up // 2] == pytest.approx((up // 2 + 1) / (up + 1), rel=1e-3)
    assert all(one > other for one, other in zip(values[up:], values[up + 1 :], strict=False))
    task, found = trained([-1.0, -2.0], schedule="cosine")
    assert task.rates == pytest.approx([cosine(step, 6) for step in range(6)])
    assert [one["lr"] for one in found.records] == pytest.approx([cosine(2, 6), cosine(5, 6)])


def test_a_run_that_is_stopped_is_interrupted_after_the_step_it_was_at():
    class Stopping(Callback):
        steps = 0

        def on_step(self, epoch: int, step: int, steps: int) -> None:
            self.steps += 1
            assert (epoch, step, steps) == ((self.steps - 1) // 3 + 1, (self.steps - 1) % 3 + 1, 3)

        def stop(self) -> bool:
            return self.steps == 5

    task = Scripted([0.0] * 9)
    with pytest.raises(TrainingInterrupt):
        Trainer(task, DATA, DATA, options(epochs=9, batch=3, patience=0), Stopping()).run()
    assert float(task.model.steps.detach()) == 5.0
