"""The scripts of `experiments/pretraining`, on data so small that they take seconds."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from foretell.data import load
from tests.train.labelled import folder

HERE = Path(__file__).resolve()
SCRIPTS = next(place / "experiments" for place in HERE.parents if (place / "pyproject.toml").exists())
NAMES = ("starts", "prepare", "few_labels", "probe")
MODEL = '[model]\nkind = "anhp"\ndim = 4\nlayers = 1\n[train]\nepochs = 2\nbatch = 16\n'


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch):
    for place in (SCRIPTS, SCRIPTS / "pretraining"):
        monkeypatch.syspath_prepend(str(place))
    yield {name: importlib.import_module(name) for name in NAMES}
    for name in (*NAMES, "crossvalidate"):
        sys.modules.pop(name, None)


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    folder(tmp_path / "data" / "toy", train=20, others=10)
    (tmp_path / "config.toml").write_text('[data]\npath = "toy"\n' + MODEL)
    (tmp_path / "pretrain.toml").write_text(
        '[data]\npath = "toy"\n' + MODEL + '[task]\nkind = "pretrain"\nmask = 0.3\n'
    )
    return tmp_path


def run(module: ModuleType, monkeypatch: pytest.MonkeyPatch, *words: Any) -> None:
    monkeypatch.setattr(sys, "argv", ["script", *map(str, words)])
    assert module.main() == 0


def test_all_arms_are_fitted_on_folds_and_test_and_compared_with_scratch(
    scripts, experiment: Path, monkeypatch: pytest.MonkeyPatch
):
    words = (
        "--experiment",
        experiment,
        "--data",
        experiment / "data",
        "--folds",
        5,
        "--seeds",
        0,
        1,
        "--keep",
        experiment / "kept",
    )
    run(scripts["starts"], monkeypatch, *words)
    found = json.loads((experiment / "results.json").read_text())
    events = [
        sum(fit["events"] for fit in found["folds"]["fits"] if fit["arm"] == arm) for arm in scripts["starts"].ARMS
    ]
    dataset = load(str(experiment / "data" / "toy"))
    assert dataset.train is not None and dataset.dev is not None
    assert events == [dataset.train.event_count + dataset.dev.event_count] * 3  # each is scored once in five folds
    for part, units in (("folds", 30), ("test", 10)):
        scratch, encoder = found[part]["arms"]["scratch"], found[part]["arms"]["encoder"]
        test = encoder["log_likelihood_less_scratch"]
        assert test["units"] == units and 0.0 < test["p"] <= test["p_corrected"] <= 1.0
        assert test["difference"] == pytest.approx(encoder["log_likelihood"] - scratch["log_likelihood"], abs=2e-4)
    assert all(fit.get("pretraining") for fit in found["test"]["fits"] if fit["arm"] != "scratch")
    before = (experiment / "results.json").read_text()
    run(scripts["starts"], monkeypatch, *words)  # from what was kept
    assert (experiment / "results.json").read_text() == before


def test_the_label_is_the_type_of_the_event_that_was_cut_off(
    scripts, experiment: Path, monkeypatch: pytest.MonkeyPatch
):
    source, out = experiment / "data" / "toy", experiment / "cut"
    run(scripts["prepare"], monkeypatch, source, out)
    whole, cut = load(str(source)).train, load(str(out)).train
    assert whole is not None and cut is not None
    for one, other in zip(whole, cut, strict=True):
        assert other.metadata["last"] == whole.names_of(one)[-1]
        assert len(other) == len(one) - 1 and other.t_end == one.times[-2]
    words = "--experiment", experiment, "--seeds", 0, 1, "--shares", 0.5, 1.0
    run(scripts["few_labels"], monkeypatch, out, *words)
    found = json.loads((experiment / "few-labels.json").read_text())
    assert [row["labels"] for row in found["shares"]] == [10, 20] and len(found["fits"]) == 8
    assert 0.0 <= found["guesses"]["seen last"]["accuracy"] <= 1.0


def test_the_probe_finds_what_is_there_and_nothing_where_nothing_is(scripts):
    probe, rng = scripts["probe"], np.random.default_rng(0)
    x = rng.normal(size=(4000, 3))
    labels = (rng.random(4000) < 1.0 / (1.0 + np.exp(-(0.5 + 2.0 * x[:, 0])))).astype(np.int64)
    fitted = probe.fit_logistic(x, labels, 2, 1e-6)
    slope = (fitted.weight[1] - fitted.weight[0]) / fitted.spread
    assert slope.numpy() == pytest.approx([2.0, 0.0, 0.0], abs=0.25)
    chances = np.exp(fitted.log_probabilities(x))
    assert chances.sum(1) == pytest.approx(1.0)
    noise = probe.fit_logistic(x, rng.integers(0, 2, 4000), 2, 1.0)
    assert float(noise.weight.abs().max()) < 0.2


def test_the_probe_of_the_embedded_games_runs(scripts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(scripts["probe"], "PENALTIES", (0.1,))
    run(scripts["probe"], monkeypatch, "--epochs", 1, "--ahead", 5, "--out", tmp_path / "probe.json")
    (found,) = json.loads((tmp_path / "probe.json").read_text())
    assert found["types"]["features"] == 2 * 528 and found["events"] == 778 - 5
    for name in ("majority", "types", "A-NHP, trained", "A-NHP, pretrained"):
        value, low, high = found[name]["accuracy"]
        assert low <= value <= high
    assert scripts["probe"].team_of("steal(pink3,purple10)") == 1
