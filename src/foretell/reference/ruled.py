"""Shared code of the slow models of rules: names and dimensions of parameters, a check for cyclic proofs, and pools.

Parameter names are compared after variables have values: two instantiations with the same name have the same matrices.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import Protocol

import torch
from torch import Tensor

from foretell.errors import ForetellError
from foretell.lang.program import Program
from foretell.lang.syntax import Atom, Constant
from foretell.reference.calendar import SlowCalendar
from foretell.reference.database import EXPIRY, Fact, Instantiation, State
from foretell.terms import fact as fact_text

Parameters = Mapping[str, Tensor]
R = tuple[
    int, tuple[str, ...]
]  # a rule's number in the program, and the values of the variables in its parameter names


def pool(entries: Sequence[Tensor], beta: Tensor) -> Tensor:
    """Return `v⁻¹(Σ v(x))` with `v(x) = sign(x)|x|^β`, element by element.

    Gradients are those of the formula, except in two places. `0^β` has slope 0, or slope 1 if `β = 1`, where the pool is a plain sum. If
    the sum is 0, `|·|^(1/β)` is infinitely steep: then each entry has slope 1 and β has slope 0.
    """
    if len(entries) == 1:
        return entries[0]
    x = torch.stack(list(entries))
    # A common factor can be taken out of a pool: in units of the largest entry, no power over- or underflows.
    largest = x.detach().abs().amax(0)
    unit = torch.where(largest > 0.0, largest, 1.0)
    share = x / unit
    at_zero = share if float(beta.detach()) == 1.0 else 0.0 * share
    powers = torch.where(x == 0.0, at_zero, share.sign() * torch.where(x == 0.0, 1.0, share.abs()) ** beta)
    total = powers.sum(0)
    cancels = total == 0.0
    root = unit * total.sign() * torch.where(cancels, 1.0, total.abs()) ** (1.0 / beta)
    plain = x.sum(0)
    return torch.where(cancels, plain - plain.detach(), root)


def zeros(*shape: int) -> Tensor:
    return torch.zeros(shape, dtype=torch.float64)


def with_one(*parts: Tensor) -> Tensor:
    """Return `[1; …]`."""
    return torch.cat([torch.ones(1, dtype=torch.float64), *parts])


@dataclass(frozen=True)
class TimeFactors:
    """Settings of the factors of intensities that depend on the time since the last event."""

    scales: tuple[float, ...] = ()  # time scales of the mixture
    shape: tuple[float, ...] = ()  # time scales of the factor `shape`
    unit: float = 1.0  # unit of the mixture


NO_FACTORS = TimeFactors()


def intensity(
    parameters: Parameters,
    functor: str,
    column: Tensor,
    elapsed: float,
    given: TimeFactors,
    waves: Tensor | None = None,
) -> Tensor:
    """Return the intensity of an event: `τ log(1 + exp(w·[1; emb]/τ))` times two factors of the time `u` since the last event.

    They are `1 + Σ_j softplus(v_j·[1; emb])·exp(−u/s_j)·unit/s_j` and `exp(Σ_k a_k·[1; emb]·exp(−u/s_k))`; `column` is
    `[1; emb]`, and `elapsed` is `u`. With `waves` of the calendar, `w` is replaced by `w + C waves`.
    """
    w, tau = parameters[f"intensity.{functor}.w"], parameters[f"intensity.{functor}.tau"]
    if waves is not None:
        w = w + waves @ parameters[f"intensity.{functor}.calendar"]
    found = tau * torch.logaddexp(zeros(), torch.dot(w, column) / tau)
    factor = torch.ones((), dtype=torch.float64)
    for number, scale in enumerate(given.scales):
        v = parameters[f"intensity.{functor}.mixture"][number]
        level = torch.logaddexp(zeros(), torch.dot(v, column))
        factor = factor + level * math.exp(-elapsed / scale) * given.unit / scale
    exponent = zeros()
    for number, scale in enumerate(given.shape):
        a = parameters[f"intensity.{functor}.shape"][number]
        exponent = exponent + torch.dot(a, column) * math.exp(-elapsed / scale)
    return found * factor * torch.exp(exponent)


def intensity_shapes(
    program: Program, dim: int, given: TimeFactors, calendar: SlowCalendar | None
) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the parameters of `intensity`, for all functors of events."""
    shapes: dict[str, tuple[int, ...]] = {}
    for name, functor in program.functors.items():
        if functor.kind == "event":
            width = 1 + dimension(program, dim, (name,))
            shapes[f"intensity.{name}.w"] = (width,)
            shapes[f"intensity.{name}.tau"] = ()
            if given.scales:
                shapes[f"intensity.{name}.mixture"] = (len(given.scales), width)
            if given.shape:
                shapes[f"intensity.{name}.shape"] = (len(given.shape), width)
            if calendar is not None:
                shapes[f"intensity.{name}.calendar"] = (calendar.width, width)
    return shapes


# --- names and dimensions --------------------------------------------------------------------------------------------


def dimension(program: Program, dim: int, fact: Fact) -> int:
    """Return the dimension of a fact's embedding: 0 for `bos` and for events that the program does not mention."""
    functor = program.functors.get(fact[0])
    if functor is None:
        return 0
    return dim if functor.dim is None else functor.dim


