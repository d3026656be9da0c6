"""NDTT from its equations (docs/explanation/rivals.md): a program, named parameters and events in, embeddings and intensities out.

Each function is one equation, for one fact at one time. There are no layers: the cell of a fact summarises its past. It is updated
when an event adds the fact again, and drifts to a target in between. Parameters are float64, and gradients flow back to them.
Their names:

| name                                    | shape              | what                                                |
|-----------------------------------------|--------------------|-----------------------------------------------------|
| `deduce.NAME.W`, `deduce.NAME.beta`     | as in A-NDTT       |                                                     |
| `add.NAME.G`                            | 6·head × (1 + body)| gates of `<-`; the event is the first of the body   |
| `add.NAME.beta`                         | scalar             | pool exponent of `<-` (>= 1)                        |
| `intensity.FUNCTOR.w`, `.tau`           | as in A-NDTT       | in the data's own unit of time                      |
| `intensity.FUNCTOR.mixture`, `.shape`   | scales × (1 + dim) | if these factors are used                           |
| `intensity.FUNCTOR.calendar`            | waves × (1 + dim)  | if there is a calendar                              |
| `calendar.add.FUNCTOR`                  | waves × 6·head     | likewise, for functors whose facts are added        |

`NAME` is `ruleN`, or the name after `::` for `W` and `G`, and the name after `:` for `beta`. The rows of `G` are six blocks of
the head's size: input, forget, candidate, target-input, target-forget, decay. Decays are per `time_scale`.

An *r* is a rule with values for the variables in its parameter names, including those of `: b(X)`. Each r has its own pool.

States are numbered as in `reference.database`: state 0 is before `bos`, and event `j` (`bos` is 0) happens in state `j`.
A query that has seen `n` events uses state `n + 1`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from foretell.errors import ForetellError
from foretell.lang.program import Program
from foretell.reference.calendar import SlowCalendar
from foretell.reference.database import BOS, EXPIRY, Fact, Instantiation, State, changes, first_state
from foretell.reference.features import Given, Numbers, Scale, facts_and_numbers, feature_shapes, name_of, numbers_of
from foretell.reference.ruled import (
    NO_FACTORS,
    Parameters,
    R,
    TimeFactors,
    beta_name,
    dimension,
    intensity,
    intensity_shapes,
    last_event,
    matrix_name,
    place,
    pool,
    refuse_cycle,
    scored,
    sides,
    spelled,
    when,
    with_one,
    zeros,
)


@dataclass(frozen=True)
class Settings:
    dim: int  # of functors without a declared dimension
    time_scale: float = 1.0  # the unit of elapsed times
    factors: TimeFactors = NO_FACTORS
    lifetimes: Mapping[int, float] = field(
        default_factory=dict
    )  # lifetimes of additions that expire, by number of the rule
    scales: Mapping[str, Scale] = field(
        default_factory=dict
    )  # scales of events' columns; other columns are not standardised
    calendar: SlowCalendar | None = None  # calendar of one sequence

    @property
    def model(self) -> type[CellModel]:
        """The class with the equations for these settings."""
        return CellModel

    def gate_rows(self, head: int) -> int:
        """Return the number of rows of `G` for a rule whose head has this dimension."""
        return 6 * head

    def functor_shapes(self, functor: str, dim: int) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the parameters of a functor whose facts are added."""
        return {}


@dataclass(frozen=True)
class Cell:
    """`cell(t) = c̄ + (c − c̄)·exp(−δ(t−s))`, element by element."""

    c: Tensor
    target: Tensor  # c̄
    decay: Tensor  # δ, per unit of the model's time
    since: float  # s


