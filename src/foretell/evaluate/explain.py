"""Explains an intensity just before a time. In: a model, a history, a time and optionally an event. Out: the shares of its causes.

For a model without rules: which past events matter (`leave_out`). For a model of rules, and for the event and every embedded fact in its
proofs: the contribution of each rule, the facts it comes from, and the past events that it attends to (or that act through cells and
states), all ranked.
`models/rules/andtt_explain` computes it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from foretell.data import Clock, EventSequence
from foretell.data.arguments import check_history
from foretell.data.clock import NO_CLOCK
from foretell.errors import ForetellError
from foretell.evaluate.leave_out import MOST_LEFT_OUT, PastExplanation, explain_by_past
from foretell.ground.explain import why
from foretell.ground.timeline import Timeline
from foretell.lang.syntax import pretty_rule
from foretell.models.base import IntensityModel, check_model
from foretell.models.rules.andtt import ANDTT
from foretell.models.rules.andtt_attention import Head, Look, look_back
from foretell.models.rules.andtt_explain import Anatomy, Contribution, ProofPart, take_apart
from foretell.models.rules.listed_model import listed_model
from foretell.models.rules.ndtt import NDTT
from foretell.models.rules.ndtt_explain import look_into_cells
from foretell.models.rules.rule_model import RuleModel
from foretell.models.rules.s2ndtt import S2NDTT
from foretell.models.rules.s2ndtt_explain import look_into_states

Kind = Literal["own", "deduce", "add"]
ExplainedModel = ANDTT | S2NDTT | NDTT


@dataclass(frozen=True)
class BodyFact:
    """A fact in the body of a proof, and its share of the proof's vector (0 for a fact without an embedding)."""

    fact: str
    share: float


@dataclass(frozen=True)
class ProofShare:
    share: float  # of this proof among the proofs of its pool
    constant: float  # the share of the constant 1 that is concatenated with the conditions' vectors
    conditions: tuple[BodyFact, ...]  # strongest first

    def to_json(self) -> dict[str, Any]:
        return {"share": self.share, "constant": self.constant, "body": [asdict(one) for one in self.conditions]}


@dataclass(frozen=True)
class AttendedEvent:
    event: str
    event_index: int  # 0 is `bos`, i the i-th event
    time: float
    ago: float
    conditions: tuple[str, ...]  # the other conditions of the rule
    weight: float  # α / (1 + Σ α)


@dataclass(frozen=True)
class LayerAttention:
    layer: int  # from 1 on
    kept: float  # the weight of the extra 1 in the denominator; it and the weights of additions sum to 1
    additions: tuple[AttendedEvent, ...]  # by decreasing weight; equal weights: latest event first

    def to_json(self, top: int | None) -> dict[str, Any]:
        shown = [asdict(one) for one in self.additions[:top]]
        rest = self.additions[len(shown) :]
        left_out = {"not_shown": len(rest), "not_shown_weight": sum(one.weight for one in rest)}
        return vars(self) | {"additions": shown} | left_out


@dataclass(frozen=True)
class RuleContribution:
    """What one `r` (a rule with values for the variables in its parameter names) contributes to a fact's embedding."""

    kind: Kind
    rule: str
    binding: dict[str, str]
    place: str | None  # file:line:column; None for a row of a table
    text: str
    share: float  # its share of the sum of the norms of all contributions to this fact
    norms: tuple[float, ...]  # norms of the contributed vector before the tanh, in layers 0 … L
    effect: float | None  # the decrease of the event's log-intensity without this contribution
    proofs: tuple[ProofShare, ...]
    attention: tuple[LayerAttention, ...]

    @property
    def name(self) -> str:
        bound = ", ".join(f"{name}={value}" for name, value in self.binding.items())
        return f"{self.rule}[{bound}]" if bound else self.rule

    def to_json(self, top: int | None) -> dict[str, Any]:
        shown = [one.to_json() for one in self.proofs[:top]]
        attention = [one.to_json(top) for one in self.attention]
        left_out = {"proofs_not_shown": len(self.proofs) - len(shown)}
        return vars(self) | {"proofs": shown, "attention": attention} | left_out


@dataclass(frozen=True)
class FactExplanation:
    fact: str
    dim: int
    contributions: tuple[RuleContribution, ...]  # strongest first

    def to_json(self, top: int | None) -> dict[str, Any]:
        return vars(self) | {"contributions": [one.to_json(top) for one in self.contributions]}


