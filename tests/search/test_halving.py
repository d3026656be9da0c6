"""Which fits are listed, and in which order: the rules' own first, the best third of a length next, and only what there is time for."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from foretell.reproduce.experiment import Definition
from foretell.reproduce.unit import UnitFolder, Workspace
from foretell.search.budget import Budget, keep_budget, open_budget, read_budget
from foretell.search.halving import WHOLE, AutoSearch, Rung, _Fit, _TooSlow

TRAITS = {"events": 40_000, "types": 16, "sequences": 700, "longest": 180, "ties": 0.0, "has_dev": True}


def search(folder: Path, **changes: Any) -> AutoSearch:
    table = {"kind": "auto", "device": "cpu", "dataset": {"path": "x"}, "traits": {**TRAITS, **changes}}
    return AutoSearch(Definition("x", folder, table))


def names(found: AutoSearch, done: dict[str, Any]) -> list[str]:
    return [one.name for one in found.units(done)]


def record(dev: float, seconds: float = 1.0) -> dict[str, Any]:
    return {"dev": dev, "seconds": seconds, "epochs": 10}


def test_floors_then_the_rules_own_at_full_length_then_short_ones(tmp_path: Path):
    found = names(search(tmp_path), {})
    assert found[:6] == ["poisson", "hawkes", "anhp-3", "nhp-1", "s2p2-1", "rmtpp-1"]


def test_data_with_weeks_have_a_floor_that_knows_them(tmp_path: Path):
    assert names(search(tmp_path, has_weeks=True), {})[:3] == ["poisson", "weekly", "hawkes"]


def test_the_best_third_goes_on_before_others_begin(tmp_path: Path):
    done = {"nhp-1": record(-3.0), "s2p2-1": record(-2.0), "rmtpp-1": record(-4.0)}
    found = names(search(tmp_path), done)
    assert found.index("s2p2-2") == found.index("anhp-3") + 1
    assert found.index("anhp-wide-1") < found.index("nhp-2") < found.index("rmtpp-2")
    again = names(search(tmp_path), done | {"s2p2-2": record(-1.9)})
    assert "s2p2-3" in again and "s2p2-2" in again


def test_a_candidate_that_starts_from_hawkes_waits_for_it_unless_it_failed(tmp_path: Path):
    few = search(tmp_path, events=900)
    assert not any(one.startswith("anhp") for one in names(few, {}))
    done = {"hawkes": record(-1.0) | {"decays": 3}}
    tables = next(one for one in few.units(done) if one.name == "anhp-3").settings["tables"]
    assert tables["model"]["hawkes"] == 3
    folder = UnitFolder(tmp_path / "units" / "hawkes")
    folder.fail(few.units({})[1], "no")
    tables = next(one for one in few.units({}) if one.name == "anhp-3").settings["tables"]
    assert "hawkes" not in tables["model"]


def test_few_long_sequences_begin_with_a_length_that_makes_steps(tmp_path: Path):
    one = search(tmp_path, sequences=1, longest=40_000)
    assert "nhp-2" in names(one, {}) and "nhp-1" not in names(one, {})
    candidate = one.candidates(0)[1]
    assert Rung(candidate, 1).epochs * 1 >= 15 > Rung(candidate, 0).epochs


def test_what_there_is_no_time_for_is_not_listed(tmp_path: Path):
    found = search(tmp_path)
    keep_budget(tmp_path, Budget(100.0, 0.0, time.time() - 60.0))  # 32 seconds are left for training
    done = {"nhp-1": record(-3.0, 20.0), "s2p2-1": record(-3.5, 40.0), "rmtpp-1": record(-4.0, 25.0)}
    listed = names(found, done)
    assert "nhp-2" in listed and "s2p2-2" not in listed and "rmtpp-2" not in listed
    assert not any(one.startswith("anhp-wide") for one in listed)  # how long it takes is not known yet
    assert "anhp-wide-1" in names(found, done | {"anhp-3": record(-2.0, 20.0)})
    assert "anhp-wide-1" not in names(found, done | {"anhp-3": record(-2.0, 900.0)})


def test_what_is_done_stays_listed_when_time_is_up(tmp_path: Path):
    found = search(tmp_path)
    keep_budget(tmp_path, Budget(100.0, 0.0, time.time() - 99.0))
    unit = Rung(found.candidates(0)[1], 0).unit()
    assert "nhp-1" not in names(found, {})
    UnitFolder(tmp_path / "units" / "nhp-1").finish(unit, record(-1.0))
    assert "nhp-1" in names(found, {}) and WHOLE == 2


def test_a_fit_is_shortened_to_the_time_there_is_and_not_where_nothing_limits_it(tmp_path: Path):
    found = search(tmp_path)
    unit = Rung(found.candidates(0)[1], WHOLE).unit()
    second = {"epoch": 2, "train_seconds": 20.0, "dev_seconds": 5.0}

    def told(budget: Budget | None) -> None:
        if budget is not None:
            keep_budget(tmp_path, budget)
        fit = _Fit(found, unit, Workspace(tmp_path, None, "cpu", lambda: False))
        config = SimpleNamespace(train=SimpleNamespace(epochs=100))
        fit._watch(config)(second)  # pyright: ignore[reportArgumentType]

    told(None)
    with pytest.raises(_TooSlow) as slow:
        told(Budget(1000.0, 0.0, time.time()))
    assert 3 <= slow.value.epochs < 40
    told(Budget(100_000.0, 0.0, time.time()))


def test_a_budget_goes_on_from_what_was_spent(tmp_path: Path):
    first = open_budget(tmp_path, 1.0)
    assert first.spent == 0.0 and 50.0 < first.left() <= 60.0 - first.reserve
    keep_budget(tmp_path, Budget(60.0, 10.0, time.time() - 5.0), ended=True)
    again = open_budget(tmp_path, 2.0)
    assert again.seconds == 120.0 and again.spent == pytest.approx(15.0, abs=0.5)
    kept = read_budget(tmp_path)
    assert kept is not None and kept.began == 0.0
