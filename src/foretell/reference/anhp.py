"""A-NHP from its equations (paper, sections 2-4 and appendix A): named arrays in, embeddings and intensities out.

One function is one equation, one event at a time, by recursion over layers and loops over the history.
The arrays are those of `named_arrays()`, in float64, so that gradients flow back to whatever they were made
from; `w` and `τ` are in the data's own unit.

A *kind* is what is embedded, known by the name of its base vector: `embed.TYPE` for an event type,
`coarse.NAME` for a coarse type (appendix A, "coarse event embeddings"), `embed.bos` for the event at time 0
that is first in every history where it is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from foretell.reference.events import Event, History

BOS = Event("bos", 0.0)
NORM_EPSILON = 1e-5  # inside LayerNorm's square root


class Head(NamedTuple):
    """One set of `V, K, Q`, and the one type that is seen through it (None: all of them)."""

    name: str
    sees: str | None


@dataclass(frozen=True)
class SlowANHP:
    arrays: Mapping[str, Tensor]
    types: Sequence[str]
    dim: int  # D
    layers: int  # L
    time_dim: int
    m: float
    M: float
    coarse: Mapping[str, str] | None = None  # from type to coarse type; None: each type embeds itself
    heads: int = 1  # in all, or of each edge
    edges: Sequence[tuple[str, str]] | None = None  # `e <- f` as (e, f); None: everything sees everything
    bos: bool = False
    layer_norm: bool = False
    feed_forward: bool = False
    memo: dict[tuple[object, ...], Tensor] = field(default_factory=dict, repr=False, compare=False)

    # The generative model (section 3)

    def intensity(self, type: str, time: float, history: History) -> Tensor:
        """Equation 5: `λ_e(t) = τ log(1 + exp(w·[1; emb]/τ))`, from the top layer's embedding of the (coarse) type."""
        kind = f"embed.{type}" if self.coarse is None else f"coarse.{self.coarse[type]}"
        top = self.embedding(kind, time, self.with_bos(history), self.layers)
        w, tau = self.arrays[f"intensity.{type}.w"], self.arrays[f"intensity.{type}.tau"]
        score = torch.dot(w, torch.cat([torch.ones(1, dtype=torch.float64), top]))
        return tau * torch.log(1.0 + torch.exp(score / tau))

    def event_embedding(self, sequence: History, index: int, layer: int) -> Tensor:
        """The embedding of an event that happened, from the events before it."""
        event = sequence[index]
        return self.embedding(f"embed.{event.type}", event.time, self.with_bos(sequence[:index]), layer)

    def with_bos(self, history: History) -> History:
        return (BOS, *history) if self.bos else history

    # Embeddings (sections 2 and 4)

    def embedding(self, kind: str, time: float, history: History, layer: int) -> Tensor:
        """Equation 1, with the heads summed inside the `tanh` as in equation 7; layer 0 is the kind's base vector."""
        if layer == 0:
            return self.arrays[kind]
        key = ("embedding", kind, time, history, layer)
        if key not in self.memo:
            attended = torch.zeros(self.dim, dtype=torch.float64)
            for head in self.heads_of(kind):
                attended = attended + self.attended(head, kind, time, history, layer)
            residual = self.embedding(kind, time, history, layer - 1)
            self.memo[key] = self.sublayers(residual + torch.tanh(attended), layer)
        return self.memo[key]

    def attended(self, head: Head, kind: str, time: float, history: History, layer: int) -> Tensor:
        """Equation 8: `Σ v α / (1 + Σ α)` over the events that the head makes visible."""
        query = self.projected("Q", head, kind, time, history, layer)
        numerator = torch.zeros(self.dim, dtype=torch.float64)
        denominator = torch.ones((), dtype=torch.float64)
        for index, event in enumerate(history):
            if head.sees is None or event.type == head.sees or event is BOS:
                past = (f"embed.{event.type}", event.time, history[:index])
                key = self.projected("K", head, *past, layer)
                value = self.projected("V", head, *past, layer)
                alpha = torch.exp(torch.dot(key, query) / math.sqrt(self.dim))  # equation 2
                numerator = numerator + alpha * value
                denominator = denominator + alpha
        return numerator / denominator

    def projected(
        self, letter: Literal["V", "K", "Q"], head: Head, kind: str, time: float, history: History, layer: int
    ) -> Tensor:
        """Equation 3: a matrix of the head and layer times `[1; time; embedding of the layer below]`."""
        key = (letter, head, kind, time, history, layer)
        if key not in self.memo:
            one = torch.ones(1, dtype=torch.float64)
            below = self.embedding(kind, time, history, layer - 1)
            column = torch.cat([one, self.time_embedding(time), below])
            self.memo[key] = self.arrays[f"attend.{head.name}.{layer}.{letter}"] @ column
        return self.memo[key]

    def time_embedding(self, time: float) -> Tensor:
        """Equation 4."""
        components = []
        for d in range(self.time_dim):
            wave = self.m * (5.0 * self.M / self.m) ** (2 * (d // 2) / self.time_dim)
            components.append(math.sin(time / wave) if d % 2 == 0 else math.cos(time / wave))
        return torch.tensor(components, dtype=torch.float64)

    def heads_of(self, kind: str) -> list[Head]:
        """Through what a kind looks back: every head there is, or those of its own edges `e <- f` (section 4)."""
        if self.edges is None:
            return [Head(f"head{n + 1}", None) for n in range(self.heads)]
        space, _, name = kind.partition(".")
        reader = name
        if space == "coarse":  # it sees what its members see, and they all see the same
            assert self.coarse is not None
            reader = next(type for type in self.types if self.coarse[type] == name)
        copies = [f"#{n + 1}" for n in range(self.heads)] if self.heads > 1 else [""]
        return [Head(f"{name}<-{f}{copy}", f) for e, f in self.edges if e == reader for copy in copies]

    # Beyond equation 1 (appendix A, "simplification")

    def sublayers(self, x: Tensor, layer: int) -> Tensor:
        """`x = LN(x)`, then `LN(x + FFN(x))`; each part only where it was asked for."""
        x = self.normed(x, f"layer.{layer}.norms.0")
        if not self.feed_forward:
            return x
        inside = torch.relu(self.linear(x, f"layer.{layer}.expand"))
        return self.normed(x + self.linear(inside, f"layer.{layer}.contract"), f"layer.{layer}.norms.1")

    def normed(self, x: Tensor, name: str) -> Tensor:
        if not self.layer_norm:
            return x
        away = x - x.mean()
        spread = torch.sqrt((away * away).mean() + NORM_EPSILON)
        return self.arrays[f"{name}.weight"] * away / spread + self.arrays[f"{name}.bias"]

    def linear(self, x: Tensor, name: str) -> Tensor:
        return self.arrays[f"{name}.weight"] @ x + self.arrays[f"{name}.bias"]
