"""Tab on the command line: what a bash with the installed completion makes of what is typed, and the functions behind it."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from foretell.cli import completion

BASH = shutil.which("bash")


class Terminal:
    """An interactive bash, with a home of its own, behind a pseudo-terminal."""

    def __init__(self, home: Path) -> None:
        self.screen, theirs = pty.openpty()
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("BASH", "PS", "PROMPT"))}
        place = {"HOME": str(home), "PATH": f"{home / 'bin'}:{os.environ['PATH']}", "TERM": "dumb", "PS1": "$ "}
        self.shell = subprocess.Popen(
            [str(BASH), "--rcfile", str(home / ".bashrc"), "-i"],
            cwd=home,
            env={**kept, **place, "INPUTRC": "/dev/null", "COLUMNS": "400"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self.told = 0

    def send(self, keys: str, until: str, seconds: float = 60.0) -> str:
        """Type keys, and read until the pattern comes."""
        os.write(self.screen, keys.encode())
        found, ends = "", time.monotonic() + seconds
        while not re.search(until, found):
            assert time.monotonic() < ends, found
            if select.select([self.screen], [], [], 0.2)[0]:
                found += os.read(self.screen, 65536).decode(errors="replace")
        return found

    def completed(self, typed: str) -> str:
        """The line after Tab. It is printed by `echo`: to the beginning of the line, and to its end, and Return."""
        self.told += 1
        mark = f"line{self.told}="
        found = self.send(f"{typed}\t\x01echo {mark[:-1]}'='\"\x05\"\n", rf"{mark}[^\n]*\n")
        answer = re.search(rf"{mark}([^\r\n]*)", found)
        assert answer is not None
        return answer[1]

    def close(self) -> None:
        self.shell.kill()
        self.shell.wait()
        os.close(self.screen)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with the command on its path, a run, and a program."""
    made = tmp_path_factory.mktemp("home")
    (made / "bin").mkdir()
    command = made / "bin" / "foretell"
    command.write_text(f"#!{sys.executable}\nfrom foretell.cli.main import run\nrun()\n")
    command.chmod(0o755)
    for run in ("runs/clicks-anhp", "auto/clicks/best"):
        (made / run).mkdir(parents=True)
        (made / run / "config.toml").touch()
    (made / "runs/other").mkdir()
    (made / "rules.ndtt").touch()
    return made


@pytest.fixture(scope="module")
def terminal(home: Path) -> Iterator[Terminal]:
    """A bash that was started after `foretell --install-completion`."""
    (home / ".bashrc").touch()
    shell = Terminal(home)
    shell.send("foretell --install-completion\n", "installed in")
    shell.close()
    shell = Terminal(home)
    yield shell
    shell.close()


@pytest.mark.skipif(BASH is None, reason="there is no bash")
@pytest.mark.parametrize(
    ("typed", "line"),
    [
        ("foretell eva", "foretell evaluate "),
        ("foretell data des", "foretell data describe "),
        ("foretell train --obj", "foretell train --objective "),
        ("foretell train --objective n", "foretell train --objective nce "),
        ("foretell train --model s2n", "foretell train --model s2ndtt "),
        ("foretell evaluate ru", "foretell evaluate runs/clicks-anhp "),
        ("foretell explain a", "foretell explain auto/clicks/best "),
        ("foretell train --data rob", "foretell train --data robocup "),
        ("foretell check rul", "foretell check rules.ndtt "),
        ("foretell check robo", "foretell check robocup "),
        ("foretell train --init ru", "foretell train --init runs/clicks-anhp "),
        ("foretell train rul", "foretell train rules.ndtt "),
    ],
)
def test_bash_completes(terminal: Terminal, typed: str, line: str):
    assert terminal.completed(typed) == line


def test_runs_are_found_below_the_folder_that_is_typed(home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(home / "runs")
    assert completion.runs("") == ["clicks-anhp"]
    assert completion.runs("../au") == ["../auto/clicks/best"]
    assert completion.runs(f"{home}/auto/") == [f"{home}/auto/clicks/best"]
    assert completion.runs("../none/") == []


def test_names_are_offered_beside_paths_that_begin_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "robots.csv").touch()
    assert completion.data("rob") == ["robocup", "robots.csv"]
    assert completion.data("robot") == []  # the shell completes paths itself
    assert completion.programs("r") == ["robocup", "robots.csv"]


def test_completion_imports_no_torch():
    script = (
        "import sys\nfrom foretell.cli import commands, completion\n"
        "for name, one in completion.COMPLETIONS.items():\n    name == 'experiments' or one('')\n"
        "assert 'torch' not in sys.modules, 'torch was imported'\n"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert found.returncode == 0, found.stderr
