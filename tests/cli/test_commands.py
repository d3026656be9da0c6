"""What holds for every command: JSON and nothing else on stdout, exit codes, messages, and no torch where none is needed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from tests.cli.invoking import fine, finished, foretell, process, refused


def test_with_json_every_command_prints_one_json_value_and_nothing_else(anhp: Path, bursts: Path, tmp_path: Path):
    commands = [
        ("train", "--model", "poisson", "--data", bursts, "--out", tmp_path / "p", "--json"),
        ("train", "--data", bursts, "--dim", 4, "--epochs", 1, "--out", tmp_path / "a", "--json"),
        ("evaluate", tmp_path / "a", "--json"),
        ("evaluate", tmp_path / "p", "--json", "--floors"),
        ("intensity", anhp, "--at", "0.5,1", "--json"),
        ("intensity", anhp, "--grid", 3, "--json", "--plot", tmp_path / "p.png"),
        ("intensity", anhp, "--json", "--plot", tmp_path / "p.png"),
        ("embed", anhp, "--json"),
        ("embed", anhp, "--json", "-o", tmp_path / "e.jsonl"),
        ("params", anhp, "--json"),
        ("data", "describe", bursts, "--json"),
        ("data", "convert", bursts, tmp_path / "again", "--json"),
        ("data", "simulate", "poisson", "-o", tmp_path / "s.jsonl", "--sequences", 2, "--json"),
    ]
    for command in commands:
        assert isinstance(fine(*command).json, dict | list), command


def test_training_without_a_terminal_writes_plain_lines_to_stderr(bursts: Path, tmp_path: Path):
    outcome = fine("train", "--data", bursts, "--dim", 4, "--epochs", 2, "--out", tmp_path / "r", "--json")
    assert [line[:10] for line in outcome.err.splitlines() if line.startswith("epoch")] == ["epoch    1", "epoch    2"]
    assert "\x1b" not in outcome.err and "\r" not in outcome.err


def test_quiet_says_nothing_but_the_result(bursts: Path, tmp_path: Path):
    outcome = fine("train", "--data", bursts, "--dim", 4, "--epochs", 1, "--out", tmp_path / "r", "--quiet")
    assert outcome.err == "" and "best log-likelihood on dev" in outcome.out


@pytest.mark.parametrize(
    "command",
    [
        ("train", "--no-such-option"),
        ("evaluate",),
        ("no-such-command",),
        ("train", "--epochs", "many", "--data", "robocup"),
        ("intensity", "run", "data", "one too many"),
        ("data", "simulate", "gamma", "-o", "x.jsonl"),
    ],
)
def test_wrong_usage_ends_with_2(command: tuple[str, ...]):
    outcome = foretell(*command)
    assert outcome.code == 2 and outcome.out == "" and "Usage" in outcome.err


def test_no_command_shows_help_and_ends_with_2():
    assert foretell().code == 2
    assert foretell("data").code == 2


def test_help_and_version_end_with_0():
    for command in ("train", "evaluate", "intensity", "embed", "params", "demo", "data"):
        assert "Usage" in fine(command, "--help").out
    assert fine("--version").out.strip() == metadata.version("foretell")


def test_a_missing_file_is_a_message_and_exit_code_1(anhp: Path, tmp_path: Path):
    gone = tmp_path / "gone.jsonl"
    for command in (
        ("train", "--data", gone),
        ("evaluate", anhp, gone),
        ("intensity", anhp, gone, "--at", "1"),
        ("embed", anhp, gone, "--json"),
        ("data", "describe", gone),
    ):
        assert f"{gone}: no such file" in refused(*command)
    assert f"{gone}: there is no such file" in refused("train", gone)
    assert f"{gone}: there is no such file" in refused("params", anhp, "--load", gone)


@pytest.mark.parametrize("command", ["evaluate", "intensity", "embed", "params"])
def test_a_run_that_is_no_run_is_a_message_and_exit_code_1(command: str, tmp_path: Path):
    more = {"intensity": ["--at", "1"], "embed": ["--json"]}.get(command, [])
    assert f"{tmp_path / 'gone'}: no such run folder" in refused(command, tmp_path / "gone", *more)
    assert f"{tmp_path}: this is no run folder: it has no config.toml" in refused(command, tmp_path, *more)


@pytest.mark.parametrize("command", ["evaluate", "intensity", "embed", "params"])
def test_a_broken_model_is_a_message_and_exit_code_1(command: str, copied: Path):
    more = {"intensity": ["--at", "1"], "embed": ["--json"]}.get(command, [])
    model = copied / "model.safetensors"
    model.write_bytes(model.read_bytes()[:200])
    assert f"{model}: not a foretell model" in refused(command, copied, *more)
    model.unlink()
    assert "this run has no model yet" in refused(command, copied, *more)


def test_an_unknown_key_is_refused_with_the_file_it_is_in(tmp_path: Path, bursts: Path):
    path = tmp_path / "run.toml"
    path.write_text(f"[data]\npath = {json.dumps(str(bursts))}\n[train]\nepoch = 3\n[model]\nlayrs = 2\n")
    message = refused("train", path)
    assert f"{path}: unknown key `train.epoch`; did you mean `epochs`?" in message
    assert f"{path}: unknown key `model.layrs`; did you mean `layers`?" in message


def test_event_types_that_the_model_does_not_know_are_refused(anhp: Path, events, tmp_path: Path):
    path = events(([1.0, 2.0], ["0", "x"]))
    message = refused("intensity", anhp, path, "--at", "1", "--unknown", "error")
    assert "`x`" in message or "'x'" in message
    assert str(path) in message


def test_a_device_that_is_not_there_is_a_message(anhp: Path):
    assert "device 'cuda:42' cannot be used here" in refused("evaluate", anhp, "--device", "cuda:42")


def test_ctrl_c_while_nothing_is_being_trained_ends_with_130(anhp: Path, monkeypatch: pytest.MonkeyPatch):
    from foretell.cli import open_run

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(open_run.RunFolder, "open", interrupted)
    outcome = foretell("evaluate", anhp)
    assert outcome.code == 130 and "Traceback" not in outcome.err


def test_ctrl_c_stops_the_fit_of_a_hawkes_process(tmp_path: Path):
    """It has no checkpoint, so resuming begins again."""
    run = tmp_path / "run"
    child = process("train", "--model", "hawkes", "--data", "robocup", "--out", run)
    assert child.stderr is not None
    for line in child.stderr:
        if line.startswith("epoch"):
            break
    child.send_signal(signal.SIGINT)
    outcome = finished(child)
    assert outcome.code == 130 and f"foretell train --resume {run}" in outcome.err
    assert (run / "config.toml").exists() and not (run / "model.safetensors").exists()


@pytest.mark.parametrize(
    "arguments", [["--help"], ["data", "--help"], ["train", "--help"], ["data", "describe", "robocup", "--json"]]
)
def test_help_and_data_commands_do_not_import_torch(arguments: list[str]):
    script = (
        "import sys\nfrom foretell.cli.main import app\n"
        f"try:\n    app({arguments!r})\nexcept SystemExit as stop:\n    assert not stop.code, stop.code\n"
        "assert 'torch' not in sys.modules, 'torch was imported'\n"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert found.returncode == 0, found.stderr


def test_importing_the_package_does_not_import_torch_and_every_public_name_exists():
    script = (
        "import sys, foretell\nassert 'torch' not in sys.modules\nfor n in foretell.__all__: getattr(foretell, n)\n"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert found.returncode == 0, found.stderr


def test_a_reader_that_goes_away_is_no_traceback(anhp: Path):
    child = subprocess.Popen(
        [sys.executable, "-m", "foretell.cli.main", "params", str(anhp)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert child.stdout is not None and child.stderr is not None
    child.stdout.close()
    assert b"Traceback" not in child.stderr.read()
    child.wait(timeout=60)
    child.stderr.close()
