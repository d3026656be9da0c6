"""The list of scores: one that is registered is everywhere, without being named there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from foretell.errors import ForetellError
from foretell.evaluate.compare import ComparedRun, compare
from foretell.evaluate.metrics import SCORES, EventRecord, ScoreColumns, ScoreDefinition, register_score, score_of
from foretell.evaluate.scores import ScoringOptions, evaluate, score
from foretell.models.classical.poisson import Poisson
from tests.cli.invoking import fine
from tests.samples import random_data

EXPERIMENT = """
title = "How late"
kind = "models"
data = "robocup"
seeds = [0]
columns = ["late", "log_likelihood"]

[cut]
events = 12

[train]
epochs = 1
dev_points = 1

[[model]]
name = "Poisson"
model = { kind = "poisson" }

[[model]]
name = "Hawkes"
model = { kind = "hawkes" }
"""


def how_late(record: EventRecord) -> ScoreColumns:
    """Whether an event comes later than its median."""
    defined = np.isfinite(record.of_times("median"))
    return ScoreColumns(np.where(defined, record.events.time > record.of_times("median"), 0.0), defined)


@pytest.fixture
def late() -> Iterator[ScoreDefinition]:
    found = register_score(
        ScoreDefinition("late", "share of late events", "share", False, how_late, "times", main=True)
    )
    yield found
    del SCORES["late"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two runs on a few events of the embedded games."""
    place = tmp_path_factory.mktemp("late")
    from foretell.data import load

    for name, split in load("robocup").splits().items():
        rows = [
            {"id": one.id, "times": one.times[:12].tolist(), "events": split.names_of(one)[:12], "t_end": one.times[11]}
            for one in split
        ]
        (place / "games").mkdir(exist_ok=True)
        (place / "games" / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for kind in ("poisson", "hawkes"):
        fine("train", "--model", kind, "--data", place / "games", "--out", place / kind, "--quiet")
    return [place / kind for kind in ("poisson", "hawkes")]


def test_a_registered_score_is_computed_from_the_record_of_every_event(late: ScoreDefinition):
    data = random_data(3, [4, 0, 7, 1])
    scored = score(Poisson(data.vocabulary), data)
    assert scored.times is not None
    wanted = np.mean(scored.events.time[scored.events.is_event] > scored.times.median)
    assert scored.evaluation.late.value == pytest.approx(wanted)
    assert list(scored.evaluation.to_json())[12:14] == ["error_rate_without_time", "late"]
    assert evaluate(Poisson(data.vocabulary), data, times=False).late is None, "it needs next times"


def test_a_registered_score_is_in_the_tables_and_the_json_of_commands(late: ScoreDefinition, runs: list[Path]):
    assert "share of late events" in fine("evaluate", runs[0]).out
    assert 0.0 <= fine("evaluate", runs[1], "--json").json["late"]["value"] <= 1.0
    shown = fine("compare", *runs).out
    assert "share of late events" in shown and "in share of late events: " in shown.replace("\n", " ")
    found = fine("compare", *runs, "--json").json
    assert {one["metric"] for one in found["differences"]} >= {"late", "rmse"}
    assert all("late" in one for one in found["by_functor"])


def test_a_registered_score_is_in_the_report(late: ScoreDefinition, runs: list[Path], tmp_path: Path):
    for run in runs:
        fine("evaluate", run, "--json")
    fine("report", *runs, "-o", tmp_path / "page.html", "--no-floors", "--quiet")
    assert '<th scope="col" class="n">share of late events</th>' in (tmp_path / "page.html").read_text()


def test_a_registered_score_is_in_the_tables_of_experiments(late: ScoreDefinition, tmp_path: Path):
    (tmp_path / "late").mkdir()
    (tmp_path / "late" / "experiment.toml").write_text(EXPERIMENT)
    told = fine("reproduce", tmp_path / "late", "--out", tmp_path / "out").out
    results = json.loads((tmp_path / "out" / "late" / "results.json").read_text())
    assert ("Hawkes", "late") in {(one["model"], one["metric"]) for one in results["scores"]}
    assert "late" in {one["metric"] for one in results["tests"]}
    assert "share of late events, %" in (tmp_path / "out" / "late" / "results.md").read_text() + told


def test_a_direction_decides_which_run_is_better(late: ScoreDefinition):
    data = random_data(3, [9, 8, 7, 9])
    slow, fast = Poisson(data.vocabulary), Poisson(data.vocabulary)
    for model, rate in ((slow, 0.01), (fast, 3.0)):
        model.log_rate.data.fill_(np.log(rate))
    runs = [ComparedRun(name, score(model, data), data) for name, model in (("slow", slow), ("fast", fast))]
    (found,) = [one for one in compare(runs, "events").differences if one.metric == "late"]
    assert found.difference.value < 0.0 and found.better == "slow", "fewer events are late where all are expected late"


def test_scores_that_a_record_lacks_are_not_there_and_a_key_is_registered_once():
    data = random_data(3, [4, 3])
    scored = score(Poisson(data.vocabulary), data, ScoringOptions(times=False))
    assert [one.key for one in scored.metrics()] == [one.key for one in SCORES.values() if one.needs == "events"]
    with pytest.raises(ForetellError, match="there is a score 'rmse' already"):
        register_score(SCORES["rmse"])
    assert score_of("participants pass(+P,-Q)") is SCORES["participants"] and score_of("nonsense") is None
    with pytest.raises(AttributeError, match="an evaluation has no 'nonsense'"):
        _ = scored.evaluation.nonsense
