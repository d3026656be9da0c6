"""The scores of every test event of one model, in a file: what `run.py --keep` leaves and `compare.py` reads."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np

from foretell.evaluate.likelihood import EventScores, IntegralUsed
from foretell.evaluate.participants import Guesses
from foretell.models.base import IntensityModel
from foretell.models.hawkes import Hawkes

ARRAYS = [one.name for one in fields(EventScores) if one.name != "used"]
OF_A_GUESS = ("sequence", "event", "wrong", "candidates")


@dataclass(frozen=True)
class Kept:
    model: str  # "A-NDTT", "Hawkes, 2 decays", …
    seed: int | None  # None: a fit without chance
    events: EventScores
    guesses: tuple[Guesses, ...]  # one for each pattern

    @classmethod
    def of(cls, model: IntensityModel, seed: int | None, events: EventScores, guesses: Sequence[Guesses]) -> Kept:
        title = model.title
        if isinstance(model, Hawkes):
            title += f", {model.decays} decay{'s' if model.decays > 1 else ''}"
        return cls(title, seed, events, tuple(guesses))


def keep_scores(folder: Path, kept: Kept) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    about = {"model": kept.model, "seed": kept.seed, "used": asdict(kept.events.used)}
    arrays = {name: getattr(kept.events, name) for name in ARRAYS}
    arrays |= {f"{part} of {one.pattern}": getattr(one, part) for one in kept.guesses for part in OF_A_GUESS}
    about["patterns"] = [one.pattern for one in kept.guesses]
    name = re.sub(r"\W+", "-", kept.model.lower()) + ("" if kept.seed is None else f"-{kept.seed}")
    np.savez_compressed(folder / f"{name}.npz", about=np.asarray(json.dumps(about)), **arrays)


def read_scores(path: Path) -> Kept:
    with np.load(path, allow_pickle=False) as file:
        about = json.loads(str(file["about"]))
        events = EventScores(**{name: file[name] for name in ARRAYS}, used=IntegralUsed(**about["used"]))
        guesses = tuple(
            Guesses(pattern, *(file[f"{part} of {pattern}"] for part in OF_A_GUESS)) for pattern in about["patterns"]
        )
    return Kept(about["model"], about["seed"], events, guesses)
