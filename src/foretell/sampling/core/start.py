"""Where sampling starts: what it asks of a model, the check of its parameters, and the past of each history in float64."""

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
    """One sequence per history, which starts with its first `seen` events; parameters that are not finite are refused."""
    numbers = [one.detach().flatten() for one in model.parameters()]
    if numbers and not bool((0.0 * torch.cat(numbers)).sum() == 0.0):  # but for what is infinite or no number
        raise ForetellError(
            f"{model.title}: some of its parameters are not finite numbers, so nothing can be drawn from it"
        )
    return model.sampler(histories, seen)


def past_batch(histories: Sequence[EventSequence], seen: Sequence[int], model: SampledModel) -> Batch:
    """The first `seen` events of each history, with the covariates and the calendar that the model uses."""
    cut = _cut(histories, seen, model)
    return model.collator.with_inputs(batch_of(cut, "window", device=model.device), cut)


def read_past(histories: Sequence[EventSequence], seen: Sequence[int], model: SampledModel) -> EncodedPart:
    """The first `seen` events of each history, read by a model that carries its state: for long histories, only the last part.

    At each row's length in that part stands what the model keeps.
    """
    cut = _cut(histories, seen, model)

    def make(part: range | None) -> Batch:
        return model.collator.with_inputs(batch_of(cut, "window", device=model.device, part=part), cut, part)

    last = None
    for part in encoded_parts(model, max(seen, default=0), make):
        last = part
    assert last is not None  # a history without events has a part, too
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
    """A copy for evaluation, in float64; all but the numbers is shared, since a copy of it would take most of the time."""
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