def wanted(
    program: Program, settings: Settings, events: Sequence[Given], times: Sequence[float] | None = None
) -> dict[str, tuple[int, ...]]:
    """Return the shapes of all parameters that this sequence uses, sorted by name."""
    shapes: dict[str, tuple[int, ...]] = {}
    for table in program.tables:
        for row in () if table.features else table.rows:
            fact = (table.functor, *row)
            shapes[f"deduce.{spelled(fact)}.W"] = (dimension(program, settings.dim, fact), 1)
    dims = {name: dimension(program, settings.dim, (name,)) for name in program.functors}
    shapes |= feature_shapes(program, dims)
    moments = [0.0] * len(events) if times is None else times
    happened = changes(
        program, [name_of(one) for one in events], moments, max(moments, default=0.0), settings.lifetimes
    )
    for state in (first_state(program), *(one.state for one in happened)):
        for proof in state.proofs:
            head, body = sides(program, settings.dim, proof)
            shapes[f"deduce.{matrix_name(program, proof)}.W"] = (head, 1 + body)
            if not program.rules[proof.rule].rule.is_fact:
                shapes[f"deduce.{beta_name(program, proof)}.beta"] = ()
        for added in state.additions:
            one = added.instantiation
            head, body = sides(program, settings.dim, one)
            shapes[f"add.{matrix_name(program, one)}.G"] = (settings.gate_rows(head), 1 + body)
            shapes[f"add.{beta_name(program, one)}.beta"] = ()
            shapes |= settings.functor_shapes(one.head[0], head)
            if settings.calendar is not None and head:
                shapes[f"calendar.add.{one.head[0]}"] = (settings.calendar.width, settings.gate_rows(head))
    shapes |= intensity_shapes(program, settings.dim, settings.factors, settings.calendar)
    return dict(sorted(shapes.items()))


def embedding(
    program: Program,
    settings: Settings,
    parameters: Parameters,
    events: Sequence[Given],
    times: Sequence[float],
    fact: Fact,
    time: float,
    seen: int,
) -> Tensor:
    """Return the embedding of a fact that is true after the first `seen` events, or of an exogenous event, which need not be true."""
    model = _open(program, settings, parameters, events, times, seen, time)
    functor = program.functors.get(fact[0])
    if functor is not None and functor.kind != "exogenous" and fact not in model.states[-1].state.facts:
        raise ForetellError(
            f"`{spelled(fact)}` has no embedding {when(model.events, len(model.events))}, because it is not true then; "
            "ask for a fact that is"
        )
    return model.event_embedding(fact, time, len(model.events))


def cells(
    program: Program,
    settings: Settings,
    parameters: Parameters,
    events: Sequence[Given],
    times: Sequence[float],
    seen: int,
) -> dict[Fact, Any]:
    """Return the cells after the first `seen` events: those of facts that were added and not removed since."""
    until = times[seen - 1] if seen else 0.0
    return dict(_open(program, settings, parameters, events, times, seen, until).cells[-1])


def intensities(
    program: Program,
    settings: Settings,
    parameters: Parameters,
    events: Sequence[Given],
    times: Sequence[float],
    at: float,
    seen: int | None = None,
) -> dict[Fact, Tensor]:
    """Return the intensities of all events that are possible at a time, given the first `seen` events (default: those before it)."""
    seen = sum(time < at for time in times) if seen is None else seen
    model = _open(program, settings, parameters, events, times, seen, at)
    return model.intensities(at, len(model.events))


def log_likelihood(
    program: Program,
    settings: Settings,
    parameters: Parameters,
    events: Sequence[Given],
    times: Sequence[float],
    t_end: float,
    points: Sequence[Sequence[tuple[float, float]]],
) -> Tensor:
    """Return `Σ log λ_{e_i}(t_i) − ∫ Σ_e λ_e(t) dt`: see `ruled.scored`."""
    return scored(_open(program, settings, parameters, events, times, len(events), t_end), t_end, points)


# --- the equations ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Indexed:
    """A state, with its proofs and its event's additions grouped by head and then by r."""

    state: State
    proofs: Mapping[Fact, Mapping[R, list[Instantiation]]]
    added: Mapping[Fact, Mapping[R, list[Instantiation]]]  # additions by the event that happens in this state


