"""A unit as a worker of a pool (`foretell.shards`) receives it, and how the work on it ended."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from foretell.errors import ForetellError
from foretell.reading import limits, read_limits
from foretell.reproduce.experiment import Choice, Definition, open_experiment, read_definition
from foretell.reproduce.unit import Unit, UnitFolder, Workspace, last_line
from foretell.train.fit import TrainingInterrupt

POLL = 1.0  # seconds between checks of the deadline


@dataclass(frozen=True)
class Assignment:
    """A unit with everything that another process needs to run it."""

    experiment: str  # a name or a folder
    choice: Choice
    unit: Unit
    out: str
    data: str | None
    device: str
    deadline: float | None  # of time.time()


@dataclass(frozen=True)
class UnitOutcome:
    """How the work on a unit ended."""

    state: Literal["done", "failed", "stopped", "taken"]  # taken: another call works on it
    seconds: float
    error: str = ""


def placed(experiment: str) -> str:
    """Return the absolute path of an experiment's folder, which is valid for every worker; a name is returned unchanged."""
    return str(Path(experiment).resolve()) if Path(experiment).is_dir() else experiment


class Worker:
    """Works on units one after another, and keeps opened experiments and data in memory."""

    def __init__(self) -> None:
        self.experiments: dict[tuple[str, Choice], Any] = {}
        self.loaded: dict[str, Any] = {}

    def work(self, given: Assignment, stop: Callable[[], bool]) -> UnitOutcome:
        definition = read_definition(given.experiment, given.choice)
        folder = UnitFolder(Path(given.out) / definition.name / "units" / given.unit.name)
        with folder.held() as mine:
            if not mine:
                return UnitOutcome("taken", 0.0)
            if folder.state(given.unit) == "done":  # another call has finished it in the meantime
                return UnitOutcome("done", 0.0)
            return self._work(given, definition, folder, stop)

    def _work(
        self, given: Assignment, definition: Definition, folder: UnitFolder, stop: Callable[[], bool]
    ) -> UnitOutcome:
        """Run the unit; write an error into its folder, so that the other units continue."""
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
            folder.finish(given.unit, {**workspace.machine(), **found})  # results from elsewhere keep their machine
        except TrainingInterrupt:
            return UnitOutcome("stopped", time.monotonic() - began)
        except Exception as error:
            text = str(error) if isinstance(error, ForetellError) else traceback.format_exc()
            folder.fail(given.unit, text)
            return UnitOutcome("failed", time.monotonic() - began, last_line(text) or type(error).__name__)
        return UnitOutcome("done", time.monotonic() - began)


def work_on_unit(worker: Worker, given: Assignment, stop: Callable[[], bool]) -> UnitOutcome:
    """Run a unit as a shard of a pool; what the worker has opened stays in its process."""
    return worker.work(given, stop)
