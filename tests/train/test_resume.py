"""A run that was stopped, however, and resumed ends where an undisturbed one ends, bit for bit."""

from __future__ import annotations

import json
import random
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from foretell.data import load
from foretell.train import likelihood_task as training
from foretell.train.config import make_config
from foretell.train.fit import TrainingInterrupt, fit
from foretell.train.run import RunFolder
from tests.cli.invoking import Outcome, fine, finished, foretell, process
from tests.train.small import exciting, folder_of, options, same_tensors, small_model

TRAIN, DEV = exciting(24, 0), exciting(8, 1)
SECONDS = ("train_seconds", "dev_seconds")


def without_seconds(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in record.items() if key not in SECONDS} for record in records]


def same_run(one: Path, two: Path) -> bool:
    """The same metrics, model and optimiser, down to the last bit; only clocks may differ."""
    metrics = [without_seconds(RunFolder.open(path).metrics()) for path in (one, two)]
    tensors = [load_file(path / "checkpoint.safetensors") for path in (one, two)]
    models = [(path / "model.safetensors").read_bytes() for path in (one, two)]
    return metrics[0] == metrics[1] and models[0] == models[1] and same_tensors(tensors[0], tensors[1])


def new_run(path: Path) -> RunFolder:
    return RunFolder.create(path, make_config({}))


class StopAfter:
    """Says stop at the n-th time it is asked."""

    def __init__(self, asked: int) -> None:
        self.left = asked

    def __call__(self) -> bool:
        self.left -= 1
        return self.left == 0


@pytest.mark.parametrize("integral", ["stratified", "uniform"])
@pytest.mark.parametrize("asked", [1, 3, 5, 7, 12])  # five or so batches an epoch, and one question at its end
def test_stopping_anywhere_and_resuming_changes_nothing(asked: int, integral: str, tmp_path: Path):
    chosen = options(epochs=4, cool=1, integral=integral)

    def make():
        return small_model(TRAIN, dropout=0.2)

    undisturbed, disturbed = new_run(tmp_path / "one"), new_run(tmp_path / "two")
    expected = fit(make(), TRAIN, DEV, chosen, run=undisturbed)
    with pytest.raises(TrainingInterrupt):
        fit(make(), TRAIN, DEV, chosen, run=disturbed, stop=StopAfter(asked))
    found = fit(make(), TRAIN, DEV, chosen, run=disturbed, resume=True)
    assert without_seconds(found.records) == without_seconds(expected.records)
    assert same_tensors(found.model.state_dict(), expected.model.state_dict())
    assert same_run(undisturbed.path, disturbed.path)


