"""Runs that the commands are tested on, trained once."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.invoking import fine
from tests.train.small import folder_of


@pytest.fixture(scope="session")
def bursts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A simulated data set of three splits."""
    return folder_of(tmp_path_factory.mktemp("data") / "bursts")


@pytest.fixture(scope="session")
def trained(bursts: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run of each kind of model; tests that change one must copy it."""
    place = tmp_path_factory.mktemp("runs")
    options = {
        "anhp": (
            "--dim",
            4,
            "--layers",
            2,
            "--epochs",
            2,
            "--set",
            "model.shortest_wave=0.5",
            "--set",
            "model.preset=plain",
        )
    }
    for kind in ("anhp", "hawkes", "poisson"):
        fine("train", "--model", kind, "--data", bursts, "--out", place / kind, "--quiet", *options.get(kind, ()))
    return {kind: place / kind for kind in ("anhp", "hawkes", "poisson")}


@pytest.fixture(scope="session")
def anhp(trained: dict[str, Path]) -> Path:
    return trained["anhp"]


@pytest.fixture
def copied(anhp: Path, tmp_path: Path) -> Path:
    """An A-NHP run that a test may change."""
    return Path(shutil.copytree(anhp, tmp_path / "copied"))


@pytest.fixture
def events(tmp_path: Path) -> Callable[..., Path]:
    """Writes sequences of (times, events) as JSON lines."""

    def write(*sequences: tuple[list[float], list[object]], t_end: float = 8.0) -> Path:
        path = tmp_path / "events.jsonl"
        lines = [
            json.dumps({"id": f"s{number}", "times": times, "events": names, "t_end": t_end})
            for number, (times, names) in enumerate(sequences)
        ]
        path.write_text("\n".join(lines) + "\n")
        return path

    return write
