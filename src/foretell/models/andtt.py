"""A-NDTT, the attentive neural Datalog through time (paper, section 5): a program of rules is the network.

A batch is replayed into timelines, these with the times that are asked about become a plan, and the plan is applied. Events that the
rules make impossible have no intensity; those of the rules that the model's vocabulary lacks are counted in the total.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from torch import Tensor, nn

from foretell.data import EventData, EventSequence, Vocabulary
from foretell.errors import ForetellError
from foretell.ground.undeclared import check_declared
from foretell.lang.program import Program
from foretell.models.andtt_histories import Histories
from foretell.models.andtt_network import Embeddings, Network
from foretell.models.andtt_program import program_from_parts, program_parts
from foretell.models.base import EndsAndInside, IntensityModel, Queries, asked_times
from foretell.models.batch import Batch, make_batch
from foretell.models.units import ShortestWave, mean_gap, wave_range
from foretell.nn.intensity import inverse_softplus, log_softplus
from foretell.nn.time import TimeEmbedding
from foretell.plan.book import ParameterBook, events_of
from foretell.plan.layout import Layout
from foretell.plan.plan import Intensities, Plan, make_plan
from foretell.plan.slots import SequenceSlots
from foretell.terms import split

KEPT_PLANS = 64
PSEUDO_EVENTS = (
    0.5  # of every functor, so that one that never happens in training starts with a small rate and not none
)


@dataclass(frozen=True)
class Answer:
    """Log-intensities of all possible events at some queries, and of the events that happened."""

    plan: Plan
    row: Tensor  # int64 [valid queries]: sequence
    column: Tensor  # int64: place among its queries
    possible: Tensor  # [E]: log λ, one for each of the plan's possible events
    happened: Tensor  # [events of all sequences]: log λ, 0 where the event is not scored


class ANDTT(IntensityModel):
    kind = "andtt"
    title = "A-NDTT"
    capturable = False

    def __init__(
        self,
        program: Program | str | Path,
        vocabulary: Vocabulary | None = None,
        *,
        dim: int = 32,
        layers: int = 2,
        time_dim: int | None = None,
        shortest_wave: ShortestWave = "quantile",
        seed: int = 0,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__(vocabulary if vocabulary is not None else Vocabulary(()))
        if dim < 0 or layers < 1 or (time_dim is not None and time_dim < 1):
            raise ForetellError(f"dim = {dim}, layers = {layers}, time_dim = {time_dim}: expected 0, 1 and 1 or more")
        self.program = program if isinstance(program, Program) else Program.from_file(program, dim=dim)
        self.dim, self.layers = dim, layers
        self.time_dim = max(dim, 1) if time_dim is None else time_dim
        self.shortest_wave: ShortestWave = shortest_wave
        self.layout = Layout(self.program, dim)
        self.book = ParameterBook(self.layout, self.time_dim)
        self.histories = Histories(self.program, self.layout)
        self.book.read(self.histories.grounding)
        self.time = TimeEmbedding(self.time_dim)
        self.network = Network(self.book, layers, self.time, seed)
        self.functors = events_of(self.program)
        self.w = nn.ParameterList(torch.zeros(1 + self.layout.dimension(name)) for name in self.functors)
        self.log_tau = nn.Parameter(torch.zeros(len(self.functors)))
        self._plans: OrderedDict[tuple[int, ...], Plan] = OrderedDict()
        self._parts: dict[tuple[int, ...], list[SequenceSlots]] = {}
        self._start(seed)
        self.to(dtype)

    def _start(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for w in self.w:
                w[1:] = torch.randn(len(w) - 1, generator=generator) / math.sqrt(max(len(w) - 1, 1))

    @property
    def unscored(self) -> np.ndarray:
        """Types of the vocabulary that are exogenous: they happen, and are not predicted."""
        return np.asarray([split(name)[0] not in self.functors for name in self.vocabulary.names], dtype=bool)

    # From data

    def meet(self, data: EventData) -> None:
        """Before a first fit: take the data's events, and check them against the program."""
        if not len(self.vocabulary):
            self.vocabulary = data.vocabulary
        check_declared(self.program, data)

    def ground(self, data: EventData) -> None:
        """Replay data, so that there are parameters for all that they give rise to."""
        for sequence in data:
            self.histories.timeline(self.vocabulary, sequence.types, sequence.times)
        self.book.read(self.histories.grounding)
        self.network.grow(self.dtype, self.device)

    def prepare(self, data: EventData) -> None:
        m, longest = wave_range(data, self.shortest_wave)
        self.time.set_range(m, longest)
        self.time_scale = mean_gap(data)
        counts, exposure = np.full(len(self.functors), PSEUDO_EVENTS), np.full(len(self.functors), 1e-12)
        place = {name: number for number, name in enumerate(self.functors)}
        for sequence in data:
            _, timeline = self.histories.timeline(self.vocabulary, sequence.types, sequence.times)
            grounding = timeline.grounding
            ends = np.concatenate([[0.0, 0.0], sequence.times, [sequence.t_end]])  # of states 0, 1, …
            always = grounding.always.tolist()
            rows = [*((fact, 0, timeline.states) for fact in always), *timeline.holds.tolist()]
            for fact, start, stop in rows:
                number = place.get(str(grounding.functors[grounding.keys[fact][0]]))
                if number is not None:
                    exposure[number] += ends[stop] - ends[start]
            for name in data.names_of(sequence):
                number = place.get(split(name)[0])
                if number is not None:
                    counts[number] += 1
        self.ground(data)
        with torch.no_grad():
            for number, rate in enumerate(counts / exposure * self.time_scale):
                self.w[number][0] = float(inverse_softplus(torch.tensor(max(rate, 1e-9), dtype=torch.float64)))
        self.fitted = True

    # Answers

    def encode(self, batch: Batch) -> Batch:
        """The history is looked up by its events; nothing of it is a tensor before it is asked about."""
        return batch

    def _answer(self, batch: Batch, seen: np.ndarray, times: Tensor) -> Answer:
        """`seen` [B, Q] events are before each query; those beyond a sequence's end are padding."""
        lengths = batch.lengths.tolist()
        types, when = batch.types.cpu().numpy(), batch.times.cpu().numpy()
        parts = []
        for row, length in enumerate(lengths):
            key, timeline = self.histories.timeline(self.vocabulary, types[row, :length], when[row, :length])
            asked = seen[row] if len(seen) > 1 else seen[0]
            parts.append(self.histories.slots(key, timeline, asked[asked <= length].astype(np.int64) + 1))
        plan = self._plan(parts)
        valid = seen <= np.asarray(lengths)[:, None]
        row, column = (torch.from_numpy(one).to(batch.times.device) for one in np.nonzero(valid))
        events = torch.from_numpy(np.arange(batch.times.shape[1])[None] < np.asarray(lengths)[:, None]).to(
            batch.times.device
        )
        with_bos = torch.cat([batch.times.new_zeros(len(batch), 1), batch.times], dim=1)
        is_point = (
            torch.cat([torch.ones_like(events[:, :1]), events], dim=1)
            if events.shape[1]
            else events.new_ones(len(batch), 1)
        )
        point_times = batch.times.new_zeros(plan.points)
        point_times[plan.event_point] = with_bos[is_point]
        point_times[plan.query_point] = (
            times.expand(len(batch), -1)[row, column] if times.shape[0] == 1 else times[row, column]
        )
        embeddings = self.network(plan, point_times)
        possible = self._logs(plan.possible, embeddings, len(plan.possible_query))
        happened = self._logs(plan.happened, embeddings, int(sum(lengths)))
        return Answer(plan, row, column, possible, happened)

    def _plan(self, parts: list[SequenceSlots]) -> Plan:
        key = tuple(id(part) for part in parts)
        found = self._plans.get(key)
        if found is None:
            known = sum(len(family.names) for family in self.book.families.values())
            found = make_plan(parts, self.layout, self.book, self.device)
            if sum(len(family.names) for family in self.book.families.values()) > known:
                self.network.grow(
                    self.dtype, self.device
                )  # names that training never met start as they would have then
            self._plans[key] = found
            self._parts[key] = parts  # an id is good for as long as its object lives
            while len(self._plans) > KEPT_PLANS:
                gone, _ = self._plans.popitem(last=False)
                del self._parts[gone]
        return found

    def _logs(self, groups: tuple[Intensities, ...], embeddings: Embeddings, count: int) -> Tensor:
        out = torch.zeros(count, dtype=self.dtype, device=self.device)
        for group in groups:
            number = self.functors.index(group.functor)
            w, log_tau = self.w[number], self.log_tau[number]
            score = embeddings[group.rows.dim][group.rows.rows] @ w[1:] + w[0]
            log = log_softplus(score / log_tau.exp()) + (log_tau - math.log(self.time_scale))
            out = out.index_put((group.place,), log)
        return out

    def ends_and_inside(self, history: Batch, batch: Batch, queries: Queries, pseudo: bool) -> EndsAndInside:
        """What the likelihood needs: only possible events are looked at inside gaps, and only the event itself at their ends."""
        seen = queries.seen().cpu().numpy()
        seen = np.broadcast_to(seen, (len(batch), seen.shape[1]))
        answer = self._answer(batch, seen, queries.times)
        shape = len(batch), queries.times.shape[1]
        total = self._summed(answer, answer.possible.exp(), shape)
        logs = self._summed(answer, answer.possible, shape) if pseudo else None
        ends = torch.zeros(batch.times.shape, dtype=self.dtype, device=self.device)
        is_event = torch.arange(batch.times.shape[1], device=self.device)[None] < batch.lengths[:, None]
        ends[is_event] = answer.happened
        per_gap = queries.visible.per_gap
        if per_gap is None:
            return EndsAndInside(ends, total, logs)
        split_up = (-1, per_gap)
        return EndsAndInside(ends, total.unflatten(1, split_up), None if logs is None else logs.unflatten(1, split_up))

    def _summed(self, answer: Answer, values: Tensor, shape: tuple[int, int]) -> Tensor:
        by_query = torch.zeros(len(answer.row), dtype=values.dtype, device=values.device)
        by_query = by_query.index_add(0, answer.plan.possible_query, values)
        return torch.zeros(shape, dtype=values.dtype, device=values.device).index_put(
            (answer.row, answer.column), by_query
        )

    def state(self, history: Batch, queries: Queries) -> Tensor:
        """Log-intensities [B, Q, K + 1]: of every type, −∞ where it is impossible, and last of all others together."""
        seen = queries.seen().cpu().numpy()
        seen = np.broadcast_to(seen, (len(history), seen.shape[1]))
        answer = self._answer(history, seen, queries.times)
        columns = self._column_of(answer.plan.possible_fact)
        query = answer.plan.possible_query
        row, column = answer.row[query], answer.column[query]
        out = torch.full((*queries.times.shape, self.types + 1), -math.inf, dtype=self.dtype, device=self.device)
        known = columns < self.types
        out = out.index_put((row[known], column[known], columns[known]), answer.possible[known])
        if not bool(known.all()):
            others = torch.zeros(queries.times.shape, dtype=self.dtype, device=self.device)
            others = others.index_put((row[~known], column[~known]), answer.possible[~known].exp(), accumulate=True)
            out = torch.cat([out[..., :-1], others.log().unsqueeze(-1)], dim=-1)
        return out

    def _column_of(self, facts: np.ndarray) -> Tensor:
        """The type of each fact in the vocabulary; `types` for one that is not there."""
        grounding = self.histories.grounding
        distinct, inverse = np.unique(facts, return_inverse=True)
        found = [self.vocabulary.find(grounding.text(int(fact))) for fact in distinct.tolist()]
        table = np.asarray([self.types if one is None else one for one in found], dtype=np.int64)
        return torch.from_numpy(table[inverse] if len(table) else np.zeros(0, dtype=np.int64)).to(self.device)

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
        batch = make_batch(EventData([history], self.vocabulary), [0], device=self.device)
        queries = Queries.at_times(batch, torch.from_numpy(asked).to(self.device)[None])
        found: list[dict[str, float]] = [{} for _ in asked]
        with self.evaluating():
            answer = self._answer(batch, queries.seen().cpu().numpy(), queries.times)
        column = answer.column[answer.plan.possible_query].tolist()
        text = self.histories.grounding.text
        for place, fact, log in zip(column, answer.plan.possible_fact.tolist(), answer.possible.tolist(), strict=True):
            found[place][text(fact)] = math.exp(log)
        return [dict(sorted(one.items())) for one in found]

    # In and out

    def program_text(self) -> str:
        return program_parts(self.program)["text"]

    def spec(self) -> dict[str, Any]:
        return {
            "program": program_parts(self.program),
            "names": [list(family.names) for family in self.book.families.values()],
            "dim": self.dim,
            "layers": self.layers,
            "time_dim": self.time_dim,
            "shortest_wave": self.shortest_wave,
            "m": self.time.m,
            "M": self.time.M,
            "time_scale": self.time_scale,
            "fitted": self.fitted,
            "dtype": str(self.dtype).removeprefix("torch."),
        }

    @classmethod
    def from_spec(cls, spec: dict[str, Any], vocabulary: Vocabulary) -> Self:
        dtype: Literal["float32", "float64"] = spec["dtype"]
        model = cls(
            program_from_parts(spec["program"], spec["dim"]),
            vocabulary,
            dim=spec["dim"],
            layers=spec["layers"],
            time_dim=spec["time_dim"],
            shortest_wave=spec["shortest_wave"],
            dtype=getattr(torch, dtype),
        )
        families = list(model.book.families.values())
        if len(families) != len(spec["names"]):
            raise ValueError("its parameters are not those of its program")
        for family, names in zip(families, spec["names"], strict=True):
            for name in names:
                family.number(str(name))
            if family.names != list(names):
                raise ValueError("its parameters are not those of its program")
        model.network.grow(model.dtype, model.device)
        model.time.set_range(spec["m"], spec["M"])
        model.time_scale, model.fitted = spec["time_scale"], spec["fitted"]
        return model

    def named_arrays(self) -> dict[str, Tensor]:
        found = self.network.named_arrays()
        for number, name in enumerate(self.functors):
            found[f"intensity.{name}.w"] = self.w[number] / self.time_scale
            found[f"intensity.{name}.tau"] = self.log_tau[number].exp() / self.time_scale
        return {name: array.detach() for name, array in found.items()}

    def load_named_arrays(self, arrays: dict[str, Tensor]) -> None:
        for name in self.functors:
            if not bool((arrays[f"intensity.{name}.tau"] > 0).all()):
                raise ForetellError(f"intensity.{name}.tau: expected a number above 0")
        self.network.load_named_arrays(arrays)
        with torch.no_grad():
            for number, name in enumerate(self.functors):
                self.w[number].copy_(arrays[f"intensity.{name}.w"] * self.time_scale)
                self.log_tau[number] = (arrays[f"intensity.{name}.tau"] * self.time_scale).log()
