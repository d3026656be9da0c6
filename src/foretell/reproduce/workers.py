"""Who works on the units: this process one at a time, or several processes at once, each with one thread.

`python -m foretell.reproduce.workers` is such a process. It reads assignments from stdin and answers on stdout, a line of JSON each; SIGINT
and SIGTERM ask it to write a checkpoint and stop.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import selectors
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from foretell.errors import ForetellError
from foretell.reading import limits, read_limits
from foretell.reproduce.experiment import Choice, Definition, open_experiment, read_definition
from foretell.reproduce.unit import Unit, UnitFolder, Workspace, last_line
from foretell.train.fit import TrainingInterrupt

POLL = 1.0  # seconds between two looks at the clock


@dataclass(frozen=True)
class Assignment:
    """A unit, and all that another process needs to know about it."""

    experiment: str  # a name or a folder
    choice: Choice
    unit: Unit
    out: str
    data: str | None
    device: str
    deadline: float | None  # of time.time()

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Assignment:
        found = json.loads(text)
        choice = found.pop("choice")
        made = Choice(choice["quick"], tuple(choice["models"]), tuple(choice["seeds"]))
        return cls(choice=made, unit=Unit(**found.pop("unit")), **found)


@dataclass(frozen=True)
class UnitOutcome:
    """How the work on a unit ended."""

    state: Literal["done", "failed", "stopped", "taken"]  # taken: another call is at work on it
    seconds: float
    error: str = ""


class Worker:
    """Works on one unit after another, and keeps the experiments and data that it has opened."""

    def __init__(self) -> None:
        self.experiments: dict[tuple[str, Choice], Any] = {}
        self.loaded: dict[str, Any] = {}

    def work(self, given: Assignment, stop: Callable[[], bool]) -> UnitOutcome:
        definition = read_definition(given.experiment, given.choice)
        folder = UnitFolder(Path(given.out) / definition.name / "units" / given.unit.name)
        with folder.held() as mine:
            if not mine:
                return UnitOutcome("taken", 0.0)
            if folder.state(given.unit) == "done":  # by another call, since this one looked
                return UnitOutcome("done", 0.0)
            return self._work(given, definition, folder, stop)

    def _work(
        self, given: Assignment, definition: Definition, folder: UnitFolder, stop: Callable[[], bool]
    ) -> UnitOutcome:
        """Whatever goes wrong is written into the unit's folder: the others go on."""
        began = time.monotonic()

        def over() -> bool:
            return stop() or (given.deadline is not None and time.time() >= given.deadline)

        try:
            folder.begin(given.unit)
            key = given.experiment, given.choice
            if key not in self.experiments:
                self.experiments[key] = open_experiment(definition)
            data = None if given.data is None else Path(given.data)
            workspace = Workspace(folder.path, data, given.device, over, self.loaded)
            shipped = definition.folder.parents[1] / "programs" if len(definition.folder.parents) > 1 else Path()
            with limits(allow=(*read_limits().allow, definition.folder, shipped)):
                found: Mapping[str, Any] = self.experiments[key].work(given.unit, workspace)
            folder.finish(given.unit, {**workspace.machine(), **found})  # what is taken over says where it ran
        except TrainingInterrupt:
            return UnitOutcome("stopped", time.monotonic() - began)
        except Exception as error:
            text = str(error) if isinstance(error, ForetellError) else traceback.format_exc()
            folder.fail(given.unit, text)
            return UnitOutcome("failed", time.monotonic() - began, last_line(text) or type(error).__name__)
        return UnitOutcome("done", time.monotonic() - began)


class ThisProcess:
    """The pool of one: this very process."""

    size = 1

    def __init__(self, stop: Callable[[], bool]) -> None:
        self.stop, self.worker = stop, Worker()
        self.given: Assignment | None = None

    def busy(self) -> list[Assignment]:
        return [] if self.given is None else [self.given]

    def start(self, given: Assignment) -> None:
        self.given = given

    def wait(self) -> list[tuple[Assignment, UnitOutcome]]:
        """Work on it, and say how that ended."""
        assert self.given is not None
        given, self.given = self.given, None
        return [(given, self.worker.work(given, self.stop))]

    def close(self, *, now: bool = False) -> None:
        self.given = None


@dataclass
class _Process:
    process: subprocess.Popen[str]
    given: Assignment | None = None
    since: float = 0.0


class ProcessPool:
    """Worker processes, spawned when there is work for them; one that dies takes only its unit with it."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.processes: list[_Process] = []
        self.selector = selectors.DefaultSelector()

    def busy(self) -> list[Assignment]:
        return [one.given for one in self.processes if one.given is not None]

    def start(self, given: Assignment) -> None:
        # One that has worked on the same data and device has them at hand.
        idle = [one for one in self.processes if one.given is None]
        one = idle[0] if idle else self._spawn()
        one.given, one.since = given, time.monotonic()
        assert one.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it died while idle; `wait` finds that out
            one.process.stdin.write(given.to_json() + "\n")
            one.process.stdin.flush()

    def wait(self) -> list[tuple[Assignment, UnitOutcome]]:
        """The assignments that have come to an end; may be none yet."""
        found: list[tuple[Assignment, UnitOutcome]] = []
        for key, _ in self.selector.select(POLL):
            one: _Process = key.data
            assert one.process.stdout is not None
            line = one.process.stdout.readline()
            if line and one.given is not None:
                found.append((one.given, UnitOutcome(**json.loads(line))))
                one.given = None
            elif not line:
                found += self._reap(one)
        return found

    def close(self, *, now: bool = False) -> None:
        """Idle workers end by themselves when nobody talks to them; busy ones are killed (`now`) or have been waited for."""
        for one in self.processes:
            if now:
                one.process.kill()
            assert one.process.stdin is not None
            with contextlib.suppress(BrokenPipeError):  # it is dead already
                one.process.stdin.close()
            one.process.wait()
        self.processes = []
        self.selector.close()

    def interrupt(self) -> None:
        """Ask all of them to write checkpoints and stop."""
        for one in self.processes:
            if one.process.poll() is None:
                one.process.send_signal(signal.SIGTERM)

    def _spawn(self) -> _Process:
        process = subprocess.Popen(
            [sys.executable, "-m", "foretell.reproduce.workers"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env={**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"},
        )
        one = _Process(process)
        self.processes.append(one)
        assert process.stdout is not None
        self.selector.register(process.stdout, selectors.EVENT_READ, one)
        return one

    def _reap(self, one: _Process) -> list[tuple[Assignment, UnitOutcome]]:
        """Forget a process that has ended; what it was working on has failed."""
        assert one.process.stdout is not None
        self.selector.unregister(one.process.stdout)
        self.processes.remove(one)
        code = one.process.wait()
        if one.given is None:
            return []
        error = f"its process ended with exit code {code} (out of memory?)"
        return [(one.given, UnitOutcome("failed", time.monotonic() - one.since, error))]


def serve() -> None:
    """Assignments from stdin, outcomes to stdout, until stdin is closed."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what any library prints must not get between the answers
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr)
    flag = {"stop": False}

    def on_signal(signum: int, frame: Any) -> None:
        flag["stop"] = True

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, on_signal)
    torch.set_num_threads(1)
    worker, parent = Worker(), os.getppid()
    for line in sys.stdin:
        # Whoever gave the assignment may be dead: then nobody waits for more than a checkpoint.
        outcome = worker.work(Assignment.from_json(line), lambda: flag["stop"] or os.getppid() != parent)
        answers.write(json.dumps(asdict(outcome)) + "\n")
        answers.flush()


if __name__ == "__main__":
    serve()
