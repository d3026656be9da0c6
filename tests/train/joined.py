"""What a process of a joined training does in the tests: every model is fitted, and the first process writes what came out."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch

import foretell as ft
from foretell.data import EventData
from foretell.models.base import IntensityModel
from foretell.train.processes import joined_processes, process_group
from tests.samples import NAMES, random_data

PROGRAM = """
:- event(a). :- event(b). :- event(c).
mood <- a. mood <- b. !mood <- c.
calm <- c.
a :- mood. b :- mood. c :- calm. a :- base. b :- base. c :- base. base.
"""
LENGTHS = [9, 14, 3, 11, 8, 12, 10, 7, 13, 5]
OPTIONS: dict[str, Any] = {"epochs": 8, "batch": 10, "piece": 30, "dtype": "float64", "lr": 1e-2, "patience": 0}

# Long steps of S2P2 turn its phases by whole circles: rounding would grow a thousandfold per step.
SETTINGS: dict[str, dict[str, Any]] = {"nhp": {"objective": "nce"}, "s2p2": {"lr": 1e-5}}


def data(seed: int) -> EventData:
    return random_data(seed, LENGTHS)


def models() -> dict[str, IntensityModel]:
    vocabulary, settings = data(1).vocabulary, {"dim": 4, "seed": 3, "dtype": torch.float64}
    assert vocabulary.names == NAMES[:3]
    program = ft.Program.from_text(PROGRAM)
    made: dict[str, IntensityModel] = {
        "anhp": ft.ANHP(vocabulary, **settings),
        "nhp": ft.NHP(vocabulary, **settings),
        "s2p2": ft.S2P2(vocabulary, **settings, dropout=0.0),
        "rmtpp": ft.RMTPP(vocabulary, **settings),
    }
    rules = {kind: build(program, vocabulary, **settings) for kind, build in (("andtt", ft.ANDTT), ("ndtt", ft.NDTT))}
    return made | rules


def fitted(name: str, model: IntensityModel) -> list[list[float | None]]:
    """The loss of every step, and the score of dev after it: an epoch is one step."""
    changes = OPTIONS | SETTINGS.get(name, {})
    found = ft.fit(model, data(1), dev=data(2), **changes)
    return [[record["nce" if name == "nhp" else "train"], record["dev"]] for record in found.records]


def main(path: Path) -> None:
    with joined_processes():
        found = {name: fitted(name, model) for name, model in models().items()}
        if process_group().first:
            path.write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))
