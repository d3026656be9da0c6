"""A causal transformer encoder (Vaswani et al. 2017, as in THP and SAHP): from a batch to embeddings of its events.

A `bos` at time 0 precedes the events. The input is a type's vector plus an encoding of the event's time. In each layer, an event attends
to itself and to earlier events (softmax, heads of `D / heads` components each), followed by the residual connection, LayerNorm and the
feed-forward sublayer. Nothing here depends on the unit of time. Phases are computed in float64.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from foretell.batches.batch import Batch
from foretell.models.attention.layers import Dropout, Sublayers
from foretell.models.covariates import plus
from foretell.nn.attention import Visible, attention_with_first
from foretell.nn.lookup import lookup
from foretell.nn.time import FULL_TURN, TimeEmbedding

Encoding = Literal["time", "shifted"]
PLACES = 10_000.0  # ratio of the slowest to the fastest wave of positions, as in other transformers


class ShiftedTime(TimeEmbedding):
    """SAHP's encoding: waves of an event's position in its sequence, shifted by its time.

    Component `d` is sin or cos of `i / 10000^(2⌊d/2⌋/dim) + t / (m·(5M/m)^(2⌊d/2⌋/dim))`, where `bos` has the position `i = 0`.
    """

    turns_per_place: Tensor

    def _build(self, device: torch.device) -> None:
        super()._build(device)
        component = torch.arange(self.dim, dtype=torch.float64, device=device)
        turns = PLACES ** (-2.0 * torch.floor(component / 2.0) / max(self.dim, 1)) / FULL_TURN
        self.register_buffer("turns_per_place", turns, persistent=False)

    def at_places(self, times: Tensor, places: Tensor, dtype: torch.dtype) -> Tensor:
        """Return the encoding [..., dim] in `dtype` for float64 times and positions [...]."""
        own = slice(1, 1 + self.dim)
        ahead = torch.addcmul(self.quarter_turns[own], places.unsqueeze(-1), self.turns_per_place)
        turns = torch.addcmul(ahead, times.unsqueeze(-1), self.turns_per_unit[own]).frac_()
        return turns.mul_(FULL_TURN).to(dtype).sin_()


class CausalLayer(Sublayers):
    """`Q, K, V` of all heads in one matrix, the matrix `O` that mixes the heads' outputs, and the sublayers."""

    def __init__(self, dim: int, heads: int, layer_norm: bool, feed_forward: int) -> None:
        super().__init__(dim, layer_norm, feed_forward)
        self.dim, self.heads = dim, heads
        self.QKV = nn.Parameter(torch.empty(3 * dim, dim))
        self.O = nn.Parameter(torch.empty(dim, dim))

    def projected(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries (already divided by the root of a head's size), keys and values: [..., D] each."""
        scaled = self.QKV[: self.dim] / math.sqrt(self.dim // self.heads)  # scales the matrix instead of all queries
        whole = torch.cat([scaled, self.QKV[self.dim :]])
        query, key, value = F.linear(x, whole).split(self.dim, dim=-1)
        return query, key, value

    def forward(self, x: Tensor, drop: Dropout) -> Tensor:
        """Map [B, N, D] to [B, N, D]; row `i` sees rows 0 … `i`."""
        query, key, value = (self._by_head(part) for part in self.projected(x))
        found = attention_with_first([query], [key], value, Visible(None, 1))
        return self.combine(x, self._side_by_side(found), drop)

    def combine(self, x: Tensor, found: Tensor, drop: Dropout) -> Tensor:
        return self.after(x + drop(F.linear(found, self.O)), drop)

    def _by_head(self, x: Tensor) -> Tensor:
        """Reshape [B, N, D] to [B·heads, N, D / heads]."""
        if self.heads == 1:
            return x
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2).flatten(0, 1)

    def _side_by_side(self, x: Tensor) -> Tensor:
        return x if self.heads == 1 else x.unflatten(0, (-1, self.heads)).transpose(1, 2).flatten(2)


class CausalEncoder(nn.Module):
    def __init__(
        self, types: int, *, dim: int, layers: int, heads: int, layer_norm: bool, feed_forward: int, encoding: Encoding
    ) -> None:
        super().__init__()
        self.types, self.dim = types, dim
        self.time = ShiftedTime(dim) if encoding == "shifted" else TimeEmbedding(dim)
        self.base = nn.Parameter(torch.empty(types + 1, dim))  # of every type and of `bos`
        self.layers = nn.ModuleList(CausalLayer(dim, heads, layer_norm, feed_forward) for _ in range(layers))

    def layer_list(self) -> list[CausalLayer]:
        return [layer for layer in self.layers if isinstance(layer, CausalLayer)]

    def start(self, generator: torch.Generator) -> None:
        with torch.no_grad():
            self.base.normal_(generator=generator)
            for layer in self.layer_list():
                for matrix in (layer.QKV, layer.O):
                    matrix.uniform_(-1.0, 1.0, generator=generator).div_(math.sqrt(self.dim))
                layer.start(generator)

    def forward(self, batch: Batch, drop: Dropout, added: Tensor | None = None) -> list[Tensor]:
        """Return embeddings at layers 0 … L: [B, N + 1, D] each, `bos` first. `added` is the term of covariates in the input."""
        types = F.pad(batch.types, (1, 0), value=self.types)
        places = torch.arange(types.shape[1], dtype=torch.float64, device=types.device)
        found = [plus(self.enter(types, batch.gap_start, places), added)]
        for layer in self.layer_list():
            found.append(layer(found[-1], drop))
        return found

    def enter(self, types: Tensor, times: Tensor, places: Tensor) -> Tensor:
        """Return layer 0 of events with these types, times and positions: [..., D]."""
        if isinstance(self.time, ShiftedTime):
            encoded = self.time.at_places(times, places, self.base.dtype)
        else:
            encoded = self.time(times, self.base.dtype)
        return lookup(self.base, types) + encoded

    def named_arrays(self, names: tuple[str, ...]) -> dict[str, Tensor]:
        """Return views of the parameters under their public names."""
        found = {f"embed.{name}": self.base[index] for index, name in enumerate(names)}
        found["bos"] = self.base[self.types]
        for number, layer in enumerate(self.layer_list(), start=1):
            for letter, whole in zip("QKV", layer.QKV.split(self.dim), strict=True):
                for head, matrix in enumerate(whole.split(self.dim // layer.heads), start=1):
                    found[f"attend.head{head}.{number}.{letter}"] = matrix
            for name, parameter in layer.named_parameters():
                if name == "O":
                    found[f"attend.{number}.O"] = parameter
                elif name != "QKV":
                    found[f"layer.{number}.{name}"] = parameter
        return found
