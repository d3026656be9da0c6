"""NDTT from the command line: trained, scored, asked, and recomputed by hand from its parameters."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from foretell.lang.program import Program
from foretell.models.build import load_model
from foretell.models.rules.ndtt import NDTT
from foretell.reference import ndtt as twin
from foretell.terms import split
from tests.cli.invoking import fine, refused

PROGRAMS = Path(__file__).resolve().parents[2] / "programs"
LIBRARY, LOANS = PROGRAMS / "library.ndtt", PROGRAMS / "library" / "example.jsonl"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ndtt") / "run"
    options = ("--program", LIBRARY, "--data", LOANS, "--dim", 4, "--epochs", 2, "--quiet")
    fine("train", "--model", "ndtt", *options, "--out", folder)
    return folder


@pytest.mark.parametrize("name", ["library", "forum-small", "ward"])
def test_anyone_can_recompute_intensities_from_the_parameters(name: str, tmp_path: Path):
    program, data, file = PROGRAMS / f"{name}.ndtt", PROGRAMS / name / "example.jsonl", tmp_path / "params.json"
    fine("params", "--program", program, "--model", "ndtt", "--data", data, "--dim", 3, "--seed", 5, "-o", file)
    found = json.loads(file.read_text())
    found["time"]["scale"] = 1.7
    file.write_text(json.dumps(found))
    answers = fine("intensity", data, "--program", program, "--params", file, "--at", "2.5,0.4,7", "--json").json
    checked, settings = Program.from_file(program, dim=3), twin.Settings(found["dim"], 1.7)
    for answer, line in zip(answers, data.read_text().splitlines(), strict=True):
        events = json.loads(line)
        shaped = {name: torch.tensor(value, dtype=torch.float64) for name, value in found["parameters"].items()}
        for one, shape in twin.wanted(checked, settings, events["events"]).items():
            shaped[one] = shaped[one].reshape(shape)  # a matrix without rows is written []
        for query in answer["queries"]:
            slow = twin.intensities(checked, settings, shaped, events["events"], events["times"], query["time"])
            assert len(query["intensities"]) == len(slow)
            for event, value in query["intensities"].items():
                functor, args = split(event)
                assert value == pytest.approx(float(slow[functor, *args]), rel=1e-9)


def test_a_program_is_trained_scored_and_opened_again(run: Path, tmp_path: Path):
    model = load_model(run / "model.safetensors")
    assert isinstance(model, NDTT) and model.dim == 4 and model.fitted
    assert "lent(R, B) <- borrow(R, B)." in (run / "program.ndtt").read_text()
    scores = fine("evaluate", run, LOANS, "--no-times", "--json").json
    assert scores["model"] == "NDTT" and scores["log_likelihood"]["value"] < 0
    printed = fine("params", run).json
    assert printed["model"] == "ndtt" and printed["time"] == {"scale": pytest.approx(model.time_scale)}
    before = fine("intensity", run, LOANS, "--at", "3.5", "--json").json
    (tmp_path / "params.json").write_text(json.dumps(printed))
    fine("params", run, "--load", tmp_path / "params.json")
    after = fine("intensity", run, LOANS, "--at", "3.5", "--json").json
    for one, other in zip(before, after, strict=True):
        assert one["queries"][0]["intensities"] == pytest.approx(other["queries"][0]["intensities"], rel=1e-5)


def test_a_prediction_names_only_what_is_possible(run: Path):
    found = fine("predict", run, LOANS, "--json").json[0]
    assert (
        found["possible"] > 0 and 0.0 < found["no_event"] + sum(one["probability"] for one in found["events"]) <= 1.01
    )


def test_a_report_shows_the_database_and_the_possible_events_without_attention(run: Path, tmp_path: Path):
    page = tmp_path / "report.html"
    fine("report", run, "--data", LOANS, "--no-floors", "-o", page)
    text = page.read_text(encoding="utf-8")
    assert "Inside the rules, moment by moment" in text and "What is true" in text
    assert "head of attention" not in text


def test_a_run_of_a_program_is_resumed(run: Path, tmp_path: Path):
    options = ["--model", "ndtt", "--program", LIBRARY, "--data", LOANS, "--dim", 3, "--quiet"]
    fine("train", *options, "--out", tmp_path / "run", "--epochs", 2, "--set", "train.checkpoint_seconds=0.0")
    fine("train", "--resume", tmp_path / "run", "--quiet")


def test_a_run_starts_from_what_another_has_learned(run: Path, tmp_path: Path):
    options = (
        "--program",
        LIBRARY,
        "--data",
        LOANS,
        "--dim",
        4,
        "--epochs",
        1,
        "--set",
        "train.lr=1e-30",
        "--quiet",
    )
    fine("train", "--model", "ndtt", *options, "--init", run, "--out", tmp_path / "next")
    one, two = (load_model(place / "model.safetensors").state_dict() for place in (run, tmp_path / "next"))
    assert one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


def test_mistakes_are_told(run: Path, tmp_path: Path):
    assert "NDTT needs a program" in refused("train", "--model", "ndtt", "--data", LOANS, "--out", tmp_path / "a")
    assert "expected andtt, ndtt or s2ndtt" in refused("params", "--program", LIBRARY, "--model", "nhp")
    assert "layers" in refused("train", "--model", "ndtt", "--program", LIBRARY, "--data", LOANS, "--layers", 2)
    file = tmp_path / "params.json"
    file.write_text(json.dumps({"format": 1, "model": "anhp", "parameters": {}}))
    assert "made of rules" in refused("intensity", LOANS, "--program", LIBRARY, "--params", file, "--at", "1")


def test_a_run_is_explained_by_its_rules(run: Path):
    ask = ("explain", run, LOANS, "--at", 10.5, "--sequence", "may", "--event", "return(cleo,dune)")
    (found,) = fine(*ask, "--json").json
    assert found["layers"] == 0 and "lent(cleo,dune)" in {one["fact"] for one in found["facts"]}
    assert "what past events have left in cells and states" in fine(*ask).out
