"""The experiments that are no comparison of models on one data set: each small, through the real command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from foretell.data import EventData, load
from foretell.models.build import load_model
from foretell.reproduce.experiment import names, open_experiment, read_definition
from foretell.reproduce.kinds.random_models import LIVELY, draw, liveliness, random_model
from foretell.reproduce.kinds.speed import drawn
from foretell.train.splits import share_of
from tests.cli.invoking import fine, foretell, refused

OURS = ("datasets", "synthetic", "speed", "data-efficiency", "robocup-by-action")


def made(tmp_path: Path, name: str, text: str) -> Path:
    folder = tmp_path / "experiments" / name
    folder.mkdir(parents=True)
    (folder / "experiment.toml").write_text(text)
    return folder


def results(tmp_path: Path, name: str) -> dict:
    return json.loads((tmp_path / "out" / name / "results.json").read_text())


# ---- all of them ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("quick", [False, True])
def test_what_is_shipped_can_be_opened_and_has_a_page(name: str, quick: bool):
    from foretell.reproduce.experiment import Choice

    assert name in names()
    definition = read_definition(name, Choice(quick))
    assert open_experiment(definition).units({})
    assert (definition.folder / "README.md").is_file()


@pytest.mark.parametrize("name", OURS)
def test_an_unknown_key_is_refused(name: str, tmp_path: Path):
    text = (read_definition(name).folder / "experiment.toml").read_text()
    folder = made(tmp_path, name, "sharez = 3\n" + text)
    assert "unknown key `sharez`" in refused("reproduce", folder, "--out", tmp_path / "out")


# ---- datasets -------------------------------------------------------------------------------------------------------------------------


def test_sizes_are_counted_and_differences_from_the_paper_are_told(tmp_path: Path):
    fine("reproduce", "datasets", "--models", "RoboCup,Synthetic-NHP", "--out", tmp_path / "out")
    found = results(tmp_path, "datasets")
    data = load("robocup")
    counted = found["data_sets"]["RoboCup"]
    assert counted["events"] == {name: split.event_count for name, split in data.splits().items()}
    assert counted["types"] == 528 and counted["lengths"][2] == 1336
    verdicts = {one["name"]: one for one in found["findings"]}
    assert verdicts["RoboCup"]["verdict"] == "does not hold"
    assert "events of train 2,192 (paper 2,195)" in verdicts["RoboCup"]["detail"]
    assert verdicts["Synthetic, NHP"]["verdict"] == "pending"


def test_equal_numbers_hold(tmp_path: Path):
    text = 'kind = "datasets"\n[[set]]\nname = "Games"\ndata = "robocup"\npaper = {types = 528, events = [2192, 816, 778]}\n'
    fine("reproduce", made(tmp_path, "sizes", text), "--out", tmp_path / "out")
    (finding,) = results(tmp_path, "sizes")["findings"]
    assert (finding["verdict"], finding["detail"]) == ("holds", "all equal")


def test_data_that_are_not_there_fail_alone(tmp_path: Path):
    text = 'kind = "datasets"\n[[set]]\nname = "Games"\ndata = "robocup"\n[[set]]\nname = "Lost"\ndata = "nowhere"\n'
    outcome = foretell("reproduce", made(tmp_path, "sizes", text), "--out", tmp_path / "out")
    assert outcome.code == 1 and "nowhere" in outcome.err
    assert set(results(tmp_path, "sizes")["data_sets"]) == {"Games"}


# ---- random models --------------------------------------------------------------------------------------------------------------------

KINDS = [
    {"kind": "nhp"},
    {"kind": "thp", "layers": 1},
    {"kind": "sahp", "layers": 1},
    {"kind": "anhp", "layers": 1, "echo": 0.0},
]


@pytest.mark.parametrize("table", KINDS, ids=lambda table: table["kind"])
def test_a_random_model_is_lively_and_its_data_have_the_wanted_lengths_and_mean_gap(table: dict):
    found = random_model({**table, "dim": 8}, 4, seed=0, events=12)
    assert found.spread >= LIVELY and found.shares >= LIVELY
    lengths = np.random.default_rng(0).integers(5, 13, 60)
    data = draw(found.model, 60, lengths, seed=5)
    assert data.lengths.tolist() == lengths.tolist()
    assert all(one.t_end == one.times[-1] + 1.0 for one in data)
    assert 0.5 < data.gaps().mean() < 2.0  # the clock was set on other draws
    spread, _ = liveliness(found.model, data, 1)
    assert spread > LIVELY / 2


def test_the_same_seed_draws_the_same_and_another_another():
    def times(seed: int) -> np.ndarray:
        model = random_model({"kind": "nhp", "dim": 4}, 3, seed, 6).model
        return draw(model, 20, np.full(20, 6), seed).columns.times

    assert np.array_equal(times(0), times(0)) and not np.array_equal(times(0), times(1))


SYNTHETIC = """
kind = "synthetic"
seeds = [0, 1]
[draw]
types = 3
sequences = [20, 6, 24]
lengths = [4, 8]
[train]
epochs = 1
dev_points = 1
[[model]]
name = "THP"
model = { kind = "thp", dim = 4, layers = 1 }
[[model]]
name = "A-NHP"
model = { kind = "anhp", preset = "plain", dim = 4 }
draw = { layers = 1, echo = 0.0 }
layers = [1, 2]
"""


def test_the_pilot_draws_data_fits_all_to_all_and_scores_the_truth(tmp_path: Path):
    folder = made(tmp_path, "pilot", SYNTHETIC)
    fine("reproduce", folder, "--out", tmp_path / "out")
    found = results(tmp_path, "pilot")
    # 2 drawings; on each, A-NHP with two numbers of layers; then two seeds of both models.
    assert len(found["records"]) == 2 + 2 * 2 + 2 * 2 * 2 and found["units"]["failed"] == {}
    columns = {one["data"]: one for one in found["data_sets"]}
    assert set(columns) == {"THP", "A-NHP"}
    for name, one in columns.items():
        assert set(one["models"]) == {"THP", "A-NHP"} and one["models"]["THP"]["seeds"] == 2
        units = tmp_path / "out" / "pilot" / "units"
        drawn_there = units / f"data-{name.lower()}"
        data = load(drawn_there / "data")
        assert data.test is not None and len(data.test) == 24
        # The whole is times and types together, and the truth's score is that of the model that was kept.
        parts = [one["truth"][key]["value"] for key in ("log_likelihood", "time_log_likelihood", "type_log_likelihood")]
        assert parts[0] == pytest.approx(parts[1] + parts[2], abs=1e-4)
        import foretell as ft

        again = ft.evaluate(load_model(drawn_there / "true.safetensors"), data.test, times=False)
        assert again.log_likelihood.value == pytest.approx(parts[0], abs=1e-4)
    assert {one["verdict"] for one in found["findings"]} <= {"holds", "does not hold", "not significant"}
    assert (tmp_path / "out" / "pilot" / "pilot.png").stat().st_size > 1000


def test_the_pilot_waits_for_what_is_not_fitted(tmp_path: Path):
    folder = made(tmp_path, "pilot", SYNTHETIC)
    fine("reproduce", folder, "--models", "thp", "--seeds", 0, "--out", tmp_path / "out")
    found = results(tmp_path, "pilot")
    assert {one["verdict"] for one in found["findings"]} == {"pending"}
    assert all(set(one["models"]) == {"THP"} for one in found["data_sets"])


# ---- speed ----------------------------------------------------------------------------------------------------------------------------


def test_speed_is_the_median_of_epochs_beside_the_papers_number(tmp_path: Path):
    text = """
