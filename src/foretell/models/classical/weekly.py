"""The weekly Poisson process: a rate for each type and hour of the week. The floor for models with a calendar.

The rate of a type in an hour is its count divided by the observed time of that hour. Pseudo-events shrink it towards the type's
mean rate times the profile of all types, and the profile towards 1. Dev selects the number of pseudo-events.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from foretell.batches.batch import Batch, Queries
from foretell.data import EventData, EventSequence, Vocabulary
from foretell.data.calendar import HOUR, HOURS, WEEK, calendar_of
from foretell.data.week_hours import weekly_counts
from foretell.errors import ForetellError
from foretell.models.base import IntensityModel
from foretell.models.calendar import add_calendar, starts_of
from foretell.models.classical.weekly_sampler import WeeklySampler
from foretell.models.registry import ModelOptions, ModelSpec, register
from foretell.sampling.core.start import in_float64, past_batch

SHARED = (0.0, 4.0, 32.0, 256.0, 2048.0, math.inf)  # pseudo-events per hour in the profile; infinite: a flat profile
OWN = (0.5, 2.0, 8.0, 32.0, 128.0, 512.0)  # pseudo-events per hour of a type
PSEUDO_COUNT = 0.5  # per type, as in the Poisson process
RAREST = 1e-6  # the smallest rate, relative to the type's mean rate


@dataclass(frozen=True)
class WeeklyOptions(ModelOptions):
    """No options: dev selects the smoothing."""


@register(
    ModelSpec("weekly", "Weekly Poisson", WeeklyOptions, "a rate for each type and hour of the week", "closed form")
)
class WeeklyPoisson(IntensityModel[WeeklyOptions]):
    """A weekly Poisson process: a rate for each event type and hour of the week, in local time.

    Rates are counts divided by time, with the smoothing that scores best on dev. A baseline for data with absolute times.

    Example:
        >>> model = ft.WeeklyPoisson(2)
        >>> model.log_rate.shape
        torch.Size([2, 168])
    """

    unit_names = ()  # all rates are parameters
    takes_calendar = True

    def __init__(
        self,
        vocabulary: Vocabulary | int,
        options: WeeklyOptions | None = None,
        *,
        dtype: torch.dtype = torch.float64,
        **changes: Any,
    ) -> None:
        super().__init__(vocabulary, self.chosen(options, changes))
        self.log_rate = nn.Parameter(torch.zeros(self.types, HOURS, dtype=dtype))

    @classmethod
    def from_options(cls, options: Any, vocabulary: Vocabulary, *, seed: int, dtype: torch.dtype) -> Self:
        return cls(vocabulary, options)  # always in float64, without random numbers

    def calendar_sizes(self) -> tuple[int, int]:
        """Return 0 twice: the model uses no waves, only the starts of sequences and the zone."""
        return 0, 0

    @property
    def closed_form(self) -> bool:
        return True

    # Fitting

    def fit_directly(
        self, train: EventData, dev: EventData | None, record: Callable[[int, float | None], None]
    ) -> None:
        """Set rates to smoothed counts over time. Dev selects the smoothing, or without dev every second training sequence does."""
        calendar = calendar_of(train)
        if calendar is None:
            raise ForetellError(
                f"{train.name}: {self.title} needs absolute times, and more than two weeks of them; take model.kind = 'poisson'"
            )
        if self.calendar is None:
            add_calendar(self, calendar)
        counts, seconds = weekly_counts(train, calendar)
        shared, own = _smoothing(self, train, dev)
        rates = smoothed(counts, seconds, shared, own) * calendar.seconds_per_unit
        with torch.no_grad():
            self.log_rate.copy_(torch.from_numpy(rates).log())
        self.fitted = True
        record(0, None)

    # Intensities

    def encode(self, batch: Batch) -> Tensor:
        return starts_of(batch)

    def state(self, history: Tensor, queries: Queries) -> Tensor:
        """Return the hour of the week: [B, Q, 1]."""
        return self.hours(history[:, None], queries.times).unsqueeze(-1).to(self.dtype)

    def hours(self, starts: Tensor, times: Tensor) -> Tensor:
        """Return the hour of the week at times [...] of sequences that start at moments [...]: int64."""
        assert self.calendar is not None
        waves = self.calendar.phases
        moments = waves.moments(starts, times)
        rest = (moments + waves.offsets[waves.place(moments)]).remainder(WEEK)
        return (rest / HOUR).long().clamp(max=HOURS - 1)

    def intensities(self, state: Tensor) -> Tensor:
        return self.log_intensities(state).exp()

    def log_intensities(self, state: Tensor) -> Tensor:
        return self.log_rate.T[state.squeeze(-1).long()]

    def log_intensity(self, state: Tensor, types: Tensor) -> Tensor:
        return self.log_rate[types, state.squeeze(-1).long()]

    def mass(self, moments: Tensor) -> Tensor:
        """Return the integral of the total rate up to moments [...], from a fixed moment on."""
        assert self.calendar is not None
        waves, per_second = (
            self.calendar.phases,
            self.log_rate.double().exp().sum(0) / self.calendar.calendar.seconds_per_unit,
        )
        place = waves.place(moments)
        found = _grown(per_second, moments + waves.offsets[place])
        if len(waves.changes):  # subtract skipped local times, add repeated ones
            late, early = (_grown(per_second, waves.changes + one) for one in (waves.offsets[1:], waves.offsets[:-1]))
            found = found - nn.functional.pad((late - early).cumsum(0), (1, 0))[place]
        return found

    def exact_integral(self, history: Tensor, batch: Batch) -> Tensor:
        assert self.calendar is not None
        start = self.calendar.phases.moments(history[:, None], batch.scored_start)
        end = self.calendar.phases.moments(history[:, None], batch.scored_start + batch.gap_length)
        return self.mass(end) - self.mass(start)

    # Files and public names

    @torch.inference_mode()
    def sampler(self, histories: Sequence[EventSequence], seen: Sequence[int]) -> WeeklySampler:
        model = in_float64(self)
        return WeeklySampler(model, starts_of(past_batch(histories, seen, model)))

    def named_arrays(self) -> dict[str, Tensor]:
        rate = self.log_rate.detach().exp()
        return {f"rate.{name}": rate[index] for index, name in enumerate(self.vocabulary.names)}

    def load_named_arrays(self, arrays: dict[str, Tensor]) -> None:
        for name, rate in arrays.items():
            if not bool((rate > 0).all()):
                raise ForetellError(f"{name} = {float(rate.min())}: expected rates above 0")
        with torch.no_grad():
            for index, name in enumerate(self.vocabulary.names):
                self.log_rate[index] = arrays[f"rate.{name}"].log()


def smoothed(counts: np.ndarray, seconds: np.ndarray, shared: float, own: float) -> np.ndarray:
    """Return rates per second [K, 168] from counts [K, 168] and the observed time of each hour [168]."""
    whole = seconds.sum()
    each = counts.sum(1) + PSEUDO_COUNT
    if math.isinf(shared):
        profile = np.ones(HOURS)
    else:
        expected = each.sum() / whole * seconds + shared
        profile = np.where(expected > 0.0, (counts.sum(0) + shared) / np.where(expected > 0.0, expected, 1.0), 1.0)
    prior = np.maximum(
        (each / whole)[:, None] * (profile / ((profile * seconds).sum() / whole)), RAREST * (each / whole)[:, None]
    )
    return (counts + own) / (seconds + own / prior)


def _smoothing(model: WeeklyPoisson, train: EventData, dev: EventData | None) -> tuple[float, float]:
    """Return the numbers of pseudo-events that score best on dev, or on every second training sequence if there is no dev."""
    assert model.calendar is not None
    if dev is None and len(train) < 2:
        return SHARED[2], OWN[2]
    parts = (train, dev)
    if dev is None:
        parts = (train.select(range(0, len(train), 2)), train.select(range(1, len(train), 2)))
    (counts, seconds), (judged, watched) = (
        weekly_counts(one, model.calendar.calendar) for one in parts if one is not None
    )

    def score(shared: float, own: float) -> float:
        rates = smoothed(counts, seconds, shared, own)
        return float((judged * np.log(rates)).sum() - (rates.sum(0) * watched).sum())

    return max(((shared, own) for shared in SHARED for own in OWN), key=lambda one: score(*one))


def _grown(per_second: Tensor, local: Tensor) -> Tensor:
    """Return the integral of rates [168] over local time up to `local` [...]."""
    before = nn.functional.pad(per_second.cumsum(0) * HOUR, (1, 0))
    weeks = torch.floor(local / WEEK)
    rest = local - weeks * WEEK
    hour = (rest / HOUR).long().clamp(max=HOURS - 1)
    return weeks * before[-1] + before[hour] + (rest - hour * HOUR) * per_second[hour]
