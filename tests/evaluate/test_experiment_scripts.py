"""What is in `experiments/`: every configuration and space can be used; the search for settings with dev as the judge."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from foretell.lang.program import Program
from foretell.reading import limits
from foretell.train.config import make_config, read_config

HERE = Path(__file__).resolve()
SCRIPTS = next(folder / "experiments" for folder in HERE.parents if (folder / "pyproject.toml").exists())
NAMES = ("crossvalidate",)


@pytest.fixture
def scripts(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    yield {name: importlib.import_module(name) for name in NAMES}
    for name in NAMES:
        sys.modules.pop(name, None)


@pytest.fixture
def experiment(tmp_path):
    """Six sequences of `kick(P)` and `pass(P,Q)` a split, in which players pass in turn."""
    rng = np.random.default_rng(0)
    data = tmp_path / "data" / "toy"
    data.mkdir(parents=True)
    for split in ("train", "dev", "test"):
        rows = []
        for _ in range(6):
            times = np.sort(rng.uniform(0, 9, 12)).round(6)
            names = [f"pass(p{i % 2},p{(i + 1) % 2})" if rng.random() < 0.6 else f"kick(p{i % 2})" for i in range(12)]
            rows.append({"times": times.tolist(), "events": names, "t_end": 10.0})
        (data / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (data / "dataset.toml").write_text('name = "toy"\n')
    folder = tmp_path / "toy"
    folder.mkdir()
    return folder


CONFIGS = sorted(path for path in SCRIPTS.glob("*/*.toml") if not path.stem.startswith(("space", "experiment")))
SPACES = sorted(SCRIPTS.glob("*/space*.toml"))


def test_there_are_experiments():
    assert len(CONFIGS) >= 9 and len(SPACES) >= 4


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_configuration_of_an_experiment_can_be_used(path):
    config = make_config(read_config(path), str(path))
    rules = getattr(config.model, "program", "")
    if rules.endswith(".ndtt"):  # from the folder above `experiments`, where its commands are typed
        with limits(allow=(SCRIPTS.parent / "programs",)):  # --allow programs
            Program.from_file(SCRIPTS.parent / rules)


@pytest.mark.parametrize("path", SPACES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_choice_of_a_space_can_be_used(path, scripts):
    search = scripts["crossvalidate"]
    table = read_config(path)
    assert table.pop("data")["path"] == path.parent.name
    search.Search.read(table.pop("search"), str(path))
    space = search.Space.read(table, str(path))
    longest = max(len(values) for values in space.choices.values())
    for place in range(longest):
        made = {key: values[place % len(values)] for key, values in space.choices.items()}
        make_config(search.setting_of(made), str(path))


def run(module, monkeypatch, *words) -> None:
    monkeypatch.setattr(sys, "argv", ["script", *map(str, words)])
    assert module.main() == 0


def test_without_folds_dev_judges_and_every_number_is_a_seed(scripts, experiment, monkeypatch):
    space = experiment / "space.toml"
    space.write_text(
        '[data]\npath = "toy"\n[search]\nfolds = 0\ndraws = 2\nrungs = [1, 2]\nkeep = [1, 1]\nplain = false\n'
        '[model]\nkind = "anhp"\ndim = [2, 4]\nlayers = 1\n[train]\nepochs = 2\n'
    )
    (experiment.parent / "data" / "toy" / "test.jsonl").write_text("nobody may read this")
    run(scripts["crossvalidate"], monkeypatch, space, "--data", experiment.parent / "data")
    log = json.loads((experiment / "crossvalidation.json").read_text())
    assert len(log["trials"]) == 2
    best = next(trial for trial in log["trials"] if trial["setting"] == log["best"])
    assert [fold["fold"] for fold in best["folds"]] == [0, 1]
    for fold in best["folds"]:
        assert fold["log_likelihood"] / fold["events"] == pytest.approx(fold["stopping"])
    assert len({fold["stopping"] for fold in best["folds"]}) == 2
