"""`foretell tune`: what may be searched, what is judged, and that nothing is lost when it stops."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from tests.cli.invoking import fine, finished, foretell, process, refused
from tests.train.small import folder_of

pytest.importorskip("optuna", reason="tuning needs the extra `tune`")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Three splits, of which nobody can read test."""
    made = folder_of(tmp_path / "bursts", sequences=12)
    (made / "test.jsonl.gz").write_bytes(b"nobody may read this")
    return made


@pytest.fixture
def write(tmp_path: Path, data: Path):
    def written(text: str, name: str = "space") -> Path:
        path = tmp_path / f"{name}.toml"
        path.write_text(f"[data]\npath = {json.dumps(str(data))}\n{text}")
        return path

    return written


SMALL = "[model]\ndim = [4, 8]\nlayers = 1\n[train]\nepochs = 2\nbatch = 6\nlr = [5e-3, 1e-2]\n"


def rows(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "trials.jsonl").read_text().splitlines()]


def test_a_grid_is_searched_on_dev_without_opening_test_and_the_best_can_be_trained(write, tmp_path: Path):
    out = tmp_path / "out"
    found = fine("tune", write(SMALL), "--out", out, "--json", "--quiet").json
    tried = rows(out)
    assert [row["setting"] for row in tried] == [
        {"model.dim": dim, "train.lr": lr} for dim in (4, 8) for lr in (0.005, 0.01)
    ]
    assert found["best"]["score"] == max(row["score"] for row in tried)
    assert (found["trials"], found["complete"], found["left"], found["judged_on"]) == (4, 4, 0, "dev")
    assert (out / "settings.png").stat().st_size > 1000 and found["picture"] == str(out / "settings.png")
    folder_of(tmp_path / "bursts", sequences=12)  # with a test split again
    again = fine("train", out / "best.toml", "--out", tmp_path / "run", "--json", "--quiet").json
    assert again["best"] == found["best"]["score"]


def test_a_second_call_goes_on_and_a_third_has_nothing_to_do(write, tmp_path: Path):
    config, out = write(SMALL), tmp_path / "out"
    assert fine("tune", config, "--out", out, "--trials", 1, "--sampler", "grid", "--json", "--quiet").json["left"] == 3
    first = rows(out)[0]
    found = fine("tune", config, "--out", out, "--json", "--quiet").json
    assert found["trials"] == 4 and rows(out)[0] == first
    before = rows(out)
    fine("tune", config, "--out", out, "--quiet")
    assert rows(out) == before


@pytest.mark.parametrize("storage", ["sqlite", "sqlite:{}/elsewhere.db"])
def test_a_database_keeps_the_search_too(write, tmp_path: Path, storage: str):
    config, out = write(SMALL), tmp_path / "out"
    options = "--out", out, "--storage", storage.format(tmp_path), "--sampler", "grid", "--json", "--quiet"
    fine("tune", config, *options, "--trials", 1)
    assert fine("tune", config, *options, "--trials", 2).json["trials"] == 2
    assert (tmp_path / "elsewhere.db").exists() or (out / "study.sqlite").exists()


@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_ranges_are_drawn_from_and_the_same_seed_draws_the_same(write, tmp_path: Path, sampler: str):
    text = "[model]\ndim = {low = 4, high = 8, step = 2}\nlayers = 1\nshortest_wave = ['quantile', 0.5]\n"
    text += "[train]\nepochs = 1\nbatch = 12\nlr = {low = 1e-4, high = 1e-2, log = true}\n"
    config = write(text)
    for name, seed in (("one", 0), ("two", 0), ("three", 1)):
        more = "--sampler", sampler, "--trials", 3, "--seed", seed, "--out", tmp_path / name, "--quiet"
        fine("tune", config, *more)
    one, two, three = ([row["setting"] for row in rows(tmp_path / name)] for name in ("one", "two", "three"))
    assert one == two != three
    assert all(row["model.dim"] in (4, 6, 8) and 1e-4 <= row["train.lr"] <= 1e-2 for row in one)
    assert all(row["model.shortest_wave"] in ("quantile", 0.5) for row in one)


def test_without_lists_the_grid_of_the_paper_is_searched(write, tmp_path: Path):
    config = write("[model]\ndim = 32\n[train]\nepochs = 1\nbatch = 12\n")
    outcome = fine("tune", config, "--out", tmp_path / "out", "--trials", 1, "--sampler", "grid", "--json")
    assert "the paper's grid" in outcome.err
    assert outcome.json["left"] == 35 and rows(tmp_path / "out")[0]["setting"] == {"model.dim": 4, "model.layers": 1}