@dataclass(frozen=True)
class Explanation:
    sequence: str
    time: float
    seen: int  # events with a smaller time
    after: tuple[str, float] | None  # the last event before `time`, and its time
    event: str
    intensities: dict[str, float]  # of all possible events, highest first
    layers: int
    facts: tuple[FactExplanation, ...]  # the event first, then the facts in its proofs, strongest first
    calendar: float | None = (
        None  # effect of the time of the week (and year) on the event's log-intensity, for models with a calendar
    )
    clock: Clock = NO_CLOCK
    began: int | None = None  # the timestamp of time 0, if known

    @property
    def intensity(self) -> float:
        return self.intensities[self.event]

    @property
    def total(self) -> float:
        return sum(self.intensities.values())

    def to_json(self, top: int | None = None) -> dict[str, Any]:
        """Return JSON with the first `top` intensities, proofs and additions of each list, and the sum of the rest; None: all."""
        highest = list(self.intensities.items())[:top]
        return {
            "sequence": self.sequence,
            "time": self.time,
            **({} if self.began is None else {"iso": self.clock.iso(self.time, self.began)}),
            "index": self.seen + 1,
            "event": self.event,
            "intensity": self.intensity,
            "probability": self.intensity / self.total,
            "total": self.total,
            "possible": len(self.intensities),
            "highest": [{"event": name, "intensity": value} for name, value in highest],
            "layers": self.layers,
            **({} if self.calendar is None else {"calendar": self.calendar}),
            "facts": self.clock.with_iso([one.to_json(top) for one in self.facts], self.began),
        }


def explain(
    model: IntensityModel,
    history: EventSequence,
    at: float,
    event: str | None = None,
    *,
    most: int | None = MOST_LEFT_OUT,
    progress: Callable[[int, int], None] | None = None,
) -> Explanation | PastExplanation:
    """Explain the intensity of an event just before a time: by rules or, for models without rules, by leaving past events out.

    Args:
        model: the model.
        history: the sequence; only its events before `at` are used.
        at: the time.
        event: a possible event, as in data files; default: the one with the highest intensity.
        most: for models without rules, the number of latest events that are left out one by one; None: all.
        progress: called with the number of histories done and their total.

    Returns:
        For models of rules: the facts and proofs of the event, and which past events each rule attends to. For other models: how much each
        past event raises or lowers the intensity.

    Example:
        >>> data = ft.EventData.from_names([["visit", "test", "visit"]], [[0.5, 2.0, 3.0]], t_ends=[10.0])
        >>> ft.explain(ft.NHP(data.vocabulary, dim=4), data[0], 5.0, "test").event
        'test'
    """
    check_model(model)
    check_history(history)
    at = checked_time(history, at)
    history = history.first(int(np.searchsorted(history.times, at, side="left")))  # later events have no effect
    if not isinstance(model, RuleModel):
        return explain_by_past(model, history, at, event, most, progress)
    return explain_by_rules(model, history, at, event)


def explain_by_rules(model: IntensityModel, history: EventSequence, at: float, event: str | None) -> Explanation:
    """Explain an intensity of a model of rules; `history` must have only the events before `at`."""
    model = listed_model(check_explained(model), "explain")
    look = look_at(model, history, at)
    found = _possible(model, history, look)
    chosen = _chosen(look, event, found)
    functor, args = look.timeline.grounding.program.split(chosen)
    number = look.timeline.grounding.find(functor, args)
    assert number is not None, f"{chosen} is possible, and so it is a fact"
    anatomy = take_apart(model, look, number)
    last = look.timeline.last_name if look.seen else None
    names = _Names(model, look, history)
    return Explanation(
        history.id,
        at,
        look.seen,
        None if last is None else (last, float(history.times[look.seen - 1])),
        chosen,
        found,
        model.layers if isinstance(model, ANDTT) else 0,
        names.facts(anatomy),
        anatomy.calendar,
        history.source.clock,
        history.start,
    )


def look_at(model: ExplainedModel, history: EventSequence, at: float) -> Look:
    """Return the database just before a time, and what additions contribute to facts, by attention or through cells."""
    if isinstance(model, ANDTT):
        return look_back(model, history, at)
    return look_into_states(model, history, at) if isinstance(model, S2NDTT) else look_into_cells(model, history, at)


def check_explained(model: IntensityModel) -> ExplainedModel:
    """Return the model, or raise: models of rules from other packages may not support explanations."""
    if not isinstance(model, ANDTT | S2NDTT | NDTT):
        raise ForetellError(f"this model is {model.title}; explain knows the rules of A-NDTT, NDTT and S2-NDTT")
    return model


def checked_time(history: EventSequence, at: float) -> float:
    """Return `at` as a float, or raise if it is not a time of the sequence."""
    try:
        time = float(at)
    except (TypeError, ValueError):
        raise ForetellError(f"time {at!r}: expected a number from 0 on") from None
    if not 0.0 <= time < math.inf:
        raise ForetellError(f"time {time:g}: expected a number from 0 on")
    if time > history.t_end:
        asked, end = (history.source.clock.short(one, history.start) or f"{one:g}" for one in (time, history.t_end))
        raise ForetellError(
            f"time {asked}: sequence {history.id} was observed until {end} only; what happened later is not known. "
            "Ask about an earlier time, or give the sequence a later `t_end` if nothing more happened"
        )
    return time


def _possible(model: RuleModel, history: EventSequence, look: Look) -> dict[str, float]:
    found = model.possible_intensities(history, [look.time])[0]
    if not found:
        raise ForetellError(f"{_where(look.timeline, look)}: no event is possible, so there is nothing to explain")
    return dict(sorted(found.items(), key=lambda pair: (-pair[1], pair[0])))


