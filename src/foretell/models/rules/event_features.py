"""The term of an event's numbers in its embedding after it happened: `W [1; x; missing]`, for functors with `features`.

All `W` start at 0, so that an untrained model computes what it would without features.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from foretell.batches.batch import Batch
from foretell.batches.covariates import CovariateEncoder
from foretell.batches.event_features import FeatureEncoder
from foretell.data import EventData, EventSequence
from foretell.data.covariates import NumberColumn
from foretell.ground.timeline import Timeline
from foretell.lang.fact_table import inputs
from foretell.plan.parameters import DimensionLayout
from foretell.sampling.core.sampler import FutureCovariates

KEPT = 65_536  # the number of training events whose numbers are kept, for futures
KEPT_PER_TYPE = 256


@dataclass(frozen=True)
class PointInputs:
    """Values at the points of a plan, besides their times."""

    numbers: Tensor | None  # [points, columns]: of events, if some have features
    moments: Tensor | None  # float64 [points]: if the model follows a calendar


def numbers_of_points(batch: Batch, source: Tensor) -> Tensor:
    """Return standardised numbers [points, columns], missing for points that are no events. `source` indexes [0, events, queries]."""
    assert batch.covariates is not None, "a batch for a program with features is made by its model's collator"
    found = batch.covariates.numbers.flatten(0, 1)
    rows = torch.cat([found.new_full((1, found.shape[1]), torch.nan), found])
    return rows.index_select(0, torch.where(source <= len(found), source, 0))


def numbers_of_changes(
    encoder: CovariateEncoder, history: EventSequence, timeline: Timeline, device: torch.device
) -> Tensor:
    """Return standardised numbers of a history's events in the rows of its changes, [changes, columns]; missing for an expiry."""
    found = encoder.rows([history], len(history), device).numbers[0]
    if not timeline.is_expiry.any():
        return found
    changes = found.new_full((len(timeline.is_expiry), found.shape[1]), torch.nan)
    changes[torch.from_numpy(~timeline.is_expiry).to(device)] = found
    return changes


