"""`experiments/nce/curve.py`: dev scores against evaluations, of runs made by the command line."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from foretell.train.config import make_config, read_config
from tests.cli.invoking import fine
from tests.train.small import folder_of

FOLDER = Path(__file__).resolve().parents[2] / "experiments" / "nce"


@pytest.fixture
def curve():
    spec = importlib.util.spec_from_file_location("curve", FOLDER / "curve.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_both_objectives_train_the_same_model():
    mle, *others = (
        make_config(read_config(path), str(path)) for path in [FOLDER / "mle.toml", *sorted(FOLDER.glob("nce*.toml"))]
    )
    assert others and mle.train.objective == "mle"
    for one in others:
        assert one.train.objective == "nce"
        assert one.model == mle.model and one.data == mle.data
        alike = ("batch", "lr", "patience", "cool", "dev_points", "window", "seed")
        assert [getattr(one.train, name) for name in alike] == [getattr(mle.train, name) for name in alike]


def test_runs_are_set_against_the_first_one(curve, tmp_path: Path, monkeypatch, capsys):
    data = folder_of(tmp_path / "bursts")
    runs = [tmp_path / "mle", tmp_path / "nce"]
    for run, more in zip(runs, ((), ("--objective", "nce")), strict=True):
        fine("train", "--data", data, "--dim", 4, "--epochs", 4, "--lr", 0.01, *more, "--run", run, "--quiet")
    monkeypatch.setattr("sys.argv", ["curve.py", *map(str, runs), "--within", "5", "--json"])
    assert curve.main() == 0
    found = json.loads(capsys.readouterr().out)
    for run in runs:
        one = found[str(run)]
        assert one["reached"]["epoch"] == 1  # five nats are a lot
        assert one["best"]["dev"] == max(point["dev"] for point in one["curve"])
        assert one["best"]["states"] >= one["reached"]["states"] > 0
    monkeypatch.setattr("sys.argv", ["curve.py", *map(str, runs), "--within", "-5"])
    assert curve.main() == 0
    assert "never" in capsys.readouterr().out


def test_the_first_epoch_that_is_good_enough_is_named(curve):
    def line(epoch: int, dev: float) -> dict[str, float]:
        return {"epoch": epoch, "dev": dev, "states": 10 * epoch, "intensities": 100 * epoch}

    found = curve.summaries(
        {"one": [line(1, -2.0), line(2, -1.9)], "two": [line(1, -2.1), line(2, -1.95), line(3, -1.93), line(4, -1.91)]},
        0.02,
    )
    assert found["two"]["reached"] == line(4, -1.91) and found["one"]["reached"] == line(2, -1.9)
    assert curve.summaries({"one": [line(1, -1.0)], "two": [line(1, -1.5)]}, 0.02)["two"]["reached"] is None


def test_committed_results_show_a_picture_and_may_be_chosen_from(curve, tmp_path: Path, monkeypatch, capsys):
    picture, results = tmp_path / "dev.svg", FOLDER / "results.json"
    wanted = "2 points, seed 1|timed noise, 30 streams, seed [01]"
    monkeypatch.setattr("sys.argv", ["curve.py", str(results), "--only", wanted, "--picture", str(picture), "--json"])
    assert curve.main() == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found) == [
        "maximum likelihood, 2 points, seed 1",
        "timed noise, 30 streams, seed 0",
        "timed noise, 30 streams, seed 1",
    ]
    assert picture.read_text(encoding="utf-8").count("streams") == 1  # one label for both seeds
    monkeypatch.setattr("sys.argv", ["curve.py", str(results), "--only", "nobody"])
    with pytest.raises(SystemExit):
        curve.main()
    assert "no run has 'nobody' in its name" in capsys.readouterr().err