@dataclass(frozen=True)
class CellModel:
    """One sequence: its states, and the cells of facts in each."""

    program: Program
    settings: Settings
    parameters: Parameters
    events: Sequence[Fact]  # the first one is bos; expiries are included
    times: Sequence[float]
    states: Sequence[_Indexed]
    table: frozenset[Fact]  # facts of tables, which have their own vector
    numbers: Numbers  # features of facts and events
    cells: list[Mapping[Fact, Any]] = field(default_factory=lambda: [{}])  # cells in each state
    memo: dict[tuple[Fact, float, int], Tensor] = field(default_factory=dict, repr=False)

    def possible(self, state: int) -> list[Fact]:
        facts = self.states[state].state.facts
        return sorted(fact for fact in facts if self.program.functors[fact[0]].kind == "event")

    def intensities(self, time: float, state: int) -> dict[Fact, Tensor]:
        return {event: self.intensity(event, time, state) for event in self.possible(state)}

    def intensity(self, event: Fact, time: float, state: int) -> Tensor:
        """Return the intensity from `[1; emb]` and the time since the last event: see `ruled.intensity`."""
        column = with_one(self.embedding(event, time, state))
        waves = None if self.settings.calendar is None else self.settings.calendar.waves(time)
        waited = time - last_event(self, state)
        return intensity(self.parameters, event[0], column, waited, self.settings.factors, waves)

    def event_embedding(self, event: Fact, time: float, state: int) -> Tensor:
        """Return the embedding of an event that happens: that of the fact if it is true, else zeros."""
        if event in self.states[state].state.facts:
            return self.embedding(event, time, state)
        return zeros(dimension(self.program, self.settings.dim, event))

    def embedding(self, fact: Fact, time: float, state: int) -> Tensor:
        """Return `emb = tanh(deduced + cell)`."""
        dim = dimension(self.program, self.settings.dim, fact)
        if dim == 0:
            return zeros(0)
        key = (fact, time, state)
        if key not in self.memo:
            inside = self.deduced(fact, time, state)
            if fact in self.cells[state]:
                inside = self.with_cell(fact, inside, time, state)
            self.memo[key] = torch.tanh(inside)
        return self.memo[key]

    def with_cell(self, fact: Fact, deduced: Tensor, time: float, state: int) -> Tensor:
        """Return `deduced + cell`."""
        return deduced + self.drifted(self.cells[state][fact], time)

    def deduced(self, fact: Fact, time: float, state: int) -> Tensor:
        """Return `Σ_r pool_{β_r}` of `W_r [1; emb(g_1,t); …]` over the proofs of each r."""
        total = zeros(dimension(self.program, self.settings.dim, fact))
        if fact in self.table:
            total = total + self.parameters[f"deduce.{spelled(fact)}.W"] @ with_one()
        if fact in self.numbers.of_facts:
            total = total + self.numbers.of_fact(fact, self.parameters)
        for proofs in self.states[state].proofs.get(fact, {}).values():
            W = self.parameters[f"deduce.{matrix_name(self.program, proofs[0])}.W"]
            entries = [W @ with_one(*(self.embedding(g, time, state) for g in one.body)) for one in proofs]
            if len(entries) == 1:  # a pool of one entry is that entry; a fact of the program has no β
                total = total + entries[0]
            else:
                beta = self.parameters[f"deduce.{beta_name(self.program, proofs[0])}.beta"]
                total = total + pool(entries, beta)
        return total

    def drifted(self, cell: Cell, time: float) -> Tensor:
        """Return `c̄ + (c − c̄)·exp(−δ(t−s))`."""
        elapsed = (time - cell.since) / self.settings.time_scale
        return cell.target + (cell.c - cell.target) * torch.exp(-cell.decay * elapsed)

    def happen(self, index: int) -> None:
        """Append the cells after event `index`: cells of removed facts are deleted, and cells of added facts are updated."""
        kept = {one.instantiation.head for one in self.states[index + 1].state.additions if one.event < index}
        after = {fact: cell for fact, cell in self.cells[index].items() if fact in kept}
        for fact, by_r in self.states[index].added.items():
            if dimension(self.program, self.settings.dim, fact):
                after[fact] = self.moved(fact, after.get(fact), by_r, index)
        self.cells.append(after)

    def moved(self, fact: Fact, old: Any, by_r: Mapping[R, list[Instantiation]], index: int) -> Any:
        """Return the updated cell: all instantiations propose a cell, and the proposed changes are pooled within r and summed over r."""
        time = self.times[index]
        nothing = zeros(dimension(self.program, self.settings.dim, fact))
        c, target = (nothing, nothing) if old is None else (self.drifted(old, time), old.target)
        new_c, new_target = c, target
        weights, decays = [], []
        for some in by_r.values():
            proposed = [self.proposed(c, target, one, index) for one in some]
            beta = self.parameters[f"add.{beta_name(self.program, some[0])}.beta"]
            new_c = new_c + pool([one.c - c for one in proposed], beta)
            new_target = new_target + pool([one.target - target for one in proposed], beta)
            for one in proposed:
                weights.append((c - target).abs() + (one.c - c).abs() + (one.target - target).abs())
                decays.append(one.decay)
        return Cell(new_c, new_target, harmonic_mean(decays, weights), time)

    def gates(self, one: Instantiation, index: int) -> Tensor:
        """Return `G_r [1; emb(f,s); emb(g_1,s); …]`, with embeddings just before the event, plus `B` times the waves of the calendar."""
        event, *conditions = one.body
        time = self.times[index]
        happened = self.event_embedding(event, time, index) + self.numbers.of_event(event[0], index, self.parameters)
        found = self.parameters[f"add.{matrix_name(self.program, one)}.G"] @ with_one(
            happened, *(self.embedding(g, time, index) for g in conditions)
        )
        calendar = self.settings.calendar
        if calendar is None:
            return found
        return found + calendar.waves(time) @ self.parameters[f"calendar.add.{one.head[0]}"]

    def proposed(self, c: Tensor, target: Tensor, one: Instantiation, index: int) -> Cell:
        """Return the proposed cell: `c' = σ_f·c + σ_i·z`, `c̄' = σ_f̄·c̄ + σ_ī·z`, and a decay."""
        i, f, z, i_target, f_target, decay = self.gates(one, index).view(6, -1)
        z = torch.tanh(z)
        return Cell(
            torch.sigmoid(f) * c + torch.sigmoid(i) * z,
            torch.sigmoid(f_target) * target + torch.sigmoid(i_target) * z,
            torch.logaddexp(torch.zeros_like(decay), decay),  # softplus
            self.times[index],
        )


