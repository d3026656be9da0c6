"""Models of programs with tables from a log: rows of training are kept, rows that only other data have are the mean of these."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import foretell as ft
from foretell.data import EventData
from foretell.lang.program import Program
from foretell.models.rules.rule_model import RuleModel
from foretell.sampling.core.futures import sample_futures
from foretell.train.splits import in_vocabulary
from tests.cli.invoking import fine, refused
from tests.ground.timelines import event_data

SHOP = """
:- table(user, from_log(buy, 1)).
:- event(buy, 2).
:- embed(item, 2).
:- embed(user, 2).
:- embed(seen, 2).
item(milk). item(tea).
buy(U, I) :- user(U), item(I) :: w(U).
buy(U, I) :- seen(U), item(I).
seen(U) <- buy(U, _), user(U).
"""
TRAIN = [["buy(u1,milk)", "buy(u2,tea)", "buy(u1,tea)"], ["buy(u2,tea)"]]
DEV = [["buy(u1,milk)", "buy(u8,tea)"]]
TEST = [["buy(u9,milk)", "buy(u1,tea)", "buy(u9,tea)"], ["buy(u1,tea)"]]
KINDS = [ft.ANDTT, ft.NDTT, ft.S2NDTT]
TIMES = np.linspace(0.2, 4.2, 6)


def seen_by(model: RuleModel, sequences: list[list[str]]) -> EventData:
    data = event_data(*sequences)
    model.widen(data.vocabulary.names)
    return in_vocabulary(data, model.vocabulary)


@pytest.fixture(params=KINDS, ids=[kind.__name__ for kind in KINDS])
def model(request: pytest.FixtureRequest) -> RuleModel:
    both = event_data(*TRAIN, *DEV)
    made = request.param(Program.from_text(SHOP, dim=2), both.vocabulary, dim=2, seed=1, dtype=torch.float64)
    train, dev = (in_vocabulary(event_data(*some), both.vocabulary) for some in (TRAIN, DEV))
    ft.fit(made, train, dev, epochs=2, progress=False)
    return made


def test_it_is_the_model_of_the_program_with_the_rows_written_into_it(model: RuleModel) -> None:
    """Those of training as facts, and what a sequence brings as a fact, too."""
    assert [one.rows for one in model.program.tables] == [[("u1",), ("u2",)]]
    for sequences, users in ((TRAIN[:1], ["u1", "u2"]), (TEST[:1], ["u1", "u2", "u9"])):
        data = seen_by(model, sequences)
        lines = [line for line in SHOP.splitlines() if "from_log" not in line]
        text = "\n".join([*lines, *(f"user({user})." for user in users)])
        make: Any = type(model)
        written = make(Program.from_text(text, dim=2), data.vocabulary, dim=2, dtype=torch.float64)
        written.prepare(data)
        model.ground(data)
        arrays = model.named_arrays()
        assert set(written.named_arrays()) <= set(arrays)
        written.load_named_arrays({name: arrays[name] for name in written.named_arrays()})
        written.set_units(model.units())
        written.eval()
        found = model.intensity(data[0], TIMES)
        np.testing.assert_allclose(found, written.intensity(data[0], TIMES), rtol=1e-12)
        assert float(np.ptp(found[0])) > 1e-6


def test_rows_that_training_never_met_are_the_mean_and_are_counted(model: RuleModel) -> None:
    test = seen_by(model, TEST)
    found = model.unseen_groups(test)
    assert found.names == ("user(u9)", "w(u9)") and found.events == 2
    arrays = model.named_arrays()
    for name in ("user", "w"):
        one, other, unseen = (arrays[f"deduce.{name}({user}).W"] for user in ("u1", "u2", "u9"))
        torch.testing.assert_close(unseen, (one + other) / 2.0, rtol=0.0, atol=1e-14)
    assert "deduce.user(u8).W" in arrays  # dev has it
    assert not any("u9" in name for name in model.possible_intensities(test[1], [1.5])[0])


def test_a_saved_model_keeps_the_rows_and_where_others_are_from(model: RuleModel, tmp_path: Path) -> None:
    ft.save_model(model, tmp_path / "model.safetensors")
    loaded = ft.load_model(tmp_path / "model.safetensors")
    assert isinstance(loaded, RuleModel) and loaded.program.tables[0].rows == [("u1",), ("u2",)]
    for sequences in (TRAIN, TEST):
        found, wanted = (one.intensity(seen_by(one, sequences)[0], TIMES) for one in (loaded, model))
        np.testing.assert_array_equal(found, wanted)


def test_samples_go_on_with_the_rows_of_their_history(model: Any) -> None:
    past = [one.first(1, 1.5) for one in seen_by(model, TEST)]
    found = sample_futures(model, past, n=100, horizon=60.0, seed=1)
    users = [{name.split("(")[1].split(",")[0] for one in drawn.futures for name in one.events} for drawn in found]
    assert users == [{"u1", "u2", "u9"}, {"u1", "u2"}]


def write(path: Path, *sequences: list[str]) -> Path:
    lines = [
        {"id": f"s{n}", "times": [float(k + 1) for k in range(len(one))], "events": one, "t_end": 9.0}
        for n, one in enumerate(sequences)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def test_a_run_keeps_the_rows_and_never_reads_its_training_data_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORETELL_CACHE", str(tmp_path / "cache"))
    (tmp_path / "shop.ndtt").write_text(SHOP, encoding="utf-8")
    data = tmp_path / "data"
    data.mkdir()
    write(data / "train.jsonl", *TRAIN)
    write(data / "dev.jsonl", *DEV)
    test, run = write(tmp_path / "test.jsonl", *TEST), tmp_path / "run"
    fine(
        "train", "--data", data, "--program", tmp_path / "shop.ndtt", "--run", run, "--epochs", 1, "--dim", 2, "--quiet"
    )
    for one in data.iterdir():
        one.unlink()
    said = "the intensities of 2 events depend on 2 parameter groups that training never met"
    assert said in fine("evaluate", run, test, "--no-times").out
    assert "`user(u9)`" in refused("evaluate", run, test, "--unseen", "error")
    found = fine("predict", run, test, "--json").json
    assert found
    assert "deduce.user(u2).W" in fine("params", run).json["parameters"]


@pytest.mark.parametrize("impossible", ["skip", "exogenous"])
def test_impossible_events_are_settled_with_the_rows_of_training(tmp_path: Path, impossible: str) -> None:
    """With rows of one sequence alone, `alone` would hold in the second."""
    (tmp_path / "p.ndtt").write_text(
        ":- table(user, from_log(come, 1)).\n:- event(rest, 2).\n:- exogenous(come).\nrest :- user(u2), user(u1).\n",
        encoding="utf-8",
    )
    data, run = write(tmp_path / "train.jsonl", ["come(u1)", "rest"], ["come(u2)", "rest"]), tmp_path / "run"
    asked = ("--program", tmp_path / "p.ndtt", "--epochs", 1, "--dim", 2, "--impossible", impossible)
    found = fine("train", "--data", data, "--run", run, *asked, "--json").json
    assert found and "impossible" not in json.dumps(found.get("warnings", []))
    assert json.loads((run / "environment.json").read_text())["data"]["impossible"]["train"] == 0
