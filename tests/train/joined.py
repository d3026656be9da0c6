"""What a process of a joined training does in the tests: every model is fitted, and each process writes what came out."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor

import foretell as ft
from foretell.data import EventData
from foretell.models.base import IntensityModel
from foretell.train.processes import ProcessGroup, joined_processes
from foretell.train.step import Stepper
from tests.samples import NAMES, random_data

PROGRAM = """
:- event(a). :- event(b). :- event(c).
mood <- a. mood <- b. !mood <- c.
calm <- c.
a :- mood. b :- mood. c :- calm. a :- base. b :- base. c :- base. base.
"""
LENGTHS = [9, 14, 3, 11, 8, 12, 10, 7, 13, 5]
OPTIONS: dict[str, Any] = {"epochs": 8, "batch": 10, "piece": 30, "dtype": "float64", "lr": 1e-2, "patience": 0}

# Long steps of S2P2 turn its phases by whole circles: at a hundred times this rate rounding grows tenfold per step.
# "uncut": one process works on the whole batch at once.
SETTINGS: dict[str, dict[str, Any]] = {
    "nhp by nce": {"objective": "nce"},
    "nhp uncut": {"piece": 0},
    "nhp uncut, uniform": {"piece": 0, "integral": "uniform"},
    "s2p2": {"lr": 1e-4},
}


def data(seed: int) -> EventData:
    return random_data(seed, LENGTHS)


def models() -> dict[str, IntensityModel]:
    vocabulary, settings = data(1).vocabulary, {"dim": 4, "seed": 3, "dtype": torch.float64}
    assert vocabulary.names == NAMES[:3]
    program = ft.Program.from_text(PROGRAM)
    made: dict[str, IntensityModel] = {
        "anhp": ft.ANHP(vocabulary, **settings),
        "nhp": ft.NHP(vocabulary, **settings),
        "nhp by nce": ft.NHP(vocabulary, **settings),
        "nhp uncut": ft.NHP(vocabulary, **settings),
        "nhp uncut, uniform": ft.NHP(vocabulary, **settings),
        "s2p2": ft.S2P2(vocabulary, **settings, dropout=0.0),
        "rmtpp": ft.RMTPP(vocabulary, **settings),
    }
    rules = {kind: build(program, vocabulary, **settings) for kind, build in (("andtt", ft.ANDTT), ("ndtt", ft.NDTT))}
    return made | rules


@dataclass
class FittedSteps:
    """What a fit went through, as one of its processes saw it."""

    steps: list[float] = field(default_factory=list)  # the loss of each
    shares: list[float] = field(default_factory=list)  # how much of it this process found itself, before it was summed
    dev: list[float | None] = field(default_factory=list)  # after each epoch


def fitted(name: str, model: IntensityModel) -> FittedSteps:
    found, summed, gradients = FittedSteps(), ProcessGroup.sum, Stepper.gradients

    def sum_(group: ProcessGroup, tensors: Iterable[Tensor]) -> None:
        several = list(tensors)
        own = several[0].clone()
        summed(group, several)
        if own.ndim == 0:
            found.shares.append(float(own / several[0]))

    def gradients_(stepper: Stepper, *given: Any) -> Tensor:
        loss = gradients(stepper, *given)
        found.steps.append(float(loss))
        return loss

    with mock.patch.object(ProcessGroup, "sum", sum_), mock.patch.object(Stepper, "gradients", gradients_):
        records = ft.fit(model, data(1), dev=data(2), **OPTIONS | SETTINGS.get(name, {})).records
    found.dev = [record["dev"] for record in records]
    return found


def main(path: Path) -> None:
    with joined_processes() as group:
        found = {name: vars(fitted(name, model)) for name, model in models().items()}
        path.with_name(f"{path.stem}-{group.rank}.json").write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))