def sides(program: Program, dim: int, one: Instantiation) -> tuple[int, int]:
    """Return the dimension of the head, and the total dimension of the body."""
    head, *body = (dimension(program, dim, fact) for fact in (one.head, *one.body))
    return head, sum(body)


def matrix_name(program: Program, one: Instantiation) -> str:
    numbered = program.rules[one.rule]
    return (
        numbered.name if numbered.rule.matrix is None else _bound(numbered.rule.matrix, parameter_values(program, one))
    )


def beta_name(program: Program, one: Instantiation) -> str:
    numbered = program.rules[one.rule]
    return numbered.name if numbered.rule.beta is None else _bound(numbered.rule.beta, parameter_values(program, one))


def parameter_values(program: Program, one: Instantiation) -> dict[str, str]:
    """Return the values of the variables in the parameter names."""
    rule = program.rules[one.rule].rule
    names = [name for name in (rule.matrix, rule.beta) if name is not None]
    variables = dict.fromkeys(variable.name for name in names for variable in name.variables())
    return dict(zip(variables, one.parameters, strict=True))


def _bound(name: Atom, values: Mapping[str, str]) -> str:
    return spelled((name.functor, *(arg.text if isinstance(arg, Constant) else values[arg.name] for arg in name.args)))


def spelled(fact: Fact) -> str:
    functor, *args = fact
    return fact_text(functor, args)


def place(one: Instantiation) -> tuple[int, Fact, tuple[Fact, ...], tuple[str, ...]]:
    """Return a sort key: sets have no order, and a sum of floats depends on the order."""
    return one.rule, one.head, one.body, one.parameters


def refuse_cycle(program: Program, dim: int, state: State, when: str) -> None:
    """Raise an error if an embedding depends on itself through proofs. A fact of dimension 0 depends on nothing, so it ends any cycle."""
    proofs = [one for one in sorted(state.proofs, key=place) if dimension(program, dim, one.head) > 0]
    needs: dict[Fact, dict[Fact, Instantiation]] = {}
    for one in proofs:
        for fact in one.body:
            needs.setdefault(one.head, {}).setdefault(fact, one)
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        # The cycle lists each fact, followed by one that it is deduced from; the first one is repeated at the end.
        cycle: list[Fact] = error.args[1][::-1]
        steps = [(head, fact, needs[head][fact].rule) for head, fact in pairwise(cycle)]
        raise ForetellError("\n".join(_cycle_lines(program, steps, when))) from None


def _cycle_lines(program: Program, steps: Sequence[tuple[Fact, Fact, int]], when: str) -> Iterator[str]:
    first, _, rule = steps[0]
    yield (
        f"{program.rules[rule].rule.span.place}: the embedding of `{spelled(first)}` needs itself {when}: "
        "proofs through facts with embeddings must not be cyclic"
    )
    for head, fact, number in steps:
        numbered = program.rules[number]
        yield f"  {spelled(head)} is deduced from {spelled(fact)} ({numbered.name}, {numbered.rule.span.place})"
    yield (
        f"  hint: give one of them no embedding, as in `:- embed({first[0]}, 0).`, or use `<-`, which looks at the past"
    )


class Opened(Protocol):
    """A model with its parameters and the states of one sequence; event number 0 is bos.

    Expiries between events are listed among the events, because they also change the state.
    """

    @property
    def events(self) -> Sequence[Fact]: ...

    @property
    def times(self) -> Sequence[float]: ...

    def possible(self, state: int) -> list[Fact]: ...

    def intensity(self, event: Fact, time: float, state: int) -> Tensor: ...

    def intensities(self, time: float, state: int) -> dict[Fact, Tensor]: ...


def scored(model: Opened, t_end: float, points: Sequence[Sequence[tuple[float, float]]]) -> Tensor:
    """Return `Σ log λ_{e_i}(t_i) − ∫ Σ_e λ_e(t) dt`. The integral is a sum over points (time, weight); gap `g` has seen `g` events.

    Exogenous events are not scored. Neither are events that are impossible when they happen, which the caller has decided to keep in
    the history.
    """
    places = [place for place, event in enumerate(model.events) if event != EXPIRY]
    assert len(points) == len(places), f"{len(points)} gaps for {len(places) - 1} events"
    assert all(time <= t_end for time in model.times), f"an event after the end, {t_end}"
    value = zeros()
    for index in places[1:]:
        event = model.events[index]
        if event in model.possible(index):
            value = value + torch.log(model.intensity(event, model.times[index], index))
    for place, of_gap in zip(places, points, strict=True):
        for time, weight in of_gap:
            state = place + 1
            while state < len(model.events) and model.events[state] == EXPIRY and model.times[state] < time:
                state += 1
            value = value - weight * sum(model.intensities(time, state).values(), start=zeros())
    return value


def last_event(model: Opened, state: int) -> float:
    """Return the time of the last event before a state, or of `bos` if there is none. An expiry is not an event."""
    return next(model.times[place] for place in reversed(range(state)) if model.events[place] != EXPIRY)


def when(events: Sequence[Fact], state: int) -> str:
    if state <= 1:
        return "before the first event"
    if events[state - 1] == EXPIRY:
        return "after an expiry"
    number = sum(event != EXPIRY for event in events[1:state])
    return f"after event {number} (`{spelled(events[state - 1])}`)"