def test_data_are_enough_and_a_model_may_be_named(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    few = "--trials", 1, "--sampler", "grid", "--epochs", 1, "--json"
    outcome = fine("tune", "--data", data, *few)
    assert "the command line has no lists: the paper's grid is searched" in outcome.err
    assert outcome.json["folder"] == "tune/bursts-anhp" and outcome.json["left"] == 35
    assert rows(tmp_path / "tune/bursts-anhp")[0]["setting"] == {"model.dim": 4, "model.layers": 1}
    best = fine("tune", "--data", data, "--model", "nhp", *few).json["best"]
    assert best["setting"] == {"model.dim": 4} and (tmp_path / "tune/bursts-nhp/best.toml").is_file()
    assert 'kind = "nhp"' in (tmp_path / "tune/bursts-nhp/best.toml").read_text()
    assert "nothing to tune on: give a CONFIG.toml, or --data" in refused("tune")
    assert "has neither dim nor layers" in refused("tune", "--data", data, "--model", "poisson")


def test_kinds_of_models_are_compared_each_with_its_own_keys(write, tmp_path: Path):
    config = write(
        "[model]\nkind = ['anhp', 'hawkes']\ndim = [4, 8]\nlayers = 1\ndecays = [1, 2]\n[train]\nepochs = 1\n"
    )
    fine("tune", config, "--out", tmp_path / "out", "--quiet")
    assert [row["setting"] for row in rows(tmp_path / "out")] == [
        {"model.kind": "anhp", "model.dim": 4},
        {"model.kind": "anhp", "model.dim": 8},
        {"model.kind": "hawkes", "model.decays": 1},
        {"model.kind": "hawkes", "model.decays": 2},
    ]


def test_a_setting_that_fails_is_reported_and_the_others_go_on(write, tmp_path: Path):
    config = write(
        "[model]\ndim = 4\nlayers = 1\n[train]\nepochs = 1\nclip = 0\nlr = [1e30, 1e-3]\nepochs = 3\n".replace(
            "epochs = 1\n", ""
        )
    )
    outcome = fine("tune", config, "--out", tmp_path / "out")
    failed, whole = rows(tmp_path / "out")
    assert failed["state"] == "failed" and "lower train.lr" in failed["error"] and whole["state"] == "complete"
    assert "trial 0 failed" in outcome.err and "1 failed" in outcome.out


def test_where_every_setting_fails_the_first_error_is_told(write, tmp_path: Path):
    config = write("[model]\ndim = 4\nlayers = 1\n[train]\nepochs = 3\nclip = 0\nlr = [1e30, 1e29]\n")
    outcome = foretell("tune", config, "--out", tmp_path / "out", "--quiet")
    assert outcome.code == 1 and "none of 2 settings finished; the first failed with" in outcome.err


def test_a_hopeless_setting_is_given_up_before_its_last_epoch(write, tmp_path: Path, monkeypatch):
    monkeypatch.setattr("foretell.train.tune.WARM_UP", 1)
    text = "[model]\ndim = 4\nlayers = 1\n[train]\nepochs = 4\npatience = 0\nbatch = 6\nlr = [1e-2, 8e-3, 1e-7]\n"
    fine("tune", write(text), "--out", tmp_path / "out", "--quiet")
    *_, last = rows(tmp_path / "out")
    assert last["state"] == "pruned" and 1 <= last["epochs"] < 4 and last["score"] is not None
    fine("tune", write(text), "--out", tmp_path / "whole", "--pruner", "none", "--quiet")
    assert {row["state"] for row in rows(tmp_path / "whole")} == {"complete"}


def test_two_processes_try_every_setting_once(write, tmp_path: Path):
    found = fine("tune", write(SMALL), "--out", tmp_path / "out", "--jobs", 2, "--json", "--quiet").json
    tried = rows(tmp_path / "out")
    assert found["trials"] == 4 and len({json.dumps(row["setting"]) for row in tried}) == 4


def test_an_interrupted_search_goes_on_with_the_setting_it_was_at(write, tmp_path: Path):
    config = write("[model]\ndim = [4, 8]\nlayers = 1\n[train]\nepochs = 100000\npatience = 0\nbatch = 6\n")
    out = tmp_path / "out"
    child = process("tune", config, "--out", out)
    deadline = time.monotonic() + 40
    while '"report"' not in (text := _journal(out)) and "intermediate" not in text and time.monotonic() < deadline:
        time.sleep(0.1)
    child.send_signal(signal.SIGINT)
    outcome = finished(child)
    assert outcome.code == 130 and "the same command goes on" in outcome.err and rows(out) == []
    short = config.read_text().replace("100000", "1")
    config.write_text(short)
    assert "of another space" in refused("tune", config, "--out", out)


def _journal(out: Path) -> str:
    path = out / "study.journal"
    return path.read_text() if path.exists() else ""


def test_a_setting_whose_process_was_killed_is_tried_again(write, tmp_path: Path):
    import optuna

    from foretell.train.config import read_config
    from foretell.train.space import Space
    from foretell.train.study import open_storage, open_study

    config, out = write(SMALL), tmp_path / "out"
    study = open_study(str(out / "study.journal"), Space.read(read_config(config), str(config)), out)
    study.enqueue_trial({"model.dim": 4, "train.lr": 0.005})
    trial = study.ask()
    trial.suggest_categorical("model.dim", [4, 8])
    trial.suggest_categorical("train.lr", [0.005, 0.01])
    child = process("--version")
    child.wait()
    trial.set_user_attr("process", [os.uname().nodename, child.pid])
    found = fine("tune", config, "--out", out, "--json", "--quiet").json
    assert found["complete"] == 4
    states = [
        one.state
        for one in optuna.load_study(storage=open_storage(str(out / "study.journal")), study_name="foretell").trials
    ]
    assert states.count(optuna.trial.TrialState.RUNNING) == 0


def test_when_the_time_is_up_the_next_call_goes_on(write, tmp_path: Path):
    config = write("[model]\ndim = [4, 8]\nlayers = 1\n[train]\nepochs = 100000\npatience = 0\nbatch = 6\n")
    began = time.monotonic()
    outcome = foretell("tune", config, "--out", tmp_path / "out", "--minutes", 0.02, "--json", "--quiet")
    assert time.monotonic() - began < 20 and "none of 0 settings" in outcome.err and outcome.code == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[model]\ndim = []\n", "model.dim = []: expected at least one choice"),
        ("[model]\ndim = [4, 4]\n", "the same choice twice"),
        ("[model]\ndimm = [4, 8]\n", "unknown key `model.dimm`; did you mean `dim`?"),
        ("[model]\ndim = [4, 'eight']\n", "model.dim = 'eight': expected a whole number"),
        ("[train]\nlr = [1e-3, -1.0]\n", "train.lr = -1.0: expected a number above 0"),
        ("[train]\nlr = {low = 1.0}\n", "expected a range such as"),
        ("[train]\nlr = {low = 1.0, high = 0.1}\n", "low must be below high"),
        ("[train]\nlr = {low = 0.0, high = 0.1, log = true}\n", "with log = true low must be above 0"),
        ("[train]\nbatch = {low = 1, high = 8.5}\n", "this key is a whole number"),
        ("[train]\nintegral = {low = 1, high = 8}\n", "it is no number: give a list"),
        ("[train]\nseed = [0, 1]\n", "train.seed: cannot be searched: a seed that was chosen by its score is luck"),
        ("train_fraction = [0.5, 1.0]\n", "data.train_fraction: cannot be searched: scores on other data"),
        ("train_fraction = {low = 0.5, high = 1.0}\n", "data.train_fraction: cannot be searched"),
        ("[train]\nwindow = ['all', 'events-2-to-I']\n", "train.window: cannot be searched"),
        ("[model]\nkind = 'poisson'\n", "nothing to search: poisson has neither dim nor layers"),
        ("[model]\nkind = ['anhp', 'nope']\n", "model.kind = 'nope'"),
        (
            "[model]\ndim = [4, 8]\n[task]\nkind = 'classify'\nlabel = 'home'\n",
            "[task]: settings are judged by the log-",
        ),
        (
            "[model]\ndim = [4, 8]\n[train]\ninit = 'runs/start'\n",
            "train.init = 'runs/start': every setting starts afresh",
        ),
        ("[search]\ntrails = 3\n", "unknown key `search.trails`; did you mean `trials`?"),
        ("[search]\ntrials = 'many'\n", "search.trials = 'many': expected a whole number"),
        ("[search]\nsampler = 'best'\n", 'search.sampler = \'best\': expected "auto" or "grid" or "random" or "tpe"'),
    ],
)
def test_what_cannot_be_searched_is_refused_before_anything_is_written(write, tmp_path: Path, text: str, message: str):
    assert message in refused("tune", write(text), "--out", tmp_path / "out", "--quiet")
    assert not (tmp_path / "out").exists()


def test_options_that_make_no_sense_are_refused(write, tmp_path: Path):
    endless = write("[train]\nlr = {low = 1e-4, high = 1e-2}\n")
    assert "train.lr has infinitely many values" in refused(
        "tune", endless, "--sampler", "grid", "--out", tmp_path / "o"
    )
    assert "trials = 0" in refused("tune", endless, "--trials", 0)
    assert "jobs = 0" in refused("tune", endless, "--jobs", 0)
    assert "storage = 'memory'" in refused("tune", endless, "--storage", "memory", "--out", tmp_path / "o")
    assert "no such" in refused("tune", endless, "--data", tmp_path / "nowhere")
    assert "there is no such file" in refused("tune", tmp_path / "none.toml")


def test_data_without_dev_are_refused_and_train_is_not_cut_up_for_it(write, data: Path, tmp_path: Path):
    (data / "dev.jsonl.gz").unlink()
    assert "there is no dev split" in refused("tune", write(SMALL), "--out", tmp_path / "out", "--quiet")
