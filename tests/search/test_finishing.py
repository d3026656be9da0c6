"""The leader is trained again in the end: for longer and from other seeds, where there is time, and after the other kinds."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from foretell.reproduce.unit import UnitFolder, Workspace
from foretell.search.budget import Budget, keep_budget
from foretell.search.finishing import LONGER, MARGIN, SEEDS, final_fits, leaders
from foretell.search.halving import FIRST_SHARE, LONG_SHARE, WHOLE, _Fit
from tests.search.test_halving import names, search

AGAIN = ["anhp-long", "anhp-seed-1", "anhp-seed-2", "anhp-seed-3"]


def record(candidate: str, dev: float | None, seconds: float = 1.0, **more: Any) -> dict[str, Any]:
    return {"candidate": candidate, "dev": dev, "seconds": seconds, "epochs": 10, "planned": 80, "wanted": 80, **more}


DONE = {
    "anhp-3": record("anhp", -2.0, 20.0),
    "nhp-1": record("nhp", -3.0),
    "s2p2-1": record("s2p2", -4.0),
    "anhp-wide-1": record("anhp-wide", -5.0),
    "anhp-slow-1": record("anhp-slow", -6.0),
}


def test_the_leader_comes_after_other_kinds_and_before_lesser_variants(tmp_path: Path):
    found = names(search(tmp_path), DONE)
    assert [one for one in found if one in AGAIN] == AGAIN
    assert found.index("s2p2-2") < found.index("anhp-long") < found.index("anhp-seed-3") < found.index("anhp-slow-2")
    assert not any("long" in one or "seed" in one for one in names(search(tmp_path), {}))


def test_a_variant_that_is_ahead_has_its_turns_and_floors_have_none(tmp_path: Path):
    every = search(tmp_path).candidates(0)
    ahead = DONE | {"anhp-wide-3": record("anhp-wide", -1.9), "anhp-slow-3": record("anhp-slow", -1.95)}
    assert [one.name for one in leaders(every, ahead | {"hawkes": record("hawkes", -1.0)})] == ["anhp", "anhp-wide"]
    assert [one.name for one in leaders(every, DONE)] == ["anhp"]
    assert leaders(every, {"anhp-wide-3": record("anhp-wide", -1.9), "nhp-1": record("nhp", None)}) == []
    found = [one.name for one in final_fits(leaders(every, ahead), 0, WHOLE, fixed={})]
    assert found[:3] == ["anhp-long", "anhp-wide-long", "anhp-seed-1"] and len(found) == 2 * (1 + SEEDS)


def test_a_leader_without_a_fit_of_its_whole_length_is_not_finished(tmp_path: Path):
    found = names(search(tmp_path), DONE | {"nhp-1": record("nhp", -1.0)})
    assert "nhp-2" in found and not any("long" in one or "seed" in one for one in found)


def test_only_the_length_or_the_seed_is_otherwise(tmp_path: Path):
    one = search(tmp_path)
    units = {unit.name: unit.plain() for unit in one.units(DONE)}
    first, longer, seeded = (units[name] for name in ("anhp-3", "anhp-long", "anhp-seed-2"))
    train = first["tables"]["train"]
    assert seeded["tables"] == {**first["tables"], "train": {**train, "seed": 2}}
    lengths = {"epochs": round(LONGER * train["epochs"]), "patience": round(LONGER * train["patience"])}
    assert longer["tables"] == {**first["tables"], "train": {**train, **lengths}}
    assert longer["epochs"] == lengths["epochs"] > seeded["epochs"] == train["epochs"]
    assert (longer["again"], seeded["again"]) == ("longer", "seed 2") and "again" not in first


def test_the_users_seed_is_counted_on_from_and_their_epochs_are_kept(tmp_path: Path):
    one = search(tmp_path)
    one.table["train"] = {"seed": 7, "epochs": 30}
    units = {unit.name: unit.plain()["tables"]["train"] for unit in one.units(DONE)}
    assert [name for name in units if name in AGAIN] == AGAIN[1:]
    assert [units[name]["seed"] for name in AGAIN[1:]] == [8, 9, 10] and units["anhp-seed-1"]["epochs"] == 30


@pytest.mark.parametrize(("left", "listed"), [(21.0, []), (23.0, AGAIN[1:]), (35.0, AGAIN[1:]), (38.0, AGAIN)])
def test_what_there_is_no_time_for_is_not_begun(tmp_path: Path, left: float, listed: list[str]):
    """The first fit took 20 seconds: another seed takes 22, with the margin, and the longer one 36.7."""
    keep_budget(tmp_path, Budget(200.0, 0.0, time.time() - 200.0 + 16.0 + left))  # 16 seconds are kept for scores
    assert [one for one in names(search(tmp_path), DONE) if one in AGAIN] == listed


def test_a_first_fit_that_was_cut_says_how_long_an_epoch_takes(tmp_path: Path):
    (longer, seeded, *_) = final_fits(search(tmp_path).candidates(0)[:1], 0, WHOLE, fixed={})
    epochs = seeded.train["epochs"]
    cut = record("anhp", -2.0, 20.0, planned=10, wanted=epochs)
    assert seeded.seconds(cut) == pytest.approx(MARGIN * 2.0 * epochs)
    assert longer.seconds(cut) == pytest.approx(MARGIN * 2.0 * longer.train["epochs"])


def test_what_is_done_stays_listed_and_may_take_nearly_all_that_is_left(tmp_path: Path):
    found = search(tmp_path)
    first, longer = (next(one for one in found.units(DONE) if one.name == name) for name in ("anhp-3", "anhp-long"))
    UnitFolder(tmp_path / "units" / "anhp-long").finish(longer, record("anhp", -1.5))
    keep_budget(tmp_path, Budget(200.0, 0.0, time.time() - 199.0))
    assert [one for one in names(found, DONE) if one in AGAIN] == ["anhp-long"]
    shares = [_Fit(found, one, Workspace(tmp_path, None, "cpu", lambda: False))._share() for one in (first, longer)]
    assert shares == [FIRST_SHARE, LONG_SHARE]
