"""`--impossible` where models are trained and asked: counted aloud, remembered by the run, and never silent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from foretell.train.run import RunFolder
from tests.cli.invoking import fine, foretell, refused

PROGRAM = """
:- event(on). :- event(off).
on :- not lit. off :- lit.
lit <- on. !lit <- off.
"""
SMALL = ("--dim", 2, "--layers", 1, "--epochs", 2, "--batch", 4, "--quiet")


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "switch.ndtt"
    path.write_text(PROGRAM)
    return path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two `on` in a row in every third sequence: of 4 events in train, dev and test one each is impossible."""
    folder = tmp_path / "data"
    folder.mkdir()
    for split, count in (("train", 6), ("dev", 3), ("test", 3)):
        rows = []
        for place in range(count):
            events = ["on", "on", "off", "on"] if place % 3 == 0 else ["on", "off", "on", "off"]
            rows.append({"id": f"{split}{place}", "times": [1.0, 2.0, 3.0, 4.0], "events": events, "t_end": 5.0})
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_by_default_an_impossible_event_stops_training_and_leaves_no_run(program: Path, data: Path, tmp_path: Path):
    said = refused("train", "--program", program, "--data", data, "--out", tmp_path / "run", *SMALL)
    for id in ("train0", "train3"):
        assert f"sequence {id}, event 2 at time 2: `on` happens, but the program makes it impossible" in said
    assert "`not lit` fails: `lit` is true" in said and "--impossible skip" in said
    assert not (tmp_path / "run").exists()


def test_skipped_events_are_counted_left_out_and_the_run_remembers(program: Path, data: Path, tmp_path: Path):
    run = tmp_path / "run"
    loud = [option for option in SMALL if option != "--quiet"]
    said = fine("train", "--program", program, "--data", data, "--out", run, "--impossible", "skip", *loud).err
    assert "train: 2 impossible events left out" in said and "dev: 1 impossible event left out" in said
    assert 'impossible = "skip"' in (run / "config.toml").read_text()
    facts = json.loads((run / "environment.json").read_text())["data"]
    assert facts["impossible"] == {"train": 2, "dev": 1, "test": 1}
    assert facts["splits"]["train"]["events"] == 22
    scored = fine("evaluate", run, "--no-times", "--floors", "--json")
    assert scored.json["events"] == 11 and (scored.json["impossible"], scored.json["impossible_events"]) == ("skip", 1)
    assert [floor["events"] for floor in scored.json["floors"]] == [11, 11]
    assert "test: 1 impossible event left out" in scored.err
    assert "sequence test0, event 2 at time 2: `on` happens" in refused("evaluate", run, "--impossible", "error")
    (answer,) = fine("intensity", run, "--at", "2.5", "--sequence", "test0", "--json").json
    assert set(answer["queries"][0]["intensities"]) == {"off"} and answer["queries"][0]["index"] == 2


def test_a_run_that_was_stopped_is_resumed_with_the_same_events(program: Path, data: Path, tmp_path: Path):
    run = tmp_path / "run"
    fine("train", "--program", program, "--data", data, "--out", run, "--impossible", "skip", *SMALL)
    before = RunFolder.open(run).metrics()
    assert "train: 2 impossible events left out" in fine("train", "--resume", run).err
    assert RunFolder.open(run).metrics() == before


@pytest.mark.parametrize("way, proofs", [("skip", 3), ("exogenous", 3)])
def test_a_plan_counts_what_it_leaves_out_or_keeps(way: str, proofs: int, program: Path, data: Path):
    assert "impossible" in refused("plan", program, data / "test.jsonl")
    told = fine("plan", program, data / "test.jsonl", "--impossible", way, "--json")
    assert "1 impossible event" in told.err
    assert [one["events"] for one in told.json] == ([3, 4, 4] if way == "skip" else [4, 4, 4])


def test_without_a_run_the_option_works_on_given_parameters(program: Path, data: Path, tmp_path: Path):
    params = tmp_path / "params.json"
    fine("params", "--program", program, "--dim", 2, "--layers", 1, "-o", params)
    ask = ("intensity", data / "test.jsonl", "--program", program, "--params", params, "--at", "1.5,3.5", "--json")
    assert "impossible" in refused(*ask)
    told = fine(*ask, "--impossible", "skip")
    assert "test: 1 impossible event left out" in told.err and len(told.json) == 3


