"""`foretell demo`: the whole path in one command, without rules and with them, that can be repeated."""

from __future__ import annotations

import re
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from foretell.data import EventData, EventSequence, load
from foretell.train.run import RunFolder
from tests.cli.invoking import fine, refused

pytest.importorskip("matplotlib")

EVENTS = 150  # of each game


def size_of_png(path: Path) -> tuple[int, int]:
    head = path.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n" and head[12:16] == b"IHDR"
    return struct.unpack(">II", head[16:24])


def has_a_picture(path: Path) -> bool:
    """More than one colour in good measure: not an empty canvas."""
    from matplotlib import image

    pixels = image.imread(path)[..., :3]
    return bool((pixels < 0.9).any(axis=-1).mean() > 0.005 and (pixels > 0.95).all(axis=-1).mean() > 0.3)


def beginning(data: EventData | None) -> EventData:
    assert data is not None
    cut = [EventSequence(one.times[:EVENTS], one.types[:EVENTS], one.times[EVENTS], one.id) for one in data]
    return EventData(cut, data.vocabulary, name=data.name)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The Hawkes floor, whole games and wide embeddings take most of the demo's time; less shows the same path."""
    from foretell.cli import demo
    from foretell.models.classical.poisson import Poisson

    whole = load("robocup")
    part = replace(whole, **{name: beginning(data) for name, data in whole.splits().items()})
    for place in ("foretell.train.splits.load", "foretell.data.load"):  # the first imports the second
        monkeypatch.setattr(place, lambda name, **options: part)
    monkeypatch.setattr("foretell.train.fit.floors_for", lambda vocabulary, train: [Poisson(vocabulary)])
    monkeypatch.setitem(demo.WITH_RULES["model"], "dim", 2)


def test_the_demo_trains_scores_draws_and_can_be_repeated(small: None, tmp_path: Path):
    run = tmp_path / "demo"
    for _ in range(2):
        shown = fine("demo", "--epochs", 1, "--out", run, "--quiet").out
        assert shown.index("Poisson") < shown.index("A-NHP") < shown.index("A-NDTT")
        assert "528 event types" in shown and "error of who" in shown and "RMSE" not in shown
        assert f"{run}/anhp/" in shown and f"{run}/andtt/" in shown
    for name in ("learning-curves.png", "intensities.png"):
        width, height = size_of_png(run / name)
        assert 600 <= width <= 3000 and 400 <= height <= 2000
        assert has_a_picture(run / name) and str(run / name) in shown
    for kind in ("anhp", "andtt"):
        folder = RunFolder.open(run / kind)
        assert folder.model().kind == folder.config().model.kind == kind
        assert len(folder.metrics()) == folder.config().train.epochs == 1
        assert (run / kind / "scores.parquet").stat().st_size > 0
    assert 'program = "robocup"' in (run / "andtt" / "config.toml").read_text()
    assert "has_ball(P) <- kickoff(P)" in (run / "andtt" / "program.ndtt").read_text()
    told = fine("evaluate", run / "andtt", "--json", "--no-times", "--integral", "stratified", "--points", 2).json
    assert told["events"] == EVENTS


def test_what_the_rules_bought_is_the_difference_of_the_scores(small: None, tmp_path: Path):
    shown = fine("demo", "--epochs", 1, "--out", tmp_path / "demo", "--quiet").out
    scores = {
        name: [float(number) for number in re.findall(r"-\d+\.\d+", row)]
        for name, row in re.findall(r"^│ (A-\w+) +│(.*)│$", shown, re.MULTILINE)
    }
    told = re.search(
        r"they leave 4[45] of 528 .* scores ([+-]\d+\.\d\d) .* \(([+-]\S+) on what .* ([+-]\S+) on when\)", shown
    )
    assert told is not None
    for place, said in zip((0, 2, 1), told.groups(), strict=True):
        assert float(said) == pytest.approx(scores["A-NDTT"][place] - scores["A-NHP"][place], abs=0.0061)
    assert re.search(r"names somebody wrong in \d+ % of the events, A-NHP in \d+ %", shown)


def test_a_difference_of_nothing_has_no_sign_of_its_own():
    from foretell.cli.demo import bought
    from foretell.evaluate.scores import evaluate
    from foretell.models.classical.poisson import Poisson

    test = load("robocup").test
    assert test is not None
    floor = Poisson(test.vocabulary)
    floor.fit_closed_form(test)
    one = evaluate(floor, test, times=False, predict=["kick(-P)"])
    lower = replace(
        one,
        scores=one.scores | {"log_likelihood": replace(one.log_likelihood, value=one.log_likelihood.value - 1e-4)},
    )
    assert "scores +0.00 nats per event against Poisson (+0.00 on what happens, +0.00 on when)" in bought(
        one, lower, test
    )


@pytest.mark.slow
def test_the_whole_demo_with_both_floors_runs(tmp_path: Path):
    shown = fine("demo", "--epochs", 1, "--out", tmp_path / "demo", "--quiet").out
    assert shown.index("Poisson") < shown.index("Hawkes") < shown.index("A-NHP") < shown.index("A-NDTT")


def test_a_demo_that_cannot_begin_leaves_an_earlier_one_alone(tmp_path: Path):
    run = tmp_path / "demo" / "anhp"
    run.mkdir(parents=True)
    (run / "config.toml").write_text("mine")
    assert "train.epochs = 0: expected 1 or more" in refused("demo", "--epochs", 0, "--out", tmp_path / "demo")
    assert "no demo" in refused("demo", "--epochs", 1, "--out", tmp_path / "demo")
    assert (run / "config.toml").read_text() == "mine"


def test_a_run_that_is_no_demo_in_either_folder_stops_the_demo_before_it_writes(tmp_path: Path):
    other = tmp_path / "demo" / "andtt"
    other.mkdir(parents=True)
    (other / "config.toml").write_text("mine")
    assert "no demo" in refused("demo", "--epochs", 1, "--out", tmp_path / "demo")
    (other / "config.toml").unlink()
    other.rmdir()
    other.write_text("mine")
    assert "andtt: this is a file" in refused("demo", "--epochs", 1, "--out", tmp_path / "demo")
    assert not (tmp_path / "demo" / "anhp").exists()
