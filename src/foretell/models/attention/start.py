"""The initial parameters of an A-NHP: small random numbers, events that excite their own type, and attention that decays with time.

This is not part of the model's equations, and training changes all of it. It helps especially with few data.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch

from foretell.data import EventData
from foretell.models.units import gaps

if TYPE_CHECKING:
    from foretell.models.attention.anhp import ANHP


def start(model: ANHP, seed: int) -> None:
    """Initialise every parameter of a new model."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for layer in model.layer_list():
            for matrix in (layer.V, layer.K, layer.Q):
                matrix.uniform_(-1.0, 1.0, generator=generator).div_(math.sqrt(matrix.shape[-1]))
            layer.start(generator)
        for base in (model.fine, model.coarse_base, model.bos_base):
            if base is not None:
                base.normal_(generator=generator)
        # An event starts by exciting its own type: layer 1 passes embeddings on unchanged, and `w` responds to them.
        first = model.layer_list()[0].V.view(model.runs, model.dim, model.own + model.dim)
        first[..., model.own :] += torch.eye(model.dim) / (model.heads if model.head_size == model.dim else 1)
    start_intensities(model, generator)


def start_intensities(model: ANHP, generator: torch.Generator) -> None:
    """Initialise `w`, its constants and `τ` for the present fine vectors.

    Types that are rare in training stay near their initial parameters. That they repeat is a better guess than that they do not.
    """
    with torch.no_grad():
        noise = torch.empty(model.w.shape).normal_(generator=generator).mul_(0.1 / math.sqrt(model.dim))
        echo = 0.0 if model.options.hawkes else model.options.echo  # the Hawkes part already has this excitation
        model.w.copy_(noise).add_(model.fine * (echo / model.dim))
        model.w_constant.zero_()
        model.log_tau.zero_()


def start_decay(model: ANHP, data: EventData) -> None:
    """Initialise the decay rates of heads, evenly spaced on a logarithmic scale over the gaps of the data."""
    positive = gaps(data)
    positive = positive[positive > 0.0] / model.time_scale
    if len(positive) == 0:
        return
    short, long = np.quantile(positive, [0.1, 0.9])
    copies = -torch.linspace(math.log(short), math.log(10.0 * long), model.heads, dtype=torch.float64)
    with torch.no_grad():
        for layer in model.layer_list():
            assert layer.log_decay is not None
            layer.log_decay.view(-1, model.heads).copy_(copies)


def fade(model: ANHP, gap: float) -> None:
    """Initialise attention to decay like the power `fading` of the elapsed time, with weight 1 at the mean gap.

    Equal diagonal Q and K on the time features give the logit `s²·Σ cos(ω_d(t−s))/sqrt(D)`: the sinusoids are spread evenly in
    log wavelength, so it falls by a constant for every factor of elapsed time. The longest wave's cosine is almost 1
    throughout and, with opposite signs, sets the level. Values start independent of absolute time.
    """
    waves = min(model.time_dim, model.dim) // 2 - 1
    if waves < 1 or model.time.m >= 5.0 * model.time.M:  # too few waves, or all have the same length
        return
    chosen = torch.linspace(0, model.time_dim // 2 - 2, waves).round().long()
    span = math.log(5.0 * model.time.M / model.time.m)
    strength = model.options.fading * span * math.sqrt(model.dim) / waves
    level = model.options.fading * (span - math.log(max(gap / model.time.m, 1.0))) * math.sqrt(model.dim)
    columns = torch.cat([2 * chosen, 2 * chosen + 1])
    rows = torch.arange(len(columns))
    longest = 2 * (model.time_dim // 2) - 1
    with torch.no_grad():
        for layer in model.layer_list():
            time = slice(1, 1 + model.time_dim)
            layer.V[:, :, time] = 0.0
            for matrix, sign in ((layer.Q, 1.0), (layer.K, -1.0)):
                matrix[:, :, time] = 0.0
                matrix[:, :, 0] = 0.0
                matrix[:, rows, 1 + columns] = math.sqrt(strength)
                matrix[:, len(columns), 1 + longest] = sign * math.sqrt(level)
