"""`foretell reproduce` through the real command line: units are done once, in pieces, and add up to tables and findings."""

from __future__ import annotations

import json
import signal
import time

import numpy as np
import pytest

from foretell.reproduce.assignment import Assignment, Worker
from foretell.reproduce.experiment import Choice, names, open_experiment, read_definition, results_of
from foretell.reproduce.rows import read_rows
from foretell.reproduce.unit import UnitFolder
from tests.cli.invoking import Outcome, fine, foretell, process, refused

UNITS = {"a-nhp-grid-dim2", "a-nhp-grid-dim4", "a-nhp-seed0", "a-nhp-seed1", "a-nhp-layernorm-seed0", "poisson-seed0"}


def numbers(folder) -> dict[str, dict]:
    """What must not depend on how a run went: the scores of every unit."""
    found = json.loads((folder / "results.json").read_text())
    keys = ("dev", "best_epoch", "size", "test", "monte_carlo")
    return {one["unit"]: {key: one.get(key) for key in keys} for one in found["records"]}


def ended(child) -> Outcome:
    """Three processes that import torch on a busy machine may take a while."""
    out, err = child.communicate(timeout=300)
    return Outcome(child.returncode, out, err)


def test_units_become_scores_tests_findings_and_pages(experiment, tmp_path):
    told = fine("reproduce", experiment, "--out", tmp_path / "out")
    folder = tmp_path / "out" / "short-game"
    results = json.loads((folder / "results.json").read_text())
    assert {one["unit"] for one in results["records"]} == UNITS
    assert results["units"] == {"done": 6, "pending": 0, "failed": {}}
    # The better size on dev is the one that is scored on test, and that of the model which is like it.
    sizes = {one["unit"]: one["dev"] for one in results["records"] if one["part"] == "grid"}
    best = max(sizes, key=lambda name: sizes[name])
    chosen = {"dim": int(best.removeprefix("a-nhp-grid-dim"))}
    assert results["chosen"] == {"A-NHP": chosen, "A-NHP, LayerNorm": chosen}
    assert not any("test" in one for one in results["records"] if one["part"] == "grid")
    # A model's score is the mean over its seeds.
    score = next(one for one in results["scores"] if (one["model"], one["metric"]) == ("A-NHP", "log_likelihood"))
    seeds = [
        one["test"]["log_likelihood"]["value"] for one in results["records"] if one["unit"].startswith("a-nhp-seed")
    ]
    assert score["values"] == pytest.approx(seeds, abs=1e-5)
    assert score["estimate"]["value"] == pytest.approx(np.mean(seeds), abs=1e-5)
    assert score["spread"] == pytest.approx(np.std(seeds, ddof=1), abs=1e-5)
    # The test between two models sees what the scores say.
    test = next(
        one
        for one in results["tests"]
        if (one["first"], one["second"], one["metric"]) == ("A-NHP", "Poisson", "log_likelihood")
    )
    poisson = next(one for one in results["records"] if one["unit"] == "poisson-seed0")["test"]
    assert test["difference"]["value"] == pytest.approx(np.mean(seeds) - poisson["log_likelihood"]["value"], abs=1e-5)
    # What counts is the larger of p over events and p over seeds, corrected for all comparisons.
    (one,) = test["tests"]
    assert one["p_holm"] >= max(one["p"], test["p_seeds"] or 0.0) and test["significant"] == (one["p_holm"] < 0.05)
    assert [one["name"] for one in results["findings"]] == ["Attention", "Sizes"]
    assert all(
        one["verdict"] in ("holds", "does not hold", "not significant", "not resolved") for one in results["findings"]
    )
    page = (folder / "results.md").read_text()
    assert "| A-NHP, LayerNorm |" in page and "## Findings" in page
    assert (folder / "scores.png").stat().st_size > 1000
    assert "A game, in short" in told.out
    assert not list(folder.glob("units/*/run/checkpoint.safetensors"))


