"""`foretell train`: flags and files say the same, and every kind of model is trained."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from foretell.cli.floors_beside import told_of
from foretell.models.attention.anhp import AnhpOptions
from foretell.train.floor_fits import kept_floors
from foretell.train.run import RunFolder
from tests.cli.invoking import fine, foretell, refused
from tests.train.test_resume import same_run


def config_of(run: Path):
    return RunFolder.open(run).config()


def test_flags_and_a_file_give_the_same_run(bursts: Path, tmp_path: Path):
    flags = "--dim", 4, "--layers", 1, "--heads", 2, "--epochs", 2, "--batch", 8, "--lr", 0.01, "--seed", 5
    fine(
        "train",
        "--data",
        bursts,
        "--model",
        "anhp",
        *flags,
        "--set",
        "train.clip=1",
        "--out",
        tmp_path / "one",
        "--quiet",
    )
    path = tmp_path / "run.toml"
    path.write_text(
        f"[data]\npath = {json.dumps(str(bursts))}\n[model]\nkind = 'anhp'\ndim = 4\nlayers = 1\nheads = 2\n"
        "[train]\nepochs = 2\nbatch = 8\nlr = 0.01\nseed = 5\nclip = 1\n"
    )
    fine("train", path, "--out", tmp_path / "two", "--quiet")
    assert config_of(tmp_path / "one") == config_of(tmp_path / "two")
    models = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "two")]
    assert models[0] == models[1]


def test_flags_win_over_the_file(bursts: Path, tmp_path: Path):
    path = tmp_path / "run.toml"
    path.write_text("[data]\npath = 'nowhere'\n[train]\nepochs = 100\nseed = 1\n[model]\ndim = 64\n")
    run = tmp_path / "run"
    fine("train", path, "--data", bursts, "--epochs", 1, "--set", "model.dim=4", "--out", run, "--quiet")
    config = config_of(run)
    assert config.train.epochs == 1 and config.train.seed == 1 and config.data.path == str(bursts)


def test_the_resolved_configuration_of_a_run_gives_the_same_run_again(anhp: Path, tmp_path: Path):
    fine("train", anhp / "config.toml", "--out", tmp_path / "again", "--quiet")
    assert (tmp_path / "again" / "model.safetensors").read_bytes() == (anhp / "model.safetensors").read_bytes()


def test_where_a_floor_wins_it_is_named_as_train_takes_it():
    config = SimpleNamespace(data=SimpleNamespace(path="logs"))
    result: Any = SimpleNamespace(records=[{"dev": -2.0}], best=-2.0, model=SimpleNamespace(title="A-NHP"))
    by_rule = SimpleNamespace(key="model.kind", value="anhp", why="by rule")
    chosen: Any = SimpleNamespace(config=config, chosen=(by_rule,))
    asked: Any = SimpleNamespace(config=config, chosen=())
    for floors, kind in (
        ({"Poisson": -1.0, "Hawkes": -1.5}, "poisson"),
        ({"Poisson": -3.0, "Weekly Poisson": -1.0, "Hawkes": -1.5}, "weekly"),
        ({"Poisson": -3.0, "Hawkes": -1.5}, "hawkes"),
    ):
        told = told_of(chosen, floors, result)
        assert told["beats_floors"] is False
        assert f"try `--model {kind}`, `foretell auto logs`" in told["verdict"]
        asked_for = told_of(asked, floors, result)["verdict"]
        assert "try `foretell train --data logs` without other options" in asked_for
    assert told_of(chosen, {"Poisson": -3.0}, result)["beats_floors"] is True


def test_every_kind_of_model_is_trained_and_named(trained: dict[str, Path]):
    for kind, run in trained.items():
        assert RunFolder.open(run).model().kind == config_of(run).model.kind == kind


def test_the_summary_says_what_was_reached_and_where(bursts: Path, tmp_path: Path):
    run = tmp_path / "run"
    found = fine("train", "--data", bursts, "--dim", 4, "--epochs", 2, "--out", run, "--json", "--quiet").json
    metrics = RunFolder.open(run).metrics()
    floors, chosen = found.pop("floors"), found.pop("auto")
    assert floors.keys() == {"Poisson", "Hawkes"} and found.pop("beats_floors") == (
        found["best"] > max(floors.values())
    )
    assert "Hawkes" in found.pop("verdict") and "model.dim" not in chosen and chosen["model.kind"]["value"] == "anhp"
    assert kept_floors(RunFolder.open(run))["floors"]["Hawkes"]["score"] == floors["Hawkes"]
    assert found == {
        "run": str(run),
        "best_epoch": found["best_epoch"],
        "best": max(record["dev"] for record in metrics),
        "epochs": 2,
        "judged_on": "dev",
        "window": "all",
        "objective": "mle",
        "states": metrics[-1]["states"],
        "intensities": metrics[-1]["intensities"],
    }


def test_the_default_folder_is_named_after_data_and_model(bursts: Path, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fine("train", "--model", "poisson", "--data", bursts, "--quiet")
    assert (tmp_path / "runs" / "bursts-poisson" / "model.safetensors").is_file()


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("train.clip", "expected KEY=VALUE"),
        ("=1", "expected KEY=VALUE"),
        ("clip=1", "the key must begin with data., model., train."),
        ("fit.clip=1", "the key must begin with"),
        ("train.clp=1", "did you mean `clip`"),
        ("train.clip=fast", "train.clip = 'fast': expected a number"),
        ("model.bos=yes", "model.bos = 'yes': expected true or false"),
    ],
)
def test_a_setting_that_cannot_be_used_is_refused(setting: str, message: str, bursts: Path):
    assert message in refused("train", "--data", bursts, "--set", setting)


def test_settings_are_read_as_toml_and_bare_words_as_strings(bursts: Path, tmp_path: Path):
    run = tmp_path / "run"
    settings = "model.coarse=none", "model.bos=true", "model.edges=['0 <- 1', '1 <- 0']", "data.split=[0.6,0.2,0.2]"
    more = [part for setting in settings for part in ("--set", setting)]
    fine("train", "--data", bursts, "--dim", 4, "--epochs", 1, "--out", run, "--quiet", *more)
    model = config_of(run).model
    assert isinstance(model, AnhpOptions)
    assert (model.coarse, model.bos, model.edges) == ("none", True, ("0 <- 1", "1 <- 0"))


def test_nothing_to_train_on_is_refused():
    assert "nothing to train on" in refused("train", "--model", "poisson")


def test_an_option_of_another_model_is_refused(bursts: Path):
    assert "unknown key `model.dim`" in refused("train", "--model", "hawkes", "--data", bursts, "--dim", 8)


def test_a_table_with_other_column_names_is_trained_on_and_evaluated(tmp_path: Path):
    path = tmp_path / "log.csv"
    rows = [f"p{patient},{0.5 + step},{'xy'[(patient + step) % 2]}" for patient in range(12) for step in range(4)]
    path.write_text("patient,when,code\n" + "\n".join(rows) + "\n")
    run, columns = tmp_path / "run", "sequence=patient,time=when,event=code"
    outcome = fine("train", "--model", "poisson", "--data", path, "--columns", columns, "--out", run)
    assert "shared out" in outcome.err
    assert fine("evaluate", run, "--json").json["events"] == 4
    assert fine("evaluate", run, path, "--columns", columns, "--json").json["events"] == 48
    assert fine("evaluate", run, path, "--json").json["events"] == 48  # a run remembers its columns
    assert "expected KEY=VALUE" in refused("train", "--data", path, "--columns", "time")


def test_one_sequence_with_one_event_can_be_trained_on(tmp_path: Path):
    path = tmp_path / "one.jsonl"
    path.write_text('{"times": [1.5], "events": ["a"], "t_end": 3.0}\n')
    for kind in ("poisson", "hawkes", "anhp"):
        fine("train", "--model", kind, "--data", path, "--out", tmp_path / kind, "--set", "train.epochs=2", "--quiet")
        assert fine("evaluate", tmp_path / kind, "--json").json["events"] == 1


def test_data_without_events_is_refused_and_nothing_is_left(tmp_path: Path):
    path = tmp_path / "none.jsonl"
    path.write_text('{"times": [], "types": [], "t_end": 3.0}\n')
    refused("train", "--data", path, "--out", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_resuming_with_more_epochs_is_a_run_that_had_them_from_the_start(bursts: Path, tmp_path: Path) -> None:
    options = ("--model", "nhp", "--data", bursts, "--dim", 4, "--quiet")
    fine("train", *options, "--out", tmp_path / "whole", "--epochs", 3)
    fine("train", *options, "--out", tmp_path / "short", "--epochs", 2)
    fine("train", "--resume", tmp_path / "short", "--epochs", 3, "--quiet")
    assert same_run(tmp_path / "whole", tmp_path / "short")
    assert RunFolder.open(tmp_path / "short").config().train.epochs == 3
    told = foretell("train", "--resume", tmp_path / "short", "--epochs", 3)
    assert told.code == 1 and "the run has 3 already" in told.err
    fine("train", *options, "--out", tmp_path / "wave", "--epochs", 2, "--set", "train.schedule=cosine")
    told = foretell("train", "--resume", tmp_path / "wave", "--epochs", 3)
    assert told.code == 1 and "cosine" in told.err
