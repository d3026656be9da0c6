"""Works on one unit; as a process (`python -m foretell.reproduce.worker`), on one unit after another.

A process reads jobs from stdin and answers on stdout, a line of JSON each. SIGINT and SIGTERM ask it to write a checkpoint and stop.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from foretell.errors import ForetellError
from foretell.reproduce.definition import Choice, Definition, read_definition
from foretell.reproduce.unit import Unit, UnitFolder, last_line


@dataclass(frozen=True)
class Job:
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
    def from_json(cls, text: str) -> Job:
        found = json.loads(text)
        choice = found.pop("choice")
        made = Choice(choice["quick"], tuple(choice["models"]), tuple(choice["seeds"]))
        return cls(choice=made, unit=Unit(**found.pop("unit")), **found)


@dataclass(frozen=True)
class Ending:
    state: Literal["done", "failed", "stopped", "taken"]  # taken: another call is at work on it
    seconds: float
    error: str = ""


class Desk:
    """Experiments and data that this process has opened already."""

    def __init__(self) -> None:
        self.experiments: dict[tuple[str, Choice], Any] = {}
        self.loaded: dict[str, Any] = {}

    def do(self, job: Job, stop: Callable[[], bool]) -> Ending:
        definition = read_definition(job.experiment, job.choice)
        folder = UnitFolder(Path(job.out) / definition.name / "units" / job.unit.name)
        with folder.held() as mine:
            if not mine:
                return Ending("taken", 0.0)
            if folder.state(job.unit) == "done":  # by another call, since this one looked
                return Ending("done", 0.0)
            return self._do(job, definition, folder, stop)

    def _do(self, job: Job, definition: Definition, folder: UnitFolder, stop: Callable[[], bool]) -> Ending:
        """Whatever goes wrong is written into the unit's folder: the others go on."""
        from foretell.reproduce.bench import Bench
        from foretell.reproduce.experiment import open_experiment
        from foretell.train.fit import TrainingInterrupt

        began = time.monotonic()

        def asked() -> bool:
            return stop() or (job.deadline is not None and time.time() >= job.deadline)

        try:
            folder.begin(job.unit)
            key = job.experiment, job.choice
            if key not in self.experiments:
                self.experiments[key] = open_experiment(definition)
            data = None if job.data is None else Path(job.data)
            bench = Bench(folder.path, data, job.device, asked, self.loaded)
            found: Mapping[str, Any] = self.experiments[key].work(job.unit, bench)
            folder.finish(job.unit, {**bench.machine(), **found})  # what is taken over says where it ran
        except TrainingInterrupt:
            return Ending("stopped", time.monotonic() - began)
        except Exception as error:
            told = str(error) if isinstance(error, ForetellError) else traceback.format_exc()
            folder.fail(job.unit, told)
            return Ending("failed", time.monotonic() - began, last_line(told) or type(error).__name__)
        return Ending("done", time.monotonic() - began)


def serve() -> None:
    """Jobs from stdin, endings to stdout, until stdin is closed."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what any library prints must not get between the answers
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr)
    asked = {"stop": False}

    def ask(signum: int, frame: Any) -> None:
        asked["stop"] = True

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, ask)
    import torch

    torch.set_num_threads(1)
    desk, parent = Desk(), os.getppid()
    for line in sys.stdin:
        # Whoever gave the job may be dead: then nobody waits for more than a checkpoint.
        ending = desk.do(Job.from_json(line), lambda: asked["stop"] or os.getppid() != parent)
        answers.write(json.dumps(asdict(ending)) + "\n")
        answers.flush()


if __name__ == "__main__":
    serve()
