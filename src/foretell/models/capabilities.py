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
    """The likelihood's terms for gaps: the log-intensity of the event that ends each gap, and total intensities at points inside."""

    log_at_end: Tensor  # [B, N]
    total_inside: Tensor  # [B, N + 1, P]
    log_sum_inside: Tensor | None  # [B, N + 1, P]: Σ_e log λ_e, where it was requested


@dataclass(frozen=True)
class NoiseIntensities:
    """The terms of noise-contrastive estimation: log-intensities of the observed events, and of one chosen event at each query."""

    log_at_end: Tensor  # [B, N]
    log_chosen: Tensor  # [B, Q]


@runtime_checkable
class ExactIntegral(Protocol):
    """A model whose integral has a closed form, which training and scores then use."""

    @property
    def closed_form(self) -> bool:
        """Whether this model can use the closed form; models with a calendar may not."""
        ...

    def exact_integral(self, history: Any, batch: Batch) -> Tensor:
        """Return the integral of the total intensity over every gap: [B, N + 1]."""
        ...


def exact_integral_of(model: Any) -> ExactIntegral | None:
    """Return the model if its integral has a closed form, else None."""
    return model if isinstance(model, ExactIntegral) and model.closed_form else None


@runtime_checkable
class RenamesParameters(Protocol):
    """A model whose parameters had other names in parameter files of format 1."""

    def renamed_parameters(self, arrays: dict[str, Any]) -> dict[str, Any]: ...


class ShownScales(Protocol):
    """A model with scales that a file of parameters contains too, as JSON."""

    def to_json(self) -> dict[str, Any]: ...

    def load(self, found: Any, source: str) -> None: ...


@runtime_checkable
class HasNumbers(Protocol):
    """A model whose embeddings use numbers of facts and events, standardised."""

    @property
    def number_scales(self) -> ShownScales: ...


@runtime_checkable
class DirectFit(Protocol):
    """A model that is fitted by maximum likelihood without gradient steps."""

    def fit_directly(
        self, train: EventData, dev: EventData | None, record: Callable[[int, float | None], None]
    ) -> None:
        """Fit. Each round calls `record` with its number and its log-likelihood per event on train; None: `record` computes it."""
        ...


@runtime_checkable
class GapTerms(Protocol):
    """A model that computes the likelihood's terms from an encoded history, without states of all types at all queries."""

    def ends_and_inside(self, history: Any, batch: Batch, queries: Queries, pseudo: bool) -> GapIntensities | None:
        """Return the terms, or None if these queries are not supported. With a sample of possible events, sums are unbiased estimates."""
        ...


@runtime_checkable
class FusedLoss(Protocol):
    """A model with fused kernels that compute the loss and its gradients directly from the events."""

    def is_fused(self) -> bool:
        """Whether the kernels can be used with these options on this device."""
        ...

    @property
    def fused_queries(self) -> int:
        """The number of queries per call of the kernels, limited by memory."""
        ...

    def fused_losses(self, batch: Batch, inside: Tensor, weights: Tensor, pseudo_rate: float) -> tuple[Tensor, Tensor]:
        """Return the objective and the negative log-likelihood; the integral uses the times `inside` the gaps, [B, (N + 1)·P]."""
        ...


@runtime_checkable
class Embeds(Protocol):
    """A model that has embeddings of events."""

    def embeddings(self, batch: Batch) -> list[Tensor]:
        """Return event embeddings, [B, N, D] per layer 0 … L. Each depends on the event itself and the events before it."""
        ...


@runtime_checkable
class EmbedsTime(Protocol):
    """A model that embeds absolute times in waves. The range of wavelengths is computed from the training data."""

    time: TimeEmbedding


@runtime_checkable
class GrowsVocabulary(Protocol):
    """A model that accepts events that were not in its training data, and creates parameters for them."""

    def meet(self, data: EventData) -> None:
        """Add the data's events to the vocabulary and check them; called before a first fit."""
        ...

    def ground(self, data: EventData) -> None:
        """Create the parameters that the data need; called before training, with all data that will be used."""
        ...

    def widen(self, names: Iterable[str]) -> None:
        """Add events that were not in the training data to the vocabulary."""
        ...

    def begin_training(self) -> None:
        """Mark all present parameters as trained. Later ones are initialised to the mean of the trained ones."""
        ...

    def unseen_groups(self, data: EventData) -> UnseenGroups:
        """Return the parameter groups that these data need and that were not trained."""
        ...


@dataclass(frozen=True)
class UnseenGroups:
    """Parameter groups that were not trained. Each is set to the mean of the trained groups of its kind."""

    names: tuple[str, ...]
    events: int  # scored events whose intensities depend on them


@runtime_checkable
class HasRules(Protocol):
    """A model in which events are possible at some times only. Its training can use a `Sample` of the possible events."""

    program: Program  # its rules determine the possible events

    def program_text(self) -> str:
        """Return the rules in the form that is stored in a run folder."""
        ...

    def possible_intensities(
        self, history: EventSequence, times: Sequence[float] | np.ndarray
    ) -> list[dict[str, float]]:
        """Return, for each time, the intensity of each possible event by name."""
        ...


def meet_log(model: object, train: EventData | None) -> None:
    """Fill tables declared `from_log` with training data, before the rules are applied to any data."""
    if isinstance(model, HasRules) and model.program.waits_for_log and train is not None:
        assert isinstance(model, GrowsVocabulary)
        model.meet(train)


@runtime_checkable
class ChecksState(Protocol):
    """A model that rejects some finite numbers as parameters. Parameters from a file are checked."""

    def check_state(self) -> None:
        """Raise a `ValueError` that names the numbers that are invalid in this model."""
        ...
