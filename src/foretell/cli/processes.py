"""`--processes N`: starts this command N times, as `torchrun` does, and returns one exit code."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import IO

import typer

POLL, GRACE = 0.05, 30.0  # seconds: between checks of the processes, and before they are killed after a failure
PARENT_POLL = 0.5  # seconds between checks of the parent process
LAUNCHER, TORCHRUN = "FORETELL_LAUNCHER", "TORCHELASTIC_RUN_ID"


def run_processes(count: int, arguments: list[str]) -> None:
    """Run `foretell ARGUMENTS` in `count` joined processes, then exit: with 0, or with the code of the lowest rank that failed.

    The first process uses the terminal; the output of the others is only shown if the first failed without a message.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    threads = max(1, len(os.sched_getaffinity(0)) // count)
    shared = {
        "WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        LAUNCHER: str(os.getpid()),
    }
    with tempfile.TemporaryFile() as said:
        started: list[subprocess.Popen[bytes]] = []
        with _forwarded(started):
            for rank in range(count):
                own = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
                environment = {"OMP_NUM_THREADS": str(threads), **os.environ, **shared, **own}
                started.append(_start(arguments, environment, None if rank == 0 else said))
            codes = _wait(started)
        failed = next((code for code in codes if code), 0)
        if failed and codes[0] <= 0:  # the first process printed no message
            said.seek(0)
            typer.echo(said.read()[-4000:].decode(errors="replace"), err=True, nl=False)
    raise SystemExit(failed if failed >= 0 else 1)


def without_processes(arguments: list[str]) -> list[str]:
    """Return a command line without `--processes N`."""
    kept, skip = [], False
    for argument in arguments:
        if not skip and argument != "--processes" and not argument.startswith("--processes="):
            kept.append(argument)
        skip = argument == "--processes"
    return kept


def end_with_launcher() -> None:
    """Stop this process when the `--processes` or `torchrun` process that started it has ended, for instance because it was killed.

    The process has time to write a checkpoint. Otherwise orphaned processes would keep running and hold the lock of the run
    folder.
    """
    given = os.environ.get(LAUNCHER, "")
    if given.isdecimal() or TORCHRUN in os.environ:
        launcher = int(given) if given.isdecimal() else os.getppid()
        threading.Thread(target=_watch, args=(launcher,), name="launcher", daemon=True).start()


def _watch(launcher: int) -> None:
    while os.getppid() == launcher:
        time.sleep(PARENT_POLL)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE)
    os._exit(1)


def _start(arguments: list[str], environment: dict[str, str], said: IO[bytes] | None) -> subprocess.Popen[bytes]:
    # Each process has a session of its own, so that Ctrl-C reaches it once, through this process.
    command = [sys.executable, "-m", "foretell", *arguments]
    out = None if said is None else subprocess.DEVNULL
    return subprocess.Popen(command, env=environment, stdout=out, stderr=said, start_new_session=True)


def _wait(started: list[subprocess.Popen[bytes]]) -> list[int]:
    """Return the exit codes by rank; once one process has failed, the others are stopped."""
    ended: float | None = None
    while any(one.poll() is None for one in started):
        if ended is None and any(one.poll() for one in started):
            ended = time.monotonic()
            time.sleep(2.0)  # the others may report the same mistake, or be writing a checkpoint
            _signal(started, signal.SIGTERM)
        if ended is not None and time.monotonic() - ended > GRACE:
            _signal(started, signal.SIGKILL)
        time.sleep(POLL)
    return [one.returncode for one in started]


def _signal(started: list[subprocess.Popen[bytes]], number: int) -> None:
    for one in started:
        if one.poll() is None:
            one.send_signal(number)


@contextmanager
def _forwarded(started: list[subprocess.Popen[bytes]]) -> Iterator[None]:
    """A context in which SIGINT and SIGTERM are forwarded to all processes."""

    def on_signal(number: int, frame: FrameType | None) -> None:
        _signal(started, number)

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
