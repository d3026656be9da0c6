"""Small simulated data and quick options, so that a whole run takes a second."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from foretell.data import Card, Dataset, EventData, EventSequence, save_dataset
from foretell.data.synthetic import HawkesProcess, Process, simulate
from foretell.models.attention.anhp import ANHP
from foretell.train.config import TrainOptions, make_config

EXCITING = HawkesProcess(np.array([0.3, 0.2]), np.array([[0.9, 0.05], [0.1, 0.7]]), np.array([1.2]))


def exciting(sequences: int, seed: int, t_end: float = 8.0, process: Process = EXCITING) -> EventData:
    """Two types of events that come in bursts."""
    return simulate(process, sequences, t_end, seed)


def small_model(data: EventData, **options: Any) -> ANHP:
    return ANHP.preset("plain", data.vocabulary, **{"dim": 4, "layers": 1, **options})


def options(**changes: Any) -> TrainOptions:
    return make_config({"train": {"epochs": 3, "batch": 6, "lr": 5e-3, **changes}}).train


def folder_of(path: Path, *, sequences: int = 24, t_end: float = 8.0) -> Path:
    """A data set of three splits on disk."""
    parts = [exciting(count, seed, t_end) for seed, count in enumerate((sequences, 8, 8))]
    save_dataset(Dataset(parts[0], parts[1], parts[2], parts[0].vocabulary, Card("bursts", "window", "hours", 2)), path)
    return path


def in_unit(data: EventData, c: float) -> EventData:
    """The same data on a clock that runs `c` times as fast."""
    moved = [EventSequence(s.times * c, s.types, s.t_end * c, s.id) for s in data]
    return EventData(moved, data.vocabulary, data.origin, data.name)


def same_tensors(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> bool:
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)
