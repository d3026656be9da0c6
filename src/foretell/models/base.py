"""The one interface of all models: encode a history once, then answer any number of queries about it.

`encode` reads the events. `state` returns what the model knows at each query's time from the events that the query sees.
`intensities`, `total` and `log_intensity` turn a state into numbers, in the data's own unit of time. States are tensors
`[B, Q, ...]`, so that callers can slice them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from types import MappingProxyType
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from foretell.batches.batch import Batch, Collator, Queries
from foretell.data import EventData, EventSequence, Vocabulary
from foretell.data.calendar import Calendar
from foretell.errors import ForetellError
from foretell.models import ATTACHED
from foretell.models.calendar import CalendarEmbedding, QueryCovariates, add_calendar
from foretell.models.capabilities import Embeds, EmbedsTime, GapIntensities, NoiseIntensities
from foretell.models.covariates import CovariateEmbedding, plus
from foretell.models.feature_rows import EventFeatureRows
from foretell.models.registry import ModelOptions, ModelSpec
from foretell.options import changed, check_choice, names_of
from foretell.sampling.core.future import Futures
from foretell.sampling.core.futures import sample
from foretell.sampling.core.sampler import Sampler

OptionsT = TypeVar("OptionsT", bound=ModelOptions)

WAVES = ("m", "M")  # the units of the time embedding
QUERIES_AT_A_TIME = {"cpu": 1 << 14, "cuda": 1 << 19}


def asked_times(times: Sequence[float] | np.ndarray) -> np.ndarray:
    asked = np.atleast_1d(np.asarray(times, dtype=np.float64))
    if asked.ndim != 1 or not (np.isfinite(asked) & (asked >= 0.0)).all():
        raise ForetellError(f"times: expected a list of numbers from 0 on, found {times!r}")
    return asked


def check_model(value: object) -> None:
    """Raise a `ForetellError` if `value` is not a model."""
    if not isinstance(value, nn.Module):
        raise ForetellError(f"model: expected a model, such as ft.ANHP(data.vocabulary), found {type(value).__name__}")


class IntensityModel(nn.Module, ABC, Generic[OptionsT]):
    """A point process with a learnable intensity for each event type."""

    about: ClassVar[ModelSpec]  # the description in the registry; registration sets `kind` and `title` too
    kind: ClassVar[str]
    title: ClassVar[str]
    noise: torch.Generator | None  # the random numbers of dropout
    unit_names: tuple[str, ...] = ("time_scale",)  # numbers computed from training data, by attribute
    shown_sizes: ClassVar[tuple[str, ...]] = ()  # attributes that are sizes and are written into a file of parameters
    shown_units: Mapping[str, str] = MappingProxyType(
        {}
    )  # public names of those `units` that are needed to interpret the parameters
    rows_at_a_time: ClassVar[int] = 1  # the number of sequences that a CPU should compute together, at least
    takes_covariates: ClassVar[bool] = False  # whether the model can use columns beside times and types
    covariates: CovariateEmbedding | None  # the embedding of covariates; None: the training data had none
    takes_calendar: ClassVar[bool] = False  # whether intensities can depend on the calendar
    calendar: CalendarEmbedding | None  # the embedding of the calendar; None: the training data had no absolute times

    def __init__(self, vocabulary: Vocabulary | int, options: OptionsT) -> None:
        super().__init__()
        self.options = options
        self.vocabulary = Vocabulary.of_size(vocabulary) if isinstance(vocabulary, int) else vocabulary
        self.collator = Collator()
        self.covariates = None
        self.calendar = None
        self.time_scale = 1.0
        self.noise = None
        self.fitted = False  # True once units and starting rates were computed from data
        self.unseen: tuple[int, ...] = ()  # types that never occurred in the training data
        self.longest: float | None = None  # the largest t_end of the training data

    @classmethod
    def chosen(cls, options: OptionsT | None, changes: dict[str, Any]) -> OptionsT:
        """Return the options of a constructor call: `options`, or the defaults, with single options changed by `changes`."""
        made: Any = cls.about.options() if options is None else options
        made = changed(made, changes, cls.title)
        made.check()
        return made

    @classmethod
    def preset(cls, name: str, *given: Any, **changes: Any) -> Self:
        """Return a model with the options of a preset, such as `paper`; other arguments are those of the constructor and override it."""
        known = cls.about.options.presets
        check_choice("preset", name, list(known))
        make: Any = cls
        return make(*given, **{**known[name], **changes})

    @classmethod
    def paper(cls, *given: Any, **changes: Any) -> Self:
        """Return the model exactly as in its paper: the preset `paper`."""
        return cls.preset("paper", *given, **changes)

    @classmethod
    def from_options(cls, options: Any, vocabulary: Vocabulary, *, seed: int, dtype: torch.dtype) -> Self:
        """Return an untrained model with the options of a configuration."""
        make: Any = cls
        return make(vocabulary, options, seed=seed, dtype=dtype)

    @property
    def dropout(self) -> float:
        return getattr(self.options, "dropout", 0.0)

    @dropout.setter
    def dropout(self, share: float) -> None:
        self.options = replace(self.options, dropout=share)  # pyright: ignore[reportCallIssue]

    @property
    def types(self) -> int:
        return len(self.vocabulary)

    @property
    def dtype(self) -> torch.dtype:
        return next(self.parameters()).dtype

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    @abstractmethod
    def encode(self, batch: Batch) -> Any:
        """Read the events of a batch once; return the encoded history that `state` needs."""

    @abstractmethod
    def state(self, history: Any, queries: Queries) -> Tensor:
        """Return the model's state at each query: [B, Q, ...]."""

    @abstractmethod
    def intensities(self, state: Tensor) -> Tensor:
        """Return the intensities of all types, [..., K], from a state [..., S]."""

    @abstractmethod
    def log_intensity(self, state: Tensor, types: Tensor) -> Tensor:
        """Return the log-intensity of one type per query: [B, Q]. `types` [B, Q] selects it."""

    def log_intensities(self, state: Tensor) -> Tensor:
        """Return the log-intensities of all types: [..., K]."""
        return self.intensities(state).log()

    def total(self, state: Tensor) -> Tensor:
        """Return the total intensity: [B, Q]."""
        return self.intensities(state).sum(-1)

    def at_ends_and_inside(self, state: Tensor, types: Tensor, pseudo: bool) -> GapIntensities:
        """Return the likelihood's terms from states [B, N + 1, P + 1, …]: per gap, `P` inner points, then its end."""
        ends, inside = state[:, :-1, -1], state[:, :, :-1]
        logs = self.log_intensities(inside).sum(-1) if pseudo else None
        return GapIntensities(self.log_intensity(ends, types), self.total(inside), logs)

    def ends_and_chosen(self, history: Any, batch: Batch, queries: Queries, chosen: Tensor) -> NoiseIntensities:
        """Return log-intensities of the batch's events at their times, and of the `chosen` types [B, Q] at the queries.

        For models of rules, `chosen` holds numbers of facts; each must be possible at its query.
        """
        width = batch.times.shape[1]
        seen = queries.seen().expand_as(queries.times)
        own = torch.arange(width, device=seen.device)[None].expand(len(batch), width)
        both = Queries.seeing(torch.cat([batch.times, queries.times], 1), torch.cat([own, seen], 1))
        logs = self.log_intensity(self.state(history, both), torch.cat([batch.types, chosen], 1))
        return NoiseIntensities(logs[:, :width], logs[:, width:])

    @property
    def queries_at_a_time(self) -> int:
        """The number of queries to evaluate together without gradients on the model's device."""
        return QUERIES_AT_A_TIME.get(self.device.type, QUERIES_AT_A_TIME["cuda"])

    @property
    def short_time(self) -> float | None:
        """How soon after an event intensities may change quickly, so that integrals need points there; None: they never do."""
        return None

    @property
    def unscored(self) -> np.ndarray | None:
        """bool [K]: True for types that happen but are not predicted; None: all types are predicted."""
        return None

    @torch.no_grad()
    def embed(self, history: EventSequence, layers: Literal["all", "top"] = "all") -> np.ndarray:
        """Return the embedding of every event, float64: layers 0 … L side by side [events, (L + 1)·D], or the top one [events, D]."""
        if not isinstance(self, Embeds):
            raise ForetellError(f"{self.title} has no embeddings of events; train an A-NHP")
        with self.evaluating():
            by_layer = self.embeddings(
                self.collator.batch(EventData([history], self.vocabulary), [0], device=self.device)
            )
        chosen = torch.cat(by_layer, dim=-1) if layers == "all" else by_layer[-1]
        return chosen[0].double().cpu().numpy()

    def prepare(self, data: EventData) -> None:
        """Compute units and starting rates from training data; called once, by the first fit."""
        self.fitted = True

    @property
    def has_covariates(self) -> bool:
        return self.collator.covariates is not None

    @property
    def closed_form(self) -> bool:
        """Whether an integral with a closed form can be used: not if the model follows a calendar."""
        return self.calendar is None

    @property
    def followed(self) -> Calendar | None:
        """The calendar that intensities depend on; None: there is none."""
        return None if self.calendar is None else self.calendar.calendar

    def follow_calendar(self, calendar: Calendar) -> None:
        """Let intensities depend on this calendar from now on. Its new parameters start at 0."""
        add_calendar(self, calendar)

    def calendar_sizes(self) -> tuple[int, int]:
        """Return the sizes of the two vectors that get a calendar term: an event's embedding, and the state at a query."""
        dim: Any = getattr(self, "dim")  # noqa: B009
        return dim, dim

    def event_inputs(self, batch: Batch, before: int = 0) -> Tensor | None:
        """Return the terms of covariates and calendar in event embeddings, [B, N, D], after `before` rows for `bos`; None: no terms."""
        found = None if self.covariates is None else self.covariates.of_events(batch, before)
        return found if self.calendar is None else plus(self.calendar.of_events(batch, before), found)

    @property
    def has_inputs(self) -> bool:
        """Whether covariates or the calendar add terms to the embeddings of events."""
        return self.covariates is not None or self.calendar is not None

    def event_features(self, batch: Batch, before: int = 0) -> EventFeatureRows | None:
        """Return the product behind `event_inputs` as its two factors; None: no terms, or so many categories that they are looked up."""
        parts = [] if self.calendar is None else [self.calendar.features_of_events(batch, before)]
        if self.covariates is not None:
            found = self.covariates.features_of_events(batch, before)
            if found is None:
                return None
            parts.append(found)
        return EventFeatureRows.joined(parts)

    def query_inputs(self, batch: Batch) -> QueryCovariates:
        """Return the terms of static covariates in the states of queries, and the start of each sequence."""
        added = None if self.covariates is None else self.covariates.of_queries(batch)
        return QueryCovariates(added, batch.starts)

    def at_queries(self, inputs: QueryCovariates, times: Tensor) -> Tensor | None:
        """Return the terms of covariates and calendar in the states at times [B, Q]: [B, 1 or Q, D]; None: no terms."""
        if self.calendar is None or inputs.starts is None:
            return inputs.added
        return plus(self.calendar.of_queries(inputs.starts, times), inputs.added)

    def input_arrays(self) -> dict[str, Tensor]:
        """Return views of the parameters of covariates and calendar, under their public names."""
        found = {} if self.covariates is None else self.covariates.named_arrays()
        return found if self.calendar is None else found | self.calendar.named_arrays()

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """A context without dropout. The previous mode is restored afterwards, also after an error."""
        was_training = self.training
        self.eval()
        try:
            yield
        finally:
            self.train(was_training)

    @torch.no_grad()
    def intensity(self, history: EventSequence, times: Sequence[float] | np.ndarray) -> np.ndarray:
        """Return the intensities of all types at `times`, float64 [times, K]. Each time sees the earlier events of `history`."""
        asked = asked_times(times)
        with self.evaluating():
            batch = self.collator.batch_until(history, self.vocabulary, asked, self.device)
            encoded = self.encode(batch)
            wanted = torch.from_numpy(asked).to(self.device)
            rows = [np.empty((0, self.types))]
            for chunk in wanted.split(self.queries_at_a_time):
                queries = self.collator.plan_queries(batch, Queries.at_times(batch, chunk[None]))
                state = self.state(encoded, queries)
                rows.append(self.intensities(state)[0].double().cpu().numpy())
        return np.concatenate(rows)

    @abstractmethod
    def sampler(self, histories: Sequence[EventSequence], seen: Sequence[int]) -> Sampler:
        """Return a sampler that continues one sequence per history, each after the first `seen` events of its history."""

    def sample(self, history: EventSequence, *, horizon: float, n: int = 1, **options: Any) -> Futures:
        """Return sampled futures; see `foretell.sample`."""
        return sample(self, history, horizon=horizon, n=n, **options)

    def predict(self, history: EventSequence, **options: Any) -> Any:
        """Return the distribution of the next event; see `foretell.predict`."""
        return ATTACHED["predict"](self, history, **options)

    def units(self) -> dict[str, float]:
        """Return the numbers that were computed from the training data and are not parameters, by name of the attribute."""
        return {name: getattr(self.time if name in WAVES else self, name) for name in self.unit_names}

    def set_units(self, units: dict[str, float]) -> None:
        """Set numbers like those that `units` returned."""
        for name in self.unit_names:
            if name not in WAVES:
                setattr(self, name, units[name])
        if isinstance(self, EmbedsTime):
            self.time.set_range(*(units[name] for name in WAVES))

    def spec(self) -> dict[str, Any]:
        """Return what is needed besides the tensors to rebuild this model, as JSON."""
        return {**asdict(self.options), **self.units(), "fitted": self.fitted, "dtype": self._dtype_name()}

    def _dtype_name(self) -> str:
        return str(self.dtype).removeprefix("torch.")

    @classmethod
    def from_spec(cls, spec: dict[str, Any], vocabulary: Vocabulary) -> Self:
        """Rebuild a model, without its tensors, from what `spec` returned."""
        make: Any = cls
        names = names_of(cls.about.options)
        given = {**cls.about.options.earlier, **spec}
        options = cls.about.options(**{name: given[name] for name in names})
        model = make(vocabulary, options, dtype=getattr(torch, spec["dtype"]))
        units = model.units()
        unknown = spec.keys() - {*names, *units, "fitted", "dtype"}
        if unknown:
            raise ValueError(f"unknown keys: {', '.join(sorted(unknown))}")
        model.set_units({name: float(spec[name]) for name in units})
        model.fitted = spec["fitted"]
        return model

    @abstractmethod
    def named_arrays(self) -> dict[str, Tensor]:
        """Return every parameter under its public name, in the data's unit, as `foretell params` shows them."""

    @abstractmethod
    def load_named_arrays(self, arrays: dict[str, Tensor]) -> None:
        """Set parameters from arrays like those of `named_arrays`. The caller has checked names and shapes."""