def test_what_is_done_is_not_done_again(experiment, tmp_path):
    out = tmp_path / "out"
    first = fine("reproduce", experiment, "--out", out, "--models", "a-nhp", "--json").json["experiments"][0]
    assert (first["done"], first["pending"], first["failed"]) == (4, [], {})
    records = {path: path.stat().st_mtime_ns for path in out.rglob("record.json")}
    second = fine("reproduce", experiment, "--out", out)
    assert {path: path.stat().st_mtime_ns for path in records} == records
    assert "poisson-seed0: done" in second.err and "a-nhp-seed0: done" not in second.err


def test_a_run_in_many_short_pieces_ends_with_the_same_numbers(experiment, tmp_path):
    chosen = (experiment, "--models", "a-nhp", "--seeds", "0")
    fine("reproduce", *chosen, "--out", tmp_path / "whole")
    pieces = 0
    while len(list((tmp_path / "pieces").rglob("record.json"))) < 3:
        fine("reproduce", *chosen, "--out", tmp_path / "pieces", "--minutes", 0.00001)
        pieces += 1
        assert pieces < 60
    assert pieces > 6  # each piece ends a step or two after it began
    assert numbers(tmp_path / "pieces" / "short-game") == numbers(tmp_path / "whole" / "short-game")


@pytest.mark.slow  # every process imports torch
def test_several_processes_find_what_one_does(experiment, tmp_path):
    chosen = (experiment, "--models", "a-nhp", "--seeds", "0")
    fine("reproduce", *chosen, "--out", tmp_path / "one")
    outcome = ended(process("reproduce", *chosen, "--out", tmp_path / "two", "--jobs", 2, "--json"))
    assert outcome.code == 0, outcome
    one, two = numbers(tmp_path / "one" / "short-game"), numbers(tmp_path / "two" / "short-game")
    assert one.keys() == two.keys()
    for name in one:
        assert two[name]["dev"] == pytest.approx(one[name]["dev"], rel=1e-4)  # threads may differ


@pytest.mark.slow
def test_processes_that_are_told_to_stop_leave_checkpoints_and_go_on(experiment, tmp_path):
    text = (experiment / "experiment.toml").read_text().replace("epochs = 2", "epochs = 100000\npatience = 0")
    (experiment / "experiment.toml").write_text(text)
    out = tmp_path / "out"
    child = process("reproduce", experiment, "--out", out, "--jobs", 2, "--models", "a-nhp")
    until = time.monotonic() + 60.0
    while len(list(out.rglob("model.safetensors"))) < 2 and time.monotonic() < until:
        time.sleep(0.2)
    child.send_signal(signal.SIGTERM)
    outcome = ended(child)
    assert outcome.code == 130, outcome
    assert len(list(out.rglob("checkpoint.safetensors"))) == 2
    (experiment / "experiment.toml").write_text(text.replace("epochs = 100000", "epochs = 2"))
    fine("reproduce", experiment, "--out", out, "--models", "a-nhp")  # other settings: begun anew


def test_a_unit_that_fails_is_told_and_tried_again_while_the_others_go_on(experiment, tmp_path):
    text = (experiment / "experiment.toml").read_text()
    wrong = text.replace("model = { layer_norm = true }", 'model = { edges = ["nobody <- kick(purple1)"] }')
    (experiment / "experiment.toml").write_text(wrong)
    outcome = foretell("reproduce", experiment, "--out", tmp_path, "--json")
    assert outcome.code == 1
    found = outcome.json["experiments"][0]
    assert list(found["failed"]) == ["a-nhp-layernorm-seed0"] and "nobody" in found["failed"]["a-nhp-layernorm-seed0"]
    assert found["done"] == len(UNITS) - 1
    results = json.loads((tmp_path / "short-game" / "results.json").read_text())
    assert "nobody" in results["units"]["failed"]["a-nhp-layernorm-seed0"]
    (experiment / "experiment.toml").write_text(text)
    assert fine("reproduce", experiment, "--out", tmp_path, "--json").json["experiments"][0]["done"] == len(UNITS)


