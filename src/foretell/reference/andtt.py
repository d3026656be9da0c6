"""A-NDTT from its equations (docs/explanation/andtt.md): a program, named parameters and events in, embeddings and intensities out.

Each function is one equation, for one fact at one time, by recursion over layers and proofs. Parameters are float64, by
their canonical names (`deduce.rule3.W`, `add.post(joke).1.K`, `intensity.message.tau`), and gradients flow back to them.

An *r* is a rule with values for the variables in its parameter names. Each r has its own pool, or its own attention head. Two r with
the same parameter name have the same matrices.

States are numbered as in `reference.database`: state 0 is before `bos`, and event `j` (`bos` is 0) happens in state `j`.
A query that has seen `n` events uses state `n + 1`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from foretell.errors import ForetellError
from foretell.lang.program import Program
from foretell.reference.calendar import SlowCalendar
from foretell.reference.database import BOS, EXPIRY, Added, Fact, Instantiation, State, changes, first_state
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
    parameter_values,
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

NORM_EPSILON = 1e-5  # inside the square root of LayerNorm


@dataclass(frozen=True)
class Settings:
    dim: int  # of functors without a declared dimension
    layers: int  # L
    time_dim: int
    m: float
    M: float
    layer_norm: bool = False
    feed_forward: int = 0  # width of the hidden layer; 0: none
    factors: TimeFactors = NO_FACTORS
    lifetimes: Mapping[int, float] = field(
        default_factory=dict
    )  # lifetimes of additions that expire, by number of the rule
    scales: Mapping[str, Scale] = field(
        default_factory=dict
    )  # scales of events' columns; other columns are not standardised
    calendar: SlowCalendar | None = None  # calendar of one sequence


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
            declared = program.functors[one.head[0]].key
            key = head if declared is None else declared
            past = 1 + settings.time_dim + body
            for layer in range(1, settings.layers + 1):
                stem = f"add.{matrix_name(program, one)}.{layer}"
                shapes[f"{stem}.V"] = (head, past)
                shapes[f"{stem}.K"] = (key, past)
                shapes[f"{stem}.Q"] = (key, 1 + settings.time_dim + head)
    for dim in {dimension(program, settings.dim, (name,)) for name in program.functors} - {0}:
        for layer in range(1, settings.layers + 1):
            stem = f"layer.{layer}.{dim}"
            for norm in range((1 + (settings.feed_forward > 0)) if settings.layer_norm else 0):
                shapes[f"{stem}.norms.{norm}.weight"] = shapes[f"{stem}.norms.{norm}.bias"] = (dim,)
            if settings.feed_forward:
                shapes[f"{stem}.expand.weight"] = (settings.feed_forward, dim)
                shapes[f"{stem}.expand.bias"] = (settings.feed_forward,)
                shapes[f"{stem}.contract.weight"] = (dim, settings.feed_forward)
                shapes[f"{stem}.contract.bias"] = (dim,)
    shapes |= intensity_shapes(program, settings.dim, settings.factors, settings.calendar)
    if settings.calendar is not None:
        shapes["calendar.time"] = (settings.calendar.width, settings.time_dim)
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
    layer: int,
) -> Tensor:
    """Return the embedding of a fact that is true after the first `seen` events, or of an exogenous event, which need not be true."""
    model = _open(program, settings, parameters, events, times, seen, time)
    functor = program.functors.get(fact[0])
    if functor is not None and functor.kind != "exogenous" and fact not in model.states[-1].state.facts:
        raise ForetellError(
            f"`{spelled(fact)}` has no embedding {when(model.events, len(model.events))}, because it is not true then; "
            "ask for a fact that is"
        )
    return model.event_embedding(fact, time, len(model.events), layer)


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
    """A state, with its proofs and additions grouped by head and then by r."""

    state: State
    proofs: Mapping[Fact, Mapping[R, list[Instantiation]]]
    additions: Mapping[Fact, Mapping[R, list[Added]]]


@dataclass(frozen=True)
class _Model:
    program: Program
    settings: Settings
    parameters: Parameters
    events: Sequence[Fact]  # the first one is bos; expiries are included
    times: Sequence[float]
    states: Sequence[_Indexed]
    table: frozenset[Fact]  # facts of tables, which have their own vector
    numbers: Numbers  # features of facts and events
    memo: dict[tuple[Fact, float, int, int], Tensor] = field(default_factory=dict, repr=False)

    def possible(self, state: int) -> list[Fact]:
        facts = self.states[state].state.facts
        return sorted(fact for fact in facts if self.program.functors[fact[0]].kind == "event")

    def intensities(self, time: float, state: int) -> dict[Fact, Tensor]:
        return {event: self.intensity(event, time, state) for event in self.possible(state)}

    def intensity(self, event: Fact, time: float, state: int) -> Tensor:
        """Return the intensity from `[1; emb^(L)]` and the time since the last event: see `ruled.intensity`."""
        column = with_one(self.embedding(event, time, state, self.settings.layers))
        waves = None if self.settings.calendar is None else self.settings.calendar.waves(time)
        waited = time - last_event(self, state)
        return intensity(self.parameters, event[0], column, waited, self.settings.factors, waves)

    def event_embedding(self, event: Fact, time: float, state: int, layer: int) -> Tensor:
        """Return the embedding of an event that happens: that of the fact if it is true, else zeros."""
        if event in self.states[state].state.facts:
            return self.embedding(event, time, state, layer)
        return zeros(dimension(self.program, self.settings.dim, event))

    def embedding(self, fact: Fact, time: float, state: int, layer: int) -> Tensor:
        """`emb^(ℓ) = emb^(ℓ-1) + tanh(deduced^(ℓ) + Σ_r attended_r^(ℓ))`, and `emb^(-1) = 0`."""
        dim = dimension(self.program, self.settings.dim, fact)
        if layer < 0 or dim == 0:
            return zeros(dim)
        key = (fact, time, state, layer)
        if key not in self.memo:
            inside = self.deduced(fact, time, state, layer)
            if layer >= 1:
                for additions in self.states[state].additions.get(fact, {}).values():
                    inside = inside + self.attended(additions, fact, time, state, layer)
            moved = self.embedding(fact, time, state, layer - 1) + torch.tanh(inside)
            self.memo[key] = self.sublayers(moved, f"layer.{layer}.{dim}") if layer >= 1 else moved
        return self.memo[key]

    def sublayers(self, x: Tensor, stem: str) -> Tensor:
        """Return `x = LN(x)`, then `LN(x + FFN(x))`, as in A-NHP; each part only if the settings have it."""
        x = self.normed(x, f"{stem}.norms.0")
        if not self.settings.feed_forward:
            return x
        given = self.parameters
        inside = torch.relu(given[f"{stem}.expand.weight"] @ x + given[f"{stem}.expand.bias"])
        moved = given[f"{stem}.contract.weight"] @ inside + given[f"{stem}.contract.bias"]
        return self.normed(x + moved, f"{stem}.norms.1")

    def normed(self, x: Tensor, name: str) -> Tensor:
        if not self.settings.layer_norm:
            return x
        away = x - x.mean()
        spread = torch.sqrt((away * away).mean() + NORM_EPSILON)
        return self.parameters[f"{name}.weight"] * away / spread + self.parameters[f"{name}.bias"]

    def deduced(self, fact: Fact, time: float, state: int, layer: int) -> Tensor:
        """Return `Σ_r pool_{β_r}` of `W_r [1; emb^(ℓ)(g_1,t); …]` over the proofs of each r."""
        total = zeros(dimension(self.program, self.settings.dim, fact))
        if fact in self.table:
            total = total + self.parameters[f"deduce.{spelled(fact)}.W"] @ with_one()
        if fact in self.numbers.of_facts:
            total = total + self.numbers.of_fact(fact, self.parameters)
        for proofs in self.states[state].proofs.get(fact, {}).values():
            W = self.parameters[f"deduce.{matrix_name(self.program, proofs[0])}.W"]
            entries = [W @ with_one(*(self.embedding(g, time, state, layer) for g in one.body)) for one in proofs]
            if len(entries) == 1:  # a pool of one entry is that entry; a fact of the program has no β
                total = total + entries[0]
            else:
                beta = self.parameters[f"deduce.{beta_name(self.program, proofs[0])}.beta"]
                total = total + pool(entries, beta)
        return total

    def attended(self, additions: Sequence[Added], fact: Fact, time: float, state: int, layer: int) -> Tensor:
        """Return `Σ α v / (1 + Σ α)` over the additions of one fact by one r."""
        stem = f"add.{matrix_name(self.program, additions[0].instantiation)}.{layer}"
        Q, K, V = (self.parameters[f"{stem}.{letter}"] for letter in "QKV")
        query = Q @ with_one(self.time_embedding(time), self.embedding(fact, time, state, layer - 1))
        numerator, denominator = zeros(len(V)), torch.ones((), dtype=torch.float64)
        for added in additions:
            column = self.past(added, layer - 1)
            key, value = K @ column, V @ column
            alpha = torch.exp(torch.dot(key, query) / math.sqrt(len(key)))
            numerator = numerator + alpha * value
            denominator = denominator + alpha
        return numerator / denominator

    def past(self, added: Added, layer: int) -> Tensor:
        """Return `[1; time(s); emb(f,s); emb(g_1,s); …]`, with embeddings just before event `f` at `s`."""
        event, *conditions = added.instantiation.body
        time, state = self.times[added.event], added.event
        return with_one(
            self.time_embedding(time),
            self.event_embedding(event, time, state, layer)
            + self.numbers.of_event(event[0], added.event, self.parameters),
            *(self.embedding(g, time, state, layer) for g in conditions),
        )

    def time_embedding(self, time: float) -> Tensor:
        """Return sines and cosines, two per wavelength, from `m` to `5M`; plus `A` times the waves of the calendar."""
        m, M, dim = self.settings.m, self.settings.M, self.settings.time_dim
        components = []
        for d in range(dim):
            wave = m * (5.0 * M / m) ** (2 * (d // 2) / dim)
            components.append(math.sin(time / wave) if d % 2 == 0 else math.cos(time / wave))
        found = torch.tensor(components, dtype=torch.float64)
        calendar = self.settings.calendar
        return found if calendar is None else found + calendar.waves(time) @ self.parameters["calendar.time"]


def _r(program: Program, one: Instantiation) -> R:
    """Return the r of an instantiation. `: b(X)` on `<-` names a parameter that only NDTT has, so here it makes no further heads."""
    rule = program.rules[one.rule].rule
    if rule.kind == "deduce":
        return one.rule, one.parameters
    values = parameter_values(program, one)
    return one.rule, () if rule.matrix is None else tuple(values[variable.name] for variable in rule.matrix.variables())


# --- from the database to the equations --------------------------------------------------------------------------------


def _open(
    program: Program,
    settings: Settings,
    parameters: Parameters,
    events: Sequence[Given],
    times: Sequence[float],
    seen: int,
    until: float,
) -> _Model:
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
    indexed = [_indexed(program, state) for state in replayed]
    return _Model(program, settings, parameters, happened, when_it_was, indexed, table, numbers)


def _indexed(program: Program, state: State) -> _Indexed:
    proofs: dict[Fact, dict[R, list[Instantiation]]] = {}
    for proof in sorted(state.proofs, key=place):
        proofs.setdefault(proof.head, {}).setdefault(_r(program, proof), []).append(proof)
    additions: dict[Fact, dict[R, list[Added]]] = {}
    for added in sorted(state.additions, key=lambda one: (one.event, place(one.instantiation))):
        one = added.instantiation
        additions.setdefault(one.head, {}).setdefault(_r(program, one), []).append(added)
    return _Indexed(state, proofs, additions)
