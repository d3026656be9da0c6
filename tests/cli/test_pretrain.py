"""`foretell pretrain`, and `train --init` from what it leaves."""

from __future__ import annotations

import json
import shutil
import signal
import time
from pathlib import Path

import pytest
from safetensors.torch import load_file

from foretell.models.attention.anhp import AnhpOptions
from foretell.models.task_heads import MaskedANHP
from foretell.train.config import PretrainOptions
from foretell.train.run import RunFolder
from tests.cli.invoking import fine, finished, process, refused
from tests.train.test_resume import same_run

SMALL = "--dim", 4, "--layers", 1, "--epochs", 2, "--set", "model.shortest_wave=0.5"


@pytest.fixture(scope="module")
def pretrained(bursts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("pretrained") / "run"
    fine("pretrain", "--data", bursts, *SMALL, "--mask", 0.3, "--drop", 0.2, "--out", run, "--quiet")
    return run


def test_a_pretraining_run_explains_itself(pretrained: Path):
    run = RunFolder.open(pretrained)
    assert run.config().task == PretrainOptions(mask=0.3, drop=0.2)
    assert [set(record) >= {"train", "dev", "dev_accuracy"} for record in run.metrics()] == [True, True]
    assert isinstance(run.network(), MaskedANHP)
    assert {"weight", "level", "base"} < set(load_file(pretrained / "model.safetensors"))
    for name in ("environment.json", "checkpoint.safetensors"):
        assert (pretrained / name).exists()


def test_the_summary_says_what_was_reached(bursts: Path, tmp_path: Path):
    found = fine("pretrain", "--data", bursts, *SMALL, "--out", tmp_path / "run", "--json", "--quiet").json
    records = RunFolder.open(tmp_path / "run").metrics()
    assert found["task"] == "pretrain" and found["judged_on"] == "dev" and found["epochs"] == 2
    assert found["best"] == max(record["dev"] for record in records)
    assert found["accuracy"] == records[found["best_epoch"] - 1]["dev_accuracy"]


def test_a_configuration_for_training_serves_for_pretraining_too(bursts: Path, pretrained: Path, tmp_path: Path):
    path = tmp_path / "run.toml"
    path.write_text(
        f"[data]\npath = {json.dumps(str(bursts))}\n[model]\ndim = 4\nlayers = 1\nshortest_wave = 0.5\n[train]\nepochs = 2\n"
    )
    fine("pretrain", path, "--mask", 0.3, "--drop", 0.2, "--out", tmp_path / "one", "--quiet")
    assert (tmp_path / "one" / "model.safetensors").read_bytes() == (pretrained / "model.safetensors").read_bytes()
    fine(
        "train", pretrained / "config.toml", "--out", tmp_path / "two", "--quiet"
    )  # its own configuration says what it is
    assert (tmp_path / "two" / "model.safetensors").read_bytes() == (pretrained / "model.safetensors").read_bytes()


def test_ctrl_c_leaves_a_checkpoint_that_resume_continues_bit_for_bit(bursts: Path, tmp_path: Path):
    options = "--data", bursts, "--dim", 4, "--layers", 1, "--patience", 0, "--set", "model.dropout=0.2"
    stopped = tmp_path / "stopped"
    child = process("pretrain", *options, "--epochs", 10_000, "--out", stopped)
    while not (stopped / "model.safetensors").exists() and child.poll() is None:
        time.sleep(0.02)
    child.send_signal(signal.SIGINT)
    outcome = finished(child)
    assert outcome.code == 130 and f"--resume {stopped}" in outcome.err
    epochs = RunFolder.open(stopped).metrics()[-1]["epoch"] + 2
    config = stopped / "config.toml"
    config.write_text(config.read_text().replace("epochs = 10000", f"epochs = {epochs}"))
    fine("pretrain", "--resume", stopped, "--quiet")
    fine("pretrain", *options, "--epochs", epochs, "--out", tmp_path / "whole", "--quiet")
    assert same_run(stopped, tmp_path / "whole")


def test_a_pretrained_run_is_evaluated_and_embedded(pretrained: Path):
    found = fine("evaluate", pretrained, "--json").json
    assert 0.0 <= found["accuracy"]["low"] <= found["accuracy"]["value"] <= found["accuracy"]["high"] <= 1.0
    assert found["masked"] > 0 and found["mask"] == 0.3 and found["drop"] == 0.2
    assert found.pop("unfinished") is None
    assert json.loads((pretrained / "evaluation.json").read_text()) == found
    assert "cross-entropy" in fine("evaluate", pretrained).out
    two_sided, causal = (fine("embed", pretrained, "--json", *more).json for more in ((), ("--context", "causal")))
    assert [len(row["embeddings"]) for row in two_sided] == [len(row["times"]) for row in two_sided]
    assert two_sided != causal
    assert two_sided == fine("embed", pretrained, "--json", "--context", "two-sided").json


@pytest.mark.parametrize(
    "command", [("predict",), ("sample", "--horizon", 1), ("intensity", "--at", 1), ("params",), ("report",)]
)
def test_other_commands_say_what_a_pretrained_run_is_for(command: tuple[object, ...], pretrained: Path, tmp_path: Path):
    message = refused(command[0], pretrained, *command[1:])
    assert "masked pretraining" in message and "--init" in message


def test_training_starts_from_a_pretrained_run_and_says_what_was_taken(bursts: Path, pretrained: Path, tmp_path: Path):
    run = tmp_path / "run"
    outcome = fine("train", "--data", bursts, "--init", pretrained, "--epochs", 1, "--out", run)
    assert "fine, attention; coarse_base, w, w_constant, log_tau, mixture, mixture_constant start fresh" in outcome.err
    options = RunFolder.open(run).config().model
    assert isinstance(options, AnhpOptions) and options.dim == 4 and options.layers == 1  # as in the run it starts from
    found = fine(
        "train", "--data", bursts, "--init", pretrained, "--epochs", 1, "--out", tmp_path / "two", "--json"
    ).json
    assert found["init"]["taken"] == ["fine", "attention"]
    fine("evaluate", run, "--no-times", "--json")


def test_training_from_a_trained_run_takes_everything(bursts: Path, copied: Path, tmp_path: Path):
    found = fine(
        "train", "--data", bursts, "--init", copied, "--lr", 1e-12, "--epochs", 1, "--out", tmp_path / "run", "--json"
    )
    assert found.json["init"]["fresh"] == []
    again = fine("evaluate", tmp_path / "run", "--no-times", "--json").json
    first = fine("evaluate", copied, "--no-times", "--json").json
    assert again["log_likelihood"]["value"] == pytest.approx(first["log_likelihood"]["value"], abs=1e-6)


def test_a_run_that_was_started_from_another_is_resumed_without_it(bursts: Path, pretrained: Path, tmp_path: Path):
    source = Path(shutil.copytree(pretrained, tmp_path / "source"))
    options = "--data", bursts, "--init", source, "--epochs", 3
    fine("train", *options, "--out", tmp_path / "one", "--quiet")
    fine("train", *options, "--out", tmp_path / "two", "--quiet")
    shutil.rmtree(source)
    for name in ("metrics.jsonl", "model.safetensors", "checkpoint.safetensors"):
        (tmp_path / "two" / name).unlink()  # as if it had been stopped before its first checkpoint
    fine("train", "--resume", tmp_path / "two", "--quiet")
    assert same_run(tmp_path / "one", tmp_path / "two")


def test_a_start_that_does_not_fit_is_refused_and_nothing_is_left(
    bursts: Path, anhp: Path, trained: dict[str, Path], pretrained: Path, tmp_path: Path
):
    run = tmp_path / "run"
    base = "train", "--data", bursts, "--out", run
    assert "model.dim = 4 there and 8 here" in refused(*base, "--init", pretrained, "--dim", 8)
    assert "model.layers = 1 there and 3 here" in refused(*base, "--init", pretrained, "--layers", 3)
    assert "fitted directly" in refused(*base, "--init", trained["hawkes"])
    assert "choose --model anhp" in refused(*base, "--init", pretrained, "--model", "nhp")
    assert "no such run folder" in refused(*base, "--init", tmp_path / "nowhere")
    assert "expected the folder of a run" in refused(*base, "--init", pretrained / "model.safetensors")
    other = tmp_path / "other.jsonl"
    other.write_text('{"times": [0.5, 1.0], "events": ["0", "7"], "t_end": 3.0}\n')
    message = refused("train", "--data", other, "--init", pretrained, "--out", run)
    assert (
        "its event types are not those of the data" in message
        and "only there: 1" in message
        and "only in the data: 7" in message
    )
    assert not run.exists()


def test_what_cannot_be_pretrained_is_refused(bursts: Path, tmp_path: Path):
    assert "nothing to pretrain on" in refused("pretrain")
    assert "task.mask = 1.5: expected a share" in refused("pretrain", "--data", bursts, "--mask", 1.5)
    assert "task.drop = 1.0: expected a share" in refused("pretrain", "--data", bursts, "--drop", 1)
    assert "did you mean `mask`" in refused("pretrain", "--data", bursts, "--set", "task.maks=0.1")
    run = tmp_path / "run"
    message = refused("pretrain", "--data", bursts, "--set", "model.kind=hawkes", "--out", run)
    assert "masked pretraining is for A-NHP" in message and not run.exists()
    path = tmp_path / "classify.toml"
    path.write_text('[task]\nkind = "classify"\nlabel = "x"\n')
    assert "this is pretraining" in refused("pretrain", path, "--data", bursts)
