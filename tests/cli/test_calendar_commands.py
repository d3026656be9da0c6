"""A log with dates through the commands: the calendar is remembered, the floor that knows the week stands beside, columns are explained."""

from __future__ import annotations

import csv
import json
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from foretell import load_model
from foretell.cli.main import app


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(one) for one in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixty cases in working hours, around a change to summer time."""
    random, rows = np.random.default_rng(1), []
    for case in range(60):
        at = datetime(2024, 3, 1) + timedelta(hours=random.uniform(0.0, 24.0 * 40.0))
        for _ in range(random.integers(3, 9)):
            rows.append(
                (f"c{case}", at.isoformat(timespec="seconds"), random.choice(["open", "call"]), random.normal())
            )
            at += timedelta(hours=random.exponential(4.0))
            while not 8 <= at.hour < 18:
                at += timedelta(hours=1)
    path = tmp_path_factory.mktemp("log") / "log.csv"
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("sequence", "time", "event", "amount"), *rows])
    return path


@pytest.fixture(scope="module")
def trained(log: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "a"
    options = ["--model", "nhp", "--dim", 4, "--epochs", 2, "--lr", 0.02, "--covariates", "amount"]
    told = run("train", "--data", log, "--timezone", "Europe/Berlin", *options, "--run", folder, "--quiet", "--json")
    assert list(json.loads(told)["floors"]) == ["Poisson", "Weekly Poisson", "Hawkes"]
    return folder


def test_a_run_remembers_its_calendar(trained: Path):
    model = load_model(trained / "model.safetensors")
    assert model.calendar is not None
    known = model.calendar.calendar
    assert (known.zone, known.seconds_per_unit, known.yearly) == ("Europe/Berlin", 3600.0, False)


def test_commands_follow_it(trained: Path, log: Path):
    names = [one["model"] for one in json.loads(run("evaluate", trained, "--floors", "--no-times", "--json"))["floors"]]
    assert names == ["Poisson", "Weekly Poisson", "Hawkes"]
    times = "2024-05-01T03:00,2024-05-01T10:00"
    (told,) = json.loads(run("intensity", trained, log, "--sequence", "c0", "--times", times, "--json"))
    night, morning = (sum(row["intensities"].values()) for row in told["queries"])
    assert abs(night / morning - 1.0) > 1e-4
    assert json.loads(run("sample", trained, "--history", log, "--horizon", "2d", "--n", 2, "--json"))
    assert json.loads(run("predict", trained, log, "--json"))
    (effect,) = json.loads(run("explain", trained, "--covariates", "--json"))
    assert effect["column"] == "amount" and [one["change"] for one in effect["effects"]] == ["+1 sd"]
    assert "amount" in run("explain", trained, "--covariates")


def test_it_can_be_turned_off(log: Path, tmp_path: Path):
    options = ["--model", "nhp", "--dim", 4, "--epochs", 1, "--no-calendar", "--no-floors"]
    run("train", "--data", log, *options, "--run", tmp_path / "b", "--quiet")
    assert load_model(tmp_path / "b" / "model.safetensors").calendar is None


def test_explaining_needs_a_time_or_covariates(trained: Path):
    result = CliRunner().invoke(app, ["explain", str(trained)])
    assert result.exit_code == 2


def test_models_of_rules_say_that_they_do_without(log: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture):
    program = tmp_path / "calls.ndtt"
    program.write_text(":- event(open). :- event(call). open. call. busy <- open. call :- busy.\n", encoding="utf-8")
    options = ["--program", program, "--model", "ndtt", "--dim", 2, "--epochs", 1, "--no-floors", "--quiet"]
    run("train", "--data", log, *options, "--run", tmp_path / "told")
    assert "NDTT does without the calendar of the data" in caplog.text
    caplog.clear()
    run("train", "--data", log, *options, "--no-calendar", "--run", tmp_path / "off")
    assert "calendar" not in caplog.text
