"""`foretell compare`: runs side by side, with a verdict on every difference."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.invoking import fine, refused


def test_runs_are_shown_side_by_side_with_a_verdict_for_each_difference(trained: dict[str, Path]):
    shown = fine("compare", trained["poisson"], trained["hawkes"], "--no-times").out
    assert "Poisson less Hawkes" in shown and "log-likelihood by functor" in shown
    assert "Hawkes is better than Poisson in log-likelihood, by " in shown
    assert "Holm's method for" in shown and "p over events" in shown


def test_the_json_has_scores_differences_and_functors(trained: dict[str, Path]):
    found = fine("compare", trained["poisson"], trained["hawkes"], trained["anhp"], "--json").json
    assert [run["run"] for run in found["runs"]] == ["Poisson", "Hawkes", "A-NHP"]
    pairs = {(one["first"], one["second"]) for one in found["differences"]}
    assert pairs == {("Poisson", "Hawkes"), ("Poisson", "A-NHP"), ("Hawkes", "A-NHP")}
    metrics = {one["metric"] for one in found["differences"]}
    assert metrics >= {"log_likelihood", "rmse", "error_rate", "error_rate_without_time"}
    one = found["differences"][0]
    values = [run["log_likelihood"]["value"] for run in found["runs"]]
    assert one["difference"]["value"] == pytest.approx(values[0] - values[1])
    assert 0.0 < one["tests"][0]["p"] <= one["tests"][0]["p_holm"] <= 1.0
    assert sum(each["events"] for each in found["by_functor"]) == found["runs"][0]["events"]
    assert found["unfinished"] == []


def test_scores_that_evaluate_left_are_used_where_they_fit(
    copied: Path, trained: dict[str, Path], monkeypatch: pytest.MonkeyPatch
):
    before = fine("compare", copied, trained["poisson"], "--json").json
    fine("evaluate", copied, "--json")
    from foretell.cli import scoring

    counted = []
    score = scoring.score
    monkeypatch.setattr(
        scoring, "score", lambda model, *a, **k: (counted.append(model.title), score(model, *a, **k))[1]
    )
    after = fine("compare", copied, trained["poisson"], "--json").json
    assert counted == ["Poisson"] and after == before
    fine("compare", copied, trained["poisson"], "--split", "dev", "--json")
    assert counted == ["Poisson", "A-NHP", "Poisson"]


def test_names_tell_runs_of_one_model_apart(copied: Path, anhp: Path):
    found = fine("compare", anhp, copied, "--no-times", "--json").json
    assert [run["run"] for run in found["runs"]] == ["A-NHP (anhp)", "A-NHP (copied)"]
    assert all(one["better"] is None for one in found["differences"])
    assert "a run is named twice" in refused("compare", anhp, anhp, "--no-times")


def test_other_data_and_other_units_may_be_compared(trained: dict[str, Path], events):
    path = events(*(([0.5 * n + 1.0, 3.0 + n], ["0", "1"]) for n in range(4)), t_end=9.0)
    few = fine("compare", trained["poisson"], trained["hawkes"], "--data", path, "--no-times").out
    assert "no test over sequences: 4 sequences cannot show anything" in few
    assert "no test over sequences" in refused(
        "compare", trained["poisson"], trained["hawkes"], "--data", path, "--no-times", "--over", "sequences"
    )


def test_two_runs_are_drawn_against_each_other(trained: dict[str, Path], tmp_path: Path):
    picture = tmp_path / "scatter.png"
    shown = fine("compare", trained["poisson"], trained["hawkes"], "--plot", picture).out
    assert picture.stat().st_size > 10_000 and "picture:" in shown
    fine("compare", trained["poisson"], trained["hawkes"], "--no-times", "--json", "--plot", tmp_path / "scatter.svg")
    drawn = (tmp_path / "scatter.svg").read_text()
    assert "<svg" in drawn


def test_an_unfinished_run_is_said_to_be_one(copied: Path, trained: dict[str, Path]):
    (copied / "checkpoint.safetensors").unlink()
    shown = fine("compare", copied, trained["poisson"], "--no-times").out.replace("\n", "")
    assert "stopped before its first checkpoint" in shown


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--over", "games"], "over = games: expected one of events, sequences, both"),
        (["--plot", "scatter.txt"], "expected a name that ends in"),
        (["--split", "valid"], "there is no split 'valid'"),
        (["--predict", "pass(P)"], "pattern 'pass(P)'"),
    ],
)
def test_options_that_make_no_sense_are_refused(more: list[str], message: str, trained: dict[str, Path]):
    assert message in refused("compare", trained["poisson"], trained["hawkes"], "--no-times", *more)


def test_one_run_or_a_picture_of_three_is_refused(trained: dict[str, Path], tmp_path: Path):
    assert "comparing needs two or more" in refused("compare", trained["poisson"])
    three = [trained[kind] for kind in ("poisson", "hawkes", "anhp")]
    assert "--plot draws two runs" in refused("compare", *three, "--plot", tmp_path / "x.png")


def test_runs_of_other_data_are_refused(trained: dict[str, Path], tmp_path: Path):
    folder = tmp_path / "other"
    folder.mkdir()
    line = '{"times": [1.0, 2.5], "events": ["0", "1"], "t_end": 3.0}\n'
    for name in ("train", "dev", "test"):
        (folder / f"{name}.jsonl").write_text(line * 2)
    (folder / "dataset.toml").write_text('name = "other"\n')
    fine("train", "--model", "poisson", "--data", folder, "--out", tmp_path / "run", "--quiet")
    message = refused("compare", trained["poisson"], tmp_path / "run", "--no-times")
    assert "name the data for all of them (--data)" in message


def test_impossible_events_may_be_treated_otherwise_than_in_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Two runs of rules that were trained without any; the data to compare them on have one."""
    monkeypatch.setenv("FORETELL_CACHE", str(tmp_path / "cache"))
    (tmp_path / "switch.ndtt").write_text(
        ":- event(on). :- event(off). on :- not lit. off :- lit. lit <- on. !lit <- off."
    )
    for name, events in (("good", ["on", "off", "on"]), ("odd", ["on", "on", "off"])):
        line = json.dumps({"times": [1.0, 2.0, 3.0], "events": events, "t_end": 4.0})
        (tmp_path / f"{name}.jsonl").write_text(f"{line}\n" * 3)
    for dim in (1, 2):
        options = ("--dim", dim, "--layers", 1, "--epochs", 1, "--quiet", "--out", tmp_path / f"run{dim}")
        fine("train", "--program", tmp_path / "switch.ndtt", "--data", tmp_path / "good.jsonl", *options)
    asked = ("compare", tmp_path / "run1", tmp_path / "run2", "--data", tmp_path / "odd.jsonl", "--no-times", "--json")
    assert "makes it impossible" in refused(*asked)
    assert [fine(*asked, "--impossible", way).json["runs"][0]["events"] for way in ("skip", "exogenous")] == [6, 6]
