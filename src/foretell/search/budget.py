"""The time budget of a search, stored in a file that its processes read and from which the next call continues."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from pathlib import Path

from foretell.data.files import replacing
from foretell.errors import ForetellError
from foretell.reading import read_json

FILE = "budget.json"
RESERVE, LEAST_RESERVE, MOST_RESERVE = 0.08, 2.0, 90.0  # time for scores and the page
KEEP_EVERY = 2.0  # seconds between writes of the file


@dataclass(frozen=True)
class Budget:
    """The budget in seconds, the seconds that earlier calls spent, and the start of this call (`time.time`)."""

    seconds: float
    spent: float
    began: float

    @property
    def reserve(self) -> float:
        return min(max(LEAST_RESERVE, RESERVE * self.seconds), MOST_RESERVE, 0.5 * self.seconds)

    @property
    def fit_until(self) -> float:
        """When training ends, so that time is left to score the chosen model (`time.time`)."""
        return self.began + self.seconds - self.spent - self.reserve

    @property
    def used(self) -> float:
        return self.spent + time.time() - self.began

    def left(self) -> float:
        """Return the seconds that are left for training."""
        return self.fit_until - time.time()


def open_budget(folder: Path, minutes: float) -> Budget:
    """Return the budget of a call; the time that earlier calls in the folder spent is subtracted."""
    if not 0.0 < minutes < 1e6:
        raise ForetellError(f"`minutes={minutes:g}`: expected a number above 0")
    earlier = read_budget(folder)
    return Budget(60.0 * minutes, 0.0 if earlier is None else earlier.spent, time.time())


def keep_budget(folder: Path, budget: Budget, *, ended: bool = False) -> None:
    """Save the budget; the time used until now is `spent` for the next call. `ended`: the call is over."""
    kept = replace(budget, spent=budget.used, began=0.0 if ended else time.time())
    text = {"seconds": kept.seconds, "spent": round(kept.spent, 3), "began": kept.began, "fit_until": budget.fit_until}
    with replacing(folder / FILE) as temporary:
        temporary.write_text(json.dumps(text) + "\n", encoding="utf-8")


def read_budget(folder: Path) -> Budget | None:
    """Return the last saved budget; None if there is none."""
    path = folder / FILE
    if not path.exists():
        return None
    found = read_json(path)
    try:
        numbers = [float(found[name]) for name in ("seconds", "spent", "began")]
    except (TypeError, KeyError, ValueError) as error:
        raise ForetellError(f"{path}: expected the budget that `foretell auto` wrote: {error}") from error
    return Budget(*numbers)
