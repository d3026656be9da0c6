"""When the fused kernels can compute the training loss of an A-NHP with the default layers, and what they are handed."""

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

WIDEST = 2 * LARGEST  # hidden layer of a sublayer
MOST_SCALES = 32  # of time, on which attention or the mixture sees it


def has_default_layers(model: ANHP) -> bool:
    """Heads side by side, no waves of absolute time, LayerNorm and a sublayer with GELU in each layer; the rest may be there or not."""
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
    """The objective and the negative log-likelihood, as `fused_losses` gives them."""
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
    """In the order in which they are used."""
    assert layer.norms is not None and layer.expand is not None and layer.contract is not None
    order = layer.norms[0], layer.expand, layer.contract, layer.norms[1]
    return [getattr(module, name) for module in order for name in ("weight", "bias")]
