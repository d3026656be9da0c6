"""The terms of covariates in a model: a vector added to the embedding of each event, and one added to the state of each query.

For columns with values `x` (standard deviations from the mean) and categories `c`, the vector is

    Σ_x (x·w_x, or m_x where x is missing) + Σ_c v_c.

Columns of an event enter the embedding of that event alone, so no query sees them before it happens. Columns of a sequence enter the
embeddings of all its events with one set of vectors, and the states of all queries with another. All vectors start at 0, so that an
untrained model computes what it would without covariates.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from foretell.batches.batch import Batch
from foretell.batches.covariates import CovariateEncoder, CovariateRows
from foretell.data import EventData
from foretell.data.attributes import AttributeTable
from foretell.data.covariates import CategoryColumn, ColumnEncoding, CovariateEncoding, NumberColumn
from foretell.models.capabilities import HasRules
from foretell.models.feature_rows import EventFeatureRows
from foretell.nn.lookup import lookup
from foretell.wording import listed

if TYPE_CHECKING:
    from foretell.models.base import IntensityModel

log = logging.getLogger("foretell")

MOST_ONE_HOT = 256  # categories of all columns together, up to which a matrix product is faster than a look-up
KEPT_PER_TYPE = 256  # the number of training events per type whose covariates are kept, for futures
KEPT = 65_536  # the limit for all types together


class ColumnEmbedding(nn.Module):
    """A vector per column of numbers, one per such column for missing values, and one per category."""

    offsets: Tensor

    def __init__(self, columns: Sequence[ColumnEncoding], dim: int) -> None:
        super().__init__()
        self.columns = tuple(columns)
        numbers = [one for one in columns if isinstance(one, NumberColumn)]
        sizes = [one.size for one in columns if isinstance(one, CategoryColumn)]
        self.numbers = nn.Parameter(torch.zeros(2 * len(numbers), dim)) if numbers else None  # values, missing
        self.categories = nn.Parameter(torch.zeros(sum(sizes), dim)) if sizes else None
        starts = [sum(sizes[:place]) for place in range(len(sizes))]
        self.register_buffer("offsets", torch.tensor(starts, dtype=torch.int64), persistent=False)

    @property
    def looked_up(self) -> nn.Parameter | None:
        """The vectors of categories, if they are too many for a matrix product; else None."""
        return self.categories if self.categories is not None and len(self.categories) > MOST_ONE_HOT else None

    def features(self, numbers: Tensor, codes: Tensor) -> EventFeatureRows | None:
        """Return values [..., numbers] and codes [..., categories] as columns: numbers, flags of missing ones, and one-hot categories."""
        rows: list[Tensor] = []
        vectors: list[Tensor] = []
        if self.numbers is not None:
            gone = numbers.isnan()
            rows += [numbers.masked_fill(gone, 0.0).to(self.numbers.dtype), gone.to(self.numbers.dtype)]
            vectors.append(self.numbers)
        if self.categories is not None and self.looked_up is None:
            one_hot = self.categories.new_zeros(*codes.shape[:-1], len(self.categories))
            rows.append(one_hot.scatter_(-1, codes + self.offsets, 1.0))
            vectors.append(self.categories)
        return EventFeatureRows(torch.cat(rows, dim=-1), torch.cat(vectors)) if vectors else None

    def forward(self, numbers: Tensor, codes: Tensor) -> Tensor | None:
        """Return the sum of the vectors, [..., D], for values [..., numbers] and codes [..., categories]; None: there are no columns.

        Numbers and few categories are one matrix product; many categories are looked up.
        """
        features = self.features(numbers, codes)
        found = None if features is None else features.rows @ features.vectors
        if self.looked_up is None:
            return found
        return plus(lookup(self.looked_up, codes + self.offsets).sum(-2), found)

    def named_arrays(self, prefix: str) -> dict[str, Tensor]:
        """Return views of the parameters under their public names."""
        found: dict[str, Tensor] = {}
        names = [one.name for one in self.columns if isinstance(one, NumberColumn)]
        for place, name in enumerate(names):
            assert self.numbers is not None
            found[f"{prefix}.{name}.w"] = self.numbers[place]
            found[f"{prefix}.{name}.missing"] = self.numbers[len(names) + place]
        sets = [one for one in self.columns if isinstance(one, CategoryColumn)]
        for one, start in zip(sets, self.offsets.tolist(), strict=True):
            assert self.categories is not None
            for place, label in enumerate(("missing", "other", *(f"is.{text}" for text in one.categories))):
                found[f"{prefix}.{one.name}.{label}"] = self.categories[start + place]
        return found


def plus(x: Tensor, added: Tensor | None) -> Tensor:
    """Return the sum, or `x` if `added` is None."""
    return x if added is None else x + added


class CovariateEmbedding(nn.Module):
    """The vectors of all columns, and the covariates of some training events per type, from which futures draw."""

    kept_numbers: Tensor  # 0 where missing
    kept_missing: Tensor  # uint8
    kept_codes: Tensor
    kept_offsets: Tensor

    def __init__(self, encoding: CovariateEncoding, dim: int, types: int, kept: int = 0) -> None:
        super().__init__()
        self.encoding = encoding
        self.event = ColumnEmbedding(encoding.events, dim)
        self.static = ColumnEmbedding(encoding.static, dim)  # added to events
        self.query = ColumnEmbedding(encoding.static, dim)
        numbers = sum(isinstance(one, NumberColumn) for one in encoding.events)
        self.register_buffer("kept_numbers", torch.zeros(kept, numbers))
        self.register_buffer("kept_missing", torch.zeros(kept, numbers, dtype=torch.uint8))
        self.register_buffer("kept_codes", torch.zeros(kept, len(encoding.events) - numbers, dtype=torch.int32))
        self.register_buffer("kept_offsets", torch.zeros(types + 1, dtype=torch.int64))

    def keep(self, data: EventData) -> None:
        """Keep the covariates of some training events of each type; the choice is deterministic."""
        table, types = data.columns.attribute_table, torch.from_numpy(data.columns.types.astype("int64"))
        most = max(1, min(KEPT_PER_TYPE, KEPT // max(len(data.vocabulary), 1)))
        order = torch.randperm(len(types), generator=torch.Generator().manual_seed(0))
        order = order[types[order].argsort(stable=True)]
        counts = torch.bincount(types, minlength=len(data.vocabulary))
        first = (counts.cumsum(0) - counts)[types[order]]
        order = order[torch.arange(len(order)) - first < most]
        events, _ = self.encoding.encode(table or AttributeTable({}, {}), len(types), len(data))
        kept = torch.from_numpy(events.numbers[order.numpy()])
        self.kept_numbers = kept.nan_to_num(nan=0.0).to(self.kept_numbers)
        self.kept_missing = kept.isnan().to(self.kept_missing)
        self.kept_codes = torch.from_numpy(events.codes[order.numpy()]).to(self.kept_codes.device)
        self.kept_offsets = F.pad(counts.clamp(max=most).cumsum(0), (1, 0)).to(self.kept_offsets.device)

    def of_events(self, batch: Batch, before: int = 0) -> Tensor:
        """Return the term in event embeddings, [B, N, D]; `before` rows (`bos`) with static covariates alone come first."""
        rows = covariates_of(batch)
        found = self.event(rows.numbers, rows.codes)
        own = self.static(rows.static_numbers, rows.static_codes)
        if found is None:
            assert own is not None, "there are covariates"
            return own.unsqueeze(1).expand(-1, batch.times.shape[1] + before, -1)
        found = F.pad(found, (0, 0, before, 0))
        return found if own is None else found + own.unsqueeze(1)

    def features_of_events(self, batch: Batch, before: int = 0) -> EventFeatureRows | None:
        """Return the two factors of the product that `of_events` computes; None: some categories are looked up."""
        if self.event.looked_up is not None or self.static.looked_up is not None:
            return None
        rows, parts = covariates_of(batch), []
        own = self.event.features(rows.numbers, rows.codes)
        if own is not None:
            parts.append(EventFeatureRows(F.pad(own.rows, (0, 0, before, 0)), own.vectors))
        of_sequence = self.static.features(rows.static_numbers, rows.static_codes)
        if of_sequence is not None:
            many = of_sequence.rows.unsqueeze(1).expand(-1, batch.times.shape[1] + before, -1)
            parts.append(EventFeatureRows(many, of_sequence.vectors))
        return EventFeatureRows.joined(parts)

    def of_queries(self, batch: Batch) -> Tensor | None:
        """Return the term in the states of all queries of a sequence, [B, 1, D]; None: there are no static columns."""
        rows = covariates_of(batch)
        found = self.query(rows.static_numbers, rows.static_codes)
        return None if found is None else found.unsqueeze(1)

    def named_arrays(self) -> dict[str, Tensor]:
        """Return views of the parameters under their public names."""
        parts = {"covariate": self.event, "static.event": self.static, "static.query": self.query}
        return {name: one for prefix, part in parts.items() for name, one in part.named_arrays(prefix).items()}

    def check_state(self) -> None:
        """Raise a `ValueError` that names the numbers that are invalid in this model."""
        offsets, rows = self.kept_offsets, len(self.kept_numbers)
        if int(offsets[0]) != 0 or int(offsets[-1]) != rows or bool((offsets[1:] < offsets[:-1]).any()):
            raise ValueError("the rows of its kept covariates do not fit its types")
        sizes = [one.size for one in self.encoding.events if isinstance(one, CategoryColumn)]
        if rows and bool(((self.kept_codes < 0) | (self.kept_codes >= torch.tensor(sizes))).any()):
            raise ValueError("its kept covariates have categories that it does not know")


def covariates_of(batch: Batch) -> CovariateRows:
    assert batch.covariates is not None, "the batch was not made by the model's collator"
    return batch.covariates


def add_covariates(model: IntensityModel, encoding: CovariateEncoding, kept: int = 0) -> CovariateEmbedding:
    """Let a model use these columns from now on. Its results do not change before training."""
    assert model.covariates is None, "it has some"
    dim: Any = getattr(model, "dim")  # noqa: B009
    made = CovariateEmbedding(encoding, dim, model.types, kept).to(model.device, model.dtype)
    model.covariates, model.collator.covariates = made, CovariateEncoder(encoding)
    return made


def take_covariates(model: IntensityModel, data: EventData) -> None:
    """Before training: use the columns named with the training data, unless the model has some already. Warn of unused columns."""
    if not data.covariates:
        return
    if model.takes_covariates and model.covariates is None:
        encoding = data.encoding()
        assert encoding is not None, "columns that are named are there"
        add_covariates(model, encoding).keep(data)
    known = () if model.collator.covariates is None else model.collator.covariates.encoding.names
    why = "cannot use covariates"
    if isinstance(model, HasRules):
        why = "uses no covariates but those that its program names with `features(EVENT, COLUMN)`"
    say_unused(data, f"{model.title} {'was begun with others' if model.covariates is not None else why}", known)


def say_unused(data: EventData, why: str, known: Sequence[str] = ()) -> None:
    """Warn of columns that were named with the data but are not used."""
    unused = [name for name in data.covariates.columns if name not in known]
    if unused:
        log.warning("%s, and does without %s", why, listed(unused, most=10))
