"""`--on`: every command that takes it prints in other processes, and on Ray, what it prints in this one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import foretell as ft
from foretell.ground import replay as replaying
from foretell.shards import shard_map
from foretell.shards.place import parse_place
from tests.cli.invoking import fine, refused
from tests.reproduce.conftest import START
from tests.train.small import exciting

PROGRAM = "mood <- a. !mood <- b. a :- mood. b :- base. a :- base. base. :- event(a). :- event(b)."
PLACES = [
    pytest.param("processes:2", marks=pytest.mark.slow),  # every process imports torch
    "ray:2",
]
COMMANDS: dict[str, tuple[object, ...]] = {
    "evaluate": ("--quiet",),
    "predict": ("--by", "both", "--n", 20),
    "sample": ("--from", 4.0, "--horizon", 2.0, "--n", 8, "--quiet"),
}


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """So small that every command has several shards; one thread, as workers have."""
    monkeypatch.setattr(shard_map, "SHARD_EVENTS", 60)
    monkeypatch.setattr(replaying, "CHUNK_EVENTS", 30)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def joined_ray() -> Iterator[None]:
    """Two cores of this machine, started once: each command finds Ray joined and leaves it so."""
    ray = pytest.importorskip("ray", reason="Ray is not installed (the extra cluster)")
    from foretell.shards.ray_pool import RayPool

    pool = RayPool(parse_place("ray:2"))
    yield
    pool.close()
    assert not ray.is_initialized()


@pytest.fixture
def place(request: pytest.FixtureRequest) -> str:
    if request.param.startswith("ray"):
        request.getfixturevalue("joined_ray")
    return request.param


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sequences so different in length that there are several batches, and shards."""
    parts = [exciting(2, seed, t_end) for seed, t_end in enumerate((5.0, 20.0, 60.0, 150.0))]
    sequences = [replace(one, id=f"{place}-{one.id}") for place, part in enumerate(parts) for one in part]
    path = tmp_path_factory.mktemp("mixed") / "mixed.jsonl"
    ft.save(ft.EventData(sequences, parts[0].vocabulary), path)
    return path


def not_here(*given: object) -> None:
    raise AssertionError("this is done in this process")


def shard_files(run: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in run.glob("shards/*/shard-*.parquet")}


@pytest.mark.parametrize("place", PLACES, indirect=True)
@pytest.mark.parametrize("command", COMMANDS)
def test_what_a_run_is_asked_has_the_same_answer(command: str, place: str, copied: Path, mixed: Path):
    data = (mixed,) if command != "sample" else ("--history", mixed)
    asked = (command, copied, *data, *COMMANDS[command], "--json")
    here = fine(*asked)
    assert not shard_files(copied)  # nothing is kept where nothing was asked for
    there = fine(*asked, "--on", place)
    assert there.out == here.out
    kept = shard_files(copied)
    assert len(kept) >= 3
    for folder in {path.parent for path in kept}:
        _, *lines = (folder / "manifest.jsonl").read_text().splitlines()
        assert {json.loads(line)["file"] for line in lines} == {path.name for path in folder.glob("shard-*")}
        assert {path.name for path in folder.iterdir()} == {"manifest.jsonl"} | {p.name for p in folder.glob("shard-*")}
    assert fine(*asked, "--on", place).out == here.out
    assert shard_files(copied) == kept  # what is there is not made again


@pytest.mark.parametrize("place", PLACES, indirect=True)
def test_a_comparison_and_a_report_are_the_same(place: str, copied: Path, mixed: Path, tmp_path: Path):
    other = tmp_path / "other"
    shutil.copytree(copied, other)
    asked = ("compare", copied, other, "--data", mixed, "--json", "--quiet")
    here = fine(*asked)
    assert fine(*asked, "--on", place).out == here.out
    assert len(shard_files(copied)) >= 3 and len(shard_files(other)) >= 3
    page = ("report", copied, "--data", mixed, "--no-floors", "--quiet", "-o")
    fine(*page, tmp_path / "here.html")
    kept = set(shard_files(copied))
    fine(*page, tmp_path / "there.html", "--on", place)
    there = (tmp_path / "there.html").read_text().replace(f"there.html --on {place}", "here.html")  # its own command
    assert there == (tmp_path / "here.html").read_text()
    assert set(shard_files(copied)) > kept


