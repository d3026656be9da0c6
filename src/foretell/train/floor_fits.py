"""Floors for a model: fits Poisson and Hawkes processes to data, scores them, and states whether a model beats them.

For data with a calendar, the floors include the weekly Poisson process.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from foretell.data import EventData, Vocabulary
from foretell.data.calendar import calendar_of
from foretell.data.files import replacing
from foretell.errors import ForetellError
from foretell.models.classical.hawkes import Hawkes
from foretell.models.classical.poisson import Poisson
from foretell.models.classical.weekly import WeeklyPoisson
from foretell.options import Window
from foretell.reading import read_json
from foretell.train.likelihood_task import mean_log_likelihood
from foretell.train.run import FLOORS, RunFolder

MOST_TYPES = 1_500  # with more types, a Hawkes process has too many pairs of types to be fitted as a floor


Floor = Poisson | WeeklyPoisson | Hawkes


@dataclass(frozen=True)
class FittedFloor:
    """A floor with its log-likelihood per event on dev, or on train where there is no dev."""

    model: Floor
    score: float
    seconds: float

    def to_json(self) -> dict[str, Any]:
        return {"score": self.score, "seconds": round(self.seconds, 2)}


def floors_for(vocabulary: Vocabulary, train: EventData | None = None) -> list[Floor]:
    """Return the unfitted floors that a model must beat: Hawkes, weekly Poisson if `train` has a calendar, and Poisson."""
    weekly = [WeeklyPoisson(vocabulary)] if train is not None and calendar_of(train) is not None else []
    return [Hawkes(vocabulary), *weekly, Poisson(vocabulary)]


def fit_floors(
    train: EventData,
    dev: EventData | None,
    window: Window = "all",
    progress: Callable[[str, int, int], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> list[FittedFloor]:
    """Fit Poisson, weekly Poisson, and Hawkes unless there are too many types; `stop` is polled between them."""
    found: list[FittedFloor] = []
    every = reversed(floors_for(train.vocabulary, train))
    wanted = [one for one in every if one.kind != "hawkes" or one.types <= MOST_TYPES]
    for place, floor in enumerate(wanted):
        if stop is not None and stop():
            break
        if progress is not None:
            progress(f"fitting {floor.title}", place, len(wanted))
        began = time.monotonic()
        floor.fit_directly(train, dev, lambda number, value: None)
        floor.eval()
        score = mean_log_likelihood(floor, train if dev is None else dev, 1, window)
        found.append(FittedFloor(floor, score, time.monotonic() - began))
    return found


def best_floor(floors: Sequence[FittedFloor]) -> FittedFloor | None:
    return max(floors, key=lambda one: one.score, default=None)


def hawkes_of(floors: Sequence[FittedFloor]) -> Hawkes | None:
    return next((one.model for one in floors if isinstance(one.model, Hawkes)), None)


def verdict(title: str, best: float, scores: dict[str, float], judged_on: str, advice: str) -> str:
    """Return a sentence that says whether a model beats the floors; if it does not, followed by advice."""
    if not scores:
        return ""
    floor = max(scores, key=lambda name: scores[name])
    others = ", ".join(f"{name} {score:.4f}" for name, score in scores.items() if name != floor)
    beside = f" ({others})" if others else ""
    numbers = f"{best:.4f} against {scores[floor]:.4f}{beside}"
    if best > scores[floor]:
        lead = best - scores[floor]
        return f"{title} beats {floor}, the best floor, on {judged_on} by {lead:.4f} nats per event: {numbers}"
    return f"{title} does NOT beat {floor} on {judged_on}: {numbers}; {advice}"


def keep_floors(run: RunFolder, floors: dict[str, Any]) -> None:
    """Write the scores of the floors into a run folder."""
    with replacing(run.path / FLOORS) as temporary:
        temporary.write_text(json.dumps(floors, indent=2) + "\n", encoding="utf-8")


def kept_floors(run: RunFolder) -> dict[str, Any]:
    """Return the checked content of the file that `keep_floors` writes; empty if there is none."""
    path = run.path / FLOORS
    found = read_json(path) if path.exists() else {}
    floors = found.get("floors", {}) if isinstance(found, dict) else None
    if not isinstance(floors, dict) or not all(map(_is_score, floors.values())):
        raise ForetellError(f"{path}: its floors are {str(floors)[:200]}: expected what `foretell train` wrote there")
    return found if floors else {}


def _is_score(floor: Any) -> bool:
    score = floor.get("score") if isinstance(floor, dict) else None
    return isinstance(score, int | float) and type(score) is not bool and math.isfinite(score)