def test_a_unit_that_another_call_works_on_is_left_to_it(experiment, tmp_path):
    folder = UnitFolder(tmp_path / "short-game" / "units" / "poisson-seed0")
    with folder.held() as mine:
        assert mine
        outcome = fine("reproduce", experiment, "--out", tmp_path, "--models", "poisson")
    assert "poisson-seed0: another call is at work on it" in outcome.err and folder.record() is None
    assert "poisson-seed0: done" in fine("reproduce", experiment, "--out", tmp_path, "--models", "poisson").err


def test_a_size_that_cannot_be_trained_is_not_chosen(experiment, tmp_path):
    text = (experiment / "experiment.toml").read_text()
    (experiment / "experiment.toml").write_text(text.replace("dim = [2, 4]", "dim = [0, 4]"))
    fine("reproduce", experiment, "--out", tmp_path, "--models", "a-nhp", "--seeds", "0")
    results = json.loads((tmp_path / "short-game" / "results.json").read_text())
    assert results["chosen"] == {"A-NHP": {"dim": 4}}
    failed = next(one for one in results["records"] if one["unit"] == "a-nhp-grid-dim0")
    assert failed["dev"] is None and failed["error"] == "dim = 0: expected 1 or more"


def test_units_of_changed_settings_are_done_again(experiment, tmp_path):
    fine("reproduce", experiment, "--out", tmp_path, "--models", "poisson")
    changed = (experiment / "experiment.toml").read_text().replace("events = 30", "events = 20")
    (experiment / "experiment.toml").write_text(changed)
    assert "poisson-seed0: done" in fine("reproduce", experiment, "--out", tmp_path, "--models", "poisson").err
    assert len(read_rows(tmp_path / "short-game/units/poisson-seed0/rows.npz").sequence) == 20


def test_records_of_units_that_are_elsewhere_stay_in_the_results(experiment, tmp_path):
    fine("reproduce", experiment, "--out", tmp_path, "--models", "a-nhp", "--seeds", "0")
    for path in (tmp_path / "short-game" / "units").glob("*/record.json"):
        path.unlink()
    fine("reproduce", experiment, "--out", tmp_path, "--models", "poisson")
    results = json.loads((tmp_path / "short-game" / "results.json").read_text())
    assert {one["unit"] for one in results["records"]} == {
        "poisson-seed0",
        "a-nhp-seed0",
        "a-nhp-grid-dim2",
        "a-nhp-grid-dim4",
    }


def test_records_of_settings_that_have_changed_leave_the_results(experiment, tmp_path):
    def records() -> list[str]:
        found = json.loads((tmp_path / "short-game" / "results.json").read_text())["records"]
        return [one["unit"] for one in found]

    fine("reproduce", experiment, "--out", tmp_path, "--models", "poisson")
    assert records() == ["poisson-seed0"]
    text = (experiment / "experiment.toml").read_text()
    (experiment / "experiment.toml").write_text(text.replace("epochs = 2", "epochs = 3", 1))
    fine("reproduce", experiment, "--out", tmp_path, "--no-fit")
    assert records() == []


def test_what_another_call_has_done_meanwhile_is_not_done_again(experiment, tmp_path):
    fine("reproduce", experiment, "--out", tmp_path, "--models", "poisson")
    folder = UnitFolder(tmp_path / "short-game" / "units" / "poisson-seed0")
    before = (folder.path / "record.json").stat().st_mtime_ns
    units = open_experiment(read_definition(str(experiment), Choice(models=("poisson",)))).units({})
    job = Assignment(str(experiment), Choice(models=("poisson",)), units[0], str(tmp_path), None, "cpu", None)
    assert Worker().work(job, lambda: False).state == "done"
    assert (folder.path / "record.json").stat().st_mtime_ns == before


def test_a_lock_that_its_last_holder_removes_meanwhile_is_not_held(tmp_path, monkeypatch):
    fcntl = pytest.importorskip("fcntl", reason="Windows has no such locks")
    folder = UnitFolder(tmp_path / "units" / "u")
    monkeypatch.setattr(fcntl, "flock", lambda *how: (tmp_path / "units" / ".u.lock").unlink())
    with folder.held() as mine:
        assert not mine


