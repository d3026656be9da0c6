"""Scripts of `experiments/nce`, on runs made by the command line: dev scores against evaluations, and differences by type."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from foretell.data import load
from foretell.evaluate.likelihood import score_events
from foretell.train.config import make_config, read_config
from foretell.train.run import RunFolder
from foretell.train.splits import in_vocabulary
from tests.cli.invoking import fine
from tests.train.small import folder_of

FOLDER = Path(__file__).resolve().parents[2] / "experiments" / "nce"
GOOD = b'{"runs": {"one": [{"epoch": 1, "dev": -2.0, "states": 5, "intensities": 7}]}}'


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where its dataclasses look
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def curve():
    return script("curve")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """One run of each objective."""
    folder = tmp_path_factory.mktemp("nce")
    data = folder_of(folder / "bursts")
    made = [folder / "mle", folder / "nce"]
    for run, more in zip(made, ((), ("--objective", "nce")), strict=True):
        fine("train", "--data", data, "--dim", 4, "--epochs", 4, "--lr", 0.01, *more, "--out", run, "--quiet")
    return made


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


def test_runs_are_set_against_the_first_one(curve, runs: list[Path], monkeypatch, capsys):
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


@pytest.mark.parametrize(
    ("content", "more", "told"),
    [
        (None, [], "cannot be read"),
        (b"{", [], "cannot be read"),
        (b"\xff", [], "cannot be read"),
        (b"[]", [], 'under "runs"'),
        (b'{"runs": {}}', [], 'under "runs"'),
        (b'{"runs": {"one": []}}', [], "one: there is no epoch in it"),
        (b'{"runs": {"one": [{"epoch": 1}]}}', [], "expected numbers for epoch, dev, states, intensities"),
        (GOOD, ["--only", "["], "not a regular expression"),
        (GOOD, ["--only", "nobody"], "--only 'nobody': found in none of 1 names, as 'one'"),
        (GOOD, ["--picture", "a.xyz"], "a.xyz"),
        (GOOD, ["--picture", "a.svg", "--within", "0"], "a picture needs a positive one"),
    ],
)
def test_what_cannot_be_shown_is_told_in_a_line(
    curve, content: bytes | None, more: list[str], told: str, tmp_path: Path, monkeypatch, capsys
):
    path = tmp_path / "some.json"
    if content is not None:
        path.write_bytes(content)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["curve.py", str(path), *more])
    assert curve.main() == 1
    assert told in capsys.readouterr().err


def test_a_folder_that_is_no_run_and_two_runs_of_one_name_are_errors(curve, tmp_path: Path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["curve.py", str(tmp_path)])
    assert curve.main() == 1
    results = str(FOLDER / "results.json")
    monkeypatch.setattr("sys.argv", ["curve.py", results, results])
    assert curve.main() == 1
    assert "there is another run called" in capsys.readouterr().err


def test_parts_of_types_add_up_to_the_log_likelihood(runs: list[Path], monkeypatch, capsys):
    module = script("by_type")
    folder = RunFolder.open(runs[1])
    model = folder.model("cpu")
    data = in_vocabulary(load(folder.config().data.path).splits()["dev"], model.vocabulary)
    found = module.by_type(model, data)
    scores = score_events(model, data, points=400)
    assert found.count.sum() == len(scores.log_likelihood)
    assert found.at_events.sum() == pytest.approx(scores.log_intensity.sum(), rel=1e-5)
    assert found.parts.sum() == pytest.approx(scores.log_likelihood.mean(), abs=0.01)  # both integrals are draws
    monkeypatch.setattr("sys.argv", ["by_type.py", *map(str, runs), "--json"])
    assert module.main() == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["type"] for row in rows} == set(model.vocabulary.names)
    other = module.by_type(RunFolder.open(runs[0]).model("cpu"), data)
    assert sum(row["difference"] for row in rows) == pytest.approx(found.parts.sum() - other.parts.sum())
    monkeypatch.setattr("sys.argv", ["by_type.py", *map(str, runs), "--split", "nobody"])
    assert module.main() == 1
    assert "expected one of" in capsys.readouterr().err