def _chosen(look: Look, event: str | None, possible: dict[str, float]) -> str:
    if event is None:
        return next(iter(possible))
    told = why(look.timeline, event, look.state)
    program = look.timeline.grounding.program
    functor = program.functors[program.split(told.fact)[0]]
    if functor.kind == "exogenous":
        raise ForetellError(
            f"`{told.fact}`: `{functor}` is exogenous: it may happen at any time and is never predicted, so there is nothing to explain"
        )
    if functor.kind != "event":
        raise ForetellError(
            f"`{told.fact}`: `{functor}` is not an event. Choose a possible event, such as `{next(iter(possible))}`; "
            "`foretell why` proves other facts"
        )
    if not told.holds:
        raise ForetellError("\n".join([f"{_where(look.timeline, look)}: this event is not possible", *told.lines()]))
    return told.fact


def _where(timeline: Timeline, look: Look) -> str:
    last = f"after {timeline.last_name} at {timeline.last_event(look.state):g}" if look.seen else "before any event"
    return f"sequence {timeline.sequence}, just before time {look.time:g}, {last}"


class _Names:
    """Converts the integers of an explanation to names."""

    def __init__(self, model: RuleModel, look: Look, history: EventSequence) -> None:
        self.model, self.look, self.history = model, look, history
        self.grounding, self.program = look.timeline.grounding, model.program

    def facts(self, anatomy: Anatomy) -> tuple[FactExplanation, ...]:
        """Return each fact once, depth first along the strongest contributions, proofs and conditions."""
        made: dict[int, FactExplanation] = {}
        waiting = [anatomy.event]
        while waiting:
            fact = waiting.pop()
            if fact in made:
                continue
            parts = anatomy.facts.get(fact, ())
            made[fact] = self._fact(fact, anatomy.dims[fact], parts)
            needed = [one for part in parts for proof in part.proofs for one in self._needed(proof)]
            waiting.extend(one for one in reversed(needed) if one in anatomy.dims and one not in made)
        return tuple(made.values())

    def _needed(self, proof: ProofPart) -> list[int]:
        body = self.grounding.body[proof.instance]
        order = sorted(range(len(body)), key=lambda place: -proof.conditions[place])
        return [body[place] for place in order]

    def _fact(self, fact: int, dim: int, parts: Sequence[Contribution]) -> FactExplanation:
        whole = sum(part.norm for part in parts)
        return FactExplanation(
            self.grounding.text(fact), dim, tuple(self._contributed(part, _share(part.norm, whole)) for part in parts)
        )

    def _contributed(self, part: Contribution, share: float) -> RuleContribution:
        rule = self.grounding.groups[part.group][0]
        pooled = sum(proof.norm for proof in part.proofs)
        layout = self.model.layout.rules[rule]
        assert layout is not None
        is_table = rule >= len(self.program.rules)
        written = None if is_table else self.program.rules[rule].rule
        return RuleContribution(
            "add" if part.head is not None else "own" if layout.kind == "own" else "deduce",
            self.grounding.rule_name(rule),
            {} if is_table else self._binding(rule, part),
            None if written is None else written.span.place,
            self.grounding.group_name(part.group) if written is None else pretty_rule(written),
            share,
            part.norms,
            part.effect,
            tuple(self._proof(one, _share(one.norm, pooled)) for one in part.proofs),
            () if part.head is None else self._attention(part.head),
        )

    def _binding(self, rule: int, part: Contribution) -> dict[str, str]:
        values = [self.grounding.constants[value] for value in self.grounding.groups[part.group][1:]]
        count = self.model.layout.values_of_heads.get(rule, len(values)) if part.head is not None else len(values)
        return dict(zip(self.model.program.rules[rule].rule.parameter_variables[:count], values[:count], strict=True))

    def _proof(self, proof: ProofPart, share: float) -> ProofShare:
        body = [self.grounding.text(fact) for fact in self.grounding.body[proof.instance]]
        whole = proof.constant + sum(proof.conditions)
        conditions = [BodyFact(fact, _share(norm, whole)) for fact, norm in zip(body, proof.conditions, strict=True)]
        ranked = tuple(sorted(conditions, key=lambda one: -one.share))
        return ProofShare(share, _share(proof.constant, whole), ranked)

    def _attention(self, head: Head) -> tuple[LayerAttention, ...]:
        found = []
        for at_layer in head.layers:
            additions = [
                self._addition(instance, event, weight)
                for instance, event, weight in zip(head.instances, head.events, at_layer.weights.tolist(), strict=True)
            ]
            ranked = tuple(sorted(additions, key=lambda one: (-one.weight, -one.event_index)))
            found.append(LayerAttention(at_layer.layer, at_layer.kept, ranked))
        return tuple(found)

    def _addition(self, instance: int, event: int, weight: float) -> AttendedEvent:
        name, *conditions = (self.grounding.text(fact) for fact in self.grounding.body[instance])
        number = self.look.timeline.event_number(event)
        time = 0.0 if number == 0 else float(self.history.times[number - 1])
        return AttendedEvent(name, number, time, self.look.time - time, tuple(conditions), weight)


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0.0 else 0.0