def test_a_device_that_is_not_there_is_an_error_before_anything_is_done(experiment, tmp_path):
    told = refused("reproduce", experiment, "--out", tmp_path, "--device", "cuda:99")
    assert "device 'cuda:99' cannot be used here" in told and not (tmp_path / "short-game" / "units").exists()


def test_findings_about_models_that_are_not_fitted_are_pending(experiment, tmp_path):
    fine("reproduce", experiment, "--out", tmp_path, "--models", "poisson")
    results = json.loads((tmp_path / "short-game" / "results.json").read_text())
    assert [one["verdict"] for one in results["findings"]] == ["pending", "pending"]


def test_nothing_is_fitted_where_only_results_are_asked_for(experiment, tmp_path):
    outcome = fine("reproduce", experiment, "--out", tmp_path, "--no-fit", "--json").json["experiments"][0]
    assert outcome["done"] == 0 and len(outcome["pending"]) == 3  # finals of A-NHP wait for its grid
    assert not (tmp_path / "short-game" / "units").exists()


def test_units_may_be_done_first_and_judged_later(experiment, tmp_path):
    fine("reproduce", experiment, "--out", tmp_path, "--models", "poisson", "--no-results")
    assert (tmp_path / "short-game" / "units" / "poisson-seed0" / "record.json").exists()
    assert not (tmp_path / "short-game" / "results.json").exists()
    fine("reproduce", experiment, "--out", tmp_path, "--models", "poisson", "--no-fit")
    assert (tmp_path / "short-game" / "results.json").exists()
    assert "leaves nothing to do" in refused("reproduce", experiment, "--no-fit", "--no-results")


def test_a_quick_run_changes_what_the_experiment_says_and_goes_elsewhere(experiment, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fine("reproduce", experiment, "--quick", "--models", "a-nhp")
    results = json.loads((tmp_path / "reproduced" / "quick" / "short-game" / "results.json").read_text())
    assert {one["epochs"] for one in results["records"]} == {1} and len(results["records"]) == 3
    assert "its numbers mean nothing" in (tmp_path / "reproduced" / "quick" / "short-game" / "results.md").read_text()


def test_missing_data_are_an_error_that_says_how_to_name_them(experiment, tmp_path, monkeypatch):
    text = (experiment / "experiment.toml").read_text().replace('data = "robocup"', 'data = "mimic2"')
    (experiment / "experiment.toml").write_text(text)
    told = refused("reproduce", experiment, "--out", tmp_path)
    assert "'mimic2' is not in the package" in told and "--data FOLDER" in told and "FORETELL_DATA" in told
    monkeypatch.setenv("FORETELL_DATA", str(tmp_path))
    assert f"{tmp_path} (FORETELL_DATA): there is no folder mimic2 in it" in refused(
        "reproduce", experiment, "--out", tmp_path
    )


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("monte_carlo", "monte_carla", "unknown key `monte_carla`; did you mean `monte_carlo`?"),
        ('kind = "models"', 'kind = "model"', "kind = 'model': expected one of models"),
        ('check = "beats"', 'check = "beat"', "check = 'beat': expected one of co-wins"),
        ('like = "A-NHP"', 'like = "NHP"', "like = 'NHP': no model of this name above it"),
        ("layers = 1", "layrs = 1", "unknown key `model.layrs`; did you mean `layers`?"),
        ("epochs = 2", "epochs = 0", "train.epochs = 0: expected 1 or more"),
        ('columns = ["log_likelihood"', 'columns = ["log_likelihod"', "columns: 'log_likelihod' is not scored here"),
        ('predict = ["kick(-P)"]', "predict = []", "columns: 'participants' is not scored here"),
        ('predict = ["kick(-P)"]', 'predict = ["kick(-P)"]\ntimes = false', "columns: 'rmse' is not scored here"),
        ('metrics = ["log_likelihood"]', 'metrics = ["nats"]', "[[finding]] Attention: 'nats' is not scored here"),
    ],
)
def test_mistakes_in_a_definition_are_told(experiment, tmp_path, old, new, message):
    text = (experiment / "experiment.toml").read_text()
    (experiment / "experiment.toml").write_text(text.replace(old, new, 1))
    assert message in refused("reproduce", experiment, "--out", tmp_path, "--models", "a-nhp,poisson,a-nhp-layernorm")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("mimic",), "no experiment has this name"),
        (("robocup", "--seeds", "0,x"), "expected whole numbers with commas"),
        (("robocup", "--models", "lstm"), "--models lstm: there is no such model"),
        (("robocup", "--models", "nhp,a-nph"), "--models a-nph: there is no such model; did you mean `a-nhp`?"),
        (("robocup", "robocup-by-action", "--models", "hawkes"), "robocup-by-action: none of the models hawkes"),
        (("robocup", "--device", "tpu"), "expected auto"),
        (("robocup", "--jobs", "0"), "--jobs 0: expected 1 or more"),
        (("robocup", "--minutes", "0"), "--minutes 0: expected a number above 0"),
    ],
)
def test_wrong_options_are_refused(tmp_path, options, message):
    assert message in refused("reproduce", *options, "--out", tmp_path)


