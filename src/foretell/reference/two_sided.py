"""The two-sided encoder and its masked objective as loops (paper, end of section 2): the slow twin of `models/attention/two_sided.py`.

The equations are those of `SlowANHP`, but the history differs: a matrix says which rows a row sees, before or after it. A *kind* is the
name of a row's base vector: `embed.TYPE`, `embed.mask` for a masked event, `question` for the row that summarises a sequence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from foretell.reference.anhp import Head, SlowANHP

BOS = "embed.bos"
UNTYPED = ("embed.mask", "question")


class Row(NamedTuple):
    kind: str
    time: float


@dataclass(frozen=True)
class SlowTwoSided:
    anhp: SlowANHP  # its arrays also have the vectors of the kinds `UNTYPED`
    rows: Sequence[Row]
    visible: Sequence[Sequence[bool]]  # True where the row sees the column
    memo: dict[tuple[object, ...], Tensor] = field(default_factory=dict, repr=False, compare=False)

    def embedding(self, place: int, layer: int) -> Tensor:
        """Equation 1; place -1 is `bos`, the event at time 0, if there is one."""
        if layer == 0:
            return self.anhp.arrays[self.row(place).kind]
        key = ("embedding", place, layer)
        if key not in self.memo:
            attended = torch.zeros(self.anhp.dim, dtype=torch.float64)
            for number, head in enumerate(self.heads_of(self.row(place).kind)):
                attended = attended + self.anhp.placed(self.attended(head, place, layer), number)
            residual = self.embedding(place, layer - 1)
            self.memo[key] = self.anhp.sublayers(residual + torch.tanh(attended), layer)
        return self.memo[key]

    def attended(self, head: Head, place: int, layer: int) -> Tensor:
        """Return `Σ v α / (1 + Σ α)` over the rows that this one sees through the head."""
        query = self.projected("Q", head, place, layer)
        numerator = torch.zeros(len(query), dtype=torch.float64)
        denominator = torch.ones((), dtype=torch.float64)
        for other in self.seen_by(place):
            kind = self.row(other).kind
            if head.sees is None or kind in (BOS, f"embed.{head.sees}"):
                key = self.projected("K", head, other, layer)
                age = abs(self.row(place).time - self.row(other).time)
                alpha = torch.exp(torch.dot(key, query) / math.sqrt(len(query)) - self.anhp.decay(head, layer) * age)
                numerator = numerator + alpha * self.projected("V", head, other, layer)
                denominator = denominator + alpha
        return numerator / denominator

    def projected(self, letter: Literal["V", "K", "Q"], head: Head, place: int, layer: int) -> Tensor:
        key = (letter, head, place, layer)
        if key not in self.memo:
            one = torch.ones(1, dtype=torch.float64)
            time = self.anhp.time_embedding(self.row(place).time)
            before = [other for other in self.seen_by(place) if other < place]
            since = self.row(before[-1]).time if before else 0.0
            elapsed = self.anhp.elapsed_features(self.row(place).time - since)
            column = torch.cat([one, time, elapsed, self.embedding(place, layer - 1)])
            self.memo[key] = self.anhp.arrays[f"attend.{head.name}.{layer}.{letter}"] @ column
        return self.memo[key]

    def row(self, place: int) -> Row:
        return Row(BOS, 0.0) if place < 0 else self.rows[place]

    def seen_by(self, place: int) -> list[int]:
        if place < 0:
            return []
        first = [-1] if self.anhp.bos else []
        return [*first, *(other for other in range(len(self.rows)) if self.visible[place][other])]

    def heads_of(self, kind: str) -> list[Head]:
        """Return the heads of a kind. A row without a type uses the heads of every type."""
        if self.anhp.edges is None or kind not in UNTYPED:
            return self.anhp.heads_of(kind)
        return [head for type in self.anhp.types for head in self.anhp.heads_of(f"embed.{type}")]


def all_others(count: int, removed: Sequence[bool]) -> list[list[bool]]:
    """Return the matrix in which every event sees all other events that were not removed."""
    return [[other != place and not removed[other] for other in range(count)] for place in range(count)]


def log_probability(embedding: Tensor, weight: Tensor, level: Tensor, outcome: int) -> Tensor:
    """Return `log softmax(weight·embedding + level)` of one outcome."""
    scores = torch.stack([torch.dot(row, embedding) + one for row, one in zip(weight, level, strict=True)])
    return scores[outcome] - torch.log(torch.exp(scores).sum())
