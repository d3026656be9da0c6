"""Callbacks: they are told what the metrics say, can end a run, and cannot break its checkpoint."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

import foretell as ft
from foretell.models.classical.hawkes import Hawkes
from foretell.train.fit import TrainingInterrupt, fit
from foretell.train.label_tasks import pretrain
from foretell.train.run import RunFolder
from foretell.train.trainer import Callback
from tests.promises.test_pages import ROOT, fenced
from tests.train.small import exciting, options, same_tensors, small_model
from tests.train.test_resume import new_run, same_run, without_seconds

TRAIN, DEV = exciting(24, 0), exciting(8, 1)


class Notes(Callback):
    """Writes down all that it is told; raises an error where it is asked to."""

    def __init__(self, fail_at: tuple[str, int] | None = None, stop_after: int = 0) -> None:
        self.told: list[tuple[str, Any]] = []
        self.fail_at, self.stop_after = fail_at, stop_after

    def note(self, what: str, value: Any) -> None:
        self.told.append((what, value))
        if self.fail_at == (what, len(self.of(what))):
            raise ValueError(what)

    def of(self, what: str) -> list[Any]:
        return [value for kind, value in self.told if kind == what]

    def on_step(self, epoch: int, step: int, steps: int) -> None:
        self.note("step", (epoch, step, steps))

    def on_epoch(self, record: dict[str, Any]) -> None:
        self.note("epoch", record)

    def on_checkpoint(self, path: Path) -> None:
        self.note("checkpoint", path)

    def stop(self) -> bool:
        return 0 < self.stop_after <= len(self.of("epoch"))


def test_a_callback_is_told_every_step_and_epoch_and_checkpoint(tmp_path: Path):
    notes, run = Notes(), new_run(tmp_path / "run")
    result = fit(small_model(TRAIN), TRAIN, DEV, options(checkpoint_seconds=0.0), run=run, callbacks=[notes])
    assert notes.of("epoch") == result.records == run.metrics()
    steps = notes.of("step")
    each = steps[0][2]
    assert steps == [(epoch, step, each) for epoch in (1, 2, 3) for step in range(1, each + 1)]
    assert notes.of("checkpoint") == [run.checkpoint] * 3


def test_what_a_callback_does_to_its_record_reaches_nobody_else():
    class Vandal(Callback):
        def on_epoch(self, record: dict[str, Any]) -> None:
            record.clear()

    notes = Notes()
    result = fit(small_model(TRAIN), TRAIN, DEV, options(), callbacks=[Vandal(), notes])
    assert all("dev" in record for record in (*result.records, *notes.of("epoch")))


def test_callbacks_and_functions_are_told_the_same():
    notes, epochs, steps = Notes(), [], []
    fit(
        small_model(TRAIN),
        TRAIN,
        DEV,
        options(),
        callbacks=(one for one in [notes]),
        on_epoch=epochs.append,
        on_step=lambda *numbers: steps.append(numbers),
    )
    assert (epochs, steps) == (notes.of("epoch"), notes.of("step"))


def test_a_callback_can_stop_a_run_which_is_resumed_as_if_nothing_had_happened(tmp_path: Path):
    whole, stopped = new_run(tmp_path / "whole"), new_run(tmp_path / "stopped")
    fit(small_model(TRAIN), TRAIN, DEV, options(), run=whole)
    with pytest.raises(TrainingInterrupt):
        fit(small_model(TRAIN), TRAIN, DEV, options(), run=stopped, callbacks=[Notes(), Notes(stop_after=2)])
    assert len(stopped.metrics()) == 2
    fit(small_model(TRAIN), TRAIN, DEV, options(), run=stopped, resume=True)
    assert same_run(whole.path, stopped.path)


@pytest.mark.parametrize("fail_at", [("step", 1), ("step", 7), ("epoch", 1), ("epoch", 2), ("checkpoint", 1)])
def test_an_error_in_a_callback_reaches_the_caller_and_leaves_a_checkpoint(fail_at: tuple[str, int], tmp_path: Path):
    whole, failed = new_run(tmp_path / "whole"), new_run(tmp_path / "failed")
    chosen = options(checkpoint_seconds=0.0)
    expected = fit(small_model(TRAIN), TRAIN, DEV, chosen, run=whole)
    with pytest.raises(ValueError, match=fail_at[0]):
        fit(small_model(TRAIN), TRAIN, DEV, chosen, run=failed, callbacks=[Notes(fail_at)])
    found = fit(small_model(TRAIN), TRAIN, DEV, chosen, run=RunFolder.open(failed.path), resume=True)
    assert without_seconds(found.records) == without_seconds(expected.records)
    assert same_tensors(found.model.state_dict(), expected.model.state_dict())
    assert same_run(whole.path, failed.path)


def test_models_that_are_fitted_directly_and_other_tasks_tell_callbacks_too():
    for train in (lambda **more: fit(Hawkes(TRAIN.vocabulary), TRAIN, DEV, options(), **more), _pretrained):
        notes = Notes()
        assert notes.of("epoch") == [] and train(callbacks=[notes]).records == notes.of("epoch") != []
        with pytest.raises(TrainingInterrupt):
            train(callbacks=[Notes(stop_after=1)])


def _pretrained(**more: Any) -> Any:
    return pretrain(small_model(TRAIN), TRAIN, DEV, options(), **more)


def test_the_example_of_the_guide_runs_and_stops_after_two_epochs(capsys: pytest.CaptureFixture[str]):
    (example,) = [block for block in fenced(ROOT / "docs/guide/training.md", "python") if "ft.Callback" in block]
    names: dict[str, Any] = {}
    exec(compile(example, "training.md", "exec"), names)
    assert "stopped after 2 epochs" in capsys.readouterr().out
    assert len(names["dev"].scores) == 2 and issubclass(names["DevScores"], ft.Callback)


def test_the_old_name_of_an_interrupted_run_still_works():
    with pytest.warns(DeprecationWarning, match="TrainingInterrupt"):
        assert importlib.import_module("foretell.train.fit").Interrupted is TrainingInterrupt is ft.TrainingInterrupt
