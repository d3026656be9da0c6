"""`foretell evaluate`: scores with intervals, a table behind them, and the floors beside them."""

from __future__ import annotations

import builtins
import json
from pathlib import Path

import numpy as np
import pytest
from pyarrow import parquet

from foretell.data import load
from foretell.evaluate.scores import evaluate
from foretell.train.run import RunFolder
from tests.cli.invoking import fine, refused


def test_the_scores_are_those_of_the_library(copied: Path, bursts: Path):
    found = fine("evaluate", copied, "--json").json
    test = load(bursts).test
    assert test is not None
    expected = evaluate(RunFolder.open(copied).model(), test).to_json()
    assert {key: found[key] for key in expected} == expected
    assert found["floors"] == [] and found["data"] == "test"


def test_rows_of_scores_parquet_add_up_to_the_score(copied: Path):
    found = fine("evaluate", copied, "--json").json
    table = parquet.read_table(found["scores"]).to_pydict()
    assert found["scores"] == str(copied / "scores.parquet")
    assert sum(table["log_likelihood"]) / found["events"] == pytest.approx(found["log_likelihood"]["value"])
    assert sum(index >= 0 for index in table["index"]) == found["events"]
    right = [e == p for e, p in zip(table["event"], table["predicted_event"], strict=True) if e]
    assert 1.0 - np.mean(right) == pytest.approx(found["error_rate"]["value"])
    off = np.array(table["predicted_time"]) - np.array(table["time"])
    assert np.sqrt(np.nanmean(off**2)) == pytest.approx(found["rmse"]["value"])
    assert json.loads((copied / "evaluation.json").read_text())["log_likelihood"] == found["log_likelihood"]


def test_other_splits_and_other_data_may_be_scored(copied: Path, bursts: Path, events):
    assert fine("evaluate", copied, "--split", "dev", "--json", "--no-times").json["data"] == "dev"
    named = fine("evaluate", copied, bursts, "--split", "dev", "--json", "--no-times").json
    assert named["data"] == "dev"
    assert fine("evaluate", copied, events(([1.0, 2.0], ["0", "1"])), "--json", "--no-times").json["events"] == 2
    assert "there is no split 'valid'; there are train, dev, test" in refused("evaluate", copied, "--split", "valid")


def test_floors_are_fitted_and_scored_beside_the_model(copied: Path):
    found = fine("evaluate", copied, "--floors", "--json").json
    assert [floor["model"] for floor in found["floors"]] == ["Poisson", "Hawkes"] and found["model"] == "A-NHP"
    shown = fine("evaluate", copied, "--floors").out
    assert shown.index("Poisson") < shown.index("Hawkes") < shown.index("A-NHP")


def test_the_table_says_how_the_integral_and_the_intervals_were_made(copied: Path):
    shown = fine("evaluate", copied).out
    assert "integral by quadrature, moved by" in shown and "bootstrap replicates over blocks of" in shown
    assert str(copied / "scores.parquet") in shown.replace("\n", "")
    drawn = fine("evaluate", copied, "--integral", "uniform", "--no-times").out
    assert "integral by uniform draws, standard error" in drawn


def test_another_window_is_printed_next_to_its_numbers(copied: Path):
    shown = fine("evaluate", copied, "--window", "events-2-to-I").out
    assert shown.count("events-2-to-I") >= 2 and "not comparable with full log-likelihoods" in shown
    assert fine("evaluate", copied, "--window", "events-2-to-I", "--json").json["window"] == "events-2-to-I"


def test_a_fallback_to_draws_is_said(copied: Path, monkeypatch: pytest.MonkeyPatch):
    from foretell.evaluate import likelihood

    monkeypatch.setattr(likelihood, "QUADRATURE_TOLERANCE", 0.0)
    assert "did not settle" in fine("evaluate", copied, "--no-times").out
    assert fine("evaluate", copied, "--no-times", "--json").json["integral"]["fallback"] is True


def test_without_pyarrow_it_works_and_says_what_it_wrote(copied: Path, monkeypatch: pytest.MonkeyPatch):
    importing = builtins.__import__

    def without(name: str, *args: object, **kwargs: object):
        if name.split(".")[0] == "pyarrow":
            raise ImportError(name)
        return importing(name, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", without)
    outcome = fine("evaluate", copied, "--json")
    assert outcome.json["scores"] == str(copied / "scores.jsonl.gz") and "pyarrow is not installed" in outcome.err
    assert (copied / "scores.jsonl.gz").stat().st_size > 0 and not (copied / "scores.parquet").exists()
    assert "writing Parquet needs the package pyarrow" in refused("embed", copied, "-o", copied / "e.parquet")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--integral", "simpson"], "integral = simpson: expected one of stratified, uniform, quadrature"),
        (["--window", "tail"], "window = tail: expected one of"),
        (["--points", "0"], "points = 0: expected 1 or more"),
        (["--seed", "-1"], "seed = -1: expected 0 or more"),
    ],
)
def test_options_that_make_no_sense_are_refused_and_nothing_is_written(more: list[str], message: str, copied: Path):
    before = sorted(path.name for path in copied.iterdir())
    assert message in refused("evaluate", copied, *more)
    assert sorted(path.name for path in copied.iterdir()) == before


def test_a_run_on_clocks_that_start_at_the_first_event_scores_other_files_the_same_way(tmp_path: Path):
    folder = tmp_path / "clocks"
    folder.mkdir()
    line = '{"times": [0.0, 1.0, 2.5], "events": ["a", "b", "a"], "t_end": 3.0}\n'
    for name in ("train", "dev", "test"):
        (folder / f"{name}.jsonl").write_text(line * 2)
    (folder / "dataset.toml").write_text('name = "clocks"\norigin = "first-event"\n')
    fine("train", "--model", "poisson", "--data", folder, "--run", tmp_path / "run", "--quiet")
    whole = fine("evaluate", tmp_path / "run", "--json").json
    alone = fine("evaluate", tmp_path / "run", folder / "test.jsonl", "--json").json
    assert whole["events"] == alone["events"] == 4
    assert whole["log_likelihood"] == alone["log_likelihood"]
