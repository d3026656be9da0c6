"""Who does the units: this process one at a time, or several processes at once, each with one thread."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from foretell.reproduce.worker import Desk, Ending, Job

POLL = 1.0  # seconds between two looks at the clock


class Crew(Protocol):
    size: int

    def busy(self) -> list[Job]: ...
    def start(self, job: Job) -> None: ...
    def wait(self) -> list[tuple[Job, Ending]]:
        """The jobs that have come to an end; may be none yet."""
        ...

    def close(self, *, now: bool = False) -> None: ...


class Alone:
    """This very process."""

    size = 1

    def __init__(self, stop: Callable[[], bool]) -> None:
        self.stop, self.desk = stop, Desk()
        self.job: Job | None = None

    def busy(self) -> list[Job]:
        return [] if self.job is None else [self.job]

    def start(self, job: Job) -> None:
        self.job = job

    def wait(self) -> list[tuple[Job, Ending]]:
        assert self.job is not None
        job, self.job = self.job, None
        return [(job, self.desk.do(job, self.stop))]

    def close(self, *, now: bool = False) -> None:
        self.job = None


@dataclass
class _Member:
    process: subprocess.Popen[str]
    job: Job | None = None
    since: float = 0.0


class Processes:
    """Worker processes, started when there is work for them; one that dies takes only its unit with it."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.members: list[_Member] = []
        self.ears = selectors.DefaultSelector()

    def busy(self) -> list[Job]:
        return [one.job for one in self.members if one.job is not None]

    def start(self, job: Job) -> None:
        # One that has worked on the same data and device has them at hand.
        idle = [one for one in self.members if one.job is None]
        member = idle[0] if idle else self._hire()
        member.job, member.since = job, time.monotonic()
        assert member.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it died while idle; `wait` finds that out
            member.process.stdin.write(job.to_json() + "\n")
            member.process.stdin.flush()

    def wait(self) -> list[tuple[Job, Ending]]:
        found: list[tuple[Job, Ending]] = []
        for key, _ in self.ears.select(POLL):
            member: _Member = key.data
            assert member.process.stdout is not None
            line = member.process.stdout.readline()
            if line and member.job is not None:
                found.append((member.job, Ending(**json.loads(line))))
                member.job = None
            elif not line:
                self._bury(member, found)
        return found

    def close(self, *, now: bool = False) -> None:
        """Idle workers end by themselves when nobody talks to them; busy ones are killed (`now`) or have been waited for."""
        for member in self.members:
            if now:
                member.process.kill()
            assert member.process.stdin is not None
            with contextlib.suppress(BrokenPipeError):  # it is dead already
                member.process.stdin.close()
            member.process.wait()
        self.members = []
        self.ears.close()

    def interrupt(self) -> None:
        """Ask all of them to write checkpoints and stop."""
        for member in self.members:
            if member.process.poll() is None:
                member.process.send_signal(signal.SIGTERM)

    def _hire(self) -> _Member:
        process = subprocess.Popen(
            [sys.executable, "-m", "foretell.reproduce.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env={**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"},
        )
        member = _Member(process)
        self.members.append(member)
        assert process.stdout is not None
        self.ears.register(process.stdout, selectors.EVENT_READ, member)
        return member

    def _bury(self, member: _Member, found: list[tuple[Job, Ending]]) -> None:
        assert member.process.stdout is not None
        self.ears.unregister(member.process.stdout)
        self.members.remove(member)
        code = member.process.wait()
        if member.job is not None:
            error = f"its process ended with exit code {code} (out of memory?)"
            found.append((member.job, Ending("failed", time.monotonic() - member.since, error)))
