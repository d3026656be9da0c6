"""`--processes N`: start this command N times, as `torchrun` does, and end as the first of them does."""

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

POLL, GRACE = 0.05, 30.0  # seconds between looks at the processes, and what they get to end after one of them has
PARENT_POLL = 0.5  # seconds between looks of a process at the one that started it
LAUNCHER, TORCHRUN = "FORETELL_LAUNCHER", "TORCHELASTIC_RUN_ID"


def run_processes(count: int, arguments: list[str]) -> None:
    """Run `foretell ARGUMENTS` in `count` joined processes and exit: with 0, or with the code of the first that failed, by rank.

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
        if failed and codes[0] <= 0:  # the first process said nothing of it
            said.seek(0)
            typer.echo(said.read()[-4000:].decode(errors="replace"), err=True, nl=False)
    raise SystemExit(failed if failed >= 0 else 1)


def without_processes(arguments: list[str]) -> list[str]:
    """A command line without `--processes N`."""
    kept, skip = [], False
    for argument in arguments:
        if not skip and argument != "--processes" and not argument.startswith("--processes="):
            kept.append(argument)
        skip = argument == "--processes"
    return kept


def end_with_launcher() -> None:
    """In a process that `--processes` or `torchrun` started: stop when the launcher has ended, for instance because it was killed.

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
    # A session of its own: Ctrl-C reaches a process once, by way of this one.
    command = [sys.executable, "-m", "foretell", *arguments]
    out = None if said is None else subprocess.DEVNULL
    return subprocess.Popen(command, env=environment, stdout=out, stderr=said, start_new_session=True)


def _wait(started: list[subprocess.Popen[bytes]]) -> list[int]:
    """Exit codes by rank; once one process has failed, the others are stopped."""
    ended: float | None = None
    while any(one.poll() is None for one in started):
        if ended is None and any(one.poll() for one in started):
            ended = time.monotonic()
            time.sleep(2.0)  # the others may have found the same mistake, or be at a checkpoint
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
    """SIGINT and SIGTERM go to all processes."""

    def on_signal(number: int, frame: FrameType | None) -> None:
        _signal(started, number)

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
