"""The final fits of a search: the leading candidates are trained again, for longer and with other seeds.

A leader that was trained once depends on the luck of its seed, and had a limited number of steps. The remaining time is best spent on
leaders; `experiments/auto` has the gain. A candidate is judged by the best of its fits on dev.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from foretell.reproduce.unit import Record, Unit
from foretell.search.candidates import Candidate

LONGER = 5 / 3  # ratio of the steps that the rules give on a GPU to those on a CPU
SEEDS = 3  # number of additional seeds
MARGIN = 1.1  # factor on the expected time of a fit


@dataclass(frozen=True)
class FinalFit:
    """Another fit of a candidate: `number` 0 trains for longer, other numbers are added to the seed."""

    candidate: Candidate
    number: int
    rung: int  # the rung of complete fits
    base_seed: int

    @property
    def name(self) -> str:
        return f"{self.candidate.name}-seed-{self.number}" if self.number else f"{self.candidate.name}-long"

    @property
    def factor(self) -> float:
        """The number of epochs as a multiple of the automatic choice."""
        return 1.0 if self.number else LONGER

    @property
    def train(self) -> dict[str, Any]:
        """The training settings, with the changes for this fit."""
        table = dict(self.candidate.tables["train"])
        if self.number:
            return {**table, "seed": self.base_seed + self.number}
        lengths = {key: round(LONGER * table[key]) for key in ("epochs", "patience") if key in table}
        return {**table, **lengths}

    @property
    def words(self) -> str:
        return f"seed {self.base_seed + self.number}" if self.number else "longer"

    def unit(self) -> Unit:
        one = self.candidate
        about = {"candidate": one.name, "title": one.title, "why": one.why, "variant": one.variant}
        tables = {**one.tables, "train": self.train}
        return Unit(
            self.name,
            {**about, "rung": self.rung, "epochs": self.train["epochs"], "tables": tables, "again": self.words},
        )

    def seconds(self, whole: Record) -> float:
        """Return the expected seconds, from the candidate's first fit: for its epochs or, if time limited these, for all."""
        cut = whole.get("planned") != whole.get("wanted")
        epochs = self.train["epochs"] if cut else self.factor * whole["epochs"]
        return MARGIN * epochs * float(whole["seconds"]) / max(int(whole["epochs"]), 1)


def final_fits(
    leading: Sequence[Candidate], base_seed: int, rung: int, *, fixed: Mapping[str, Any]
) -> Iterator[FinalFit]:
    """Yield the final fits: each leader for longer first, then with other seeds. If the user has set the number of epochs, no fit is
    longer."""
    for number in range("epochs" in fixed, SEEDS + 1):
        for one in leading:
            yield FinalFit(one, number, rung, base_seed)


def leaders(every: Sequence[Candidate], done: Mapping[str, Record]) -> list[Candidate]:
    """Return the best candidate on dev that is no variant, followed by the best variant if that is better."""
    scores: dict[str, float] = {}
    for record in done.values():
        if record.get("dev") is not None:
            name = str(record.get("candidate", ""))
            scores[name] = max(float(record["dev"]), scores.get(name, float("-inf")))
    ranked = sorted((one for one in every if one.name in scores), key=lambda one: -scores[one.name])
    first = next((one for one in ranked if not one.variant), None)
    ahead = [] if first is None else [one for one in ranked[: ranked.index(first)] if one.variant]
    return [] if first is None else [first, *ahead[:1]]
