"""Whether fused kernels can compute an A-NHP's training loss, and the inputs of these kernels.

All tables of a layer are one product: `rows @ matrix` with `rows = [1; time; embedding]`. A key times a query's matrix Q is linear in
the row of the event, so the matrix of a layer is `KᵀQ/sqrt(D)` beside `Vᵀ`. The base vector of the queries is added to a constant column.
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from foretell.batches.batch import Batch
from foretell.models.attention.fused_default import default_losses, has_default_layers
from foretell.nn.fused.available import kernels_run_on
from foretell.nn.fused.loss import LARGEST, MOST_TYPES, SMALLEST, LossLayout, LossQueries, fused_loss, power_of_two

if TYPE_CHECKING:
    from foretell.models.attention.anhp import ANHP

MOST_PLAIN, MOST_DEFAULT = 1 << 21, 1 << 18  # queries per call


def is_fused(model: ANHP) -> bool:
    """Return whether the fused kernels can be used: one query embedding, heads that see all types, float32, no dropout, a GPU with Triton,
    and plain or default layers.
    """
    return (
        kernels_run_on(model.device)
        and model.dtype == torch.float32
        and _is_usual(model)
        and (_has_plain_layers(model) or has_default_layers(model))
    )


def _is_usual(model: ANHP) -> bool:
    return (
        len(model.structure.groups) == 1
        and model.options.edges is None
        and model.covariates is None
        and model.calendar is None
        and model.hawkes is None
        and not (model.dropout and model.training)
        and SMALLEST <= model.dim <= LARGEST
        and model.dim == power_of_two(model.dim)
        and model.types <= MOST_TYPES
    )


def _has_plain_layers(model: ANHP) -> bool:
    """Whether layers have the paper's equations only."""
    return (
        model.is_plain
        and not (model.elapsed.count or model.scales.count)
        and all(layer.is_plain for layer in model.layer_list())
        and model.time_dim <= LARGEST
    )


def fused_queries(model: ANHP) -> int:
    """Return the number of queries per call: kernels keep four vectors per query with plain layers, and about forty with the default
    layers."""
    return MOST_PLAIN if _has_plain_layers(model) else MOST_DEFAULT


def fused_losses(
    model: ANHP, batch: Batch, inside: Tensor, weights: Tensor, pseudo_rate: float
) -> tuple[Tensor, Tensor]:
    """Return the objective and the negative log-likelihood; the integral uses the times `inside` the gaps [B, (N + 1)·P]."""
    if not _has_plain_layers(model):
        return default_losses(model, batch, inside, weights, pseudo_rate)
    layout = LossLayout(len(model.structure.heads), model.dim, model.time_dim)
    base = model.bases()[0]
    asked = LossQueries(
        batch.times,
        batch.types,
        batch.event_counts,
        batch.gap_end,
        inside.contiguous(),
        weights.contiguous(),
        model.time.turns_per_unit[1:],
        model.time.quarter_turns[1:],
        model.options.bos,
        -math.log(model.time_scale),
        pseudo_rate,
    )
    vectors = model.fine if model.bos_base is None else torch.cat([model.fine, model.bos_base])
    constant = torch.addmv(model.w_constant, model.w, base)
    return fused_loss(asked, layout, matrices(model, layout, base), vectors, model.w, constant, model.log_tau)


def matrices(model: ANHP, layout: LossLayout, base: Tensor) -> Tensor:
    """Return the matrices of all layers: [L, 4 + T + D, heads·width]."""
    layers = model.layer_list()
    K, V, Q = (torch.cat([getattr(layer, name) for layer in layers]) for name in "KVQ")  # [L·heads, D, 1 + T + D] each
    fixed, level = _arrangement(layout.time_dim, layout.time_width, layout.dim, base.dtype, base.device)
    arrangement = torch.addr(fixed, F.pad(base, (1 + layout.time_dim, 0)), level)
    keys = torch.baddbmm(K.new_empty(1, 1, 1), K.mT, Q @ arrangement, beta=0.0, alpha=1.0 / math.sqrt(model.dim))
    both = F.pad(torch.cat([keys, V.mT], dim=-1), (0, 0, 3, 0))  # a row of events starts with three zeros
    if layout.heads == 1:
        return both
    return both.unflatten(0, (len(layers), layout.heads)).transpose(1, 2).flatten(2)


@cache  # never freed: captured graphs read these tensors
def _arrangement(
    features: int, width: int, dim: int, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Return matrices that map Q's columns, [1; time; embedding], to those of a table, [time … 0; embedding; two levels; 0 …].

    Both levels are copies of the column of 1. The term of the base vector is added to the second level, which queries use.
    """
    columns = width + dim + 8
    fixed = torch.zeros(1 + features + dim, columns)
    fixed[1 : 1 + features, :features] = torch.eye(features)
    fixed[1 + features :, width : width + dim] = torch.eye(dim)
    fixed[0, width + dim : width + dim + 2] = 1.0
    level = torch.zeros(columns)
    level[width + dim + 1] = 1.0
    return fixed.to(device, dtype), level.to(device, dtype)
