"""A-NDTT from the command line: trained, scored, asked, and recomputed by hand from its parameters."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from foretell.lang.program import Program
from foretell.reference import andtt as twin
from foretell.reference.ruled import TimeFactors
from foretell.terms import split
from tests.cli.invoking import fine, refused

PROGRAMS = Path(__file__).resolve().parents[2] / "programs"
LIBRARY, LOANS = PROGRAMS / "library.ndtt", PROGRAMS / "library" / "example.jsonl"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORETELL_CACHE", str(tmp_path / "cache"))


def _twin_of(found: dict) -> tuple[twin.Settings, dict[str, torch.Tensor]]:
    """What the slow twin needs, from the JSON that `foretell params` prints."""
    time = found["time"]
    settings = twin.Settings(found["dim"], found["layers"], time["dim"], time["m"], time["M"])
    count = max((len(value) for name, value in found["parameters"].items() if name.endswith(".mixture")), default=0)
    if count:
        scales = tuple(np.geomspace(time["short"], time["long"], count).tolist())
        settings = replace(settings, factors=TimeFactors(scales=scales, unit=time["unit"]))
    columns = found.get("features", {}).get("events", {})
    settings = replace(settings, scales={name: (mean, deviation) for name, (mean, deviation) in columns.items()})
    return settings, {name: torch.tensor(value, dtype=torch.float64) for name, value in found["parameters"].items()}


def _shaped(program: Program, settings: twin.Settings, parameters: dict[str, torch.Tensor], events: list[str]):
    """A matrix without rows is written [], and has a shape all the same."""
    for name, shape in twin.wanted(program, settings, events).items():
        parameters[name] = parameters[name].reshape(shape)
    return parameters


@pytest.mark.parametrize("preset", [None, "paper"])
@pytest.mark.parametrize("name", ["library", "forum", "forum-small", "outage", "ward", "email"])
def test_anyone_can_recompute_intensities_from_the_parameters(name: str, preset: str | None, tmp_path: Path) -> None:
    program, data = PROGRAMS / f"{name}.ndtt", PROGRAMS / name / "example.jsonl"
    file = tmp_path / "params.json"
    fine(
        "params",
        "--program",
        program,
        "--data",
        data,
        "--dim",
        3,
        "--layers",
        2,
        "--time-dim",
        4,
        "--seed",
        5,
        *(() if preset is None else ("--preset", preset)),
        "-o",
        file,
    )
    answers = fine("intensity", data, "--program", program, "--params", file, "--at", "2.5,0.4,7", "--json").json
    settings, parameters = _twin_of(json.loads(file.read_text()))
    checked = Program.from_file(program, dim=3)
    for answer, line in zip(answers, data.read_text().splitlines(), strict=True):
        events = json.loads(line)
        assert [query["time"] for query in answer["queries"]] == [2.5, 0.4, 7.0]
        shaped = _shaped(checked, settings, dict(parameters), events["events"])
        for query in answer["queries"]:
            slow = twin.intensities(checked, settings, shaped, events["events"], events["times"], query["time"])
            assert query["index"] == 1 + sum(time < query["time"] for time in events["times"])
            assert {split(event)[0]: 0 for event in query["intensities"]}.keys() == {fact[0]: 0 for fact in slow}.keys()
            assert len(query["intensities"]) == len(slow)
            for event, value in query["intensities"].items():
                functor, args = split(event)
                assert value == pytest.approx(float(slow[functor, *args]), rel=1e-9)


def test_the_paper_s_preset_has_the_parameters_of_the_language_and_no_others() -> None:
    sizes = ("--dim", 3, "--layers", 2, "--time-dim", 4)
    paper, default = (fine("params", "--program", LIBRARY, *sizes, *more).json for more in (("--preset", "paper"), ()))
    assert paper["time"].keys() == {"dim", "m", "M"}
    kinds = {name.rpartition(".")[2] for name in paper["parameters"]}
    assert kinds == {"W", "beta", "V", "K", "Q", "w", "tau"}
    own = {name for name in default["parameters"] if name not in paper["parameters"]}
    assert own == {f"intensity.{functor}.mixture" for functor in ("borrow", "return", "reserve")}
    assert default["time"].keys() == {"dim", "m", "M", "short", "long", "unit"}
    assert all(np.shape(default["parameters"][name]) == (12, 4) for name in own)


def test_a_preset_that_there_is_not_is_refused(tmp_path: Path) -> None:
    assert "plain" in refused("params", "--program", LIBRARY, "--preset", "plein")
    assert "--preset" in refused("params", tmp_path, "--preset", "paper")


def test_a_program_is_trained_scored_and_opened_again(tmp_path: Path) -> None:
    run = tmp_path / "run"
    summary = fine(
        "train",
        "--model",
        "andtt",
        "--program",
        LIBRARY,
        "--data",
        LOANS,
        "--out",
        run,
        "--dim",
        4,
        "--layers",
        1,
        "--epochs",
        2,
        "--quiet",
        "--json",
    ).json
    assert summary["epochs"] == 2
    assert "lent(R, B) <- borrow(R, B)." in (run / "program.ndtt").read_text()
    scores = fine("evaluate", run, LOANS, "--no-times", "--json").json
    assert scores["model"] == "A-NDTT" and scores["log_likelihood"]["value"] < 0
    printed = fine("params", run).json
    assert printed["model"] == "andtt" and "intensity.borrow.w" in printed["parameters"]
    before = fine("intensity", run, LOANS, "--at", "3.5", "--json").json
    changed = dict(printed, parameters={**printed["parameters"], "intensity.borrow.w": [-9.0, 0.0, 0.0, 0.0, 0.0]})
    (tmp_path / "changed.json").write_text(json.dumps(changed))
    fine("params", run, "--load", tmp_path / "changed.json")
    after = fine("intensity", run, LOANS, "--at", "3.5", "--json").json
    assert before != after
    assert all("return(" in e or "reserve(" in e or v < 1e-3 for e, v in after[0]["queries"][0]["intensities"].items())


def test_a_run_of_a_program_is_resumed(tmp_path: Path) -> None:
    options = ["--model", "andtt", "--program", LIBRARY, "--data", LOANS, "--dim", 3, "--layers", 1, "--quiet"]
    fine("train", *options, "--out", tmp_path / "run", "--epochs", 2, "--set", "train.checkpoint_seconds=0.0")
    fine("train", "--resume", tmp_path / "run", "--quiet")


def test_mistakes_are_told(tmp_path: Path) -> None:
    assert "needs a program" in refused("train", "--model", "andtt", "--data", LOANS, "--out", tmp_path / "a")
    assert "give a run folder" in refused("params")
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"times": [1.0], "events": ["return(ada,dune)"], "t_end": 2.0}\n')
    message = refused("train", "--program", LIBRARY, "--data", bad, "--out", tmp_path / "b", "--quiet")
    assert "`lent(ada,dune)` is not true" in message and not (tmp_path / "b").exists()
    assert "unknown parameter" in _with_unknown(tmp_path)


def _with_unknown(tmp_path: Path) -> str:
    file = tmp_path / "params.json"
    fine("params", "--program", LIBRARY, "--dim", 2, "--layers", 1, "-o", file)
    found = json.loads(file.read_text())
    found["parameters"]["deduce.nothing.W"] = [[1.0]]
    file.write_text(json.dumps(found))
    return refused("intensity", LOANS, "--program", LIBRARY, "--params", file, "--at", "1")


def test_a_plan_says_how_large_the_network_is() -> None:
    found = fine("plan", LIBRARY, LOANS, "--json").json
    assert all(one["slots"] > one["possible"] > 0 for one in found)
    assert "slots" in fine("plan", LIBRARY, LOANS).out


def test_a_plan_sums_sequences_up_unless_each_is_asked_for(tmp_path: Path) -> None:
    several = tmp_path / "several.jsonl"
    line = LOANS.read_text().splitlines()[0]
    several.write_text("".join(line.replace('"may"', f'"{month}"') + "\n" for month in ("may", "june", "july")))
    found = fine("plan", LIBRARY, several, "--json").json
    out = fine("plan", LIBRARY, several, "--tiles").out
    slots = next(line.split() for line in out.splitlines() if line.startswith("  slots "))
    assert slots[1:3] == [f"{3 * found[0]['slots']:,}", f"{found[0]['slots']:,}"]
    assert "3 sequences" in out and "sequence 0:" not in out and "all 3 sequences: " in out
    each = fine("plan", LIBRARY, several, "--each", "--tiles").out
    assert sum(line.startswith("sequence ") for line in each.splitlines()) == 6


def test_sublayers_are_trained_written_and_read_again(tmp_path: Path) -> None:
    config = tmp_path / "run.toml"
    config.write_text(
        f'[data]\npath = "{LOANS}"\n'
        f'[model]\nkind = "andtt"\nprogram = "{LIBRARY}"\ndim = 4\nlayers = 2\nlayer_norm = true\nfeed_forward = 5\n'
        "[train]\nepochs = 2\ndownsample = 2\n",
        encoding="utf-8",
    )
    run, file = tmp_path / "run", tmp_path / "params.json"
    fine("train", config, "--out", run)
    fine("params", run, "-o", file)
    names = json.loads(file.read_text(encoding="utf-8"))["parameters"]
    assert {"layer.1.4.norms.0.weight", "layer.2.4.norms.1.bias", "layer.2.4.expand.weight"} <= set(names)
    asked = ("--at", "0.4,2.5", "--json")
    by_run = fine("intensity", run, LOANS, *asked).json
    by_file = fine("intensity", LOANS, "--program", LIBRARY, "--params", file, *asked).json
    for one, other in zip(by_run[0]["queries"], by_file[0]["queries"], strict=True):
        assert one["intensities"] == pytest.approx(other["intensities"], rel=1e-4)
