"""Optional capabilities of models: one small protocol each, checked with `isinstance`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from torch import Tensor

from foretell.batches.batch import Batch, Queries
from foretell.data import EventData, EventSequence
from foretell.lang.program import Program
from foretell.nn.time import TimeEmbedding


@dataclass(frozen=True)
class GapIntensities:
    """The terms of the likelihood for gaps: the log-intensity of the event that ends a gap, and totals at points inside it."""

    log_at_end: Tensor  # [B, N]
    total_inside: Tensor  # [B, N + 1, P]
    log_sum_inside: Tensor | None  # [B, N + 1, P]: Σ_e log λ_e, where it was asked for


@dataclass(frozen=True)
class NoiseIntensities:
    """The terms of noise-contrastive estimation: log-intensities of the observed events, and of one given event at each query."""

    log_at_end: Tensor  # [B, N]
    log_chosen: Tensor  # [B, Q]


@runtime_checkable
class ExactIntegral(Protocol):
    """The integral has a closed form, which training and scores then use."""

    @property
    def closed_form(self) -> bool:
        """Whether this model has the capability; models with a calendar may not."""
        ...

    def exact_integral(self, history: Any, batch: Batch) -> Tensor:
        """The integral of the total intensity over every gap: [B, N + 1]."""
        ...


def exact_integral_of(model: Any) -> ExactIntegral | None:
    """The model, where its integral has a closed form."""
    return model if isinstance(model, ExactIntegral) and model.closed_form else None


@runtime_checkable
class RenamesParameters(Protocol):
    """Some parameters have other names than in parameter files of format 1."""

    def renamed_parameters(self, arrays: dict[str, Any]) -> dict[str, Any]: ...


class ShownScales(Protocol):
    """Something a file of parameters has besides them: read and written as JSON."""

    def to_json(self) -> dict[str, Any]: ...

    def load(self, found: Any, source: str) -> None: ...


@runtime_checkable
class HasNumbers(Protocol):
    """Numbers of facts and events enter embeddings, in standard deviations from their means."""

    @property
    def number_scales(self) -> ShownScales: ...


@runtime_checkable
class DirectFit(Protocol):
    """Maximum likelihood needs no gradient steps."""

    def fit_directly(
        self, train: EventData, dev: EventData | None, record: Callable[[int, float | None], None]
    ) -> None:
        """Fit; `record` is told of each round's number and log-likelihood per event on train, None: to be computed."""
        ...


@runtime_checkable
class GapTerms(Protocol):
    """What the likelihood needs comes straight from a history, without states of all types at all queries."""

    def ends_and_inside(self, history: Any, batch: Batch, queries: Queries, pseudo: bool) -> GapIntensities | None:
        """Where queries were planned with a sample of the possible events, sums are unbiased estimates. None: not for such queries."""
        ...


@runtime_checkable
class FusedLoss(Protocol):
    """Kernels may go from the events to the gradients of the loss at once."""

    def is_fused(self) -> bool:
        """Whether they can, with these options on this device."""
        ...

    @property
    def fused_queries(self) -> int:
        """How many queries they take at a time, which is a matter of memory."""
        ...

    def fused_losses(self, batch: Batch, inside: Tensor, weights: Tensor, pseudo_rate: float) -> tuple[Tensor, Tensor]:
        """The objective and the negative log-likelihood, with the integral at times inside the gaps [B, (N + 1)·P]."""
        ...


@runtime_checkable
class Embeds(Protocol):
    """Events have embeddings."""

    def embeddings(self, batch: Batch) -> list[Tensor]:
        """Vectors of a batch's events, each from itself and the events before it: [B, N, D] for every layer, 0 … L."""
        ...


@runtime_checkable
class EmbedsTime(Protocol):
    """Absolute times are embedded in waves, whose range is taken from the training data."""

    time: TimeEmbedding


@runtime_checkable
class GrowsVocabulary(Protocol):
    """Events that training never met may happen, and are told something about."""

    def meet(self, data: EventData) -> None:
        """Before a first fit: take the data's events, and check them."""
        ...

    def ground(self, data: EventData) -> None:
        """Called before training with all data that will be used: creates the parameters that they need."""
        ...

    def widen(self, names: Iterable[str]) -> None:
        """Take up events that training never met."""
        ...

    def begin_training(self) -> None:
        """Whatever has parameters now counts as trained; what is met later starts from the mean of these."""
        ...

    def unseen_groups(self, data: EventData) -> UnseenGroups:
        """Parameter groups that data give rise to and training never met."""
        ...


@dataclass(frozen=True)
class UnseenGroups:
    """Parameter groups that training never met: each is the mean of the trained ones of its kind."""

    names: tuple[str, ...]
    events: int  # scored events whose intensities depend on them


@runtime_checkable
class HasRules(Protocol):
    """Not everything is possible at all times. Such a model takes a `Sample` of what is: its training can be down-sampled."""

    program: Program  # which says what is possible

    def program_text(self) -> str:
        """The rules in the form that is stored in a run folder."""
        ...

    def possible_intensities(
        self, history: EventSequence, times: Sequence[float] | np.ndarray
    ) -> list[dict[str, float]]:
        """The possible events at each time, with their intensities."""
        ...


def meet_log(model: object, train: EventData | None) -> None:
    """Fill tables `from_log` from training data, before anything of the data is settled by the rules."""
    if isinstance(model, HasRules) and model.program.waits_for_log and train is not None:
        assert isinstance(model, GrowsVocabulary)
        model.meet(train)


@runtime_checkable
class ChecksState(Protocol):
    """Not all finite numbers will do as its parameters: those of a file are checked."""

    def check_state(self) -> None:
        """Raise a `ValueError` that says which numbers no such model can have."""
        ...
