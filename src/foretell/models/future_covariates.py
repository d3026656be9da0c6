"""Covariates of drawn events: those of a random training event of the same type, or missing ones; and the calendar."""

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
    """The calendar of sequences that are continued."""

    def __init__(self, calendar: CalendarEmbedding, starts: Tensor) -> None:
        self.calendar, self.starts = calendar, starts  # float64 [W]: the moments of time 0

    def select(self, rows: Tensor) -> FutureClock:
        return FutureClock(self.calendar, self.starts[rows])

    def of_events(self, sequences: Tensor, times: Tensor) -> Tensor:
        """The term that is added to the embeddings of events at these times [n]: [n, D]."""
        return self.calendar.waves(self.starts[sequences], times) @ self.calendar.event

    def on_windows(self, middle: Tensor, half: Tensor, degree: int, starts: Tensor | None = None) -> ChebyshevPiece:
        """The term at queries on windows `middle ± half` [W, P]: [W, P, D]; `starts` [W, P] gives their sequences if they are in
        another order."""
        begin = self.starts[:, None] if starts is None else starts
        waves = calendar_waves(self.calendar.phases, begin.expand_as(middle), middle, half, degree)
        return waves.through(self.calendar.query)

    def changes(self, start: Tensor, end: Tensor) -> Tensor:
        """Whether clocks are put forward or back on windows [W, P]: bool [W, P]."""
        return changes_within(self.calendar.phases, self.starts[:, None].expand_as(start), start, end)

    @property
    def shortest(self) -> float:
        """The shortest wave, in the data's unit."""
        return SHORTEST_WAVE / self.calendar.calendar.seconds_per_unit


class DrawnCovariates:
    """What covariates and the calendar add to events that are drawn, and to queries, of sequences that are continued."""

    def __init__(
        self,
        inputs: CovariateEmbedding | None,
        own: Tensor | None,  # [W, D]: of sequences, in every event
        query: Tensor | None,  # [W, D]: of sequences, in every query
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
        """For the sequences of a batch."""
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
        """What is added to the embeddings of events of these types at these times, in these sequences: [n, D]; None: nothing."""
        found = self._of_covariates(sequences, types)
        return found if self.clock is None else plus(self.clock.of_events(sequences, times), found)

    def _of_covariates(self, sequences: Tensor, types: Tensor) -> Tensor | None:
        if self.inputs is None:
            return None
        own = None if self.own is None else self.own[sequences]
        found = self.inputs.event(*self._drawn(self.inputs, types))
        return own if found is None else plus(found, own)

    def on_windows(self, state: ChebyshevPiece, middle: Tensor, half: Tensor, degree: int) -> ChebyshevPiece:
        """States [W, P, D] on windows `middle ± half`, with what is added to them."""
        found = state if self.query is None else state + self.query[:, None]
        return found if self.clock is None else found + self.clock.on_windows(middle, half, degree)

    def judged(self, upper: Tensor, middle: Tensor, start: Tensor, end: Tensor) -> Tensor:
        """What a bound is judged by: about the intensity in the middle, or the bound itself where no bound can be tight."""
        return middle if self.clock is None else torch.where(self.clock.changes(start, end), upper, middle)

    def _drawn(self, kept: CovariateEmbedding, types: Tensor) -> tuple[Tensor, Tensor]:
        """Numbers and codes of a training event of each type, missing where there is none or where they are to be: [n, …] each."""
        rows = len(kept.kept_numbers)
        start = kept.kept_offsets[types]
        count = kept.kept_offsets[types + 1] - start
        if self.how == "missing" or rows == 0:
            count = torch.zeros_like(count)
        draws = torch.rand(len(types), generator=self.random, dtype=torch.float64).to(types.device)
        place = start + (draws * count).long()
        # Behind all that are kept stands an event of which nothing is known.
        place = torch.where(count > 0, place, rows)
        missing = F.pad(kept.kept_missing, (0, 0, 0, 1), value=1).bool()[place]
        numbers, codes = (F.pad(one, (0, 0, 0, 1))[place] for one in (kept.kept_numbers, kept.kept_codes))
        return numbers.masked_fill(missing, torch.nan), codes.long()


class CovariateSampler(Sampler):
    """The sampler of a model that may have covariates."""

    future: DrawnCovariates

    def draw_covariates(self, random: torch.Generator, how: FutureCovariates) -> None:
        self.future.random, self.future.how = random, how
