"""THP from its equation: `λ_e(t) = τ log(1 + exp(w·[1; (t−s)/s; emb]/τ))`, with the embedding of the last event, at time `s`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from foretell.reference.events import History
from foretell.reference.transformer import SlowEncoder, scaled_softplus


@dataclass(frozen=True)
class SlowTHP:
    encoder: SlowEncoder
    types: Sequence[str]

    def intensity(self, type: str, time: float, history: History) -> Tensor:
        """Return the intensity; before the first event, the last event is `bos` at time 0. The divisor `s` is at least `m`."""
        embedding = self.encoder.at_query(history)
        last = history[-1].time if history else 0.0
        elapsed = (time - last) / max(last, self.encoder.m)
        column = torch.cat([torch.tensor([1.0, elapsed], dtype=torch.float64), embedding])
        arrays = self.encoder.arrays
        tau = arrays[f"intensity.{type}.tau"]
        score = torch.dot(arrays[f"intensity.{type}.w"], column)
        return scaled_softplus(score + self.encoder.clocked(list(self.types).index(type), time, tau), tau)
