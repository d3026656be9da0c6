"""A-NHP from its equations (paper, sections 2-4 and appendix A): named arrays in, embeddings and intensities out.

Each function is one equation, for one event at a time, by recursion over layers and loops over the history.
The arrays are those of `named_arrays()`, in float64; gradients flow back to the tensors that they were made
from. `w` and `τ` are in the data's own unit.

A *kind* is an embedded event, observed or possible, named by its base vector: `embed.TYPE` for an event type, `coarse.NAME` for a
coarse type (appendix A, "coarse event embeddings"). With `bos=True`, every history starts with an event `bos` at time 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from foretell.reference.calendar import SlowCalendar
from foretell.reference.covariates import SlowCovariates, with_event, with_query
from foretell.reference.events import Event, History

Kind = str | Event
BOS = Event("bos", 0.0)
NORM_EPSILON = 1e-5  # inside LayerNorm's square root


def last_time(history: History) -> float:
    """Return the time of the last event, or 0, when the sequence began."""
    return history[-1].time if history else 0.0


def base_name(kind: Kind) -> str:
    """Return the name of a kind's base vector."""
    return f"embed.{kind.type}" if isinstance(kind, Event) else kind


class Head(NamedTuple):
    """One set of `V, K, Q`, and the type that it attends to (None: all types)."""

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
    coarse: Mapping[str, str] | None = None  # coarse type by type; None: each type has its own embedding
    heads: int = 1  # number of heads, in total or per edge
    edges: Sequence[tuple[str, str]] | None = None  # `e <- f` as (e, f); None: every type sees every type
    bos: bool = False
    layer_norm: bool = False
    feed_forward: bool = False
    activation: Literal["relu", "gelu"] = "relu"
    split: bool = False  # heads of size D / heads, side by side, instead of heads of size D, summed
    elapsed: int = 0  # time scales on which keys and queries see the time since the last event
    scales: int = 0  # number of time scales of the mixture that multiplies intensities
    short: float = 1.0  # shortest time scale; `long` is the longest
    long: float = 1.0
    unit: float = 1.0  # the mean gap
    periods: Sequence[float] = ()  # keys and queries see the phase of each period since the last event; 0: unset
    covariates: SlowCovariates | None = None
    calendar: SlowCalendar | None = None
    memo: dict[tuple[object, ...], Tensor] = field(default_factory=dict, repr=False, compare=False)

    # The generative model (section 3)

    def intensity(self, type: str, time: float, history: History) -> Tensor:
        """Equation 5: `λ_e(t) = τ log(1 + exp(w·[1; emb]/τ))`, from the top layer's embedding of the (coarse) type."""
        kind = f"embed.{type}" if self.coarse is None else f"coarse.{self.coarse[type]}"
        top = self.embedding(kind, time, self.with_bos(history), self.layers)
        top = with_query(top, self.covariates, time, self.calendar)
        w, tau = self.arrays[f"intensity.{type}.w"], self.arrays[f"intensity.{type}.tau"]
        score = torch.dot(w, torch.cat([torch.ones(1, dtype=torch.float64), top]))
        own = tau * torch.log(1.0 + torch.exp(score / tau)) * self.mixed(top, time - last_time(history))
        return own + self.excited(type, top, time, history)

    def excited(self, type: str, top: Tensor, time: float, history: History) -> Tensor:
        """Return the Hawkes part: `(1 + tanh(½ g_e·[1; emb]))·Σ_s Σ_j α_efj exp(−β_j(t−s))`."""
        raised = torch.zeros((), dtype=torch.float64)
        if "hawkes.alpha" not in self.arrays:
            return raised
        own = list(self.types).index(type)
        for event in history:
            alpha = self.arrays["hawkes.alpha"][own, list(self.types).index(event.type)]
            for number, beta in enumerate(self.arrays["hawkes.beta"].tolist()):
                raised = raised + alpha[number] * math.exp(-beta * (time - event.time))
        column = torch.cat([torch.ones(1, dtype=torch.float64), top])
        return (1.0 + torch.tanh(0.5 * torch.dot(self.arrays["hawkes.gain"][own], column))) * raised

    def mixed(self, top: Tensor, elapsed: float) -> Tensor:
        """Return the mixture over time scales: `1 + Σ_j softplus(v_j·[1; emb])·exp(−u/s_j)·unit/s_j`."""
        found = torch.ones((), dtype=torch.float64)
        for number, scale in enumerate(self.time_scales(self.scales)):
            score = torch.dot(self.arrays["mixture.w"][number], torch.cat([torch.ones(1, dtype=torch.float64), top]))
            found = found + torch.log(1.0 + torch.exp(score)) * math.exp(-elapsed / scale) * self.unit / scale
        return found

    def time_scales(self, count: int) -> list[float]:
        """Return time scales that are evenly spaced in the logarithm."""
        if count == 1:
            return [self.short]
        return [self.short * (self.long / self.short) ** (number / (count - 1)) for number in range(count)]

    def event_embedding(self, sequence: History, index: int, layer: int) -> Tensor:
        """Return the embedding of an event that happened, from the events before it."""
        event = sequence[index]
        return self.embedding(event, event.time, self.with_bos(sequence[:index]), layer)

    def with_bos(self, history: History) -> History:
        return (BOS, *history) if self.bos else history

    # Embeddings (sections 2 and 4)

    def embedding(self, kind: Kind, time: float, history: History, layer: int) -> Tensor:
        """Equation 1, with the heads summed inside the `tanh` as in equation 7; layer 0 is the kind's base vector."""
        if layer == 0:
            vector = self.arrays[base_name(kind)]
            return with_event(vector, self.covariates, kind, self.calendar) if isinstance(kind, Event) else vector
        key = ("embedding", kind, time, history, layer)
        if key not in self.memo:
            attended = torch.zeros(self.dim, dtype=torch.float64)
            for number, head in enumerate(self.heads_of(kind)):
                attended = attended + self.placed(self.attended(head, kind, time, history, layer), number)
            residual = self.embedding(kind, time, history, layer - 1)
            self.memo[key] = self.sublayers(residual + torch.tanh(attended), layer)
        return self.memo[key]

    def placed(self, out: Tensor, number: int) -> Tensor:
        """Return the output of a head as a vector of size D: with `split`, the smaller outputs of heads are concatenated."""
        if not self.split:
            return out
        before = (number % self.heads) * len(out)
        return torch.cat([out.new_zeros(before), out, out.new_zeros(self.dim - before - len(out))])

    def decay(self, head: Head, layer: int) -> Tensor:
        """Return how fast the logits of a head fall with an event's age."""
        return self.arrays.get(f"attend.{head.name}.{layer}.decay", torch.zeros((), dtype=torch.float64))

    def attended(self, head: Head, kind: Kind, time: float, history: History, layer: int) -> Tensor:
        """Equation 8: `Σ v α / (1 + Σ α)` over the events that are visible to the head."""
        query = self.projected("Q", head, kind, time, history, layer)
        numerator = torch.zeros(len(query), dtype=torch.float64)
        denominator = torch.ones((), dtype=torch.float64)
        for index, event in enumerate(history):
            if head.sees is None or event.type == head.sees or event is BOS:
                past = (event, event.time, history[:index])
                key = self.projected("K", head, *past, layer)
                value = self.projected("V", head, *past, layer)
                logit = torch.dot(key, query) / math.sqrt(len(query))  # equation 2
                alpha = torch.exp(logit - self.decay(head, layer) * (time - event.time))
                numerator = numerator + alpha * value
                denominator = denominator + alpha
        return numerator / denominator

    def projected(
        self, letter: Literal["V", "K", "Q"], head: Head, kind: Kind, time: float, history: History, layer: int
    ) -> Tensor:
        """Equation 3: a matrix of the head and layer times `[1; time; embedding of the layer below]`."""
        key = (letter, head, kind, time, history, layer)
        if key not in self.memo:
            one = torch.ones(1, dtype=torch.float64)
            below = self.embedding(kind, time, history, layer - 1)
            since = self.elapsed_features(time - last_time(history))
            column = torch.cat([one, self.time_embedding(time), since, below])
            self.memo[key] = self.arrays[f"attend.{head.name}.{layer}.{letter}"] @ column
        return self.memo[key]

    def time_embedding(self, time: float) -> Tensor:
        """Equation 4."""
        components = []
        for d in range(self.time_dim):
            wave = self.m * (5.0 * self.M / self.m) ** (2 * (d // 2) / self.time_dim)
            components.append(math.sin(time / wave) if d % 2 == 0 else math.cos(time / wave))
        return torch.tensor(components, dtype=torch.float64)

    def elapsed_features(self, elapsed: float) -> Tensor:
        """Return `exp(−u/s)` on every scale, `log(1 + u/s)` divided by its value at the longest scale, sines and cosines of the periods."""
        scales = self.time_scales(self.elapsed)
        exponentials = [math.exp(-elapsed / scale) for scale in scales]
        logarithms = [math.log1p(elapsed / scale) / math.log1p(self.long / scale) for scale in scales]
        sines = [math.sin(2.0 * math.pi * elapsed / period) if period else 0.0 for period in self.periods]
        cosines = [math.cos(2.0 * math.pi * elapsed / period) if period else 0.0 for period in self.periods]
        return torch.tensor(exponentials + logarithms + sines + cosines, dtype=torch.float64)

    def heads_of(self, kind: Kind) -> list[Head]:
        """Return the heads of a kind: all heads, or those of its own edges `e <- f` (section 4)."""
        if self.edges is None:
            return [Head(f"head{n + 1}", None) for n in range(self.heads)]
        space, _, name = base_name(kind).partition(".")
        reader = name
        if space == "coarse":  # it sees what its members see, which is equal for all of them
            assert self.coarse is not None
            reader = next(type for type in self.types if self.coarse[type] == name)
        copies = [f"#{n + 1}" for n in range(self.heads)] if self.heads > 1 else [""]
        return [Head(f"{name}<-{f}{copy}", f) for e, f in self.edges if e == reader for copy in copies]

    # Beyond equation 1 (appendix A, "simplification")

    def sublayers(self, x: Tensor, layer: int) -> Tensor:
        """Return `x = LN(x)`, then `LN(x + FFN(x))`; each part only if the settings have it."""
        x = self.normed(x, f"layer.{layer}.norms.0")
        if not self.feed_forward:
            return x
        inside = self.activated(self.linear(x, f"layer.{layer}.expand"))
        return self.normed(x + self.linear(inside, f"layer.{layer}.contract"), f"layer.{layer}.norms.1")

    def activated(self, x: Tensor) -> Tensor:
        if self.activation == "relu":
            return torch.relu(x)
        return x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))

    def normed(self, x: Tensor, name: str) -> Tensor:
        if not self.layer_norm:
            return x
        away = x - x.mean()
        spread = torch.sqrt((away * away).mean() + NORM_EPSILON)
        return self.arrays[f"{name}.weight"] * away / spread + self.arrays[f"{name}.bias"]

    def linear(self, x: Tensor, name: str) -> Tensor:
        return self.arrays[f"{name}.weight"] @ x + self.arrays[f"{name}.bias"]
