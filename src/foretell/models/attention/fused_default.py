"""Whether fused kernels can compute the training loss of an A-NHP with the default layers, and the inputs of these kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from foretell.batches.batch import Batch
from foretell.models.attention.layers import AttentionLayer
from foretell.nn.fused.decayed_loss import DecayedLayout, DecayedQueries, decayed_loss
from foretell.nn.fused.loss import LARGEST, SMALLEST, power_of_two

if TYPE_CHECKING:
    from foretell.models.attention.anhp import ANHP

WIDEST = 2 * LARGEST  # the largest hidden layer of a sublayer
MOST_SCALES = 32  # the largest number of time scales, for attention or mixture


def has_default_layers(model: ANHP) -> bool:
    """Return whether all heads are one run, without `bos` and waves of absolute time, and layers have LayerNorm and a GELU sublayer."""
    hidden = model.options.feed_forward or 0
    return (
        model.runs == 1
        and not model.options.bos
        and model.time_dim == 0
        and max(model.elapsed.count, model.elapsed.most, model.scales.count) <= MOST_SCALES
        and model.options.layer_norm
        and model.options.activation == "gelu"
        and SMALLEST <= hidden <= WIDEST
        and hidden == power_of_two(hidden)
    )


def default_losses(
    model: ANHP, batch: Batch, inside: Tensor, weights: Tensor, pseudo_rate: float
) -> tuple[Tensor, Tensor]:
    """Return the objective and the negative log-likelihood; see `fused_losses`."""
    layers = model.layer_list()
    norms = layers[0].norms
    first_norm = norms[0] if norms is not None else None
    assert isinstance(first_norm, nn.LayerNorm)
    decays: list[Tensor] = [layer.log_decay for layer in layers if layer.log_decay is not None]
    layout = DecayedLayout(
        model.dim,
        model.heads,
        len(layers),
        model.options.feed_forward or 0,
        bool(decays),
        model.time_scale,
        first_norm.eps,
    )
    asked = DecayedQueries(
        batch.times,
        batch.types,
        batch.event_counts,
        batch.gap_end,
        inside.contiguous(),
        weights.contiguous(),
        model.elapsed.scales,
        model.elapsed.turns,
        model.scales.scales,
        pseudo_rate,
    )
    matrices = [matrix.view(model.dim, -1) for layer in layers for matrix in (layer.K, layer.V, layer.Q)]
    projections = torch.cat(matrices).view(len(layers), 3 * model.dim, -1)
    rates = torch.stack(decays) if decays else model.w.new_zeros(len(layers), model.heads)
    matrix, constants = model.w, model.w_constant
    if model.mixture is not None and model.mixture_constant is not None:
        matrix, constants = torch.cat([matrix, model.mixture]), torch.cat([constants, model.mixture_constant])
    sublayers = [parameter for layer in layers for parameter in _of_sublayers(layer)]
    vectors = torch.cat([model.fine, model.bases()])
    return decayed_loss(asked, layout, projections, vectors, rates, (matrix, constants, model.log_tau), sublayers)


def _of_sublayers(layer: AttentionLayer) -> list[Tensor]:
    """Return the parameters of the sublayers in the order in which the kernels use them."""
    assert layer.norms is not None and layer.expand is not None and layer.contract is not None
    order = layer.norms[0], layer.expand, layer.contract, layer.norms[1]
    return [getattr(module, name) for module in order for name in ("weight", "bias")]
