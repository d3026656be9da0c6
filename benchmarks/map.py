"""Measures how much of the library a reader meets on the path of a command: the files that it enters, and the hops between them.

Five small commands are run under Python's profiler. A file counts if one of its functions is called (also a method, lambda, comprehension
or generator); importing it does not count. A hop is a pair of two different files: the caller's and that of the called function. Frames of
other libraries in between (`nn.Module.__call__`, typer) are skipped. A call is a pair of a file and a function of another file that it
calls; their number is that of names from other files that a reader has to look up. Everything is imported beforehand, and every command has
its own process and cache, so that no command finds results of another one.

    python benchmarks/map.py [--json PATH] [--list JOB]
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import inspect
import io
import json
import multiprocessing
import os
import pkgutil
import random
import sys
import tempfile
import threading
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from unittest import mock

TRAIN_ANHP = (
    "train --model anhp --data {place}/events.csv --out {place}/anhp --dim 8 --layers 2 --epochs 3 --batch 4 --quiet"
)
TRAIN_ANDTT = (
    "train --program robocup --data robocup --train-fraction 0.05 --out {place}/andtt --dim 4 --layers 1 --epochs 1 "
    "--batch 1 --quiet"
)
# The commands of each job; a later one may need the run of an earlier one.
JOBS: dict[str, list[str]] = {
    "train A-NHP": [TRAIN_ANHP],
    "train A-NDTT": [TRAIN_ANDTT],
    "sample A-NHP": [
        "sample {place}/anhp --history {place}/events.csv --sequence s0 --horizon 5 --n 3 --events 20 --quiet"
    ],
    "sample A-NDTT": [
        "sample {place}/andtt --history robocup --split test --from 60 --horizon 20 --n 3 --events 10 --quiet"
    ],
    "evaluate": ["evaluate {place}/anhp --quiet", "evaluate {place}/andtt {place}/game.jsonl --quiet"],
}
EVENTS_OF_A_GAME = 30


@dataclass(frozen=True)
class Reading:
    """The files that one job entered, and pairs of files, as names relative to the library's folder."""

    files: list[str]
    hops: list[tuple[str, str]]
    calls: int


class Counter:
    """A profiler that records which files of the library are entered, and from which files."""

    def __init__(self, library: Path) -> None:
        self.library = f"{library}{os.sep}"
        self.of_code: dict[CodeType, str] = {}
        self.files: set[str] = set()
        self.hops: set[tuple[str, str]] = set()
        self.calls: set[tuple[str, CodeType]] = set()

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if event != "call":
            return
        here = self._file(frame.f_code)
        if not here:
            return
        self.files.add(here)
        caller = self._caller(frame)
        if caller and caller != here:
            self.hops.add((caller, here))
            self.calls.add((caller, frame.f_code))

    def _caller(self, frame: FrameType) -> str:
        """Return the nearest file of the library up the stack."""
        above = frame.f_back
        while above is not None:
            found = self._file(above.f_code)
            if found:
                return found
            above = above.f_back
        return ""

    def _file(self, code: CodeType) -> str:
        """Return the file's name in the library; empty for other code, and for the bodies of modules and classes."""
        found = self.of_code.get(code)
        if found is None:
            inside = code.co_filename.startswith(self.library) and code.co_flags & inspect.CO_OPTIMIZED
            found = code.co_filename.removeprefix(self.library) if inside else ""
            self.of_code[code] = found
        return found


def count(commands: list[str], place: Path) -> Reading:
    """Run the commands under the profiler."""
    with tempfile.TemporaryDirectory() as cache, mock.patch.dict(os.environ, FORETELL_CACHE=cache):
        import_everything()
        import foretell

        counter = Counter(Path(str(foretell.__file__)).parent)
        for command in commands:
            typed = [part.format(place=place) for part in command.split()]
            with profiled(counter), quiet():
                run_command(typed)
    return Reading(sorted(counter.files), sorted(counter.hops), len(counter.calls))


@contextlib.contextmanager
def quiet():
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield


@contextlib.contextmanager
def profiled(counter: Counter):
    threading.setprofile(counter)
    sys.setprofile(counter)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def run_command(typed: list[str]) -> None:
    from foretell.cli.main import run

    try:
        with mock.patch.object(sys, "argv", ["foretell", *typed]):
            run()
    except SystemExit as stop:
        if stop.code:
            raise RuntimeError(f"foretell {' '.join(typed)} ended with {stop.code}") from None


def import_everything() -> None:
    """Import all modules, so that calls during imports, such as decorators, do not count; modules that fail to import are skipped."""
    import foretell

    for module in pkgutil.walk_packages(foretell.__path__, "foretell."):
        if not module.name.endswith("__main__"):
            with contextlib.suppress(ImportError):
                importlib.import_module(module.name)


def write_data(place: Path) -> None:
    """Write a long table of a few short sequences, and the beginning of a game."""
    draw = random.Random(0)
    lines = ["sequence,time,event,t_end"]
    for number in range(12):
        times = sorted(round(draw.uniform(0.0, 10.0), 4) for _ in range(draw.randint(4, 9)))
        lines += [f"s{number},{time},{draw.choice('abc')},10.0" for time in times]
    (place / "events.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    import foretell as ft

    test = ft.load("robocup").test
    assert test is not None
    times = test[0].times[:EVENTS_OF_A_GAME].tolist()
    game = {"id": "game", "times": times, "events": test.names_of(test[0])[:EVENTS_OF_A_GAME], "t_end": times[-1]}
    (place / "game.jsonl").write_text(json.dumps(game) + "\n", encoding="utf-8")


def map_jobs() -> dict[str, Reading]:
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        write_data(place)
        spawned = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, mp_context=spawned, max_tasks_per_child=1) as pool:
            for job, commands in JOBS.items():
                found[job] = pool.submit(count, commands, place).result()
    return found


def table(found: dict[str, Reading]) -> str:
    rows = [f"{job:<16}{len(one.files):>8}{len(one.hops):>8}{one.calls:>8}" for job, one in found.items()]
    return "\n".join([f"{'job':<16}{'files':>8}{'hops':>8}{'calls':>8}", *rows])


def as_json(found: dict[str, Reading]) -> str:
    jobs = {
        job: {
            "files": len(one.files),
            "hops": len(one.hops),
            "calls": one.calls,
            "entered": one.files,
            "from_to": one.hops,
        }
        for job, one in found.items()
    }
    return json.dumps(jobs, indent=1) + "\n"


def listed(one: Reading) -> str:
    return "\n".join([*one.files, "", *(f"{caller} -> {callee}" for caller, callee in one.hops)])


def main() -> None:
    parser = argparse.ArgumentParser(description="Files entered and hops between them, for five small commands.")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the figures, files and hops there")
    parser.add_argument("--list", choices=list(JOBS), metavar="JOB", help=f"print one job: {', '.join(JOBS)}")
    options = parser.parse_args()
    found = map_jobs()
    if options.json:
        options.json.write_text(as_json(found), encoding="utf-8")
    sys.stdout.write((listed(found[options.list]) if options.list else table(found)) + "\n")


if __name__ == "__main__":
    main()
