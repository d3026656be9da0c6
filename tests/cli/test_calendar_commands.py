"""A log with dates through the commands: the calendar is remembered, the floor that knows the week stands beside, columns are explained."""

from __future__ import annotations

import csv
import json
import math
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from foretell import load_model
from foretell.cli.main import app
from foretell.models.rules.rule_model import RuleModel


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
    told = run("train", "--data", log, "--timezone", "Europe/Berlin", *options, "--out", folder, "--quiet", "--json")
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
    (told,) = json.loads(run("intensity", trained, log, "--sequence", "c0", "--at", times, "--json"))
    night, morning = (sum(row["intensities"].values()) for row in told["queries"])
    assert abs(night / morning - 1.0) > 1e-4
    assert json.loads(run("sample", trained, "--history", log, "--horizon", "2d", "--n", 2, "--json"))
    assert json.loads(run("predict", trained, log, "--json"))
    (effect,) = json.loads(run("explain", trained, "--covariate-effects", "--json"))
    assert effect["column"] == "amount" and [one["change"] for one in effect["effects"]] == ["+1 sd"]
    assert "amount" in run("explain", trained, "--covariate-effects")


def test_it_can_be_turned_off(log: Path, tmp_path: Path):
    options = ["--model", "nhp", "--dim", 4, "--epochs", 1, "--no-calendar", "--no-floors"]
    run("train", "--data", log, *options, "--out", tmp_path / "b", "--quiet")
    assert load_model(tmp_path / "b" / "model.safetensors").calendar is None


def test_explaining_needs_a_time_or_covariates(trained: Path):
    result = CliRunner().invoke(app, ["explain", str(trained)])
    assert result.exit_code == 2


@pytest.mark.parametrize("kind", ["andtt", "ndtt", "s2ndtt"])
def test_models_of_rules_follow_the_clock_in_every_command(
    log: Path, tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
):
    program = tmp_path / "calls.ndtt"
    program.write_text(":- event(open). :- event(call). open. call. busy <- open. call :- busy.\n", encoding="utf-8")
    options = ["--program", program, "--model", kind, "--dim", 2, "--epochs", 2, "--no-floors", "--quiet"]
    caplog.set_level("INFO", logger="foretell")
    folder = tmp_path / "told"
    run("train", "--data", log, *options, "--out", folder)
    assert "follows the clock: day and week in UTC" in caplog.text
    model = load_model(folder / "model.safetensors")
    assert isinstance(model, RuleModel) and model.clock is not None
    assert any(bool(one.any()) for one in model.clock.heads)  # it has learned something
    assert "intensity.call.calendar" in run("params", folder)
    times = "2024-05-01T03:00,2024-05-01T10:00"
    (told,) = json.loads(run("intensity", folder, log, "--sequence", "c0", "--at", times, "--json"))
    night, morning = (sum(row["intensities"].values()) for row in told["queries"])
    assert abs(night / morning - 1.0) > 1e-4
    assert json.loads(run("evaluate", folder, "--no-floors", "--no-times", "--json"))
    assert json.loads(run("sample", folder, "--history", log, "--horizon", "2d", "--n", 2, "--json"))
    assert json.loads(run("predict", folder, log, "--json"))
    (why,) = json.loads(run("explain", folder, log, "--at", 2, "--sequence", "c0", "--json"))
    assert math.isfinite(why["calendar"])
    assert "the calendar: ×" in run("explain", folder, log, "--at", 2, "--sequence", "c0")
    run("train", "--data", log, *options, "--no-calendar", "--out", tmp_path / "off")
    off = load_model(tmp_path / "off" / "model.safetensors")
    assert isinstance(off, RuleModel) and off.clock is None
