"""Covariates and calendar terms of drawn events. Covariates are copied from a random training event of the same type, or missing."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from foretell.batches.batch import Batch
from foretell.models.calendar import CalendarEmbedding, starts_of
from foretell.models.covariates import CovariateEmbedding, covariates_of, plus
from foretell.nn.calendar import SHORTEST_WAVE
from foretell.sampling.bounds.calendar_windows import calendar_waves, changes_within
from foretell.sampling.bounds.chebyshev import ChebyshevPiece
from foretell.sampling.core.sampler import FutureCovariates, Sampler


class FutureClock:
    """The calendar of sequences that a sampler continues."""

    def __init__(self, calendar: CalendarEmbedding, starts: Tensor) -> None:
        self.calendar, self.starts = calendar, starts  # float64 [W]: the moments at time 0

    def select(self, rows: Tensor) -> FutureClock:
        return FutureClock(self.calendar, self.starts[rows])

    def of_events(self, sequences: Tensor, times: Tensor) -> Tensor:
        """Return the term in the embeddings of events at these times [n]: [n, D]."""
        return self.calendar.waves(self.starts[sequences], times) @ self.calendar.event

    def on_windows(self, middle: Tensor, half: Tensor, degree: int, starts: Tensor | None = None) -> ChebyshevPiece:
        """Return the term at queries on windows `middle ± half` [W, P]: [W, P, D]. `starts` [W, P] are the sequences' starts if the
        order differs from that of the sampler."""
        begin = self.starts[:, None] if starts is None else starts
        waves = calendar_waves(self.calendar.phases, begin.expand_as(middle), middle, half, degree)
        return waves.through(self.calendar.query)

    def changes(self, start: Tensor, end: Tensor) -> Tensor:
        """Return whether clocks are put forward or back on windows [W, P]: bool [W, P]."""
        return changes_within(self.calendar.phases, self.starts[:, None].expand_as(start), start, end)

    @property
    def shortest(self) -> float:
        """Return the shortest wavelength, in the data's unit."""
        return SHORTEST_WAVE / self.calendar.calendar.seconds_per_unit


class DrawnCovariates:
    """The terms of covariates and calendar for drawn events and for queries of the sequences that a sampler continues."""

    def __init__(
        self,
        inputs: CovariateEmbedding | None,
        own: Tensor | None,  # [W, D]: static term in every event
        query: Tensor | None,  # [W, D]: static term in every query
        random: torch.Generator,
        how: FutureCovariates = "drawn",
        clock: FutureClock | None = None,
    ) -> None:
        self.inputs, self.own, self.query, self.random = inputs, own, query, random
        self.how: FutureCovariates = how
        self.clock = clock

    @classmethod
    def start(
        cls, inputs: CovariateEmbedding | None, batch: Batch, calendar: CalendarEmbedding | None = None
    ) -> DrawnCovariates:
        """Return the terms for the sequences of a batch."""
        random = torch.Generator().manual_seed(0)
        clock = None if calendar is None else FutureClock(calendar, starts_of(batch))
        if inputs is None:
            return cls(None, None, None, random, clock=clock)
        rows = covariates_of(batch)
        static = rows.static_numbers, rows.static_codes
        return cls(inputs, inputs.static(*static), inputs.query(*static), random, clock=clock)

    def select(self, rows: Tensor) -> DrawnCovariates:
        own, query = (None if one is None else one[rows] for one in (self.own, self.query))
        clock = None if self.clock is None else self.clock.select(rows)
        return DrawnCovariates(self.inputs, own, query, self.random, self.how, clock)

    def of_events(self, sequences: Tensor, types: Tensor, times: Tensor) -> Tensor | None:
        """Return the term in the embeddings of drawn events, [n, D], from their sequences, types and times; None: no term."""
        found = self._of_covariates(sequences, types)
        return found if self.clock is None else plus(self.clock.of_events(sequences, times), found)

    def _of_covariates(self, sequences: Tensor, types: Tensor) -> Tensor | None:
        if self.inputs is None:
            return None
        own = None if self.own is None else self.own[sequences]
        found = self.inputs.event(*self._drawn(self.inputs, types))
        return own if found is None else plus(found, own)

    def on_windows(self, state: ChebyshevPiece, middle: Tensor, half: Tensor, degree: int) -> ChebyshevPiece:
        """Return the states [W, P, D] on windows `middle ± half` with the terms of queries added."""
        found = state if self.query is None else state + self.query[:, None]
        return found if self.clock is None else found + self.clock.on_windows(middle, half, degree)

    def judged(self, upper: Tensor, middle: Tensor, start: Tensor, end: Tensor) -> Tensor:
        """Return the value to compare a bound with: about the intensity in the middle, or the bound itself if none can be tight."""
        return middle if self.clock is None else torch.where(self.clock.changes(start, end), upper, middle)

    def _drawn(self, kept: CovariateEmbedding, types: Tensor) -> tuple[Tensor, Tensor]:
        """Draw one kept training event per type and return its numbers and codes, [n, …] each; missing if nothing is kept for the type."""
        rows = len(kept.kept_numbers)
        start = kept.kept_offsets[types]
        count = kept.kept_offsets[types + 1] - start
        if self.how == "missing" or rows == 0:
            count = torch.zeros_like(count)
        draws = torch.rand(len(types), generator=self.random, dtype=torch.float64).to(types.device)
        place = start + (draws * count).long()
        # The last kept row stands for an event with no known covariates.
        place = torch.where(count > 0, place, rows)
        missing = F.pad(kept.kept_missing, (0, 0, 0, 1), value=1).bool()[place]
        numbers, codes = (F.pad(one, (0, 0, 0, 1))[place] for one in (kept.kept_numbers, kept.kept_codes))
        return numbers.masked_fill(missing, torch.nan), codes.long()


class CovariateSampler(Sampler):
    """The sampler of a model that may have covariates."""

    future: DrawnCovariates

    def draw_covariates(self, random: torch.Generator, how: FutureCovariates) -> None:
        self.future.random, self.future.how = random, how