kind = "speed"
threads = 1
warm_up = 1
repeats = 3
[[model]]
name = "NHP"
model = { kind = "nhp", dim = 4 }
[[model]]
name = "A-NHP"
model = { kind = "anhp", preset = "plain", dim = 4, layers = 1 }
[[set]]
name = "Short"
drawn = { sequences = 6, types = 2, lengths = [3, 5] }
models = ["NHP", "A-NHP"]
paper = { NHP = 2.9 }
[[finding]]
name = "Short sequences"
claim = "NHP is faster"
faster = "NHP"
than = "A-NHP"
sets = ["Short"]
device = "cpu"
"""
    outcome = fine("reproduce", made(tmp_path, "speed", text), "--device", "cpu", "--out", tmp_path / "out")
    found = results(tmp_path, "speed")
    for one in found["records"]:
        assert one["cpu"]["fastest"] <= one["cpu"]["milliseconds"] <= one["cpu"]["slowest"]
        assert one["cpu"]["repeats"] == 3 and one["sequences"] == 6 and "cuda" not in one
    nhp, anhp = (next(one for one in found["records"] if one["model"] == name)["cpu"] for name in ("NHP", "A-NHP"))
    (finding,) = found["findings"]
    assert finding["value"] == pytest.approx(nhp["milliseconds"] / anhp["milliseconds"])
    assert finding["verdict"] == ("holds" if finding["value"] < 1 else "does not hold")
    assert "2.9" in outcome.out and (tmp_path / "out" / "speed" / "speed.png").exists()


def test_drawn_sequences_have_the_lengths_that_were_asked_for():
    data: EventData = drawn(200, 10, [49, 99])
    assert (data.lengths.min(), data.lengths.max()) == (49, 99) and len(data.vocabulary) == 10


# ---- shares ---------------------------------------------------------------------------------------------------------------------------

SHARES = """
kind = "shares"
data = "robocup"
seeds = [0, 1]
shares = ["1/4", 1]
[cut]
events = 40
[train]
epochs = 1
dev_points = 1
batch = 1
[[model]]
name = "A-NHP"
model = { kind = "anhp", preset = "plain", dim = 4, layers = 1 }
[[model]]
name = "Poisson"
model = { kind = "poisson" }
[[finding]]
name = "Better"
claim = "attention helps"
better = "A-NHP"
than = "Poisson"
check = "beats"
[[finding]]
name = "Less"
claim = "less is enough"
better = "A-NHP"
than = "Poisson"
check = "with-less"
"""


def test_models_learn_from_shares_and_are_scored_on_the_whole_test(tmp_path: Path):
    fine("reproduce", made(tmp_path, "few", SHARES), "--out", tmp_path / "out")
    found = results(tmp_path, "few")
    assert len(found["records"]) == 8
    assert {(one["share"], one["events"]) for one in found["records"]} == {(0.25, 20), (1.0, 80)}
    assert {one["test"]["events"] for one in found["records"]} == {40}
    point = next(one for one in found["points"] if one["model"] == "Poisson" and one["share"] == 0.25)
    assert point["log_likelihood"]["value"] == pytest.approx(np.mean(point["values"]), abs=1e-5)
    assert {one["name"]: one["verdict"] != "pending" for one in found["findings"]} == {"Better": True, "Less": True}
    assert (tmp_path / "out" / "few" / "shares.png").exists()


def test_shares_that_make_no_sense_are_refused(tmp_path: Path):
    for number, text in enumerate(('[1, "1/4"]', "[0, 1]", "[0.5, 2]")):
        folder = made(tmp_path, f"few{number}", SHARES.replace('["1/4", 1]', text))
        assert "ascending" in refused("reproduce", folder, "--out", tmp_path / "out")


def test_each_seed_has_a_share_of_its_own_where_sequences_are_drawn():
    data = drawn(40, 2, [3, 5])
    assert [one.id for one in share_of(data, 0.25, 0)] != [one.id for one in share_of(data, 0.25, 1)]


# ---- by action ------------------------------------------------------------------------------------------------------------------------

GAMES = """
kind = "models"
data = "robocup"
seeds = [0, 1]
predict = ["kick(-P)", "pass(-P,-Q)"]
[cut]
events = 40
[train]
epochs = 1
dev_points = 1
batch = 1
[[model]]
name = "A-NHP"
model = { kind = "anhp", preset = "plain", dim = 4, layers = 1 }
[[model]]
name = "Poisson"
model = { kind = "poisson" }
"""
BY_ACTION = """
kind = "by-action"
of = "games"
pairs = [["Poisson", "A-NHP"]]
[[finding]]
name = "Kicks"
claim = "attention knows kicks"
first = "Poisson"
second = "A-NHP"
metric = "log_likelihood"
better = ["kick"]
[[finding]]
name = "Who"
claim = "no difference in who kicks"
first = "Poisson"
second = "A-NHP"
metric = "participants"
alike = ["kick"]
"""


def test_fits_of_another_experiment_are_taken_over_and_broken_down_by_action(tmp_path: Path):
    games = made(tmp_path, "games", GAMES)
    actions = made(tmp_path, "actions", BY_ACTION)
    fine("reproduce", games, "--out", tmp_path / "out")
    fine("reproduce", actions, "--out", tmp_path / "out")
    whole, found = results(tmp_path, "games"), results(tmp_path, "actions")
    units = tmp_path / "out" / "actions" / "units"
    assert len(list(units.glob("*/rows.npz"))) == 4 and not list(units.glob("*/run"))  # nothing was fitted again
    fits = [one for one in found["actions"] if one["metric"] == "log_likelihood"]
    events = sum(one["events"] for one in fits)
    assert events == 40
    # Weighed by their events, actions add up to the whole.
    for place, name in enumerate(("Poisson", "A-NHP")):
        score = next(one for one in whole["scores"] if (one["model"], one["metric"]) == (name, "log_likelihood"))
        together = sum(one["values"][place] * one["events"] for one in fits) / events
        assert together == pytest.approx(score["estimate"]["value"], abs=1e-4)
    for one in fits:
        assert one["difference"] == pytest.approx(one["values"][1] - one["values"][0], abs=1e-6)
        assert [len(values) for values in one["by_seed"]] == [2, 2] and one["p_holm"] >= max(
            one["p"], one["p_seeds"] or 0.0
        )
    assert {one["functor"] for one in found["actions"] if one["metric"] == "participants"} <= {"kick", "pass"}
    assert all(one["verdict"] != "pending" for one in found["findings"])
    (kicks,) = (one["better"] for one in fits if one["functor"] == "kick")
    expected = {"A-NHP": "holds", "Poisson": "does not hold", None: "not significant"}[kicks]
    assert next(one["verdict"] for one in found["findings"] if one["name"] == "Kicks") == expected
    assert (tmp_path / "out" / "actions" / "a-nhp-against-poisson.png").stat().st_size > 1000
    page = (tmp_path / "out" / "actions" / "results.md").read_text()
    assert "A-NHP against Poisson" in page and "| kick |" in page


def test_what_the_other_experiment_has_not_done_is_fitted_here(tmp_path: Path):
    made(tmp_path, "games", GAMES)
    fine("reproduce", made(tmp_path, "actions", BY_ACTION), "--seeds", 0, "--out", tmp_path / "out")
    assert len(results(tmp_path, "actions")["records"]) == 2
