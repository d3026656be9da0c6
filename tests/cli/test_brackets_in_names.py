"""Names that look like a terminal's markup: every command shows them as they are."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.cli.invoking import fine

NAMES = ("'[/b]'(x)", "'[/b]'(y)", "[red]x", "[bold]", ":red_circle:")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two runs, in folders with such names too."""
    folder = tmp_path_factory.mktemp("odd")
    random = np.random.default_rng(0)
    data = folder / "[i]data"
    data.mkdir()
    for part, count in (("train", 12), ("dev", 3), ("test", 6)):
        lines = []
        for place in range(count):
            times = np.sort(random.uniform(0.0, 10.0, 8)).tolist()
            names = [NAMES[kind] for kind in random.integers(0, len(NAMES), 8)]
            lines.append(json.dumps({"id": f"[/i]{place}", "times": times, "events": names, "t_end": 10.0}))
        (data / f"{part}.jsonl").write_text("\n".join(lines) + "\n")
    (data / "dataset.toml").write_text('name = "[/u]data"\ntime_unit = "[red]days"\n')
    found = [folder / name for name in ("[bold]one", "[red]two")]
    for run in found:
        fine("train", "--model", "poisson", "--data", data, "--out", run, "--quiet")
    return found


def test_evaluate_shows_names_as_they_are(runs: list[Path]):
    shown = fine("evaluate", runs[0], "--predict", "'[/b]'(-P)", "--futures", 3, "--horizon", 1, "--quiet").out
    assert "'[/b]'(-P)" in shown and "[red]days" in shown
    assert f"event by event: {runs[0]}" in shown.replace("\n", "")


def test_compare_shows_names_as_they_are(runs: list[Path]):
    shown = fine("compare", *runs, "--predict", "'[/b]'(-P)", "--quiet").out
    assert "Poisson ([bold]one) less Poisson ([red]two)" in shown and "error of who, '[/b]'(-P)" in shown
    assert "│ '[/b]'" in shown and "'[red]x'" in shown and "':red_circle:'" in shown


def test_predict_shows_names_as_they_are(runs: list[Path]):
    shown = fine(
        "predict",
        runs[0],
        "--split",
        "test",
        "--sequence",
        "[/i]1",
        "--pattern",
        "'[/b]'(Q)",
        "--by",
        "both",
        "--n",
        20,
    ).out
    assert "sequence [/i]1" in shown and "│ [/i]1" in shown and "which '[/b]'(Q)" in shown and "│ '[/b]'(x)" in shown
    assert ":red_circle:" in shown and "in [red]days" in shown
    many = fine("predict", runs[0], "--split", "test").out
    assert "│ [/i]5" in many


def test_intensity_shows_names_as_they_are(runs: list[Path]):
    shown = fine("intensity", runs[0], "--at", "1", "--sequence", "[/i]1").out
    assert "sequence [/i]1" in shown and all(name in shown for name in ("[/b]", "[red]x", "[bold]", ":red_circle:"))


def test_a_report_has_names_as_they_are(runs: list[Path], tmp_path: Path):
    fine("report", *runs, "-o", tmp_path / "page.html", "--quiet")
    page = (tmp_path / "page.html").read_text()
    assert "[red]x" in page and "[bold]one" in page
