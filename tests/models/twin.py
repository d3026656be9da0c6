"""From a fast A-NHP to its slow twin over the same leaf parameters, and the twin's likelihood of a batch."""

from __future__ import annotations

import torch
from torch import Tensor

from foretell.batches.batch import Batch
from foretell.data import EventData
from foretell.models.attention.anhp import ANHP
from foretell.objective.loglik import Points
from foretell.reference.anhp import SlowANHP
from foretell.reference.likelihood import Point, log_likelihood
from tests.samples import as_history


def attached_arrays(model: ANHP) -> dict[str, Tensor]:
    """What `named_arrays` gives, but still attached to the model's parameters, so that gradients reach them."""
    names = model.vocabulary.names
    found = {f"embed.{name}": model.fine[index] for index, name in enumerate(names)}
    own = [group.name for group in model.structure.groups if group.base is None]
    found |= {f"coarse.{name}": model.coarse_base[row] for row, name in enumerate(own)}
    if model.bos_base is not None:
        found["embed.bos"] = model.bos_base[0]
    for number, layer in enumerate(model.layer_list(), start=1):
        for name, parameter in layer.named_parameters():
            if name in ("V", "K", "Q"):
                for head, matrix in zip(model.structure.heads, parameter, strict=True):
                    found[f"attend.{head.name}.{number}.{name}"] = matrix
            elif name == "log_decay":
                for head, rate in zip(model.structure.heads, parameter, strict=True):
                    found[f"attend.{head.name}.{number}.decay"] = rate.exp() / model.time_scale
            else:
                found[f"layer.{number}.{name}"] = parameter
    for index, name in enumerate(names):
        w = torch.cat([model.w_constant[index : index + 1], model.w[index]])
        found[f"intensity.{name}.w"] = w / model.time_scale
        found[f"intensity.{name}.tau"] = model.log_tau[index].exp() / model.time_scale
    if model.mixture is not None and model.mixture_constant is not None:
        found["mixture.w"] = torch.cat([model.mixture_constant[:, None], model.mixture], dim=1)
    if model.hawkes is not None:
        part = model.hawkes
        found |= {"hawkes.alpha": part.alpha, "hawkes.beta": part.rates()}
        found["hawkes.gain"] = torch.cat([part.gain_constant[:, None], part.gain], dim=1)
    return found


def twin_of(model: ANHP) -> SlowANHP:
    coarse = (
        model.options.coarse if model.options.coarse is not None else ("one" if model.options.edges is None else "none")
    )
    names = model.vocabulary.names
    if coarse == "one":
        coarse = dict.fromkeys(names, "coarse")
    return SlowANHP(
        attached_arrays(model),
        names,
        dim=model.dim,
        layers=model.layers,
        time_dim=model.time_dim,
        m=model.time.m,
        M=model.time.M,
        coarse=None if isinstance(coarse, str) else coarse,
        heads=model.heads,
        edges=model.options.edges,
        bos=model.options.bos,
        layer_norm=model.options.layer_norm,
        feed_forward=bool(model.options.feed_forward),
        activation=model.options.activation,
        split=model.options.head_size == "split",
        elapsed=model.options.elapsed or 0,
        scales=model.scales.count,
        short=model.short,
        long=model.long,
        unit=model.time_scale,
        periods=model.elapsed.periods,
    )


def slow_log_likelihood(twin: SlowANHP, data: EventData, batch: Batch, points: Points) -> Tensor:
    """Of each sequence of the batch, which holds `data` in its order: [B]."""
    gap = points.gap.expand_as(points.weights)
    first = 1 if data.origin == "first-event" else 0
    values = []
    for row in range(len(batch)):
        columns = points.queries.times[row], gap[row], points.weights[row]
        seen = [
            Point(time, seen, weight)
            for time, seen, weight in zip(*(column.tolist() for column in columns), strict=True)
            if weight > 0.0
        ]
        values.append(log_likelihood(twin.intensity, twin.types, as_history(data, row), seen, first))
    return torch.stack(values)
