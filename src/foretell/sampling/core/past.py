"""Where the walks of a model begin: the model in float64, and the past of each history."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import torch
from torch import nn

from foretell.batches.batch import Batch, batch_of
from foretell.data import EventSequence
from foretell.errors import ForetellError
from foretell.models.base import IntensityModel

M = TypeVar("M", bound=IntensityModel)
N = TypeVar("N", bound=nn.Module)


def begun(model: M, histories: Sequence[EventSequence], seen: Sequence[int]) -> tuple[M, Batch]:
    """The model, for evaluation, and the first `seen` events of each history."""
    own = _doubled(model)
    cut = [
        replace(one, times=one.times[:n], types=one.types[:n], unscored=None)
        for one, n in zip(histories, seen, strict=True)
    ]
    top = max((int(one.types.max(initial=-1)) for one in cut), default=-1)
    if top >= len(own.vocabulary):
        raise ForetellError(f"history: type {top} is outside the vocabulary of {len(own.vocabulary)} event types")
    return own, batch_of(cut, "window", device=own.device)


def _doubled(module: N) -> N:
    """In float64; all but the numbers is shared, since a copy of it would take most of the time."""
    own = copy.copy(module)
    own.training = False
    own._parameters = {
        name: None if one is None else nn.Parameter(one.detach().to(torch.float64, copy=True), requires_grad=False)
        for name, one in module._parameters.items()
    }
    own._buffers = {
        name: one.to(torch.float64, copy=True) if one is not None and one.is_floating_point() else one
        for name, one in module._buffers.items()
    }
    own._modules = {name: None if one is None else _doubled(one) for name, one in module._modules.items()}
    return own
