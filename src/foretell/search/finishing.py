"""The last fits of a search: candidates with their scores in, the leader trained again out, for longer and from other seeds.

A leader that was trained once has the luck of its seed, and only the steps that a first fit may take. What time is left is worth most
where the search has already been: `experiments/auto` has what it brought. The best of a candidate's fits on dev counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from foretell.reproduce.unit import Record, Unit
from foretell.search.candidates import Candidate

LONGER = 5 / 3  # the steps that the rules give on a GPU, over those on a CPU
SEEDS = 3  # further ones
MARGIN = 1.1  # of the time that a fit is expected to take


@dataclass(frozen=True)
class FinalFit:
    """A candidate once more: `number` 0 for longer, the others from that many seeds further on."""

    candidate: Candidate
    number: int
    rung: int  # the whole length
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
        """The settings of training, with what is otherwise in this fit."""
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
        """What it will take, by the candidate's first fit: as many epochs, or, where there was no time for all, all of them."""
        cut = whole.get("planned") != whole.get("wanted")
        epochs = self.train["epochs"] if cut else self.factor * whole["epochs"]
        return MARGIN * epochs * float(whole["seconds"]) / max(int(whole["epochs"]), 1)


def final_fits(
    leading: Sequence[Candidate], base_seed: int, rung: int, *, fixed: Mapping[str, Any]
) -> Iterator[FinalFit]:
    """Train each leader for longer first, then with other seeds; if the user has set the number of epochs, none is trained for
    longer."""
    for number in range("epochs" in fixed, SEEDS + 1):
        for one in leading:
            yield FinalFit(one, number, rung, base_seed)


def leaders(every: Sequence[Candidate], done: Mapping[str, Record]) -> list[Candidate]:
    """The best on dev of those that are no variants, and the best variant, if it is ahead of that."""
    scores: dict[str, float] = {}
    for record in done.values():
        if record.get("dev") is not None:
            name = str(record.get("candidate", ""))
            scores[name] = max(float(record["dev"]), scores.get(name, float("-inf")))
    ranked = sorted((one for one in every if one.name in scores), key=lambda one: -scores[one.name])
    first = next((one for one in ranked if not one.variant), None)
    ahead = [] if first is None else [one for one in ranked[: ranked.index(first)] if one.variant]
    return [] if first is None else [first, *ahead[:1]]
