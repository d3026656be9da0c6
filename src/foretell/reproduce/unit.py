"""A unit of work: one fit with its test scores, say. It is done, failed or pending, and its folder on disk says which.

`OUT/NAME/units/UNIT/`: `record.json` (it is done; every number), `failed.json` (what went wrong), `rows.npz` (scores event by event),
`run/` (the run folder of its fit; with a checkpoint while it is unfinished).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from foretell.data.files import replacing
from foretell.errors import ForetellError
from foretell.train.run import CHECKPOINT

RECORD, FAILED, ROWS, RUN = "record.json", "failed.json", "rows.npz", "run"

Record = dict[str, Any]
Device = Literal["cpu", "cuda"]
State = Literal["done", "failed", "pending"]


@dataclass(frozen=True)
class Unit:
    """What one call works on. Two units of an experiment have different names; equal settings mean equal results."""

    name: str  # also its folder's: letters, digits, dots, dashes
    settings: Mapping[str, Any] = field(default_factory=dict)  # JSON; a record with other settings is out of date
    minutes: float = 1.0  # about, on one core (or the GPU); long units go first
    device: Device = "cpu"  # where it is best done; `cuda` falls back to the CPU where there is no GPU
    alone: bool = False  # True: nothing else may run beside it, since it is timed

    def __post_init__(self) -> None:
        assert re.fullmatch(r"[\w.+-]+", self.name), self.name

    def plain(self) -> Any:
        """The settings as they come back from a file."""
        return json.loads(json.dumps(dict(self.settings)))


@dataclass(frozen=True)
class UnitFolder:
    path: Path

    def state(self, unit: Unit) -> State:
        record = self.record()
        if record is not None:
            return "done" if record.get("settings") == unit.plain() else "pending"
        failed = self._read(FAILED)
        return "failed" if failed is not None and failed.get("settings") == unit.plain() else "pending"

    def record(self) -> Record | None:
        return self._read(RECORD)

    def error(self) -> str:
        return str((self._read(FAILED) or {}).get("error", ""))

    def begin(self, unit: Unit) -> None:
        """Make way for the unit: what there is of other settings is removed, an unfinished fit of these is not."""
        settings = self._read("settings.json")
        if settings is not None and settings != unit.plain():
            shutil.rmtree(self.path)
        for name in (RECORD, FAILED):
            (self.path / name).unlink(missing_ok=True)
        self._write("settings.json", dict(unit.settings))

    def finish(self, unit: Unit, found: Mapping[str, Any]) -> Record:
        record = {"unit": unit.name, **found, "settings": unit.plain()}
        self._write(RECORD, record)
        (self.path / RUN / CHECKPOINT).unlink(missing_ok=True)
        return record

    def fail(self, unit: Unit, error: str) -> None:
        self._write(FAILED, {"unit": unit.name, "error": error, "settings": unit.plain()})

    @contextlib.contextmanager
    def held(self) -> Iterator[bool]:
        """Whether this process has the folder to itself for now; another call may be at work on the same unit."""
        try:
            import fcntl
        except ImportError:  # Windows has no such locks
            yield True
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        path = self.path.parent / f".{self.path.name}.lock"
        with open(path, "w", encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            if not _is_at(file.fileno(), path):  # whoever had it has just removed it: it locks nothing any more
                yield False
                return
            yield True
            path.unlink(missing_ok=True)

    def _write(self, name: str, value: Any) -> None:
        with replacing(self.path / name) as temporary:
            temporary.write_text(json.dumps(value, indent=1, allow_nan=False) + "\n", encoding="utf-8")

    def _read(self, name: str) -> dict[str, Any] | None:
        path = self.path / name
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise ForetellError(f"{path}: not JSON: {error}; remove it, and the unit is done again") from error


def last_line(error: str) -> str:
    """Of a traceback, what went wrong; where, in the files of this machine, is in `failed.json`."""
    return error.strip().splitlines()[-1] if error.strip() else ""


def slug(text: str) -> str:
    """A model's name as part of a unit's: `A-NHP, tuned` → `a-nhp-tuned`."""
    return re.sub(r"[^\w.+]+", "-", text.lower()).strip("-")


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False
