"""A model that another package might bring: the rate of every type fades, from each event on, to a level of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn

from foretell.batches.batch import Batch, Queries
from foretell.data import EventSequence, Vocabulary
from foretell.models.base import IntensityModel
from foretell.models.registry import ModelOptions, ModelSpec, register
from foretell.options import option
from foretell.sampling.core.sampler import Bounds, Sampler
from foretell.sampling.core.start import in_float64, past_batch


@dataclass(frozen=True)
class TinyOptions(ModelOptions):
    burst: float = option(1.0, tuned=(0.5, 1.0))  # how much more happens right after an event


@register(ModelSpec("tiny", "Tiny", TinyOptions, "rates that fade after each event", "nobody 2026"))
class Tiny(IntensityModel[TinyOptions]):
    def __init__(
        self,
        vocabulary: Vocabulary | int,
        options: TinyOptions | None = None,
        *,
        seed: int = 0,
        dtype: torch.dtype = torch.float32,
        **changes: Any,
    ) -> None:
        super().__init__(vocabulary, self.chosen(options, changes))
        self.level = nn.Parameter(torch.zeros(self.types, dtype=dtype))

    def encode(self, batch: Batch) -> Tensor:
        return batch.gap_start

    def state(self, history: Tensor, queries: Queries) -> Tensor:
        since = history.gather(1, queries.seen().expand_as(queries.times))
        return (queries.times - since).to(self.dtype).unsqueeze(-1)

    def intensities(self, state: Tensor) -> Tensor:
        return self.level.exp() * (1.0 + self.options.burst * torch.exp(-state))

    def log_intensity(self, state: Tensor, types: Tensor) -> Tensor:
        return self.log_intensities(state).gather(-1, types.unsqueeze(-1)).squeeze(-1)

    def sampler(self, histories: Sequence[EventSequence], seen: Sequence[int]) -> TinySampler:
        batch = past_batch(histories, seen, self)
        row = torch.arange(len(batch), device=self.device)
        return TinySampler(in_float64(self), batch.gap_start[row, batch.lengths].clone())

    def named_arrays(self) -> dict[str, Tensor]:
        return {f"level.{name}": self.level.detach()[index] for index, name in enumerate(self.vocabulary.names)}

    def load_named_arrays(self, arrays: dict[str, Tensor]) -> None:
        with torch.no_grad():
            for index, name in enumerate(self.vocabulary.names):
                self.level[index] = arrays[f"level.{name}"]


class TinySampler(Sampler):
    width = 0.5

    def __init__(self, model: Tiny, since: Tensor) -> None:
        self.model, self.since = model, since

    @property
    def count(self) -> int:
        return len(self.since)

    @torch.inference_mode()
    def intensities(self, times: Tensor) -> Tensor:
        return self.model.intensities((times - self.since[:, None]).clamp(min=0.0).unsqueeze(-1))

    def bounds(self, start: Tensor, end: Tensor) -> Bounds:
        return Bounds(self.intensities(start).sum(-1) * (1.0 + 1e-12), self.intensities((start + end) / 2.0).sum(-1))

    def append(self, times: Tensor, choices: Tensor) -> None:
        self.since = torch.where(choices >= 0, times, self.since)

    def select(self, rows: Tensor) -> Self:
        return type(self)(self.model, self.since[rows])

    def name(self, row: int, choice: int) -> str:
        return self.model.vocabulary.names[choice]