@pytest.mark.parametrize("quick", [False, True], ids=["whole", "quick"])
@pytest.mark.parametrize("name", names())
def test_every_experiment_that_ships_has_units_and_can_be_summed_up(name, quick, tmp_path):
    definition = read_definition(name, Choice(quick=quick))
    experiment = open_experiment(definition)
    units = experiment.units({})
    assert units and len({one.name for one in units}) == len(units)
    nothing = experiment.summarise(results_of(definition, experiment, tmp_path))
    assert all(one.verdict == "pending" for one in nothing.findings)


def test_all_leaves_out_experiments_without_data_and_says_so(tmp_path):
    outcome = fine("reproduce", "all", "--no-fit", "--out", tmp_path, "--json")
    assert "mimic2: left out: data 'mimic2' is not in the package" in outcome.err
    found = {one["experiment"] for one in outcome.json["experiments"]}
    assert "robocup" in found and "mimic2" not in found


def test_results_are_published_beside_the_definition(experiment, tmp_path):
    fine("reproduce", experiment, "--out", tmp_path / "out", "--publish")
    for name in ("results.json", "results.md"):
        assert (experiment / name).read_text() == (tmp_path / "out" / "short-game" / name).read_text()
    assert (experiment / "scores.png").exists() and not (experiment / "units").exists()
    before = (experiment / "results.md").read_text()
    # Without fits, what was published is judged again from its own numbers.
    fine("reproduce", experiment, "--out", tmp_path / "nothing", "--publish", "--no-fit")
    assert (experiment / "results.md").read_text() == before
    told = refused("reproduce", experiment, "--out", tmp_path / "out", "--publish", "--models", "poisson")
    assert "--publish is for whole results" in told


def test_experiments_are_listed():
    found = fine("reproduce", "--list", "--json").json
    assert {"mimic2", "stackoverflow", "robocup", "iptv"} <= {one["experiment"] for one in found}
    assert "mimic2" in fine("reproduce", "--list").out


@pytest.mark.parametrize("written", ["./short-game", "short-game", "short-game/"])
def test_an_experiment_of_ones_own_is_named_by_its_folder(experiment, tmp_path, monkeypatch, written):
    monkeypatch.chdir(experiment.parent)
    told = fine("reproduce", written, "--no-fit", "--out", tmp_path / "out").out
    assert "A game, in short" in told and "units are pending: `foretell reproduce" in told


def test_a_data_folder_that_is_not_there_is_named_as_such(tmp_path, monkeypatch):
    assert "nope: no such folder" in refused("reproduce", "mimic2", "--data", tmp_path / "nope")
    monkeypatch.setenv("FORETELL_DATA", str(tmp_path / "nope"))
    assert "nope (FORETELL_DATA): no such folder" in refused("reproduce", "mimic2")


def test_a_quick_run_says_on_the_terminal_that_its_numbers_mean_nothing(experiment, tmp_path):
    told = fine("reproduce", experiment, "--quick", "--no-fit", "--out", tmp_path / "out").out
    assert "its numbers and verdicts mean nothing" in told
