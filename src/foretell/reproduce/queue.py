"""Runs the units of experiments: skips finished units, starts the longest first, and runs a few at a time on the GPU.

In: names and options. Out: the numbers of finished, failed and pending units; all else is written to the folder.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from foretell.errors import ForetellError
from foretell.reproduce.assignment import Assignment, UnitOutcome, Worker, placed, work_on_unit
from foretell.reproduce.experiment import (
    Choice,
    Definition,
    Experiment,
    Results,
    check_models,
    open_experiment,
    read_definition,
    results_of,
)
from foretell.reproduce.unit import VARIABLE, Unit, UnitFolder, find_data
from foretell.shards.place import THIS_PROCESS, WorkPlace, with_jobs
from foretell.shards.pool import GRACE, ShardOutcome, ShardPool, ShardTask, SharedInput
from foretell.shards.shard_map import make_pool
from foretell.train.trainer import choose_device

ATTEMPTS = 3  # for a unit whose worker dies; each continues from the last checkpoint


@dataclass(frozen=True)
class ReproduceOptions:
    out: Path
    data: Path | None = None
    choice: Choice = field(default_factory=Choice)
    device: str = "auto"  # auto, cpu or cuda, for all units
    jobs: int = 1
    on: WorkPlace = THIS_PROCESS
    gpu_jobs: int = 4  # number of units on the GPU at the same time
    minutes: float | None = None
    fit: bool = True  # False: no unit is run, only results of finished units are written
    results: bool = True  # False: tables, tests and findings are left to a later call
    publish: bool = False  # whether results are also written to the folders of the definitions

    def __post_init__(self) -> None:
        if self.device not in ("auto", "cpu") and not self.device.startswith("cuda"):
            raise ForetellError(f"`device={self.device}`: expected auto (what suits each unit), cpu or cuda")
        for name, value in (("jobs", self.jobs), ("gpu_jobs", self.gpu_jobs)):
            if value < 1:
                raise ForetellError(f"`{name}={value}`: expected 1 or more")
        if self.minutes is not None and not self.minutes > 0.0:
            raise ForetellError(f"`minutes={self.minutes:g}`: expected a number above 0")
        if self.publish and self.choice != Choice():
            raise ForetellError("`publish=True` is for whole results: leave out `quick=True`, `models=` and `seeds=`")
        with_jobs(self.on, self.jobs)
        if not self.results and (self.publish or not self.fit):
            raise ForetellError("`results=False` leaves nothing to do: leave out `publish=True` and `fit=False`")

    @property
    def place(self) -> WorkPlace:
        """Return the place where units run."""
        return with_jobs(self.on, self.jobs)


@dataclass
class ExperimentProgress:
    """The state of one experiment during a call."""

    name: str  # as the user wrote it
    definition: Definition
    experiment: Experiment
    results: Results
    failed: dict[str, str] = field(default_factory=dict)  # units that failed in this call, with their errors
    taken: set[str] = field(default_factory=set)  # units that another call works on
    lost: dict[str, int] = field(default_factory=dict)  # by unit, how often its worker died

    @property
    def pending(self) -> list[Unit]:
        return [
            one for one in self.results.units if one.name not in self.results.records and one.name not in self.failed
        ]

    def to_json(self) -> dict[str, Any]:
        return {
            "experiment": self.definition.name,
            "folder": str(self.results.folder),
            "done": len(self.results.records),
            "pending": [one.name for one in self.pending],
            "failed": dict(self.failed),
        }


def run_units(
    names: Sequence[str],
    wanted: ReproduceOptions,
    tell: Callable[[str], None],
    stop: Callable[[], bool] = lambda: False,
) -> list[ExperimentProgress]:
    """Run units until all are done or have failed, the time is up, or `stop` returns True."""
    check_models([read_definition(name, wanted.choice) for name in names], wanted.choice.models)
    courses = [open_progress(name, wanted) for name in names]
    for course in courses:
        told = f"{course.definition.name}: {len(course.results.records)} of {len(course.results.units)} units are done"
        tell(f"{told}, in {course.results.folder}")
    if not wanted.fit:
        return courses
    _check_data(courses, wanted)
    if wanted.device != "auto":
        choose_device(wanted.device)  # raises here instead of in every unit
    deadline = None if wanted.minutes is None else time.time() + 60.0 * wanted.minutes
    over = lambda: stop() or (deadline is not None and time.time() >= deadline)  # noqa: E731
    pool = make_pool(wanted.place, stop)
    try:
        _run_all(pool, courses, wanted, deadline, over, tell)
    except BaseException:
        pool.close(now=True)
        raise
    pool.close(now=bool(pool.busy()))
    return courses


def _run_all(
    pool: ShardPool,
    courses: Sequence[ExperimentProgress],
    wanted: ReproduceOptions,
    deadline: float | None,
    over: Callable[[], bool],
    tell: Callable[[str], None],
) -> None:
    """Run units until none is left or the time is up; units that do not stop in time are still running afterwards."""
    worker, asked_to_stop = SharedInput(Worker()), None
    while True:
        while not over() and len(pool.busy()) < pool.size:
            found = _next(courses, pool.busy(), wanted)
            if found is None:
                break
            given = _assignment(*found, wanted, deadline)
            gpu = 0.0 if given.device == "cpu" else 1.0 / wanted.gpu_jobs
            pool.start(ShardTask(given, work_on_unit, worker, given, gpu))
        if not pool.busy():
            return
        for outcome in pool.wait():
            _ended(courses, outcome, wanted, tell)
        if over() and pool.interruptible and asked_to_stop is None:
            asked_to_stop = time.monotonic()
            pool.interrupt()
        if asked_to_stop is not None and pool.busy() and time.monotonic() - asked_to_stop > GRACE:
            tell(f"{len(pool.busy())} units did not stop in time; they go on from their last checkpoints next time")
            return


def _assignment(course: ExperimentProgress, unit: Unit, wanted: ReproduceOptions, deadline: float | None) -> Assignment:
    """Return the assignment of a unit, with absolute paths, which are valid for all workers on machines with the same folders."""
    data = str(wanted.data) if wanted.data is not None else os.environ.get(VARIABLE)
    device, out = device_of(unit, wanted.device), str(wanted.out.resolve())
    where = str(Path(data).resolve()) if data else None
    return Assignment(placed(course.name), wanted.choice, unit, out, where, device, deadline)


def open_progress(name: str, wanted: ReproduceOptions) -> ExperimentProgress:
    definition = read_definition(name, wanted.choice)
    experiment = open_experiment(definition)
    return ExperimentProgress(name, definition, experiment, results_of(definition, experiment, wanted.out))


def _next(
    courses: Sequence[ExperimentProgress], busy: Sequence[Assignment], wanted: ReproduceOptions
) -> tuple[ExperimentProgress, Unit] | None:
    if any(job.unit.alone for job in busy):
        return None
    taken = {(job.experiment, job.unit.name) for job in busy}
    on_gpu = sum(job.device != "cpu" for job in busy)
    taken |= {(placed(course.name), name) for course in courses for name in course.taken}
    open_ = [(c, one) for c in courses for one in c.pending if (placed(c.name), one.name) not in taken]
    fits = [
        (course, unit)
        for course, unit in open_
        if (not unit.alone or not busy) and (device_of(unit, wanted.device) == "cpu" or on_gpu < wanted.gpu_jobs)
    ]
    # The GPU is the bottleneck, so it is never left idle. Units that must run alone wait for the others.
    return min(
        fits,
        key=lambda one: (one[1].alone, device_of(one[1], wanted.device) == "cpu", -one[1].minutes),
        default=None,
    )


def device_of(unit: Unit, wanted: str) -> str:
    if wanted != "auto":
        return wanted
    return "cuda" if unit.device == "cuda" and torch.cuda.is_available() else "cpu"


def _ended(
    courses: Sequence[ExperimentProgress],
    ended: ShardOutcome,
    wanted: ReproduceOptions,
    tell: Callable[[str], None],
) -> None:
    """Record and report how the work on a unit ended."""
    if ended.error is not None:
        raise ended.error
    if ended.cancelled:  # before it had begun
        return
    job: Assignment = ended.name
    course = next(one for one in courses if placed(one.name) == job.experiment)
    name = f"{course.definition.name} {job.unit.name}"
    outcome: UnitOutcome = ended.value
    if ended.lost:
        course.lost[job.unit.name] = course.lost.get(job.unit.name, 0) + 1
        if course.lost[job.unit.name] < ATTEMPTS:
            tell(f"{name}: {ended.lost}; it goes on from its last checkpoint")
            return
        outcome = UnitOutcome("failed", 0.0, f"{ended.lost}, {ATTEMPTS} times")
    if outcome.state == "taken":
        course.taken.add(job.unit.name)
        tell(f"{name}: another call is at work on it")
        return
    if outcome.state == "failed":
        course.failed[job.unit.name] = outcome.error
        folder = UnitFolder(course.results.folder / "units" / job.unit.name)
        if not folder.error():  # its process died before it could write that down
            folder.fail(job.unit, outcome.error)
        tell(f"{name}: failed after {outcome.seconds:.0f} s: {outcome.error}")
        return
    course.results = results_of(course.definition, course.experiment, wanted.out)
    if outcome.state == "stopped":
        tell(f"{name}: stopped after {outcome.seconds:.0f} s, with a checkpoint")
        return
    tell(f"{name}: done in {outcome.seconds:.0f} s, {len(course.results.records)} of {len(course.results.units)}")


def _check_data(courses: Sequence[ExperimentProgress], wanted: ReproduceOptions) -> None:
    """Check, before anything is fitted, that the data of all definitions exist."""
    wrong = [
        f"{course.definition.name}: {message}"
        for course in courses
        if course.pending
        for message in missing_data(course.definition, wanted.data)
    ]
    if wrong:
        raise ForetellError("\n".join(wrong))


def missing_data(definition: Definition, folder: Path | None) -> list[str]:
    """Return one message for each data set of a definition that cannot be found."""
    data = definition.table.get("data", ())
    wrong = []
    for name in [data] if isinstance(data, str) else data:
        try:
            find_data(str(name), folder)
        except ForetellError as error:
            wrong.append(str(error))
    return wrong
