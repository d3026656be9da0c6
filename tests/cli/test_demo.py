"""`foretell demo`: the whole path in one command, that can be repeated."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from foretell.train.run import RunFolder
from tests.cli.invoking import fine, refused

pytest.importorskip("matplotlib")


def size_of_png(path: Path) -> tuple[int, int]:
    head = path.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n" and head[12:16] == b"IHDR"
    return struct.unpack(">II", head[16:24])


def has_a_picture(path: Path) -> bool:
    """More than one colour in good measure: not an empty canvas."""
    from matplotlib import image

    pixels = image.imread(path)[..., :3]
    return bool((pixels < 0.9).any(axis=-1).mean() > 0.005 and (pixels > 0.95).all(axis=-1).mean() > 0.3)


def test_the_demo_trains_scores_draws_and_can_be_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from foretell.cli import demo
    from foretell.models.poisson import Poisson

    # The Hawkes floor takes most of the demo's time on 528 types; one floor shows the same path.
    monkeypatch.setattr("foretell.train.floors.floors_for", lambda vocabulary: [Poisson(vocabulary)])
    run = tmp_path / "demo"
    for _ in range(2):
        shown = fine("demo", "--epochs", 1, "--run", run, "--quiet").out
        assert "Poisson" in shown and "A-NHP" in shown and "528 event types" in shown and str(run) in shown
    for name in ("learning-curve.png", "intensities.png"):
        width, height = size_of_png(run / name)
        assert 600 <= width <= 3000 and 400 <= height <= 2000
        assert has_a_picture(run / name)
    folder = RunFolder.open(run)
    assert folder.model().kind == "anhp" and len(folder.metrics()) == 1
    assert folder.config().train.epochs == 1 and folder.config().model.kind == demo.MODEL["kind"]
    assert (run / "scores.parquet").stat().st_size > 0
    assert fine("evaluate", run, "--json", "--no-times").json["events"] == 778


@pytest.mark.slow
def test_the_whole_demo_with_both_floors_runs(tmp_path: Path):
    shown = fine("demo", "--epochs", 1, "--run", tmp_path / "demo", "--quiet").out
    assert shown.index("Poisson") < shown.index("Hawkes") < shown.index("A-NHP")


def test_a_demo_that_cannot_begin_leaves_an_earlier_one_alone(tmp_path: Path):
    run = tmp_path / "demo"
    run.mkdir()
    (run / "config.toml").write_text("mine")
    assert "train.epochs = 0: expected 1 or more" in refused("demo", "--epochs", 0, "--run", run)
    assert (run / "config.toml").read_text() == "mine"
