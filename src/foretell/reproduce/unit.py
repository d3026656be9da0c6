"""A unit of work, such as one fit with its test scores. Its folder on disk shows whether it is done, failed or pending.

`OUT/NAME/units/UNIT/` has `record.json` (all numbers of a finished unit), `failed.json` (its error), `rows.npz` (scores of each event) and
`run/` (the run folder of its fit, with a checkpoint until it is finished).

`Workspace` has the tools for the work on a unit: data by name, a fit that continues where it was stopped, and stored scores of each event.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch

from foretell.data import Dataset, EventData, load
from foretell.data.files import replacing
from foretell.data.loading import embedded_folder
from foretell.errors import ForetellError
from foretell.evaluate.scores import ScoredModel, ScoringOptions, score
from foretell.models.base import IntensityModel
from foretell.models.capabilities import DirectFit
from foretell.reading import UnreadableFile, read_json
from foretell.reproduce.rows import ScoreRows, write_rows
from foretell.train.config import make_config
from foretell.train.file_lock import FileLock
from foretell.train.fit import TrainingInterrupt, fit
from foretell.train.run import CHECKPOINT, RunFolder, environment

RECORD, FAILED, ROWS, RUN = "record.json", "failed.json", "rows.npz", "run"

Record = dict[str, Any]
Device = Literal["cpu", "cuda"]
State = Literal["done", "failed", "pending"]


@dataclass(frozen=True)
class Unit:
    """A piece of an experiment. Units of an experiment have different names; equal settings mean equal results."""

    name: str  # also the name of its folder: letters, digits, dots, dashes
    settings: Mapping[str, Any] = field(default_factory=dict)  # JSON; a record with other settings is out of date
    minutes: float = 1.0  # estimated duration on one core (or the GPU); long units start first
    device: Device = "cpu"  # the preferred device; `cuda` falls back to the CPU if there is no GPU
    alone: bool = False  # True: no other unit runs at the same time, since this one is timed

    def __post_init__(self) -> None:
        assert re.fullmatch(r"[\w.+-]+", self.name), self.name

    def plain(self) -> Any:
        """Return the settings after a round trip through JSON."""
        return json.loads(json.dumps(dict(self.settings)))


@dataclass(frozen=True)
class UnitFolder:
    path: Path

    def state(self, unit: Unit) -> State:
        record = self.record()
        if record is not None:
            return "done" if record.get("settings") == unit.plain() else "pending"
        failed = self.read(FAILED)
        return "failed" if failed is not None and failed.get("settings") == unit.plain() else "pending"

    def record(self) -> Record | None:
        return self.read(RECORD)

    def error(self) -> str:
        return str((self.read(FAILED) or {}).get("error", ""))

    def begin(self, unit: Unit) -> None:
        """Prepare the folder: remove files of other settings, and keep an unfinished fit of the same settings."""
        settings = self.read("settings.json")
        if settings is not None and settings != unit.plain():
            shutil.rmtree(self.path)
        for name in (RECORD, FAILED):
            (self.path / name).unlink(missing_ok=True)
        self.write("settings.json", dict(unit.settings))

    def finish(self, unit: Unit, found: Mapping[str, Any]) -> Record:
        """Write the record and delete the checkpoint, unless the record has `whole_run`: then the run folder stays complete."""
        record = {"unit": unit.name, **found, "settings": unit.plain()}
        self.write(RECORD, record)
        if not found.get("whole_run"):
            (self.path / RUN / CHECKPOINT).unlink(missing_ok=True)
        return record

    def fail(self, unit: Unit, error: str) -> None:
        self.write(FAILED, {"unit": unit.name, "error": error, "settings": unit.plain()})

    @contextlib.contextmanager
    def held(self) -> Iterator[bool]:
        """Lock the folder and yield whether that worked; it does not while another call works on the same unit."""
        lock = FileLock(self.path.parent / f".{self.path.name}.lock")
        if not lock.try_acquire():
            yield False
            return
        try:
            yield True
        finally:
            lock.release()

    def write(self, name: str, value: Any) -> None:
        with replacing(self.path / name) as temporary:
            temporary.write_text(json.dumps(value, indent=1, allow_nan=False) + "\n", encoding="utf-8")

    def read(self, name: str) -> dict[str, Any] | None:
        path = self.path / name
        try:
            return read_json(path)
        except UnreadableFile as error:
            if error.missing:
                return None
            raise
        except ForetellError as error:
            raise ForetellError(f"{error}; remove it, and the unit is done again") from error


def last_line(error: str) -> str:
    """Return the last line of a traceback, which has the error; the rest is in `failed.json`."""
    return error.strip().splitlines()[-1] if error.strip() else ""


def slug(text: str) -> str:
    """Convert a model's name to a part of a unit's name: `A-NHP, tuned` → `a-nhp-tuned`."""
    return re.sub(r"[^\w.+]+", "-", text.lower()).strip("-")


VARIABLE = "FORETELL_DATA"


@dataclass(frozen=True)
class FitReport:
    model: IntensityModel
    facts: dict[str, Any]  # entries of the record: epochs, dev score, seconds, size


@dataclass(frozen=True)
class Workspace:
    folder: Path  # the folder of the unit
    data: Path | None  # the folder that contains the folders of data sets; None: FORETELL_DATA, or only embedded data
    device: str
    stop: Callable[[], bool]  # if it returns True, a fit writes a checkpoint and raises TrainingInterrupt
    loaded: dict[str, Dataset] = field(default_factory=dict)  # shared by the units of one process

    def dataset(self, name: str, *, sequences: int = 0, events: int = 0) -> Dataset:
        """Read embedded data, or a folder under `--data`: the first `sequences` of each split, and the first `events` of each; 0: all."""
        if name not in self.loaded:
            self.loaded[name] = load(find_data(name, self.data))
        found = self.loaded[name]
        return replace(found, **{split: cut(data, sequences, events) for split, data in found.splits().items()})

    def splits(self, name: str, **cut: int) -> tuple[EventData, EventData, EventData]:
        """Return train, dev and test; raise if one is missing."""
        return whole(self.dataset(name, **cut), name)

    def fit(
        self,
        table: Mapping[str, Any],
        train: EventData,
        dev: EventData | None,
        *,
        source: str = "experiment",
        keep: bool = True,
        about: Mapping[str, Any] | None = None,
        start: Callable[[IntensityModel], None] | None = None,
        on_epoch: Callable[[dict[str, Any]], None] | None = None,
    ) -> FitReport:
        """Fit the model of a configuration's tables. An interrupted fit is continued, with the same bits as without interruption.

        With `keep`, the model stays in `run/`; otherwise no file stays. (The checkpoint is deleted when the unit is done.) `about` is what
        the run says about its data; `start` is called with a new model; `on_epoch` is called as by `foretell.fit`.
        """
        config = make_config({**table, "train": {**table.get("train", {}), "device": self.device}}, source)
        dtype = getattr(torch, config.train.dtype)
        model = config.model.make(train.vocabulary, seed=config.train.seed, dtype=dtype)
        path = self.folder / RUN
        fresh = not (path / "config.toml").exists()
        run = RunFolder.create(path, config, dict(about or {})) if fresh else RunFolder.open(path)
        run.tidy()
        run.keep_program(model)
        if start is not None:
            start(model)
        before, resume = len(run.metrics()), run.checkpoint.exists()
        began = time.perf_counter()
        told: dict[str, Any] = {"on_epoch": on_epoch, "stop": self.stop, "progress": False}
        result = fit(model, train, dev, config.train, run=run, resume=resume, **told)
        seconds = time.perf_counter() - began
        if not isinstance(model, DirectFit):  # summed over all calls
            seconds = sum(one["train_seconds"] + one["dev_seconds"] for one in result.records)
        if len(result.records) > before:  # else an earlier call finished it, and this one goes on
            self.give_way()
        if not keep:
            shutil.rmtree(path)
        facts = {
            "model_title": model.title,
            "parameters": sum(one.numel() for one in model.parameters()),
            "epochs": len(result.records),
            "best_epoch": result.best_epoch,
            "dev": result.best,
            "fit_seconds": round(seconds, 2),
        }
        return FitReport(model, facts)

    def score(self, model: IntensityModel, test: EventData, options: ScoringOptions) -> ScoredModel:
        """Compute every score of `foretell evaluate`, and store the rows in the unit's folder."""
        scored = score(model, test, options)
        write_rows(self.folder / ROWS, ScoreRows.of(scored, test))
        return scored

    def machine(self) -> dict[str, Any]:
        """Return the machine and versions, for the record."""
        about = environment(self.device)
        return {
            "device": about.get("gpu", f"CPU, {about['threads']} thread{'s'[: about['threads'] - 1]}"),
            "torch": about["torch"],
        }

    def give_way(self) -> None:
        """Raise `TrainingInterrupt` if a stop is requested; long units call this between steps. Written files stay."""
        if self.stop():
            raise TrainingInterrupt


