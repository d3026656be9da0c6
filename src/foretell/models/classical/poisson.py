"""The homogeneous Poisson process: a constant rate for each type, the floor that every model must beat."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn

from foretell.batches.batch import Batch, Queries
from foretell.data import EventData, EventSequence, Vocabulary
from foretell.errors import ForetellError
from foretell.models.base import IntensityModel
from foretell.models.classical.sampler import HawkesSampler
from foretell.models.registry import ModelOptions, ModelSpec, register
from foretell.models.units import scored_counts


@dataclass(frozen=True)
class PoissonOptions(ModelOptions):
    """A Poisson process has no options."""


@register(ModelSpec("poisson", "Poisson", PoissonOptions, "a constant rate for each type", "closed form"))
class Poisson(IntensityModel[PoissonOptions]):
    """A Poisson process: a constant rate for each event type.

    The rate is the number of events over the observed time, with a pseudo-count of ½. The simplest baseline.

    Example:
        >>> data = ft.EventData.from_names([["visit", "test"], ["visit"]], [[0.5, 2.0], [1.0]], t_ends=[10.0, 5.0])
        >>> model = ft.fit(ft.Poisson(data.vocabulary), data).model
        >>> model.intensity(data[0], [3.0]).round(3).tolist()
        [[0.1, 0.167]]
    """

    unit_names = ()  # all rates are parameters

    def __init__(
        self,
        vocabulary: Vocabulary | int,
        options: PoissonOptions | None = None,
        *,
        dtype: torch.dtype = torch.float64,
        **changes: Any,
    ) -> None:
        super().__init__(vocabulary, self.chosen(options, changes))
        self.log_rate = nn.Parameter(torch.zeros(self.types, dtype=dtype))

    @classmethod
    def from_options(cls, options: Any, vocabulary: Vocabulary, *, seed: int, dtype: torch.dtype) -> Self:
        return cls(vocabulary, options)  # always in float64, without random numbers

    def fit_closed_form(self, data: EventData) -> None:
        """Set each rate to the number of events of the type over the observed time, with a pseudo-count of ½."""
        counts, observed = scored_counts(data)
        with torch.no_grad():
            self.log_rate.copy_(torch.from_numpy(counts / observed).log())
        self.fitted = True

    def fit_directly(
        self, train: EventData, dev: EventData | None, record: Callable[[int, float | None], None]
    ) -> None:
        self.fit_closed_form(train)
        record(0, None)

    def encode(self, batch: Batch) -> None:
        return None

    def state(self, history: None, queries: Queries) -> Tensor:
        return torch.zeros(*queries.times.shape, 0, dtype=self.dtype, device=queries.times.device)

    def intensities(self, state: Tensor) -> Tensor:
        return self.log_rate.exp().expand(*state.shape[:-1], self.types)

    def log_intensity(self, state: Tensor, types: Tensor) -> Tensor:
        return self.log_rate[types]

    def exact_integral(self, history: None, batch: Batch) -> Tensor:
        return self.log_rate.exp().sum() * batch.gap_length

    @torch.inference_mode()
    def sampler(self, histories: Sequence[EventSequence], seen: Sequence[int]) -> HawkesSampler:
        """Return the sampler of a Hawkes process without decays, whose past does not matter."""
        rate = self.log_rate.detach().double().exp()
        alpha, counts = rate.new_zeros(self.types, self.types, 0), rate.new_zeros(len(seen), self.types, 0)
        return HawkesSampler(self.vocabulary, rate, alpha, rate.new_zeros(0), counts, rate.new_zeros(len(seen)))

    def named_arrays(self) -> dict[str, Tensor]:
        rate = self.log_rate.detach().exp()
        return {f"rate.{name}": rate[index] for index, name in enumerate(self.vocabulary.names)}

    def load_named_arrays(self, arrays: dict[str, Tensor]) -> None:
        for name, rate in arrays.items():
            if not bool(rate > 0):
                raise ForetellError(f"{name} = {float(rate)}: expected a rate above 0")
        with torch.no_grad():
            for index, name in enumerate(self.vocabulary.names):
                self.log_rate[index] = arrays[f"rate.{name}"].log()
