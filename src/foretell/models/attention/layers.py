"""The parts of an A-NHP: the matrices of a layer with its optional sublayers, and the tables of an encoded history for queries."""

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
    """The optional sublayers after the residual connection of a layer (paper, appendix A, "simplification")."""

    def __init__(self, dim: int, layer_norm: bool, feed_forward: int, activation: Activation = "relu") -> None:
        super().__init__()
        self.activation = activation
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(1 + (feed_forward > 0))) if layer_norm else None
        self.expand = _unfilled(dim, feed_forward) if feed_forward else None
        self.contract = _unfilled(feed_forward, dim) if feed_forward else None

    @property
    def is_plain(self) -> bool:
        """Whether there are no sublayers, so that a layer is equation 1 alone."""
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
    """`V, K, Q` of every head of one layer, optional rates at which logits decay with age, and the optional sublayers."""

    def __init__(self, heads: int, size: int, width: int, options: AnhpOptions, dim: int) -> None:
        super().__init__(dim, options.layer_norm, options.feed_forward or 0, options.activation)
        self.V = nn.Parameter(torch.empty(heads, size, width))
        self.K = nn.Parameter(torch.empty(heads, size, width))
        self.Q = nn.Parameter(torch.empty(heads, size, width))
        self.log_decay = nn.Parameter(torch.zeros(heads)) if options.head_decay else None  # per `time_scale`

    def decay(self, run: int, heads: int, unit: float) -> Tensor | None:
        """Return the decay rates of the logits of a run's heads, in the data's unit of time, [heads]; None: no decay."""
        return None if self.log_decay is None else self.log_decay[run * heads : (run + 1) * heads].exp() / unit

    def combine(self, embedding: Value, attended: Value, drop: Dropout) -> Value:
        """Return the layer's output: the residual connection around `tanh` of the summed heads, then the sublayers, if any."""
        return self.after(embedding + drop(tanh(attended)), drop)

    def step(self, base: Tensor, moved: Value | None, attended: Value, drop: Dropout) -> Value:
        """Compute `combine` for an embedding `base + moved`, and return the result minus `base`. `moved` None means 0."""
        change = drop(tanh(attended))
        if self.is_plain:
            return change if moved is None else moved + change
        return self.after(change + base if moved is None else moved + base + change, drop) - base


def _unfilled(inputs: int, outputs: int) -> nn.Linear:
    """Return a linear map without initial values: nn.Linear would draw them from the global random state, which must not change."""
    linear = nn.utils.skip_init(nn.Linear, inputs, outputs)
    assert isinstance(linear, nn.Linear)
    return linear


class Dropout:
    """Dropout with random numbers from its own generator, so that a run can be repeated and resumed."""

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
    """Queries of a table. Their embedding is `base + embedding`, of which either may be None."""

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
    """Keys times Q, split into the part for [1; time] and the part for the embedding of a query."""

    by_time: Tensor  # [B, N + 1, width of [1; time]]
    by_embedding: Tensor  # [B, N + 1, D]

    def based_on(self, base: Tensor) -> Tensor:
        """Return `by_time` for queries whose embedding lacks `base`: the term of `base` is constant and is added to the column of 1."""
        level = (self.by_embedding @ base).unsqueeze(-1)
        return self.by_time + F.pad(level, (0, self.by_time.shape[-1] - 1))


@dataclass(frozen=True)
class KeyTable:
    """Keys (divided by the root of their size) and values of a run of heads in one layer; the null row comes first."""

    keys: Tensor  # [B, N + 1, D], or [B, heads, N + 1, D / heads]
    values: Tensor
    folded: FoldedKeys | None
    hidden: Tensor | None  # bool [B, N + 1]: True for events that this head does not see


@dataclass(frozen=True)
class AttentionHistory:
    """The encoded events: `tables[layer][run]`, the times, and the embeddings of the events at each computed layer."""

    times: Tensor  # float64 [B, N + 1]: the null event, `bos` if there is one, then the events
    tables: list[list[KeyTable]]
    embeddings: list[Tensor]  # layers 0 to the last computed one; the null event first, then `bos` if there is one
    excitation: Excitation | None = None  # None: no Hawkes part
    query: QueryCovariates = NO_INPUTS
