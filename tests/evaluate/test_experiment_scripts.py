"""The scripts of `experiments/`: several models in one experiment, scores of single events kept, models compared, dev as the judge."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from foretell.errors import ForetellError
from foretell.lang.program import Program
from foretell.train.config import make_config, read_config

HERE = Path(__file__).resolve()
SCRIPTS = next(folder / "experiments" for folder in HERE.parents if (folder / "pyproject.toml").exists())
NAMES = ("run", "kept", "compare", "crossvalidate")


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
    start = '[data]\npath = "toy"\n[model]\nkind = "anhp"\n'
    (folder / "config.toml").write_text(f"{start}dim = 4\nlayers = 1\n[train]\nepochs = 1\n")
    (folder / "other.toml").write_text(f"{start}dim = 8\nlayers = 1\n[train]\nepochs = 1\n")
    return folder


CONFIGS = sorted(path for path in SCRIPTS.glob("*/*.toml") if not path.stem.startswith("space"))
SPACES = sorted(SCRIPTS.glob("*/space*.toml"))


def test_there_are_experiments():
    assert len(CONFIGS) >= 9 and len(SPACES) >= 4


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_configuration_of_an_experiment_can_be_used(path):
    config = make_config(read_config(path), str(path))
    rules = getattr(config.model, "program", "")
    if rules.endswith(".ndtt"):  # from the folder above `experiments`, where its commands are typed
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


def test_kept_scores_of_several_models_are_compared_seed_by_seed(scripts, experiment, monkeypatch):
    root = experiment.parent
    patterns = ("--predict", "kick(-P)", "pass(-P,-Q)", "--predict", "pass(+P,-Q)")
    shared = (experiment, "--data", root / "data", "--keep", root / "kept", *patterns)
    run(scripts["run"], monkeypatch, *shared, "--seeds", 0, 1)
    run(scripts["run"], monkeypatch, *shared, "--floors")
    results = json.loads((experiment / "results.json").read_text())
    assert [(one["model"], one["seed"]) for one in results] == [
        ("A-NHP", 0),
        ("A-NHP", 1),
        ("Poisson", None),
        ("Hawkes", None),
    ]
    for one in results:
        assert [part["pattern"] for part in one["participants"]] == ["kick(-P)", "pass(-P,-Q)", "all", "pass(+P,-Q)"]
    kept = {path.name: scripts["kept"].read_scores(path) for path in (root / "kept").iterdir()}
    assert set(kept) == {"a-nhp-0.npz", "a-nhp-1.npz", "poisson.npz", "hawkes-2-decays.npz"}
    for name, one in (("a-nhp-0.npz", results[0]), ("poisson.npz", results[2])):
        assert kept[name].events.log_likelihood.mean() == pytest.approx(one["log_likelihood"]["value"])
        errors = [part["error_rate"]["value"] for part in one["participants"] if part["pattern"] != "all"]
        assert [guesses.wrong.mean() for guesses in kept[name].guesses] == pytest.approx(errors)
    out = root / "compare.json"
    together = ("--together", "kick(-P)", "pass(-P,-Q)")
    run(scripts["compare"], monkeypatch, root / "kept", "--first", "A-NHP", *together, "--out", out)
    rows = json.loads(out.read_text())
    assert [(row["seed"], row["second"]) for row in rows] == [
        (0, "Hawkes, 2 decays"),
        (0, "Poisson"),
        (1, "Hawkes, 2 decays"),
        (1, "Poisson"),
    ]
    difference = results[0]["log_likelihood"]["value"] - results[2]["log_likelihood"]["value"]
    assert rows[1]["log_likelihood"]["difference"] == pytest.approx(difference, abs=1e-5)
    assert rows[1]["log_likelihood"]["units"] == 72
    assert rows[1]["log_likelihood_over_sequences"]["units"] == 6
    assert rows[1]["participant_error"]["together"]["units"] == 72
    with pytest.raises(ForetellError, match="no scores of A-NDTT"):
        run(scripts["compare"], monkeypatch, root / "kept", "--first", "A-NDTT", "--out", out)


def test_configurations_of_one_experiment_do_not_replace_one_another(scripts, experiment, monkeypatch):
    for config in ("config", "other", "other"):
        run(scripts["run"], monkeypatch, experiment, "--data", experiment.parent / "data", "--config", config)
    results = json.loads((experiment / "results.json").read_text())
    assert [(one.get("config"), one["dim"]) for one in results] == [(None, 4), ("other", 8)]


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
