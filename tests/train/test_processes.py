"""Several processes train as one does: the same steps, the same scores, one run folder."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from foretell.cli.processes import without_processes
from foretell.train.processes import ProcessGroup
from tests.train.joined import FittedSteps, fitted, models

FORETELL = [sys.executable, "-m", "foretell"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
ALONE = {name: text for name, text in os.environ.items() if name not in ("RANK", "WORLD_SIZE")} | {
    "OMP_NUM_THREADS": "1"
}
TRAIN = (
    "train --model anhp --data robocup --preset paper --batch 2 --no-floors --set train.dtype=float64 --set model.dim=4"
)
LIMIT = 300


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@pytest.fixture(scope="module", params=[2, pytest.param(3, marks=pytest.mark.slow)])
def together(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[dict]:
    """All models, fitted by several processes: what each of them found."""
    path, count = tmp_path_factory.mktemp("joined") / "found.json", request.param
    address = {"WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port())}
    command = [sys.executable, "-m", "tests.train.joined", str(path)]
    started = [subprocess.Popen(command, env=ALONE | address | {"RANK": str(rank)}) for rank in range(count)]
    assert [one.wait(LIMIT) for one in started] == [0] * count
    return [json.loads(path.with_name(f"found-{rank}.json").read_text()) for rank in range(count)]


@pytest.fixture(scope="module")
def alone() -> Callable[[str], FittedSteps]:
    """What one process finds, for each model."""
    return cache(lambda name: fitted(name, models()[name]))


@pytest.mark.parametrize("name", models())
def test_every_step_of_several_processes_is_that_of_one(name: str, together: list[dict], alone: Callable) -> None:
    expected: FittedSteps = alone(name)
    assert len(expected.dev) == 8 and len(set(expected.steps)) == len(expected.steps) >= 8  # it learns
    assert expected.shares == []
    shares = np.array([one[name]["shares"] for one in together])
    assert shares.shape == (len(together), len(expected.steps))
    np.testing.assert_allclose(shares.sum(0), 1.0, rtol=1e-9)
    assert ((shares > 0.05) & (shares < 0.95)).sum(
        1
    ).min() >= 8  # each process had a part of one step per epoch at least
    for one in together:
        np.testing.assert_allclose(one[name]["steps"], expected.steps, rtol=1e-9)
        np.testing.assert_allclose(one[name]["dev"], np.array(expected.dev, dtype=np.float64), rtol=1e-9)


def _foretell(arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [*FORETELL, *arguments.split()]
    return subprocess.run(command, cwd=folder, env=ALONE, capture_output=True, text=True, timeout=LIMIT, check=False)


def _scores(run: Path) -> list[list[float]]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [[one["train"], one["dev"]] for one in lines]


def test_the_command_starts_its_processes_and_leaves_one_run_that_another_number_resumes(tmp_path: Path) -> None:
    one = _foretell(f"{TRAIN} --epochs 4 --out one --json", tmp_path)
    two = _foretell(f"{TRAIN} --epochs 4 --out two --json --processes 2", tmp_path)
    assert (one.returncode, two.returncode) == (0, 0), two.stderr
    assert json.loads(two.stdout)["run"] == "two"  # one process prints
    np.testing.assert_allclose(_scores(tmp_path / "two"), _scores(tmp_path / "one"), rtol=1e-9)


def test_an_interrupted_training_of_two_processes_goes_on_with_one(tmp_path: Path) -> None:
    one = _foretell(f"{TRAIN} --epochs 12 --out one", tmp_path)
    assert one.returncode == 0, one.stderr
    arguments = f"{TRAIN} --epochs 12 --out two --processes 2 --set train.checkpoint_seconds=0"
    command = [*FORETELL, *arguments.split()]
    with subprocess.Popen(command, cwd=tmp_path, env=ALONE, stderr=subprocess.PIPE, text=True) as started:
        deadline = time.monotonic() + LIMIT
        while not (tmp_path / "two" / "checkpoint.safetensors").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        started.send_signal(signal.SIGINT)
        _, said = started.communicate(timeout=LIMIT)
    assert started.returncode in (0, 130), said
    if started.returncode == 130:
        assert "--resume two" in said
    resumed = _foretell("train --resume two", tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    np.testing.assert_allclose(_scores(tmp_path / "two"), _scores(tmp_path / "one"), rtol=1e-9)


def _gone(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state in "ZX"


def _launched(launcher: str, count: int) -> list[str]:
    return {"foretell": FORETELL, "torchrun": [*TORCHRUN, f"--nproc-per-node={count}", "-m", "--", "foretell"]}[
        launcher
    ]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="processes are found in /proc")
@pytest.mark.parametrize("launcher", ["foretell", pytest.param("torchrun", marks=pytest.mark.slow)])
def test_processes_end_with_the_one_that_started_them(launcher: str, tmp_path: Path) -> None:
    arguments = f"{TRAIN} --epochs 1000 --run two --set train.checkpoint_seconds=0 --quiet"
    arguments += " --processes 2" if launcher == "foretell" else ""
    command = [*_launched(launcher, 2), *arguments.split()]
    with subprocess.Popen(command, cwd=tmp_path, env=ALONE, stderr=subprocess.DEVNULL) as started:
        deadline = time.monotonic() + LIMIT
        while not (tmp_path / "two" / "checkpoint.safetensors").exists() and time.monotonic() < deadline:
            assert started.poll() is None
            time.sleep(0.02)
        ranks = Path(f"/proc/{started.pid}/task/{started.pid}/children").read_text().split()
        started.kill()
    assert len(ranks) == 2
    deadline = time.monotonic() + 20.0
    while not all(_gone(int(one)) for one in ranks):
        assert time.monotonic() < deadline, "they go on without it"
        time.sleep(0.05)


@pytest.mark.slow
def test_torchrun_starts_the_same_training_on_one_machine_or_on_two(tmp_path: Path) -> None:
    one = _foretell(f"{TRAIN} --epochs 2 --run one", tmp_path)
    assert one.returncode == 0, one.stderr
    arguments = f"-m -- foretell {TRAIN} --epochs 2 --quiet --json --out".split()
    two = [*TORCHRUN, "--nproc-per-node=2", *arguments, "two"]
    found = subprocess.run(two, cwd=tmp_path, env=ALONE, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout)["run"] == "two"  # one process prints
    meeting = ["--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{_free_port()}", "--rdzv-id=1"]
    nodes = [*TORCHRUN, *meeting, "--nproc-per-node=1", *arguments, "nodes"]
    started = [subprocess.Popen(nodes, cwd=tmp_path, env=ALONE, stdout=subprocess.DEVNULL) for _ in range(2)]
    assert [child.wait(LIMIT) for child in started] == [0, 0]
    for run in ("two", "nodes"):
        np.testing.assert_allclose(_scores(tmp_path / run), _scores(tmp_path / "one"), rtol=1e-9)


def test_a_mistake_is_said_once_and_nothing_is_left(tmp_path: Path) -> None:
    found = _foretell("train --model anhp --data nowhere.csv --out two --processes 2", tmp_path)
    assert found.returncode == 1
    assert len(re.findall("nowhere.csv", found.stderr)) == 1 and "Traceback" not in found.stderr
    assert not list(tmp_path.iterdir())


def test_what_one_process_does_is_refused_for_several(tmp_path: Path) -> None:
    found = _foretell("train --model poisson --data robocup --out two --processes 2", tmp_path)
    assert found.returncode == 1 and "without torchrun or --processes" in found.stderr


def test_shares_are_everything_once() -> None:
    groups = [ProcessGroup(rank, 3) for rank in range(3)]
    assert sorted(one for group in groups for one in group.share(range(8))) == list(range(8))
    assert [[group.owns(place) for group in groups].count(True) for place in range(8)] == [1] * 8


def test_the_command_line_is_passed_on_without_its_processes() -> None:
    assert without_processes(["train", "--processes", "2", "--data", "x"]) == ["train", "--data", "x"]
    assert without_processes(["train", "--processes=2", "-q"]) == ["train", "-q"]