def harmonic_mean(values: Sequence[Tensor], weights: Sequence[Tensor]) -> Tensor:
    """Return `Σ w / Σ (w/x)` for each coordinate, with equal weights where all weights are 0."""
    w, x = torch.stack(list(weights)), torch.stack(list(values))
    w = torch.where(w.sum(0) == 0.0, 1.0, w)
    return w.sum(0) / (w / x).sum(0)


# --- from the database to the equations --------------------------------------------------------------------------------


def _open(
    program: Program,
    settings: Settings,
    parameters: Parameters,
    events: Sequence[Given],
    times: Sequence[float],
    seen: int,
    until: float,
) -> CellModel:
    """Return the model after the first `seen` events, for queries up to the time `until`; later events are not used."""
    assert len(events) == len(times), f"{len(events)} events at {len(times)} times"
    assert 0 <= seen <= len(events), f"{seen} of {len(events)} events seen"
    found = list(changes(program, [name_of(one) for one in events[:seen]], times[:seen], until, settings.lifetimes))
    happened, when_it_was = [one.what for one in found], [one.time for one in found]
    replayed = [first_state(program), *(one.state for one in found)]
    given = iter([(BOS, {}), *facts_and_numbers(program, events[:seen])])
    given = [(EXPIRY, {}) if one == EXPIRY else next(given) for one in happened]
    for number, state in enumerate(replayed):
        refuse_cycle(program, settings.dim, state, when(happened, number))
    table = frozenset((one.functor, *row) for one in program.tables if not one.features for row in one.rows)
    numbers = numbers_of(program, settings.scales, [numbers for _, numbers in given])
    indexed = [_indexed(replayed, number) for number in range(len(replayed))]
    model = settings.model(program, settings, parameters, happened, when_it_was, indexed, table, numbers)
    for index in range(len(happened)):
        model.happen(index)
    return model


def _indexed(replayed: Sequence[State], number: int) -> _Indexed:
    later = replayed[number + 1].additions if number + 1 < len(replayed) else ()
    added = [one.instantiation for one in later if one.event == number]
    return _Indexed(replayed[number], _by_head(replayed[number].proofs), _by_head(added))


def _by_head(
    instantiations: Sequence[Instantiation] | frozenset[Instantiation],
) -> dict[Fact, dict[R, list[Instantiation]]]:
    found: dict[Fact, dict[R, list[Instantiation]]] = {}
    for one in sorted(instantiations, key=place):
        found.setdefault(one.head, {}).setdefault((one.rule, one.parameters), []).append(one)
    return found
