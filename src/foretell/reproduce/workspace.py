"""What the work on a unit needs: data by name, a fit that goes on where it was stopped, scores that are kept row by row."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from foretell.data import Dataset, EventData, load
from foretell.data.loading import embedded_folder
from foretell.errors import ForetellError
from foretell.evaluate.scores import ScoredModel, ScoringOptions, score
from foretell.models.base import IntensityModel
from foretell.models.capabilities import DirectFit
from foretell.reproduce.rows import ScoreRows, write_rows
from foretell.reproduce.unit import ROWS, RUN
from foretell.train.config import make_config
from foretell.train.fit import TrainingInterrupt, fit
from foretell.train.run import RunFolder, environment

VARIABLE = "FORETELL_DATA"


@dataclass(frozen=True)
class FitReport:
    model: IntensityModel
    facts: dict[str, Any]  # for the record: epochs, dev score, seconds, size


@dataclass(frozen=True)
class Workspace:
    folder: Path  # the unit's own; whatever is written there stays with it
    data: Path | None  # the folder that holds one folder for each data set; None: FORETELL_DATA, or embedded data alone
    device: str
    stop: Callable[[], bool]  # True: write a checkpoint and raise TrainingInterrupt
    loaded: dict[str, Dataset] = field(default_factory=dict)  # shared by the units of one process

    def dataset(self, name: str, *, sequences: int = 0, events: int = 0) -> Dataset:
        """Embedded data, or a folder under `--data`. Of each split only the first sequences, of each of these only the first events."""
        if name not in self.loaded:
            self.loaded[name] = load(find_data(name, self.data))
        found = self.loaded[name]
        return replace(found, **{split: cut(data, sequences, events) for split, data in found.splits().items()})

    def splits(self, name: str, **cut: int) -> tuple[EventData, EventData, EventData]:
        """Train, dev and test, which must all be there."""
        return whole(self.dataset(name, **cut), name)

    def fit(
        self,
        table: Mapping[str, Any],
        train: EventData,
        dev: EventData | None,
        *,
        source: str = "experiment",
        keep: bool = True,
    ) -> FitReport:
        """Fit the model of a configuration's tables; what an earlier call began is continued bit for bit.

        With `keep`, the model stays in `run/`; else nothing does. (The checkpoint goes when the unit is done.)
        """
        config = make_config({**table, "train": {**table.get("train", {}), "device": self.device}}, source)
        dtype = getattr(torch, config.train.dtype)
        model = config.model.make(train.vocabulary, seed=config.train.seed, dtype=dtype)
        path = self.folder / RUN
        if not (path / "config.toml").exists():
            RunFolder.create(path, config)
        run = RunFolder.open(path)
        run.tidy()
        before = len(run.metrics())
        began = time.perf_counter()
        result = fit(model, train, dev, config.train, run=run, resume=run.checkpoint.exists(), stop=self.stop)
        seconds = time.perf_counter() - began
        if not isinstance(model, DirectFit):  # over all the calls that it took
            seconds = sum(one["train_seconds"] + one["dev_seconds"] for one in result.records)
        if len(result.records) > before:  # else an earlier call did all of it, and this one has to get further
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
        """Every score of `foretell evaluate`; its rows are kept in the unit's folder."""
        scored = score(model, test, options)
        write_rows(self.folder / ROWS, ScoreRows.of(scored, test))
        return scored

    def machine(self) -> dict[str, Any]:
        """Where this ran, for the record."""
        about = environment(self.device)
        return {
            "device": about.get("gpu", f"CPU, {about['threads']} thread{'s'[: about['threads'] - 1]}"),
            "torch": about["torch"],
        }

    def give_way(self) -> None:
        """Between two steps of a unit: stop here if that was asked for. What was written stays."""
        if self.stop():
            raise TrainingInterrupt


def whole(dataset: Dataset, name: object) -> tuple[EventData, EventData, EventData]:
    if dataset.train is None or dataset.dev is None or dataset.test is None:
        raise ForetellError(f"{name}: expected the splits train, dev and test")
    return dataset.train, dataset.dev, dataset.test


def find_data(name: str, folder: Path | None) -> Path:
    """The folder of a data set, or a message that says how to name it."""
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
        f"{where}; name the folder that holds one folder for each data set with --data FOLDER, or in {VARIABLE} "
        "(docs/guide/reproduce.md says where the data come from)"
    )


def cut(data: EventData, sequences: int = 0, events: int = 0) -> EventData:
    """The first of the sequences, and of each the first events, which then end it; 0: all."""
    if sequences and sequences < len(data):
        data = data.select(range(sequences))
    if events and (data.lengths > events).any():
        shorter = [one if len(one) <= events else one.first(events, float(one.times[events - 1])) for one in data]
        data = replace(data, sequences=shorter, report=None)
    return data