def whole(dataset: Dataset, name: object) -> tuple[EventData, EventData, EventData]:
    if dataset.train is None or dataset.dev is None or dataset.test is None:
        raise ForetellError(f"{name}: expected the splits train, dev and test")
    return dataset.train, dataset.dev, dataset.test


def find_data(name: str, folder: Path | None) -> Path:
    """Return the folder of a data set, or raise with a message that says how to name it."""
    given = folder or (Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None)
    if given is not None and (given / name).exists():
        return given / name
    embedded = embedded_folder(name)
    if embedded is not None:
        return embedded
    if given is None:
        where = f"data {name!r} is not in the package"
    else:
        source = "" if folder is not None else f" ({VARIABLE})"
        where = f"{given}{source}: {f'there is no folder {name} in it' if given.is_dir() else 'no such folder'}"
    raise ForetellError(
        f"{where}; name the folder that holds one folder for each data set with `data=FOLDER`, or in {VARIABLE} "
        "(docs/guide/reproduce.md says where the data come from)"
    )


def cut(data: EventData, sequences: int = 0, events: int = 0) -> EventData:
    """Return the first `sequences`, each cut after its first `events`; 0: all."""
    if sequences and sequences < len(data):
        data = data.select(range(sequences))
    if events and (data.lengths > events).any():
        shorter = [one if len(one) <= events else one.first(events, float(one.times[events - 1])) for one in data]
        data = replace(data, sequences=shorter, report=None)
    return data
