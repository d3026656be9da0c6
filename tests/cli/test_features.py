"""Numbers of facts and events from the command line: trained, evaluated, sampled, explained, and recomputed from parameters alone."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from foretell.lang.program import Program
from foretell.reference import andtt as twin
from foretell.reference.features import EventWithNumbers
from foretell.reference.ruled import spelled
from tests.cli.invoking import fine, foretell
from tests.cli.test_andtt import _shaped, _twin_of

PROGRAM = """
:- event(buy).
:- features(buy, amount).
:- table(price, "price.csv", features(cost, weight)).
buy(I) :- price(I).
buy(I) :- liked(I).
liked(I) <- buy(I), price(I).
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "price.csv").write_text("item,cost,weight\nmilk,1.5,\nbread,2,0.5\n")
    (tmp_path / "shop.ndtt").write_text(PROGRAM)
    draw = random.Random(1)
    rows = ["sequence,time,event,amount"]
    for sequence in range(12):
        time = 0.0
        for place in range(8):
            time += draw.expovariate(1.0)
            amount = "" if place == 3 else f"{draw.gauss(4.0, 2.0):.3f}"
            rows.append(f"s{sequence},{time:.4f},buy({draw.choice(['milk', 'bread'])}),{amount}")
    (tmp_path / "visits.csv").write_text("\n".join(rows) + "\n")
    return tmp_path


def test_a_run_is_trained_evaluated_sampled_and_explained(shop: Path) -> None:
    visits, run = shop / "visits.csv", shop / "run"
    sizes = ("--dim", "4", "--layers", "1", "--epochs", "1")
    done = foretell(
        "train", "--data", visits, "--program", shop / "shop.ndtt", "--model", "andtt", *sizes, "--out", run
    )
    assert done.code == 0, done
    assert fine("evaluate", run, visits, "--json").json
    futures = ("sample", run, "--history", visits, "--horizon", "6", "--n", "3")
    drawn, missing = (fine(*futures, "--json", "--future-covariates", how).json for how in ("drawn", "missing"))
    assert drawn != missing
    assert "buy(milk)" in fine("explain", run, visits, "--sequence", "s0", "--at", "3").out
    params = fine("params", run).json
    assert set(params["features"]["tables"]["price"]) == {"cost", "weight"}
    mean, deviation = params["features"]["events"]["amount"]
    assert 2.0 < mean < 6.0 and 0.5 < deviation < 4.0


def test_parameters_without_data_recompute_intensities(shop: Path) -> None:
    visits = shop / "visits.csv"
    made = fine("params", "--program", shop / "shop.ndtt", "--preset", "paper", "--dim", "3", "--seed", "5").json
    draw = random.Random(2)
    for name in made["parameters"]:
        if name.startswith("add.features"):
            made["parameters"][name] = [[draw.gauss(0.0, 0.5) for _ in row] for row in made["parameters"][name]]
    made["features"]["events"]["amount"] = [4.0, 2.0]
    (shop / "params.json").write_text(json.dumps(made))
    at = (0.5, 2.0, 6.0)
    asked = (
        "--program",
        shop / "shop.ndtt",
        "--params",
        shop / "params.json",
        "--dtype",
        "float64",
        "--sequence",
        "s0",
    )
    found = fine("intensity", *asked, visits, "--at", ",".join(map(str, at)), "--json").json[0]["queries"]
    program = Program.from_file(shop / "shop.ndtt", dim=3)
    settings, parameters = _twin_of(made)
    rows = [line.split(",") for line in visits.read_text().splitlines()[1:] if line.startswith("s0,")]
    events = [EventWithNumbers(row[2], {"amount": float(row[3]) if row[3] else None}) for row in rows]
    shaped = _shaped(program, settings, parameters, [one.name for one in events])
    for time, query in zip(at, found, strict=True):
        slow = twin.intensities(program, settings, shaped, events, [float(row[1]) for row in rows], time)
        wanted = {spelled(fact): float(value) for fact, value in slow.items()}
        assert query["intensities"] == pytest.approx(wanted, rel=1e-9)
