"""A causal transformer encoder from its equations (Vaswani et al. 2017): named arrays in, embeddings of events out.

It computes one event at a time, by recursion over layers and loops over the history. Every sequence starts with `bos` at time 0. The
arrays are those of `named_arrays()`, in float64; gradients flow back to the tensors that they were made from.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from foretell.reference.calendar import SlowCalendar
from foretell.reference.covariates import SlowCovariates, with_event, with_query
from foretell.reference.events import Event, History

NORM_EPSILON = 1e-5  # inside LayerNorm's square root


@dataclass(frozen=True)
class SlowEncoder:
    arrays: Mapping[str, Tensor]
    dim: int  # D
    layers: int
    heads: int
    m: float
    M: float
    layer_norm: bool
    feed_forward: bool
    shifted: bool  # True: encoding of an event's position, shifted by its time (SAHP); False: of its time (THP)
    covariates: SlowCovariates | None = None
    calendar: SlowCalendar | None = None
    memo: dict[tuple[object, ...], Tensor] = field(default_factory=dict, repr=False, compare=False)

    def embedding(self, sequence: History, place: int, layer: int) -> Tensor:
        """Return the embedding of event number `place`, from 1, or of `bos`, 0; an event sees itself and the events before it."""
        key = ("embedding", sequence[:place], layer)
        if key not in self.memo:
            self.memo[key] = self.entering(sequence, place) if layer == 0 else self.layered(sequence, place, layer)
        return self.memo[key]

    def entering(self, sequence: History, place: int) -> Tensor:
        """Return the type's vector plus the encoding of the time."""
        event = Event("bos", 0.0) if place == 0 else sequence[place - 1]
        vector = self.arrays["bos" if place == 0 else f"embed.{event.type}"]
        return with_event(vector, self.covariates, event, self.calendar) + self.encoding(event.time, place)

    def at_query(self, history: History) -> Tensor:
        """Return the top embedding of the last event, from which intensities are computed."""
        return with_query(self.embedding(history, len(history), self.layers), self.covariates)

    def clocked(self, place: int, time: float, tau: Tensor) -> Tensor:
        """Return the calendar's term in the score of the type with this number, in units of `τ`."""
        if self.calendar is None:
            return torch.zeros((), dtype=torch.float64)
        return tau * self.calendar.of_query(time)[place]

    def encoding(self, time: float, place: int) -> Tensor:
        components = []
        for d in range(self.dim):
            exponent = 2 * (d // 2) / self.dim
            phase = time / (self.m * (5.0 * self.M / self.m) ** exponent)
            if self.shifted:
                phase += place / 10_000.0**exponent
            components.append(math.sin(phase) if d % 2 == 0 else math.cos(phase))
        return torch.tensor(components, dtype=torch.float64)

    def layered(self, sequence: History, place: int, layer: int) -> Tensor:
        """Combine the outputs of the heads by `O`; then apply the residual connection, LayerNorm and the feed-forward sublayer."""
        found = torch.cat([self.attended(head, sequence, place, layer) for head in range(1, self.heads + 1)])
        below = self.embedding(sequence, place, layer - 1)
        x = self.normed(below + self.arrays[f"attend.{layer}.O"] @ found, f"layer.{layer}.norms.0")
        if not self.feed_forward:
            return x
        inside = torch.relu(self.linear(x, f"layer.{layer}.expand"))
        return self.normed(x + self.linear(inside, f"layer.{layer}.contract"), f"layer.{layer}.norms.1")

    def attended(self, head: int, sequence: History, place: int, layer: int) -> Tensor:
        """Return softmax attention over the events 0 … `place`."""
        query = self.projected("Q", head, sequence, place, layer)
        numerator = torch.zeros(self.dim // self.heads, dtype=torch.float64)
        denominator = torch.zeros((), dtype=torch.float64)
        for earlier in range(place + 1):
            key = self.projected("K", head, sequence, earlier, layer)
            weight = torch.exp(torch.dot(query, key) / math.sqrt(self.dim // self.heads))
            numerator = numerator + weight * self.projected("V", head, sequence, earlier, layer)
            denominator = denominator + weight
        return numerator / denominator

    def projected(self, letter: str, head: int, sequence: History, place: int, layer: int) -> Tensor:
        key = (letter, head, sequence[:place], layer)
        if key not in self.memo:
            below = self.embedding(sequence, place, layer - 1)
            self.memo[key] = self.arrays[f"attend.head{head}.{layer}.{letter}"] @ below
        return self.memo[key]

    def normed(self, x: Tensor, name: str) -> Tensor:
        if not self.layer_norm:
            return x
        away = x - x.mean()
        spread = torch.sqrt((away * away).mean() + NORM_EPSILON)
        return self.arrays[f"{name}.weight"] * away / spread + self.arrays[f"{name}.bias"]

    def linear(self, x: Tensor, name: str) -> Tensor:
        return self.arrays[f"{name}.weight"] @ x + self.arrays[f"{name}.bias"]


def with_one(embedding: Tensor) -> Tensor:
    return torch.cat([torch.ones(1, dtype=torch.float64), embedding])


def scaled_softplus(x: Tensor, scale: Tensor) -> Tensor:
    """Return `scale·log(1 + exp(x/scale))`, exactly also for small values: THP's scores before a first event are far below 0."""
    return scale * torch.log1p(torch.exp(x / scale))
