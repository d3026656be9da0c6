"""The command line from a test: inside this process (fast, with its exit code) or as a process of its own."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch

from foretell.cli.main import run


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What is on stdout, which must be one JSON value and nothing else; NaN and infinity are no JSON."""

        def refuse(word: str) -> None:
            raise AssertionError(f"{word} is not JSON")

        return json.loads(self.out, parse_constant=refuse)


def foretell(*arguments: object) -> Outcome:
    """`foretell ARGUMENTS…` in this process: what it prints, and the code it would end with."""
    out, err = io.StringIO(), io.StringIO()
    root = logging.getLogger()
    before, root.handlers = root.handlers, []
    code: object = 0
    try:
        with (
            mock.patch.object(sys, "argv", ["foretell", *map(str, arguments)]),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            run()
    except SystemExit as stop:
        code = stop.code or 0
    finally:
        root.handlers = before
    assert isinstance(code, int), code
    return Outcome(code, out.getvalue(), err.getvalue())


def fine(*arguments: object) -> Outcome:
    outcome = foretell(*arguments)
    assert outcome.code == 0, outcome
    return outcome


def refused(*arguments: object) -> str:
    """The message of a command that ends with exit code 1: on stderr, with nothing on stdout and no traceback."""
    outcome = foretell(*arguments)
    assert outcome.code == 1, outcome
    assert outcome.out == ""
    assert "Traceback" not in outcome.err
    return "\n".join(line.removeprefix("error: ") for line in outcome.err.splitlines() if line.startswith("error: "))


def process(*arguments: object) -> subprocess.Popen[str]:
    """`foretell ARGUMENTS…` as a process; its numbers are those of this one, so it has as many threads."""
    return subprocess.Popen(
        [sys.executable, "-m", "foretell.cli.main", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads()), "OMP_WAIT_POLICY": "passive"},
    )


def finished(child: subprocess.Popen[str]) -> Outcome:
    out, err = child.communicate(timeout=60)
    return Outcome(child.returncode, out, err)