@pytest.mark.parametrize("asked", [8, 14])
def test_a_learning_rate_that_was_halved_stays_halved_when_a_run_is_resumed(
    asked: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(
        training, "mean_log_likelihood", lambda *_, **more: -1.0
    )  # never better than in the first epoch
    chosen = options(epochs=5, cool=1, patience=0, lr=0.01)
    undisturbed, disturbed = new_run(tmp_path / "one"), new_run(tmp_path / "two")
    expected = fit(small_model(TRAIN), TRAIN, DEV, chosen, run=undisturbed)
    assert [record["lr"] for record in expected.records] == [0.01, 0.01, 0.005, 0.0025, 0.00125]
    with pytest.raises(TrainingInterrupt):
        fit(small_model(TRAIN), TRAIN, DEV, chosen, run=disturbed, stop=StopAfter(asked))
    fit(small_model(TRAIN), TRAIN, DEV, chosen, run=disturbed, resume=True)
    assert same_run(undisturbed.path, disturbed.path)


def test_stopping_after_every_single_step_changes_nothing(tmp_path: Path):
    expected = fit(small_model(TRAIN), TRAIN, DEV, options(epochs=2))
    run, found = new_run(tmp_path / "run"), None
    for attempt in range(50):
        try:
            found = fit(
                small_model(TRAIN), TRAIN, DEV, options(epochs=2), run=run, resume=attempt > 0, stop=StopAfter(1)
            )
            break
        except TrainingInterrupt:
            continue
    assert found is not None
    assert same_tensors(found.model.state_dict(), expected.model.state_dict())


def test_resuming_a_finished_run_changes_nothing(tmp_path: Path):
    run = new_run(tmp_path / "run")
    expected = fit(small_model(TRAIN), TRAIN, DEV, options(), run=run)
    before = {path.name: path.read_bytes() for path in run.path.iterdir()}
    found = fit(small_model(TRAIN), TRAIN, DEV, options(), run=run, resume=True)
    assert found.records == expected.records and found.best == expected.best
    assert {path.name: path.read_bytes() for path in run.path.iterdir()} == before


# Through the command line, in a process of its own

SETTINGS = """
[data]
path = {data}
[model]
dim = 4
dropout = 0.1
[train]
epochs = 12
batch = 2
lr = 0.005
patience = 0
cool = 3
checkpoint_seconds = 0.0
"""


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("resume")
    path = folder / "run.toml"
    path.write_text(SETTINGS.format(data=json.dumps(str(folder_of(folder / "bursts", sequences=40)))))
    return path


@pytest.fixture(scope="module")
def undisturbed(config: Path) -> Path:
    path = config.parent / "undisturbed"
    fine("train", config, "--out", path, "--quiet")
    return path


def begun(config: Path, run: Path, epoch: int):
    """A training process that has just finished an epoch."""
    child = process("train", config, "--out", run)
    assert child.stderr is not None
    for line in child.stderr:
        if line.startswith(f"epoch {epoch:4d}"):
            return child
    raise AssertionError(finished(child))


def resumed(run: Path) -> Outcome:
    outcome = finished(process("train", "--resume", run, "--quiet"))
    assert outcome.code == 0, outcome
    return outcome


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_ctrl_c_ends_with_130_and_resuming_gives_the_undisturbed_run(
    number: signal.Signals, config: Path, undisturbed: Path, tmp_path: Path
):
    child = begun(config, tmp_path / "run", 2)
    child.send_signal(number)
    outcome = finished(child)
    assert outcome.code == 130
    assert outcome.out == ""
    assert f"interrupted; continue with: foretell train --resume {tmp_path / 'run'}" in outcome.err
    assert len(RunFolder.open(tmp_path / "run").metrics()) < 12
    assert f"run: {tmp_path / 'run'}" in resumed(tmp_path / "run").out
    assert same_run(undisturbed, tmp_path / "run")


def test_killing_twice_at_any_moment_and_resuming_gives_the_undisturbed_run(
    config: Path, undisturbed: Path, tmp_path: Path
):
    run = tmp_path / "run"
    child = begun(config, run, 1)
    time.sleep(random.Random(time.time_ns()).uniform(0.0, 0.1))  # any moment will do: the claim is about all of them
    child.kill()
    assert finished(child).code == -signal.SIGKILL
    child = process("train", "--resume", run)
    assert child.stderr is not None
    child.stderr.readline()
    child.kill()
    finished(child)
    (run / ".checkpoint.safetensors.left.part").write_bytes(b"half a checkpoint")
    fine("train", "--resume", run, "--quiet")
    assert same_run(undisturbed, run)
    assert not list(run.glob(".*")), "what the killed process had begun is gone"


def test_a_run_killed_before_its_first_checkpoint_begins_again(config: Path, undisturbed: Path, tmp_path: Path):
    run = tmp_path / "run"
    run.mkdir()
    for name in ("config.toml", "environment.json"):
        shutil.copy(undisturbed / name, run)
    fine("train", "--resume", run, "--quiet")
    assert same_run(undisturbed, run)


def test_a_folder_killed_before_its_configuration_was_written_is_no_run_and_may_be_used(
    config: Path, undisturbed: Path, tmp_path: Path
):
    run = tmp_path / "run"
    run.mkdir()
    shutil.copy(undisturbed / "environment.json", run)
    assert "no run folder" in foretell("train", "--resume", run).err
    fine("train", config, "--out", run, "--quiet")


def test_resume_takes_nothing_beside_it(undisturbed: Path):
    for more in (
        ["--set", "train.patience=3"],
        ["--seed", "1"],
        ["--set", "train.lr=1"],
        ["--out", "x"],
        ["--data", "robocup"],
    ):
        outcome = foretell("train", "--resume", undisturbed, *more)
        assert outcome.code == 1 and "give nothing else with it" in outcome.err


def test_the_data_set_of_a_run_is_read_from_its_own_configuration(undisturbed: Path, config: Path):
    assert RunFolder.open(undisturbed).config().data.path == str(config.parent / "bursts")
    assert load(RunFolder.open(undisturbed).config().data.path).train is not None