def test_scores_from_draws_are_made_in_this_process(copied: Path, mixed: Path):
    said = refused("evaluate", copied, mixed, "--downsample", 1, "--on", "processes:2")
    assert "--on" in said and "--downsample" in said


@pytest.mark.parametrize("place", PLACES, indirect=True)
def test_a_replay_is_the_same(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    program, data = tmp_path / "moods.ndtt", tmp_path / "events.jsonl"
    program.write_text(PROGRAM)
    lines = [{"times": [*range(1, 21)], "events": ["a", "b"] * 10, "id": f"s{one}"} for one in range(5)]
    data.write_text("".join(json.dumps(line) + "\n" for line in lines))
    asked = ("replay", program, data, "--json", "--quiet")
    here = fine(*asked, "--no-cache").json
    assert len(here) == 5 and len(here[0]["states"]) == 22
    monkeypatch.setattr(replaying, "replay_chunk", not_here)
    cache = ("--cache", tmp_path / "cache", "--on", place)
    assert fine(*asked, *cache).json == here
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*.npz")}
    assert len(kept) >= 2
    assert fine(*asked, *cache).json == here
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*.npz")} == kept


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES, indirect=True)
def test_a_search_tries_the_same_settings_with_the_same_scores(place: str, bursts: Path, tmp_path: Path):
    pytest.importorskip("optuna", reason="tuning needs the extra `tune`")
    space = tmp_path / "space.toml"
    space.write_text(
        f"[data]\npath = {json.dumps(str(bursts))}\n[model]\ndim = [2, 4]\nlayers = 1\n[train]\nepochs = 2\nlr = [1e-2, 1e-3]\n"
    )

    def tried(name: str, *more: object) -> dict[str, float]:
        fine("tune", space, "--out", tmp_path / name, "--sampler", "grid", "--pruner", "none", "--quiet", *more)
        found = [json.loads(line) for line in (tmp_path / name / "trials.jsonl").read_text().splitlines()]
        assert len(found) == 4
        return {json.dumps(one["setting"]): one["score"] for one in found}

    here = tried("here")
    assert tried("there", "--on", place) == here and len(set(here.values())) == 4
    assert tried("there", "--on", place) == here


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES, indirect=True)
def test_an_experiment_has_the_same_records(place: str, tmp_path: Path):
    folder = tmp_path / "short-game"
    folder.mkdir()
    (folder / "experiment.toml").write_text(START)

    def records(name: str, *more: object) -> dict[str, Any]:
        fine("reproduce", folder, "--out", tmp_path / name, *more)
        found = json.loads((tmp_path / name / "short-game" / "results.json").read_text())
        return {one["unit"]: {key: one.get(key) for key in ("dev", "epochs", "test")} for one in found["records"]}

    here = records("here")
    assert len(here) == 6
    assert records("there", "--on", place) == here
    made = {path: path.stat().st_mtime_ns for path in tmp_path.glob("there/*/units/*/record.json")}
    assert records("there", "--on", place) == here and len(made) == 6
    assert {path: path.stat().st_mtime_ns for path in made} == made


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES, indirect=True)
def test_a_search_among_models_scores_each_as_here(place: str, bursts: Path, tmp_path: Path):
    """Which fits there is time for depends on the clock; what a fit that is done scores does not."""

    def scores(name: str, on: str) -> dict[str, float]:
        settings = {"train": {"epochs": 2}, "model": {"dim": 4}}
        ft.auto(bursts, minutes=2.0, out=tmp_path / name, on=on, jobs=1, device="cpu", test=False, settings=settings)
        records = [
            (path.parent.name, json.loads(path.read_text())) for path in tmp_path.glob(f"{name}/units/*/record.json")
        ]
        return {unit: one["dev"] for unit, one in records if not one.get("stopped")}

    here, there = scores("here", "this"), scores("there", place)
    both = here.keys() & there.keys()
    assert {"poisson", "hawkes"} < both and len(both) >= 4
    assert {one: there[one] for one in both} == {one: here[one] for one in both}
