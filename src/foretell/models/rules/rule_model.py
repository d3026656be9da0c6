"""The base class of models made of rules: replayed histories, plans, and the intensities of possible events.

A batch is replayed into timelines. These and the query times are compiled into a plan, to which a network of the rules is applied.
Impossible events have no intensity. Events of the rules that are not in the vocabulary count in the total.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from foretell.batches.batch import Batch, Queries
from foretell.batches.rule_collator import RuleCollator
from foretell.batches.timelines import Histories
from foretell.data import EventData, EventSequence, Vocabulary
from foretell.data.calendar import Calendar
from foretell.errors import ForetellError
from foretell.ground.impossible import check_declared
from foretell.ground.possible_groups import possible_groups
from foretell.ground.timeline import Timeline
from foretell.lang.program import Program
from foretell.models.base import WAVES, IntensityModel, asked_times
from foretell.models.calendar import starts_of
from foretell.models.capabilities import EmbedsTime, GapIntensities, NoiseIntensities, UnseenGroups
from foretell.models.rules.earlier_names import NUMBERING, meet_saved_names, renamed_parameters
from foretell.models.rules.event_features import PointInputs, numbers_of_changes, numbers_of_points
from foretell.models.rules.event_logs import check_event_arrays, event_arrays, event_logs, load_event_arrays
from foretell.models.rules.mean_rates import mean_rates
from foretell.models.rules.number_scales import NumberScales
from foretell.models.rules.other_rows import TakesRows, fill_from_log, use_program
from foretell.models.rules.planned_intensities import PlannedIntensities
from foretell.models.rules.program_parts import program_from_parts, program_parts, with_saved_rows
from foretell.models.rules.rule_calendar import RuleCalendar
from foretell.models.rules.rule_network import Embeddings, RuleNetwork
from foretell.models.rules.rule_options import RuleOptions
from foretell.models.rules.time_mixture import TimeMixture
from foretell.models.rules.unseen_groups import unseen_groups
from foretell.models.units import gap_range, mean_gap
from foretell.nn.intensity import inverse_softplus
from foretell.options import names_of
from foretell.plan.parameters import DimensionLayout, ParameterBook, events_of
from foretell.plan.plan import events_by_dim

PROGRAM_OPTIONS = ("program", "undeclared")  # a file contains the program's text instead
EVENTS_AT_A_TIME = {"cpu": 1 << 17, "cuda": 1 << 22}  # limit on possible events over all queries of one call


OptionsT = TypeVar("OptionsT", bound=RuleOptions)


class RuleModel(TakesRows, IntensityModel[OptionsT]):
    """A model whose network is defined by a program of rules. Each subclass defines how a fact depends on the past."""

    takes_calendar = True
    clock: RuleCalendar | None  # the calendar's parameters; None: the training data had no absolute times

    @property
    @abstractmethod
    def rule_network(self) -> RuleNetwork:
        """The network with all parameters of the rules."""

    def __init__(
        self, rules: Program | str | Path, vocabulary: Vocabulary | None, options: OptionsT, time_dim: int | None
    ) -> None:
        super().__init__(vocabulary if vocabulary is not None else Vocabulary(()), options)
        self.dim = dim = options.dim
        self.program = program = (
            rules if isinstance(rules, Program) else Program.from_file(rules, undeclared=options.undeclared, dim=dim)
        )
        rows = self._cell_rows()
        self.layout = DimensionLayout(program, dim, cells_take_deduced=rows is not None)
        self.book = ParameterBook(self.layout, time_dim, rows)
        self.histories = Histories(program, self.layout)
        self.book.read(self.histories.grounding)
        self.clock = None
        self.functors = events_of(program)
        self.events_by_dim = events_by_dim(self.layout)
        self.collator = self._make_collator()

    def _make_collator(self) -> RuleCollator:
        return RuleCollator(self.histories, self.book)

    def _cell_rows(self) -> int | None:
        """The number of rows of `G` of additions if facts have cells that use deductions; None: they have no such cells."""
        return None

    def _start(self, seed: int) -> None:
        """Create the parameters of intensities of event functors; called once the network exists."""
        self.w = nn.ParameterList(torch.zeros(1 + self.layout.dimension(name)) for name in self.functors)
        self.log_tau = nn.Parameter(torch.zeros(len(self.functors)))
        if self.program.features:
            self.collator.covariates = self.rule_network.features.encoder
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for w in self.w:
                w[1:] = torch.randn(len(w) - 1, generator=generator) / math.sqrt(max(len(w) - 1, 1))
        dims = [self.layout.dimension(name) for name in self.functors]
        self.mixture = TimeMixture(self.options.intensity_scales, self.options.intensity_shape, dims)
        if self.mixture.timed:
            self.unit_names = (*self.unit_names, "short", "long")
            unit = {} if "time_scale" in self.shown_units.values() else {"unit": "time_scale"}
            self.shown_units = {**self.shown_units, "short": "short", "long": "long", **unit}

    def numbers_of(self, history: EventSequence, timeline: Timeline) -> Tensor | None:
        """Return standardised numbers of a history's changes, [changes, columns], missing for an expiry; None: no features are used."""
        encoder = self.collator.covariates
        return None if encoder is None else numbers_of_changes(encoder, history, timeline, self.device)

    @property
    def number_scales(self) -> NumberScales:
        """The scales of the numbers of facts and events."""
        return NumberScales(self.rule_network)

    @property
    def short(self) -> float:
        """The shortest of the scales for the time since the last event; `long` is the longest."""
        return self.mixture.scales.short

    @property
    def long(self) -> float:
        return self.mixture.scales.long

    @property
    def short_time(self) -> float | None:
        return self.short if self.mixture.timed else None

    def set_units(self, units: dict[str, float]) -> None:
        self.time_scale = units["time_scale"]
        if isinstance(self, EmbedsTime):
            self.time.set_range(*(units[name] for name in WAVES))
        if self.mixture.timed:
            self.mixture.set_range(units["short"], units["long"])

    @property
    def unscored(self) -> np.ndarray:
        """bool [K]: True for exogenous types of the vocabulary, which happen but are not predicted."""
        kinds = (self.program.split(name)[0] for name in self.vocabulary.names)
        return np.asarray([kind not in self.functors for kind in kinds], dtype=bool)

    @property
    def followed(self) -> Calendar | None:
        return None if self.clock is None else self.clock.calendar

    def follow_calendar(self, calendar: Calendar) -> None:
        assert self.clock is None, "it has one"
        dims = {name: self.layout.dimension(name) for name in self.functors}
        self.clock = RuleCalendar(calendar, dims, *self.clock_sizes()).to(self.device, self.dtype)
        self.collator.calendar = True

    def clock_sizes(self) -> tuple[dict[str, int], int]:
        """Return the sizes of the calendar's terms: per functor the size of a cell's proposal, and the size of the time embedding."""
        return {}, 0

    # Data and names

    def widen(self, names: Iterable[str]) -> None:
        """Accept further events if the program declares them. Their parameters are those of its rules."""
        declared = {name for name, one in self.program.functors.items() if one.kind in ("event", "exogenous")}
        anything = self.program.undeclared == "exogenous"
        can_be = lambda name: anything or self.program.split(name)[0] in declared  # noqa: E731
        fresh = [name for name in names if name not in self.vocabulary and can_be(name)]
        if fresh:
            before = len(self.vocabulary)
            self.vocabulary = Vocabulary((*self.vocabulary.names, *fresh))
            self.unseen = (*self.unseen, *range(before, len(self.vocabulary)))

    def meet(self, data: EventData) -> None:
        """Add the event types of the data to the vocabulary and check them against the program; called before the first fit."""
        if not len(self.vocabulary):
            self.vocabulary = data.vocabulary
        fill_from_log(self, data)
        check_declared(self.program, data)
        self.histories.set_clock(data.clock)

    def ground(self, data: EventData) -> None:
        """Replay data and create the parameters that they need."""
        self.histories.replay(data)
        self.book.read(self.histories.grounding)
        self.rule_network.grow(self.dtype, self.device)

    def ground_possible(self, data: Iterable[EventData] = ()) -> None:
        """Create parameters for every group that can occur given the facts, the tables and, if any, the data."""
        parts = list(data)
        for part in parts:
            self.meet(part)
            self.ground(part)
        names = {part.vocabulary.names[kind]: None for part in parts for kind in np.flatnonzero(part.type_counts())}
        names |= {name: None for part in parts for one in part for name in self.histories.brought(part.vocabulary, one)}
        for rule, values in possible_groups(self.program, names if parts else None):
            self.book.numbers(rule, values)
        self.rule_network.grow(self.dtype, self.device)

    def begin_training(self) -> None:
        self.book.trained = len(self.book.order)

    def unseen_groups(self, data: EventData) -> UnseenGroups:
        self.ground(data)
        return unseen_groups(self.histories, self.book, data)

    def train(self, mode: bool = True) -> Self:
        """Switch between training and evaluation. For evaluation, parameters of untrained names become the mean of the trained ones."""
        if not mode:
            self.rule_network.settle_unseen()
        return super().train(mode)

    def prepare(self, data: EventData) -> None:
        self.time_scale = mean_gap(data)
        if self.mixture.timed:
            self.mixture.set_range(*gap_range(data))
        self.ground(data)
        with torch.no_grad():
            for number, rate in enumerate(mean_rates(self, data) * self.time_scale):
                self.w[number][0] = float(inverse_softplus(torch.tensor(max(rate, 1e-9), dtype=torch.float64)))
        self.rule_network.features.fit(data)
        self.begin_training()
        self.fitted = True

    # Intensities

    @abstractmethod
    def batch_of(self, history: Any) -> Batch:
        """Return the batch of an encoded history."""

    @abstractmethod
    def slot_embeddings(self, history: Any, plan: Any, times: Tensor, given: PointInputs) -> Embeddings:
        """Return the embeddings of slots. `times` are those of the plan's points, float64."""

    def event_numbers(self, batch: Batch, source: Tensor) -> Tensor | None:
        """Return standardised numbers [points, columns]. `source` indexes the concatenation of time 0, all events and all queries."""
        if not self.program.features:
            return None
        return numbers_of_points(batch, source)

    def grow(self) -> None:
        """Create parameters for names that a plan was the first to use."""
        if self.rule_network.is_behind:
            with self.histories.building:
                self.rule_network.grow(self.dtype, self.device)

    def planned(self, history: Any, queries: Queries) -> PlannedIntensities:
        """Return log-intensities of each possible event in the queries' plan, and of the observed events."""
        return self._answer(history, queries)

    def _answer(self, history: Any, queries: Queries) -> PlannedIntensities:
        assert queries.plan is not None, "queries to a model made of rules are planned by its collator"
        self.grow()
        batch, about, plan = self.batch_of(history), queries.plan, queries.plan.plan
        times = torch.cat([batch.times.new_zeros(1), batch.times.flatten(), queries.times.flatten()])
        times, clock, moments = times.index_select(0, about.source), None, None
        if self.clock is not None:
            clock = self.clock.rows(batch, queries)
            moments = self.clock.phases.moments(starts_of(batch).index_select(0, about.sequence), times)
        given = PointInputs(self.event_numbers(batch, about.source), moments)
        embeddings = self.slot_embeddings(history, plan, times, given)
        densities = self.mixture.densities(batch, queries, self.time_scale, self.dtype)
        return PlannedIntensities(about, *event_logs(self, plan, embeddings, densities, clock))

    @property
    def queries_at_a_time(self) -> int:
        """The number of queries per call, since each query evaluates all events that are possible at its time."""
        events = EVENTS_AT_A_TIME.get(self.device.type, EVENTS_AT_A_TIME["cuda"])
        return max(1, events // max(1, self.histories.most))

    def ends_and_inside(self, history: Any, batch: Batch, queries: Queries, pseudo: bool) -> GapIntensities:
        """Return the likelihood's terms: inside gaps only possible events are evaluated, at their ends only the observed event."""
        answer = self._answer(history, queries)
        shape = len(batch), queries.times.shape[1]
        total = answer.summed(answer.possible.exp(), shape)
        logs = answer.summed(answer.possible, shape) if pseudo else None
        ends = answer.at_ends(batch)
        per_gap = queries.visible.per_gap
        if per_gap is None:
            return GapIntensities(ends, total, logs)
        split_up = (-1, per_gap)
        return GapIntensities(ends, total.unflatten(1, split_up), None if logs is None else logs.unflatten(1, split_up))

    def ends_and_chosen(self, history: Any, batch: Batch, queries: Queries, chosen: Tensor) -> NoiseIntensities:
        answer = self._answer(history, queries)
        shape = len(batch), queries.times.shape[1]
        return NoiseIntensities(answer.at_ends(batch), answer.summed(answer.possible, shape))

    def state(self, history: Any, queries: Queries) -> Tensor:
        """Return log-intensities [B, Q, K + 1]: of every type (−∞ if impossible), and last the total of events outside the vocabulary."""
        answer = self._answer(history, queries)
        about = answer.about
        columns, row, column = answer.columns(self.vocabulary), about.row, about.column
        shape = len(self.batch_of(history)), queries.times.shape[1]
        out = torch.full((*shape, self.types + 1), -math.inf, dtype=self.dtype, device=self.device)
        known, weight = columns < self.types, about.plan.possible_weight
        if weight is not None:
            known &= weight == 1.0  # a sampled event that stands for others is counted in the last column
        out = out.index_put((row[known], column[known], columns[known]), answer.possible[known])
        if not bool(known.all()):
            others = torch.zeros(shape, dtype=self.dtype, device=self.device)
            rates = answer.possible[~known].exp() * (1.0 if weight is None else weight[~known].to(self.dtype))
            others = others.index_put((row[~known], column[~known]), rates, accumulate=True)
            out = torch.cat([out[..., :-1], others.log().unsqueeze(-1)], dim=-1)
        return out

    def intensities(self, state: Tensor) -> Tensor:
        return state[..., :-1].exp()

    def log_intensities(self, state: Tensor) -> Tensor:
        return state[..., :-1]

    def log_intensity(self, state: Tensor, types: Tensor) -> Tensor:
        return state.gather(-1, types.unsqueeze(-1)).squeeze(-1)

    def total(self, state: Tensor) -> Tensor:
        return state.exp().sum(-1)

    @torch.no_grad()
    def possible_intensities(
        self, history: EventSequence, times: Sequence[float] | np.ndarray
    ) -> list[dict[str, float]]:
        asked = asked_times(times)
        batch = self.collator.batch_until(history, self.vocabulary, asked, self.device)
        queries = Queries.at_times(batch, torch.from_numpy(asked).to(self.device)[None])
        found: list[dict[str, float]] = [{} for _ in asked]
        with self.evaluating():
            answer = self._answer(self.encode(batch), self.collator.plan_queries(batch, queries))
        about, logs = answer.about, answer.possible.tolist()
        for place, fact, log in zip(about.column.tolist(), about.plan.possible_fact.tolist(), logs, strict=True):
            found[place][about.plan.text(fact)] = math.exp(log)
        return [dict(sorted(one.items())) for one in found]

    # Files and public names

    def program_text(self) -> str:
        return program_parts(self.program)["text"]

    @classmethod
    def from_options(cls, options: OptionsT, vocabulary: Vocabulary, *, seed: int, dtype: torch.dtype) -> Self:
        if not options.program:
            raise ForetellError(f'model.program: {cls.title} needs a program: give `program="P.ndtt"`')
        make: Any = cls
        return make(options.program, vocabulary, options, seed=seed, dtype=dtype)

    def spec(self) -> dict[str, Any]:
        """Return the description as JSON, with the program's text, the names that have parameters, and the seed for further names."""
        found = {key: value for key, value in super().spec().items() if key not in PROGRAM_OPTIONS}
        names = [[family.place, name] for family, name in self.book.order]
        parts = {
            "program": program_parts(self.program),
            "names": names,
            "numbering": NUMBERING,
            "trained": self.book.trained,
        }
        if self.program.features:
            parts["features"] = self.rule_network.features.spec()
        return {**parts, **self.histories.clock_spec(), "seed": self.rule_network.seed, **found}

    @classmethod
    def from_spec(cls, spec: dict[str, Any], vocabulary: Vocabulary) -> Self:
        make: Any = cls
        given = {**cls.about.options.earlier, **spec}
        options = {name: given[name] for name in names_of(cls.about.options) if name not in PROGRAM_OPTIONS}
        program = program_from_parts(spec["program"], spec["dim"])
        seed = spec.get("seed", 0)  # missing in files of earlier versions
        model = make(program, vocabulary, **options, seed=seed, dtype=getattr(torch, spec["dtype"]))
        model.histories.meet_clock(spec)
        model.meet_names(spec)
        if model.program.features:
            model.rule_network.features.restore(spec["features"])
        model.set_units(spec)
        model.fitted = spec["fitted"]
        if model.fitted:  # files of earlier versions do not store the number of trained names
            model.book.trained = spec.get("trained", len(model.book.order))
        return model

    def meet_names(self, spec: dict[str, Any]) -> None:
        """Check that the names of a saved model's parameters are those of its program, and create the parameters."""
        meet_saved_names(self.rule_network, self.book, spec["names"], numbering=spec.get("numbering"))
        self.rule_network.grow(self.dtype, self.device)
        use_program(self, with_saved_rows(self.program, spec["program"]))

    def renamed_parameters(self, arrays: dict[str, Any]) -> dict[str, Any]:
        """Return the parameters of a file of format 1 under their present names."""
        return renamed_parameters(self.book, arrays)

    def named_arrays(self) -> dict[str, Tensor]:
        self.rule_network.settle_unseen()
        found = self.rule_network.named_arrays()
        found |= event_arrays(self)
        return {name: array.detach() for name, array in found.items()}

    def load_named_arrays(self, arrays: dict[str, Tensor]) -> None:
        check_event_arrays(self, arrays)
        self.begin_training()
        self.rule_network.load_named_arrays(arrays)
        load_event_arrays(self, arrays)
