"""`foretell train --objective nce`: trained, counted, resumed and refused from the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretell.train.run import RunFolder
from tests.cli.invoking import fine, refused
from tests.train.small import folder_of


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORETELL_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize("noise", ["poisson", "hawkes", "timed"])
@pytest.mark.parametrize("model", [("--model", "anhp", "--layers", 1), ("--program", "robocup", "--layers", 1)])
def test_robocup_is_learned_from_noise(model: tuple[object, ...], noise: str, tmp_path: Path):
    run = tmp_path / "run"
    options = ("--objective", "nce", "--noise", noise, "--noise-streams", 1, "--epochs", 1, "--dim", 4)
    found = fine("train", "--data", "robocup", *model, *options, "--out", run, "--json", "--quiet").json
    record = RunFolder.open(run).metrics()[0]
    assert found["objective"] == "nce"
    assert found["states"] == found["intensities"] == record["epoch_states"] > 0
    assert record["train"] is None and record["nce"] < 0.0 and found["best"] == record["dev"]
    config = RunFolder.open(run).config().train
    assert (config.objective, config.noise, config.noise_streams) == ("nce", noise, 1)
    kept = RunFolder.open(run).noise()
    assert kept is not None and kept.kind == noise


def test_the_progress_and_the_summary_name_what_they_show(tmp_path: Path):
    run = tmp_path / "run"
    data = folder_of(tmp_path / "bursts")
    outcome = fine("train", "--data", data, "--dim", 4, "--epochs", 2, "--objective", "nce", "--out", run)
    assert "nce " in outcome.err and "train " not in outcome.err
    assert "best log-likelihood on dev" in outcome.out
    found = RunFolder.open(run).metrics()[-1]
    assert f"looked at {found['states']:,} states and {found['intensities']:,} intensities" in outcome.out
    report = tmp_path / "report.html"
    fine("report", run, "-o", report)  # a curve of train is not there to be drawn
    assert report.is_file()


def test_contradictions_and_models_without_noise_are_refused_and_leave_nothing(tmp_path: Path):
    data, run = folder_of(tmp_path / "bursts"), tmp_path / "run"
    start = ("train", "--data", data, "--out", run, "--quiet")
    assert "maximum likelihood has no noise" in refused(*start, "--noise", "hawkes")
    assert "has no integral" in refused(*start, "--objective", "nce", "--points", 3)
    assert "Poisson is fitted directly" in refused(*start, "--model", "poisson", "--objective", "nce")
    assert "train.objective = 'ncee'" in refused(*start, "--objective", "ncee")
    assert not run.exists()
