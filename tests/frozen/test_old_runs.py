"""Run folders, parameter files and checkpoints of earlier versions are read, score what they scored, and are continued."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import foretell as ft
from foretell.models.parameters import in_present_format
from tests.cli.invoking import fine
from tests.frozen.cases import records
from tests.frozen.numbers import MOST_SHOWN, differences, one_thread

RUNS = Path(__file__).with_name("runs")
EXPECTED = json.loads((RUNS / "expected.json").read_text(encoding="utf-8"))
FINISHED, UNFINISHED = EXPECTED["finished"], EXPECTED["unfinished"]
OTHER_TASKS = ("pretrained", "classes-of-sequences", "classes-of-events")
INTENSITIES = [name for name in FINISHED if name not in OTHER_TASKS]
PARAMETERS = sorted(path.stem for path in (RUNS / "parameters").iterdir())
CLOSE, CLOSE_FLOAT32 = 1e-10, 1e-5
OF_THE_RULES = "andtt-robocup"  # on the embedded games
PLACE = "FROZEN"  # stands for the folder of the runs in their configurations


@pytest.fixture(autouse=True)
def in_one_thread() -> Iterator[None]:
    with one_thread():
        yield


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A copy, because commands write into the folders of runs."""
    copy = Path(shutil.copytree(RUNS, tmp_path / "runs"))
    for config in copy.glob("*/*/config.toml"):
        config.write_text(config.read_text(encoding="utf-8").replace(PLACE, str(copy)), encoding="utf-8")
    return copy


def evaluated(runs: Path, run: Path) -> dict[str, Any]:
    asked = (runs / "game.jsonl", "--no-times") if run.name == OF_THE_RULES else (runs / "data",)
    found = fine("evaluate", run, *asked, "--json", "--quiet").json
    if isinstance(found.get("scores"), str):
        del found["scores"]  # where it wrote them
    return found


def wrong(found: Any, expected: Any, name: str = "") -> list[str]:
    close = CLOSE_FLOAT32 if name.endswith("float32") else CLOSE
    return list(differences(found, within_shares(expected), close))[:MOST_SHOWN]


def within_shares(scores: Any) -> Any:
    """Intervals of coverage end at 0 and 1 now; those that were written down could lie beyond."""
    if isinstance(scores, list):
        return [within_shares(one) for one in scores]
    if not isinstance(scores, dict):
        return scores
    return {
        key: {end: min(max(value, 0.0), 1.0) for end, value in one.items()}
        if key == "coverage" and isinstance(one, dict)
        else within_shares(one)
        for key, one in scores.items()
    }


def test_every_run_has_its_scores():
    assert {path.name for path in (RUNS / "finished").iterdir()} == set(FINISHED)
    assert {path.name for path in (RUNS / "unfinished").iterdir()} == set(UNFINISHED)


@pytest.mark.parametrize("name", FINISHED)
def test_an_old_run_scores_what_it_scored(name: str, runs: Path):
    assert wrong(evaluated(runs, runs / "finished" / name), FINISHED[name], name) == []


@pytest.mark.parametrize("name", FINISHED)
def test_an_old_run_says_how_it_was_trained(name: str, runs: Path):
    run = ft.RunFolder.open(runs / "finished" / name)
    config = run.config()
    assert (config.task is not None) == (name in OTHER_TASKS)
    assert config.train.dtype == ("float32" if name in ("anhp-float32", "hawkes", "poisson") else "float64")
    assert len(run.metrics()) >= 1


@pytest.mark.parametrize("name", INTENSITIES)
def test_an_old_model_is_loaded_saved_and_sampled(name: str, runs: Path):
    model = ft.load_model(runs / "finished" / name / "model.safetensors")
    if name == OF_THE_RULES:
        data = ft.load("robocup").test
    else:
        data = ft.load(str(runs / "data")).test
        assert data is not None
        found = ft.evaluate(model, data, times=False).log_likelihood.value
        assert wrong(found, FINISHED[name]["log_likelihood"]["value"], name) == []
    assert data is not None
    ft.save_model(model, runs / "again.safetensors")
    drawn = [
        ft.sample(one, data[0], start=data[0].t_end / 2.0, horizon=3.0, n=2, events=5, seed=1)
        for one in (model, ft.load_model(runs / "again.safetensors"))
    ]
    assert drawn[0].to_json() == drawn[1].to_json()


@pytest.mark.parametrize("name", PARAMETERS)
def test_old_parameters_are_written_and_read_again(name: str, runs: Path):
    run, kept = runs / "finished" / name, runs / "parameters" / f"{name}.json"
    found, before = fine("params", run).json, json.loads(kept.read_text(encoding="utf-8"))
    assert (before["format"], found["format"]) == (1, 2)
    assert wrong(found, in_present_format(ft.load_model(run / "model.safetensors"), before) | {"format": 2}) == []
    fine("params", run, "--load", kept)
    assert wrong(evaluated(runs, run), FINISHED[name]) == []


@pytest.mark.parametrize("name", UNFINISHED)
def test_an_old_checkpoint_is_continued_to_the_same_end(name: str, runs: Path):
    run = runs / "unfinished" / name
    fine("pretrain" if name == "pretrained" else "train", "--resume", run, "--quiet")
    assert wrong(records(ft.RunFolder.open(run).metrics()), UNFINISHED[name]["records"]) == []
    assert wrong(evaluated(runs, run), UNFINISHED[name]["scores"]) == []
