"""The run folder: it explains itself, is never overwritten, and a disk that fails leaves nothing half written."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from foretell.errors import ForetellError
from foretell.models.classical.hawkes import Hawkes
from foretell.train.config import make_config
from foretell.train.data_facts import data_facts
from foretell.train.fit import fit
from foretell.train.run import RunFolder
from tests.cli.invoking import fine, refused
from tests.train.small import exciting, folder_of, options, small_model

TRAIN, DEV = exciting(24, 0), exciting(8, 1)


@pytest.fixture
def bursts(tmp_path: Path) -> Path:
    return folder_of(tmp_path / "bursts")


def quick(bursts: Path, run: Path, *more: object) -> tuple[object, ...]:
    return "train", "--data", bursts, "--out", run, "--dim", 4, "--epochs", 2, "--quiet", *more


def test_a_run_folder_holds_what_is_needed_to_understand_it(bursts: Path, tmp_path: Path):
    fine(*quick(bursts, tmp_path / "run", "--seed", 3))
    run = RunFolder.open(tmp_path / "run")
    assert sorted(path.name for path in run.path.iterdir()) == [
        "checkpoint.safetensors",
        "config.toml",
        "environment.json",
        "floors.json",
        "metrics.jsonl",
        "model.safetensors",
    ]
    assert run.config().train.seed == 3 and run.config().data.path == str(bursts)
    environment = json.loads((run.path / "environment.json").read_text())
    assert {"foretell", "python", "torch", "numpy", "platform", "threads", "device"} <= environment.keys()
    assert environment["data"]["splits"]["dev"] == {
        "sequences": 8,
        "events": environment["data"]["splits"]["dev"]["events"],
    }
    assert run.time_unit() == "hours" and run.origin() == "window"
    metrics = run.metrics()
    assert [record["epoch"] for record in metrics] == [1, 2]
    assert {"step", "lr", "train", "dev", "best_epoch", "train_seconds", "dev_seconds"} <= metrics[0].keys()
    assert run.model().kind == "anhp" and not run.model().training


def test_a_direct_fit_leaves_a_run_too(tmp_path: Path):
    run = RunFolder.create(tmp_path / "run", make_config({"model": {"kind": "hawkes"}}))
    fit(Hawkes(TRAIN.vocabulary), TRAIN, DEV, run=run)
    assert isinstance(run.model(), Hawkes) and run.metrics()


def test_files_of_a_run_can_be_read_by_others_as_the_umask_says(tmp_path: Path):
    run = RunFolder.create(tmp_path / "run", make_config({}))
    mask = os.umask(0)
    os.umask(mask)
    assert (run.path / "config.toml").stat().st_mode & 0o777 == 0o666 & ~mask


def test_an_existing_run_is_not_overwritten(bursts: Path, tmp_path: Path):
    run = tmp_path / "run"
    fine(*quick(bursts, run))
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    assert f"{run}: there is a run in this folder already; continue it with --resume" in refused(*quick(bursts, run))
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before


def test_a_file_in_the_place_of_the_run_folder_is_refused(bursts: Path, tmp_path: Path):
    place = tmp_path / "run"
    place.write_text("mine")
    assert f"{place}: this is a file" in refused(*quick(bursts, place))
    assert place.read_text() == "mine"
    assert f"{place / 'below'}" in refused(*quick(bursts, place / "below"))


def failing(monkeypatch: pytest.MonkeyPatch, when: Callable[[str], bool]) -> None:
    """A disk that is full when certain files are to take their place."""
    replace = os.replace

    def full(source: str | Path, target: str | Path) -> None:
        if when(Path(target).name):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        replace(source, target)

    monkeypatch.setattr(os, "replace", full)


@pytest.mark.parametrize("name", ["config.toml", "environment.json", "model.safetensors"])
def test_a_full_disk_is_a_message_and_leaves_no_half_run(
    name: str, bursts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    failing(monkeypatch, lambda target: target == name)
    run = tmp_path / "run"
    assert refused(*quick(bursts, run)) == f"{run / name}: cannot be written: No space left on device"
    assert not run.exists()


def test_a_disk_that_fills_up_during_training_leaves_the_last_whole_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    run = RunFolder.create(tmp_path / "run", make_config({}))
    chosen = options(epochs=4, checkpoint_seconds=0.0)
    failing(monkeypatch, lambda target: target == "checkpoint.safetensors" and (run.path / target).exists())
    with pytest.raises(ForetellError, match="No space left on device"):
        fit(small_model(TRAIN), TRAIN, DEV, chosen, run=run)
    monkeypatch.undo()
    assert not list(run.path.glob(".*"))
    found = fit(small_model(TRAIN), TRAIN, DEV, chosen, run=run, resume=True)
    assert found.best == fit(small_model(TRAIN), TRAIN, DEV, chosen).best


def test_a_place_that_cannot_be_written_is_a_message(bursts: Path):
    assert "/proc/run: cannot be written" in refused(*quick(bursts, Path("/proc/run")))


def test_a_run_that_learned_nothing_leaves_its_folder_free(bursts: Path, tmp_path: Path):
    run = tmp_path / "run"
    message = refused(*quick(bursts, run, "--lr", "1e30", "--set", "train.clip=0", "--epochs", 1))
    assert "the loss is" in message or "not a number" in message
    assert not run.exists()
    fine(*quick(bursts, run))


def test_mistakes_are_found_before_anything_is_written(bursts: Path, tmp_path: Path):
    run = tmp_path / "run"
    for wrong in (["--dim", 0], ["--device", "quantum"], ["--heads", 0], ["--set", "model.edges=['x <- y']"]):
        refused(*quick(bursts, run, *wrong))
        assert not run.exists()


def test_what_is_no_run_folder_is_refused(tmp_path: Path):
    with pytest.raises(ForetellError, match="no such run folder"):
        RunFolder.open(tmp_path / "gone")
    with pytest.raises(ForetellError, match=r"it has no config\.toml"):
        RunFolder.open(tmp_path)


def test_a_run_without_a_model_says_how_to_continue(tmp_path: Path):
    run = RunFolder.create(tmp_path / "run", make_config({}))
    with pytest.raises(ForetellError, match=r"no model yet; continue it with `resume="):
        run.model()


@pytest.mark.parametrize("content", ["{", "[]", '{"data": 3}', '{"data": {"origin": "sideways"}}', "[" * 100_000])
def test_an_environment_that_is_not_ours_is_an_error(content: str, tmp_path: Path):
    run = RunFolder.create(tmp_path / "run", make_config({}))
    (run.path / "environment.json").write_text(content)
    with pytest.raises(ForetellError, match=r"environment\.json"):
        run.origin()


def test_metrics_that_are_no_json_are_an_error(tmp_path: Path):
    run = RunFolder.create(tmp_path / "run", make_config({}))
    (run.path / "metrics.jsonl").write_text('{"epoch": 1}\n{"epo')
    with pytest.raises(ForetellError, match=r"metrics\.jsonl: not JSON lines"):
        run.metrics()


def test_facts_about_the_data_are_plain_json():
    from foretell.data import load

    facts = json.loads(json.dumps(data_facts(load("robocup"))))
    assert facts["types"] == 528 and facts["splits"]["test"]["sequences"] == 1