def test_a_model_without_rules_refuses_the_option(data: Path, tmp_path: Path):
    given = ("train", "--model", "poisson", "--data", data, "--out", tmp_path / "run", "--quiet")
    assert "Poisson has no rules" in refused(*given, "--impossible", "skip")
    assert not (tmp_path / "run").exists()
    fine(*given)
    assert "Poisson has no rules" in refused("evaluate", tmp_path / "run", "--impossible", "skip")
    assert foretell("train", "--data", data, "--impossible", "maybe").code == 2


def test_events_kept_as_history_are_counted_seen_and_not_scored(program: Path, data: Path, tmp_path: Path):
    run = tmp_path / "run"
    loud = [option for option in SMALL if option != "--quiet"]
    said = fine("train", "--program", program, "--data", data, "--out", run, "--impossible", "exogenous", *loud).err
    assert "train: 2 impossible events kept as unscored history" in said
    assert json.loads((run / "environment.json").read_text())["data"]["splits"]["train"]["events"] == 24
    scored = fine("evaluate", run, "--no-times", "--floors", "--json")
    assert "test: 1 impossible event kept as unscored history" in scored.err
    assert scored.json["events"] == 11 and scored.json["impossible_events"] == 1
    assert [floor["events"] for floor in scored.json["floors"]] == [11, 11]
    (answer,) = fine("intensity", run, "--at", "2.5", "--sequence", "test0", "--json").json
    assert set(answer["queries"][0]["intensities"]) == {"off"} and answer["queries"][0]["index"] == 3


def test_explain_treats_them_as_the_run_did_or_as_asked(program: Path, data: Path, tmp_path: Path):
    run = tmp_path / "run"
    fine("train", "--program", program, "--data", data, "--out", run, "--impossible", "skip", *SMALL)
    ask = ("explain", run, "--sequence", "test0", "--at")
    told = fine(*ask, 2.5, "--json")
    assert told.json[0]["index"] == 2 and "test: 1 impossible event left out" in told.err
    kept = fine(*ask, 2.5, "--impossible", "exogenous", "--json")
    assert kept.json[0]["index"] == 3 and "test: 1 impossible event kept as unscored history" in kept.err
    said = refused(*ask, 2.5, "--impossible", "error")
    assert "sequence test0, event 2 at time 2: `on` happens" in said and "`not lit` fails" in said
    assert fine(*ask, 1.5, "--impossible", "error", "--json").json[0]["index"] == 2  # it has not happened yet


@pytest.mark.parametrize("ask", [("explain", "--at", 2.5), ("intensity", "--at", 2.5)])
def test_a_sequence_answers_whatever_is_impossible_in_others(
    ask: tuple[object, ...], program: Path, data: Path, tmp_path: Path
):
    run = tmp_path / "run"
    fine("train", "--program", program, "--data", data, "--out", run, "--impossible", "skip", *SMALL)
    command, *when = ask
    fine(command, run, "--impossible", "error", "--sequence", "test1", *when, "--json")
    assert "sequence test0" in refused(command, run, "--impossible", "error", "--sequence", "test0", *when, "--json")


def test_embed_refuses_a_model_of_rules_before_it_looks_at_the_events(program: Path, data: Path, tmp_path: Path):
    run = tmp_path / "run"
    fine("train", "--program", program, "--data", data, "--out", run, "--impossible", "skip", *SMALL)
    assert refused("embed", run, "--json") == "S2-NDTT has no embeddings of events; train an A-NHP"


@pytest.mark.parametrize("when", [0.0, 1.0])
def test_the_event_that_a_sequence_is_conditioned_on_cannot_be_left_out(when: float, program: Path, tmp_path: Path):
    """However soon the next one follows."""
    folder = tmp_path / "data"
    folder.mkdir()
    rows = [{"id": f"s{n}", "times": [0.0, when, 2.0], "events": ["off", "on", "off"], "t_end": 3.0} for n in range(2)]
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "dataset.toml").write_text('name = "switches"\norigin = "first-event"\n')
    given = ("train", "--program", program, "--data", folder, "--out", tmp_path / "run", *SMALL)
    said = refused(*given, "--impossible", "skip")
    for id in ("s0", "s1"):
        assert f"train: sequence '{id}' is conditioned on its first event (origin = \"first-event\"), `off`" in said
    assert "--impossible exogenous" in said and "window" not in said
    fine(*given, "--impossible", "exogenous")


def test_plan_takes_no_negative_dimension(program: Path, data: Path):
    assert foretell("plan", program, data / "test.jsonl", "--dim", -1).code == 2