class EventFeatures(nn.Module):
    """Matrices of functors, in the order of the program. The columns of all functors are stored once each.

    Args:
        layout: the program and its dimensions.
    """

    kept: Tensor
    kept_missing: Tensor
    kept_offsets: Tensor

    def __init__(self, layout: DimensionLayout) -> None:
        super().__init__()
        features = layout.program.features
        self.functors = tuple(features)
        names = dict.fromkeys(name for columns in features.values() for name in columns)
        place = {name: number for number, name in enumerate(names)}
        self.encoder = FeatureEncoder([NumberColumn(name, 0.0, 1.0) for name in names])  # until it is fitted
        self.places = {functor: [place[name] for name in columns] for functor, columns in features.items()}
        self.W = nn.ParameterList(
            torch.zeros(layout.dimension(functor), inputs(len(columns))) for functor, columns in features.items()
        )
        is_kept = bool(names)  # files of models without features lack these buffers
        self.register_buffer("kept", torch.zeros(0, len(names), dtype=torch.float64), persistent=is_kept)
        self.register_buffer("kept_missing", torch.zeros(0, len(names), dtype=torch.uint8), persistent=is_kept)
        self.register_buffer("kept_offsets", torch.zeros(1, dtype=torch.int64), persistent=is_kept)

    @property
    def columns(self) -> tuple[NumberColumn, ...]:
        """The columns of numbers of events, with their scales."""
        return self.encoder.columns

    def number(self, functor: str) -> int:
        """Return the index of a functor, or -1 for one without features."""
        return self.functors.index(functor) if functor in self.functors else -1

    def inputs_of(self, number: int, numbers: Tensor) -> Tensor:
        """Return `[1; x; missing]` of one functor from standardised numbers of all columns [..., columns]."""
        W = self.W[number]
        own = numbers[..., self.places[self.functors[number]]]
        gone = own.isnan()
        return torch.cat([torch.ones_like(own[..., :1]), own.masked_fill(gone, 0.0), gone.to(own.dtype)], -1).to(
            W.dtype
        )

    def forward(self, number: int, numbers: Tensor) -> Tensor:
        """Return the term in the embeddings of events: [..., D]."""
        return self.inputs_of(number, numbers) @ self.W[number].T

    def fit(self, data: EventData) -> None:
        """Compute the scales of columns from training data, and keep the numbers of some events per type."""
        if not self.functors:
            return
        self.encoder.fit(data)
        rows = [self.encoder.rows([one], len(one), "cpu").numbers[0] for one in data]
        types = torch.from_numpy(np.concatenate([np.zeros(0, dtype=np.int64), *(one.types for one in data)])).long()
        count = len(data.vocabulary)
        most = max(1, min(KEPT_PER_TYPE, KEPT // max(count, 1)))
        order = torch.randperm(len(types), generator=torch.Generator().manual_seed(0))
        order = order[types[order].argsort(stable=True)]
        counts = torch.bincount(types, minlength=count)
        first = (counts.cumsum(0) - counts)[types[order]]
        order = order[torch.arange(len(order)) - first < most]
        self.keep(torch.cat([self.kept[:0].cpu(), *rows])[order], F.pad(counts.clamp(max=most).cumsum(0), (1, 0)))

    def keep(self, numbers: Tensor, offsets: Tensor) -> None:
        """Store standardised numbers of training events, sorted by type, NaN where missing. `offsets` has the start of each type."""
        device = self.kept.device
        self.kept, self.kept_missing = numbers.nan_to_num(nan=0.0).to(device), numbers.isnan().byte().to(device)
        self.kept_offsets = offsets.to(device)

    def drawn(self, types: Sequence[int | None], random: torch.Generator, how: FutureCovariates) -> Tensor:
        """Return numbers of drawn events, [n, columns]: those of a random training event of the type, or missing ones."""
        none = len(self.kept_offsets) - 1
        place = torch.tensor([none if one is None or one >= none else one for one in types], dtype=torch.int64)
        offsets = F.pad(self.kept_offsets.cpu(), (0, 1), value=len(self.kept))  # an extra type without kept events
        start = offsets[place]
        count = offsets[place + 1] - start if how == "drawn" else torch.zeros_like(start)
        draws = torch.rand(len(types), generator=random, dtype=torch.float64)
        rows = torch.where(count > 0, start + (draws * count).long(), len(self.kept))
        known = self.kept.masked_fill(self.kept_missing.bool(), torch.nan)
        return F.pad(known, (0, 0, 0, 1), value=torch.nan)[rows.to(self.kept.device)]

    # Files

    def named_arrays(self) -> dict[str, Tensor]:
        return {f"add.features({functor}).W": one for functor, one in zip(self.functors, self.W, strict=True)}

    def load_named_arrays(self, arrays: Mapping[str, Tensor]) -> None:
        with torch.no_grad():
            for name, one in self.named_arrays().items():
                one.copy_(arrays[name])

    def spec(self) -> dict[str, Any]:
        """Return what a file needs besides tensors."""
        kept = {"kept": len(self.kept), "kept_types": len(self.kept_offsets) - 1}
        return {"columns": [one.to_json() for one in self.columns], **kept}

    def restore(self, spec: dict[str, Any]) -> None:
        """Set the columns and allocate the kept numbers. Raise a `ValueError` if the columns are not those of the program."""
        names = [one.name for one in self.columns]
        found = spec["columns"]
        if [one.get("name") for one in found] != names or any(one.get("kind") != "number" for one in found):
            raise ValueError("its features are not those of its program")
        sizes = spec["kept"], spec["kept_types"]
        if any(
            type(one) is not int or not 0 <= one <= limit for one, limit in zip(sizes, (KEPT, 1 << 31), strict=True)
        ):
            raise ValueError(f"it keeps the numbers of {str(sizes)[:80]} events")
        columns = [NumberColumn(one["name"], float(one["mean"]), float(one["scale"])) for one in found]
        if any(not (np.isfinite(one.mean) and 0.0 < one.scale < np.inf) for one in columns):
            raise ValueError("its features have no finite means and deviations")
        self.encoder.use(columns)
        self.keep(
            torch.zeros(spec["kept"], len(names), dtype=torch.float64), torch.zeros(spec["kept_types"] + 1).long()
        )

    def check_state(self) -> None:
        """Raise a `ValueError` that names the numbers that are invalid in this model."""
        offsets = self.kept_offsets
        if int(offsets[0]) != 0 or int(offsets[-1]) != len(self.kept) or bool((offsets[1:] < offsets[:-1]).any()):
            raise ValueError("the rows of its kept features do not fit its types")

    def _apply(self, fn: Any, recurse: bool = True) -> EventFeatures:
        """Keep stored numbers in float64 whatever the model's precision: embedding rounds them, as it rounds those of data."""
        kept = self.kept
        super()._apply(fn, recurse)
        self.kept = kept.to(self.kept_offsets.device)
        return self
