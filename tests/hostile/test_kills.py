"""SIGKILL, SIGTERM and SIGINT at random moments of long commands: the end is the same, or a file is whole or not there."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from safetensors.torch import load_file as tensors_of

from tests.cli.invoking import process
from tests.reproduce.conftest import START
from tests.train.small import folder_of, same_tensors

pytestmark = pytest.mark.slow

MOMENTS = 50
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
# As the documentation of exit codes has it: done, or interrupted; a killed process has the signal's own.
CODES = {signal.SIGKILL: {0, -9}, signal.SIGTERM: {0, 130, 143, -15}, signal.SIGINT: {0, 130}}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder_of(tmp_path_factory.mktemp("kills") / "bursts", sequences=60)


def undisturbed(command: Sequence[object]) -> float:
    """Run to the end; how long it took."""
    began = time.monotonic()
    child = process(*command)
    out, err = child.communicate(timeout=600)
    assert child.returncode == 0, out + err
    return time.monotonic() - began


def disturbed(command: Sequence[object], delay: float, sent: signal.Signals) -> None:
    """Killed after a while, if it is not done before."""
    child = process(*command)
    try:
        child.wait(delay)
    except subprocess.TimeoutExpired:
        child.send_signal(sent)
    _, err = child.communicate(timeout=600)
    assert child.returncode in CODES[sent], (sent, child.returncode, err)
    assert "Traceback" not in err, err


def moments(seed: str, length: float, count: int = MOMENTS) -> list[tuple[float, signal.Signals]]:
    draw = random.Random(seed)
    return [(draw.uniform(0.0, 1.1 * length), SIGNALS[number % len(SIGNALS)]) for number in range(count)]


def training(data: Path, run: Path) -> list[object]:
    return [
        *("train", "--data", data, "--model", "anhp", "--out", run, "--epochs", 12, "--batch", 6, "--dim", 8),
        *("--quiet", "--no-floors"),
    ]


def test_a_training_killed_at_random_moments_and_resumed_ends_with_the_same_bits(data: Path, tmp_path: Path):
    whole = tmp_path / "whole"
    length = undisturbed(training(data, whole))
    expected = tensors_of(whole / "model.safetensors")
    run, ends = tmp_path / "run", 0
    for delay, sent in moments("train", length):
        resumes = (run / "config.toml").exists() and (run / "checkpoint.safetensors").exists()
        if run.exists() and not resumes:
            _emptied(run)
        disturbed(["train", "--resume", run, "--quiet"] if resumes else training(data, run), delay, sent)
        if (run / "model.safetensors").exists() and _done(run, whole):
            assert same_tensors(tensors_of(run / "model.safetensors"), expected)
            _emptied(run)
            ends += 1
    if run.exists() and (run / "checkpoint.safetensors").exists():
        undisturbed(["train", "--resume", run, "--quiet"])
    else:
        _emptied(run)
        undisturbed(training(data, run))
    assert same_tensors(tensors_of(run / "model.safetensors"), expected)
    assert _epochs(run) == _epochs(whole)


def _epochs(run: Path) -> list[tuple[int, float]]:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [(row["epoch"], row["train"]) for row in rows if "epoch" in row and "train" in row]


def _done(run: Path, whole: Path) -> bool:
    return (run / "metrics.jsonl").exists() and len(_epochs(run)) == len(_epochs(whole))


def _emptied(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        path.unlink() if not path.is_dir() else path.rmdir()
    if folder.exists():
        folder.rmdir()


def test_a_search_killed_at_random_moments_goes_on_to_the_same_trials(data: Path, tmp_path: Path):
    pytest.importorskip("optuna")
    (tmp_path / "space.toml").write_text(
        f"[data]\npath = {json.dumps(str(data))}\n[model]\ndim = [4, 8]\nlayers = 1\n[train]\nepochs = 3\nlr = [5e-3, 1e-2]\n"
    )

    def command(out: Path) -> list[object]:
        return [
            "tune",
            tmp_path / "space.toml",
            "--out",
            out,
            "--sampler",
            "grid",
            "--pruner",
            "none",
            "--quiet",
            "--json",
        ]

    length = undisturbed(command(tmp_path / "whole"))
    for delay, sent in moments("tune", length):
        disturbed(command(tmp_path / "cut"), delay, sent)
    undisturbed(command(tmp_path / "cut"))
    best = [tensors_of(next((tmp_path / one).rglob("best/model.safetensors"))) for one in ("whole", "cut")]
    assert same_tensors(*best)


def test_an_experiment_killed_at_random_moments_goes_on_to_the_same_numbers(tmp_path: Path):
    folder = tmp_path / "experiments" / "short-game"
    folder.mkdir(parents=True)
    (folder / "experiment.toml").write_text(START)

    def command(out: str) -> list[object]:
        return ["reproduce", folder, "--out", tmp_path / out]

    length = undisturbed(command("whole"))
    for delay, sent in moments("reproduce", length, 20):
        disturbed(command("cut"), delay, sent)
    undisturbed(command("cut"))
    whole, cut = (json.loads((tmp_path / one / "short-game" / "results.json").read_text()) for one in ("whole", "cut"))
    assert {one["unit"]: one.get("test") for one in cut["records"]} == {
        one["unit"]: one.get("test") for one in whole["records"]
    }


def all_or_nothing(command: Callable[[Path], Sequence[object]], name: str, tmp_path: Path) -> None:
    whole = tmp_path / "whole" / name
    whole.parent.mkdir()
    length = undisturbed(command(whole))
    expected = _content(whole)
    for number, (delay, sent) in enumerate(moments(name, length)):
        out = tmp_path / str(number) / name
        out.parent.mkdir()
        disturbed(command(out), delay, sent)
        if out.exists():
            assert _content(out) == expected, (number, delay, sent)
        left = {one.name for one in out.parent.iterdir()} - {name}
        assert sent == signal.SIGKILL or not left, left


def _content(path: Path) -> dict[str, bytes]:
    return {str(one.relative_to(path)): one.read_bytes() for one in sorted([path, *path.rglob("*")]) if one.is_file()}


@pytest.mark.parametrize("name", ["out.csv", "out.parquet", "out.jsonl.gz"])
def test_a_converted_file_is_whole_or_not_there(name: str, tmp_path: Path):
    source = folder_of(tmp_path / "large", sequences=20_000, t_end=20.0) / "train.jsonl.gz"
    all_or_nothing(lambda out: ["data", "convert", source, out], name, tmp_path)


def test_a_report_is_whole_or_not_there(data: Path, tmp_path: Path):
    run = tmp_path / "run"
    undisturbed(training(data, run))
    all_or_nothing(lambda out: ["report", run, "-o", out], "page.html", tmp_path)
