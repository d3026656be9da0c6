"""The pieces of an A-NHP: the matrices of a layer with its optional sublayers, and what an encoded history offers to queries."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from foretell.models.attention.hawkes_part import Excitation
from foretell.models.attention.structure import Activation, AnhpOptions
from foretell.models.calendar import NO_INPUTS, QueryCovariates
from foretell.nn.attention import Ages, Visible
from foretell.sampling.bounds.values import Value, affine, gelu, layer_norm, relu, tanh


class Sublayers(nn.Module):
    """What may follow the residual connection of a layer (paper, appendix A, "simplification")."""

    def __init__(self, dim: int, layer_norm: bool, feed_forward: int, activation: Activation = "relu") -> None:
        super().__init__()
        self.activation = activation
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(1 + (feed_forward > 0))) if layer_norm else None
        self.expand = _unfilled(dim, feed_forward) if feed_forward else None
        self.contract = _unfilled(feed_forward, dim) if feed_forward else None

    @property
    def is_plain(self) -> bool:
        """No sublayers: only equation 1."""
        return self.norms is None and self.expand is None

    def start(self, generator: torch.Generator) -> None:
        with torch.no_grad():
            for linear in (self.expand, self.contract):
                if linear is not None:
                    for parameter in linear.parameters():
                        parameter.uniform_(-1.0, 1.0, generator=generator).div_(math.sqrt(linear.in_features))

    def after(self, x: Value, drop: Dropout | None = None) -> Value:
        if self.norms is not None:
            x = layer_norm(self.norms[0], x)
        if self.expand is not None and self.contract is not None:
            wide = affine(x, self.expand.weight, self.expand.bias)
            inner = gelu(wide) if self.activation == "gelu" else relu(wide)
            moved = affine(inner, self.contract.weight, self.contract.bias)
            x = x + (moved if drop is None else drop(moved))
            if self.norms is not None:
                x = layer_norm(self.norms[1], x)
        return x


class AttentionLayer(Sublayers):
    """`V, K, Q` of every head of one layer, how fast their logits fall with age where they do, and the optional sublayers."""

    def __init__(self, heads: int, size: int, width: int, options: AnhpOptions, dim: int) -> None:
        super().__init__(dim, options.layer_norm, options.feed_forward or 0, options.activation)
        self.V = nn.Parameter(torch.empty(heads, size, width))
        self.K = nn.Parameter(torch.empty(heads, size, width))
        self.Q = nn.Parameter(torch.empty(heads, size, width))
        self.log_decay = nn.Parameter(torch.zeros(heads)) if options.head_decay else None  # per unit of `time_scale`

    def decay(self, run: int, heads: int, unit: float) -> Tensor | None:
        """How fast the logits of a run's heads fall, in the data's unit of time: [heads]."""
        return None if self.log_decay is None else self.log_decay[run * heads : (run + 1) * heads].exp() / unit

    def combine(self, embedding: Value, attended: Value, drop: Dropout) -> Value:
        """The residual connection around `tanh` of the summed heads, then what was asked for beyond equation 1."""
        return self.after(embedding + drop(tanh(attended)), drop)

    def step(self, base: Tensor, moved: Value | None, attended: Value, drop: Dropout) -> Value:
        """`combine` of an embedding that is counted from its base vector, as is what it returns; `moved` is None while it is 0."""
        change = drop(tanh(attended))
        if self.is_plain:
            return change if moved is None else moved + change
        return self.after(change + base if moved is None else moved + base + change, drop) - base


def _unfilled(inputs: int, outputs: int) -> nn.Linear:
    """Without numbers yet: nn.Linear would draw them from the process's random state, which is not ours to move."""
    linear = nn.utils.skip_init(nn.Linear, inputs, outputs)
    assert isinstance(linear, nn.Linear)
    return linear


class Dropout:
    """Dropout whose noise comes from a generator that is handed in, so that a run can be repeated and resumed."""

    def __init__(self, share: float, generator: torch.Generator | None) -> None:
        self.share, self.generator = share, generator

    def __call__(self, x: Value) -> Value:
        if self.share == 0.0:
            return x
        assert isinstance(x, Tensor), "no bound is asked for under dropout"
        kept = torch.rand(x.shape, generator=self.generator, device=x.device) >= self.share
        return x * kept / (1.0 - self.share)


@dataclass(frozen=True)
class QueryRows:
    """What looks at a table: its embedding is `base + embedding`, of which either may be nothing."""

    time: Tensor  # [B, Q, features]
    embedding: Tensor | None  # [B, Q, D]
    base: Tensor | None  # [D]
    visible: Visible
    ages: Ages


@dataclass(frozen=True)
class Parts:
    by_time: Tensor  # [heads, D, width of [1; time]]
    by_embedding: Tensor  # [heads, D, D]


@dataclass(frozen=True)
class LayerMatrices:
    K: Parts
    V: Parts
    Q: Parts


@dataclass(frozen=True)
class FoldedKeys:
    """Keys times Q, in the two parts that meet [1; time] and the embedding of a query."""

    by_time: Tensor  # [B, N + 1, width of [1; time]]
    by_embedding: Tensor  # [B, N + 1, D]

    def based_on(self, base: Tensor) -> Tensor:
        """`by_time` for queries whose embedding is counted from `base`: its share is a constant, and joins the 1."""
        level = (self.by_embedding @ base).unsqueeze(-1)
        return self.by_time + F.pad(level, (0, self.by_time.shape[-1] - 1))


@dataclass(frozen=True)
class KeyTable:
    """What a run of heads of one layer offers to queries: keys (divided by the root of their size) and values, the null row first."""

    keys: Tensor  # [B, N + 1, D], or [B, heads, N + 1, D / heads]
    values: Tensor
    folded: FoldedKeys | None
    hidden: Tensor | None  # bool [B, N + 1]: True where this head must not look


@dataclass(frozen=True)
class AttentionHistory:
    """The encoded events: `tables[layer][run]`, their times, and the layers' embeddings of the events themselves."""

    times: Tensor  # float64 [B, N + 1], behind the null event, and a `bos` where there is one
    tables: list[list[KeyTable]]
    embeddings: list[
        Tensor
    ]  # layers 0 … as far as they were computed; the null event first, then a `bos` where there is one
    excitation: Excitation | None = None  # where there is a Hawkes part
    query: QueryCovariates = NO_INPUTS
