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


def test_other_data_are_scored_in_the_windows_that_a_run_learned_from(bursts: Path, events, tmp_path: Path):
    small = ("--dim", 4, "--layers", 1, "--epochs", 1, "--no-floors", "--quiet")
    windows = ("--window-events", 12, "--history-events", 6)
    fine("train", "--data", bursts, "--model", "anhp", "--out", tmp_path / "run", *small, *windows)
    times = [0.1 * place for place in range(1, 51)]
    long = events((times, ["0", "1"] * 25), ([1.0, 2.0], ["0", "1"]))
    asked = ("evaluate", tmp_path / "run", long, "--json", "--no-times")
    found = fine(*asked)
    assert "events.jsonl: 6 windows of up to 12 events, which see up to 6 before them" in found.err
    assert (found.json["events"], found.json["sequences"]) == (52, 6)
    config = tmp_path / "run" / "config.toml"
    config.write_text(config.read_text().replace("window_events = 12", "window_events = 0"))
    whole = fine(*asked).json
    assert (whole["events"], whole["sequences"]) == (52, 2)
    assert whole["log_likelihood"]["value"] != found.json["log_likelihood"]["value"]  # further back is not seen


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
    assert "Parquet needs pyarrow, which is not installed" in refused("embed", copied, "-o", copied / "e.parquet")


def test_the_second_table_says_how_well_times_are_calibrated(copied: Path):
    outcome = fine("evaluate", copied)
    assert "true time in" in outcome.out and "50 % interval" in outcome.out and "Kolmogorov-Smirnov" in outcome.out
    assert "MAE of" in outcome.out and "if not told when" in outcome.out
    table = outcome.out[outcome.out.index("more closely") :]
    assert max(map(len, table[: table.index("of rescaled times")].splitlines())) <= 100
    assert "MAE" not in fine("evaluate", copied, "--no-times").out


def test_the_new_scores_can_be_recomputed_from_the_table(copied: Path):
    found = fine("evaluate", copied, "--json").json
    table = parquet.read_table(found["scores"]).to_pydict()
    off = np.abs(np.array(table["predicted_time"]) - np.array(table["time"]))
    assert np.nanmean(off) == pytest.approx(found["mae"]["value"])
    right = [e == p for e, p in zip(table["event"], table["predicted_event_without_time"], strict=True) if e]
    assert 1.0 - np.mean(right) == pytest.approx(found["error_rate_without_time"]["value"])
    residual = np.array([r for r, index in zip(table["residual"], table["index"], strict=True) if index >= 0])
    assert found["rescaling"]["mean"] == pytest.approx(residual.mean())
    place = -np.expm1(-residual)
    levels = {one["level"]: one["coverage"]["value"] for one in found["calibration"]["times"]}
    assert levels[0.9] == pytest.approx(np.mean((place > 0.05) & (place < 0.95)))


def test_futures_are_scored_where_they_are_asked_for(copied: Path):
    found = fine("evaluate", copied, "--no-times", "--futures", 4, "--horizon", 2, "--costs", "0.5,1", "--json").json
    futures = found["futures"]
    assert (futures["horizon"], futures["delta"], futures["steps"], futures["futures"]) == (2.0, 0.4, 10, 4)
    assert [one["cost"] for one in futures["transport"]] == [0.5, 1.0] and 0.0 <= futures["t_map"]["value"] <= 1.0
    shown = fine("evaluate", copied, "--no-times", "--futures", 4, "--horizon", 2).out
    assert "futures: 4 from each of" in shown and "T-mAP: within 0.4" in shown and "C = 0.2" in shown


def test_an_unfinished_run_is_said_to_be_one(copied: Path, bursts: Path):
    assert fine("evaluate", copied, "--no-times", "--json").json["unfinished"] is None
    (copied / "checkpoint.safetensors").unlink()
    told = fine("evaluate", copied, "--no-times", "--json").json["unfinished"]
    assert "stopped before its first checkpoint" in told and f"foretell train --resume {copied}" in told
    (copied / "checkpoint.safetensors").write_bytes(b"?")
    assert "whether training is finished is not known" in fine("evaluate", copied, "--no-times").out.replace("\n", " ")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--futures", "5"], "say how far they go with --horizon"),
        (["--horizon", "5"], "say how many with --futures"),
        (["--futures", "1", "--horizon", "2"], "futures = 1: expected 2 or more"),
        (["--futures", "5", "--horizon", "2", "--costs", "x"], "expected numbers with commas"),
        (["--futures", "5", "--horizon", "1e9"], "ask for less"),
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
    fine("train", "--model", "poisson", "--data", folder, "--out", tmp_path / "run", "--quiet")
    whole = fine("evaluate", tmp_path / "run", "--json").json
    alone = fine("evaluate", tmp_path / "run", folder / "test.jsonl", "--json").json
    assert whole["events"] == alone["events"] == 4
    assert whole["log_likelihood"] == alone["log_likelihood"]
