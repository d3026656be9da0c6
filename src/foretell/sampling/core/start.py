"""The start of sampling: the interface of a model, a check of its parameters, and the past of each history in float64."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import ClassVar, Protocol, TypeVar

import torch
from torch import nn

from foretell.batches.batch import Batch, Collator, batch_of
from foretell.batches.carrying import EncodedPart, encoded_parts
from foretell.data import EventSequence, Vocabulary
from foretell.errors import ForetellError
from foretell.sampling.core.sampler import Sampler


class SampledModel(Protocol):
    """The methods of a model that sampling needs."""

    title: ClassVar[str]
    vocabulary: Vocabulary
    collator: Collator
    longest: float | None

    @property
    def has_covariates(self) -> bool: ...

    @property
    def device(self) -> torch.device: ...

    def parameters(self) -> Iterator[nn.Parameter]: ...

    def sampler(self, histories: Sequence[EventSequence], seen: Sequence[int]) -> Sampler: ...


N = TypeVar("N", bound=nn.Module)


def start_sampler(model: SampledModel, histories: Sequence[EventSequence], seen: Sequence[int]) -> Sampler:
    """Return a sampler with one sequence per history, its first `seen` events. Raise an error if a parameter is not finite."""
    numbers = [one.detach().flatten() for one in model.parameters()]
    if numbers and not bool((0.0 * torch.cat(numbers)).sum() == 0.0):  # 0 times infinity or NaN is NaN
        raise ForetellError(
            f"{model.title}: some of its parameters are not finite numbers, so nothing can be drawn from it"
        )
    return model.sampler(histories, seen)


def past_batch(histories: Sequence[EventSequence], seen: Sequence[int], model: SampledModel) -> Batch:
    """Return the first `seen` events of each history as a batch, with the covariates and the calendar that the model uses."""
    cut = _cut(histories, seen, model)
    return model.collator.with_inputs(batch_of(cut, "window", device=model.device), cut)


def read_past(histories: Sequence[EventSequence], seen: Sequence[int], model: SampledModel) -> EncodedPart:
    """Encode the first `seen` events of each history with a model that carries its state; return the last part of long histories.

    The state of a row is at the position of its length in that part.
    """
    cut = _cut(histories, seen, model)

    def make(part: range | None) -> Batch:
        return model.collator.with_inputs(batch_of(cut, "window", device=model.device, part=part), cut, part)

    last = None
    for part in encoded_parts(model, max(seen, default=0), make):
        last = part
    assert last is not None  # a history without events has one part
    return last


def _cut(histories: Sequence[EventSequence], seen: Sequence[int], model: SampledModel) -> list[EventSequence]:
    cut = [
        replace(one, times=one.times[:n], types=one.types[:n], unscored=None)
        for one, n in zip(histories, seen, strict=True)
    ]
    top = max((int(one.types.max(initial=-1)) for one in cut), default=-1)
    if top >= len(model.vocabulary):
        raise ForetellError(f"history: type {top} is outside the vocabulary of {len(model.vocabulary)} event types")
    return cut


def in_float64(module: N) -> N:
    """Return a copy of a module for evaluation in float64. Only parameters and buffers are copied, since copying the rest is slow."""
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
    own._modules = {name: None if one is None else in_float64(one) for name, one in module._modules.items()}
    return own
