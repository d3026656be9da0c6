"""`train_fraction`: the flag and the key do the same, and leave dev and test whole."""

from __future__ import annotations

import json
from pathlib import Path

from foretell.train.config import make_config
from foretell.train.splits import load_splits
from tests.cli.invoking import fine, refused


def splits_of(run: Path) -> dict:
    return json.loads((run / "environment.json").read_text())["data"]["splits"]


def test_the_flag_and_the_key_give_the_same_share_and_leave_dev_and_test_whole(bursts: Path, tmp_path: Path):
    options = "--model", "poisson", "--data", bursts, "--quiet"
    fine("train", *options, "--out", tmp_path / "whole")
    fine("train", *options, "--train-fraction", 0.25, "--out", tmp_path / "flag")
    fine("train", *options, "--set", "data.train_fraction=0.25", "--out", tmp_path / "key")
    whole, flag, key = (splits_of(tmp_path / name) for name in ("whole", "flag", "key"))
    assert whole["train"]["sequences"] == 24 and flag["train"]["sequences"] == 6
    assert flag == key and all(flag[name] == whole[name] for name in ("dev", "test"))
    models = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("flag", "key", "whole")]
    assert models[0] == models[1] != models[2]


def test_games_are_cut_in_time():
    whole = load_splits(make_config({"data": {"path": "robocup"}}).data)
    quarter = load_splits(make_config({"data": {"path": "robocup", "train_fraction": 0.25}}).data)
    assert whole.train is not None and quarter.train is not None and whole.dev is not None and quarter.dev is not None
    assert [len(game) for game in quarter.train] == [round(len(game) / 4) for game in whole.train]
    assert all(game.t_end == game.times[-1] for game in quarter.train)
    assert quarter.dev.event_count == whole.dev.event_count and quarter.vocabulary == whole.vocabulary


def test_a_share_that_is_none_is_refused(bursts: Path):
    said = refused("train", "--data", bursts, "--train-fraction", 0)
    assert "data.train_fraction = 0.0: expected a number above 0 and at most 1" in said
