"""Covariates on the command line, from a table with columns to futures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.invoking import fine, foretell
from tests.train.test_covariates import made_up


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """train.csv, dev.csv and test.csv, and a run that was trained on them."""
    path = tmp_path_factory.mktemp("shop")
    for seed, (name, count) in enumerate((("train", 30), ("dev", 8), ("test", 8))):
        lines = ["sequence,time,event,amount,channel,age"]
        for place, one in enumerate(made_up(count, seed)):
            own = one.attributes
            assert own is not None
            amounts, age = own.of_events("amount", 10), own.of_sequence("age")
            assert amounts is not None and age is not None
            for event in range(10):
                amount = "" if amounts.missing()[event] else amounts.values[event]
                channel, kind = ("web", "shop")[event % 2], "ab"[int(one.types[event])]
                row = (place, float(one.times[event]), kind, amount, channel, float(age.values[0]))
                lines.append(",".join(map(str, row)))
        (path / f"{name}.csv").write_text("\n".join(lines) + "\n")
    columns = ("--covariates", "amount,channel", "--static", "age")
    fine("train", "--data", path, "--model", "nhp", "--dim", "4", "--epochs", "2", *columns, "--out", path / "run")
    return path


def test_a_run_knows_its_columns(folder: Path):
    shown = json.loads(fine("params", folder / "run").out)["parameters"]
    names = {name for name in shown if name.startswith(("covariate.", "static."))}
    assert names == {
        "covariate.amount.w", "covariate.amount.missing", "covariate.channel.missing", "covariate.channel.other",
        "covariate.channel.is.web", "covariate.channel.is.shop", "static.event.age.w", "static.event.age.missing",
        "static.query.age.w", "static.query.age.missing",
    }  # fmt: skip
    scored = fine("evaluate", folder / "run", "--json")
    assert "missing" not in scored.err
    assert fine("evaluate", folder / "run", folder / "test.csv", "--json").out == scored.out


def test_a_file_without_the_columns_is_scored_with_missing_values(folder: Path):
    bare = folder / "bare.csv"
    lines = (folder / "test.csv").read_text().splitlines()
    bare.write_text("\n".join(",".join(line.split(",")[:3]) for line in lines) + "\n")
    found = fine("predict", folder / "run", bare, "--json")
    assert "taken as missing: amount, channel, age" in found.err
    assert found.out != fine("predict", folder / "run", folder / "test.csv", "--json").out


def test_futures_say_what_covariates_their_events_have(folder: Path):
    asked = ("sample", folder / "run", "--horizon", "3", "--n", "2", "--history", folder / "test.csv", "--json")
    drawn, again = (json.loads(fine(*asked).out) for _ in range(2))
    missing = json.loads(fine(*asked, "--future-covariates", "missing").out)
    assert drawn == again != missing
    assert {one["covariates"] for one in drawn} == {"drawn"}
    assert {one["covariates"] for one in missing} == {"missing"}
    said = fine("sample", folder / "run", "--horizon", "3").out
    assert "covariates of drawn events: those of training events of their type, at random" in said


def test_wrong_columns_and_choices_are_messages(folder: Path):
    wrong = foretell("train", "--data", folder, "--covariates", "amont", "--out", folder / "none")
    assert wrong.code == 1 and "did you mean `amount`?" in wrong.err and not (folder / "none").exists()
    wrong = foretell("sample", folder / "run", "--horizon", "1", "--future-covariates", "guessed")
    assert wrong.code == 1 and "drawn" in wrong.err
    fine("train", "--data", folder, "--model", "nhp", "--dim", "4", "--epochs", "1", "--out", folder / "plain")
    wrong = foretell("sample", folder / "plain", "--horizon", "1", "--future-covariates", "missing")
    assert wrong.code == 1 and "trained without covariates" in wrong.err


def test_a_report_tells_what_each_column_does(folder: Path, tmp_path: Path):
    page = tmp_path / "report.html"
    fine("report", folder / "run", "-o", page, "--no-floors", "--quiet")
    text = page.read_text(encoding="utf-8")
    section = text[text.index("What each column does") :]
    told = json.loads(fine("explain", folder / "run", "--covariate-effects", "--json").out)
    assert {one["column"] for one in told} == {"amount", "channel", "age"}
    for one in told:
        assert f">{one['column']}</th>" in section
        value = f"{one['importance']['value']:+.3f}".replace("-", "−")
        assert value in section
    assert section.index(told[0]["column"]) < section.index(told[1]["column"])  # the most important first
