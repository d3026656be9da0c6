"""Explain one possible event of a model made of rules: what each rule contributes to its embedding, and to those in its proofs.

The input is a `Look` just before a time, and a possible event. For the event and every embedded fact below it, the result has the
vectors that are summed inside the `tanh` of docs/explanation/andtt.md. There is one per `r`: a pool of proofs, a head of attention, or the
remaining part of its additions in a cell or state. Each has its norm and its effect, the change of the event's log-intensity if the
vector is left out on all layers while attention weights, gates and inputs to states stay fixed. The intensity, and so the effect,
includes the factors of the time since the last event and of the calendar.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from graphlib import TopologicalSorter

import torch
from torch import Tensor

from foretell.models.rules.andtt import ANDTT
from foretell.models.rules.andtt_attention import Head, Look
from foretell.models.rules.andtt_network import after
from foretell.models.rules.rule_model import RuleModel
from foretell.nn.intensity import log_softplus
from foretell.nn.pool import pool

MOST_LEFT_OUT = 256  # the number of contributions whose effect is computed, the strongest first
LEFT_OUT_AT_A_TIME = 64


@dataclass(frozen=True)
class ProofPart:
    """One proof in a pool: the norms of its vector and of each condition's part of it, summed over layers."""

    instance: int
    norm: float
    constant: float
    conditions: tuple[float, ...]  # for the body of the instance; 0 for a condition without an embedding


@dataclass(frozen=True, eq=False)
class Contribution:
    """The contribution of one `r` to the embedding of one fact."""

    fact: int
    group: int
    norms: tuple[float, ...]  # for layers 0 … L
    proofs: tuple[ProofPart, ...]  # the proofs of a pool
    head: Head | None  # the head of attention
    effect: float | None = None  # on the log-intensity of the event

    @property
    def norm(self) -> float:
        return sum(self.norms)


@dataclass(frozen=True, eq=False)
class Anatomy:
    event: int
    log_intensity: float
    facts: dict[int, tuple[Contribution, ...]]  # the event first; of each fact, the strongest contribution first
    dims: dict[int, int]
    calendar: float | None = None  # the calendar's effect on the log-intensity through its weights; None: no calendar


@torch.no_grad()
def take_apart(model: RuleModel, look: Look, event: int) -> Anatomy:
    return _Knife(model, look, event).cut()


@dataclass(frozen=True, eq=False)
class _Pooled:
    """The proofs of one fact by one `r`."""

    fact: int
    group: int
    instances: tuple[int, ...]
    matrix: Tensor  # float64 [head, 1 + Σ body]
    beta: Tensor | None
    embedded: tuple[int, ...]  # positions in the body
    columns: tuple[tuple[int, ...], ...]  # for each embedded position: the fact there in each proof

    def entries(self, now: Mapping[int, Tensor], rows: int) -> Tensor:
        """Return `W [1; emb; …]` of every proof: [rows, proofs, head]."""
        one = torch.ones(rows, len(self.instances), 1, dtype=torch.float64)
        bodies = [torch.stack([now[fact] for fact in column], dim=1) for column in self.columns]
        return torch.cat([one, *bodies], dim=-1) @ self.matrix.T

    def value(self, now: Mapping[int, Tensor], rows: int) -> Tensor:
        entries = self.entries(now, rows)
        if entries.shape[1] == 1:
            return entries[:, 0]
        assert self.beta is not None, "a rule with several proofs has an exponent"
        segment = torch.arange(rows).repeat_interleave(entries.shape[1])
        return pool(entries.flatten(0, 1), segment, rows, self.beta.expand(rows))


class _Knife:
    def __init__(self, model: RuleModel, look: Look, event: int) -> None:
        self.model, self.look, self.event = model, look, event
        attends = isinstance(model, ANDTT)
        self.layers = model.layers if attends else 0
        self.grounding = look.timeline.grounding
        self.arrays = model.named_arrays()
        self.sublayers = deepcopy(model.network.sublayers).double().cpu() if attends else None
        self.mixture = deepcopy(model.mixture).double().cpu()
        self.proofs: dict[int, list[int]] = {}
        for instance in look.timeline.proofs_at(look.state):
            self.proofs.setdefault(self.grounding.head[instance], []).append(instance)
        self.dims: dict[int, int] = {}
        self.parts: dict[int, list[_Pooled | Head]] = {}
        self._gather()
        below = {
            fact: {one for part in parts if isinstance(part, _Pooled) for column in part.columns for one in column}
            for fact, parts in self.parts.items()
        }
        self.order = list(TopologicalSorter(below).static_order())  # plans refuse cycles
        self.places = [(fact, number) for fact, parts in self.parts.items() for number in range(len(parts))]

    def _gather(self) -> None:
        """Collect the event and every embedded fact that its proofs need."""
        waiting = [self.event]
        while waiting:
            fact = waiting.pop()
            if fact in self.parts:
                continue
            self.dims[fact] = self.model.layout.dimension(self.grounding.functors[self.grounding.keys[fact][0]])
            pools = self._pools(fact)
            self.parts[fact] = [*pools, *self.look.heads.get(fact, ())]
            if self.dims[fact]:
                waiting.extend(one for part in pools for column in part.columns for one in column)

    def _pools(self, fact: int) -> list[_Pooled]:
        by_group: dict[int, list[int]] = {}
        for instance in self.proofs.get(fact, ()):
            by_group.setdefault(self.grounding.group[instance], []).append(instance)
        found = []
        for group, instances in by_group.items():
            layout = self.model.layout.rules[self.grounding.rule[instances[0]]]
            assert layout is not None, "a removal proves nothing"
            family, number, exponents, place = self.model.book.of_group(self.grounding, group)
            if family.is_learned:
                matrix = self.arrays[f"deduce.{family.names[number]}.W"].double().cpu()
            else:
                matrix = self.model.rule_network.vector_of_numbers(family, number).double().cpu()
            beta = None if exponents is None else self.arrays[f"deduce.{exponents.names[place]}.beta"].double().cpu()
            embedded = layout.embedded if self.dims[fact] else ()
            bodies = [self.grounding.body[one] for one in instances]
            columns = tuple(tuple(body[place] for body in bodies) for place in embedded)
            found.append(_Pooled(fact, group, tuple(instances), matrix, beta, embedded, columns))
        return found

    def cut(self) -> Anatomy:
        one = torch.ones(1, len(self.places), dtype=torch.float64)
        layers = self._embeddings(one)
        log = float(self._log_intensity(layers[-1][self.event])[0])
        found = [self._contribution(self.parts[fact][number], layers) for fact, number in self.places]
        effects = self._effects(sorted(range(len(found)), key=lambda place: -found[place].norm)[:MOST_LEFT_OUT], log)
        facts: dict[int, list[Contribution]] = {}
        for place, contribution in enumerate(found):
            facts.setdefault(contribution.fact, []).append(replace(contribution, effect=effects.get(place)))
        strongest = {fact: tuple(sorted(parts, key=lambda part: -part.norm)) for fact, parts in facts.items()}
        calendar = None
        if self.look.waves is not None:
            calendar = log - float(self._log_intensity(layers[-1][self.event], turned=False)[0])
        return Anatomy(self.event, log, strongest, self.dims, calendar)

    def _embeddings(self, gate: Tensor) -> list[dict[int, Tensor]]:
        """Return the embeddings [rows, dim] of all facts per layer, with contributions multiplied by `gate` [rows, contributions]."""
        rows = len(gate)
        columns = {place: column for place, column in zip(self.places, gate.T, strict=True)}
        layers: list[dict[int, Tensor]] = []
        for layer in range(self.layers + 1):
            now: dict[int, Tensor] = {}
            for fact in self.order:
                inside = torch.zeros(rows, self.dims[fact], dtype=torch.float64)
                for number, part in enumerate(self.parts[fact] if self.dims[fact] else ()):
                    inside = inside + columns[fact, number][:, None] * _value(part, now, rows, layer)
                inside = inside + self.look.rest.get(fact, 0.0)
                moved = inside.tanh() + (layers[-1][fact] if layers else 0.0)
                now[fact] = moved if self.sublayers is None else after(self.sublayers, self.dims[fact], layer, moved)
            layers.append(now)
        return layers

    def _log_intensity(self, embedding: Tensor, turned: bool = True) -> Tensor:
        """Return the event's log-intensity with weights at this time of the week, or without the calendar's term if not `turned`."""
        functor = self.grounding.functors[self.grounding.keys[self.event][0]]
        w, tau = (self.arrays[f"intensity.{functor}.{name}"].double().cpu() for name in ("w", "tau"))
        if turned and self.look.waves is not None:
            w = w + self.look.waves @ self.arrays[f"intensity.{functor}.calendar"].double().cpu()
        found = log_softplus((embedding @ w[1:] + w[0]) / tau) + tau.log()
        waited = self.look.time - self.look.timeline.last_event(self.look.state)
        elapsed = torch.tensor(waited, dtype=torch.float64)
        densities = self.mixture.densities_at(elapsed, self.model.time_scale, torch.float64)
        number = self.model.functors.index(functor)
        return found + self.mixture.log_factor(number, embedding, densities.expand(len(embedding), -1))

    def _effects(self, places: Sequence[int], log: float) -> dict[int, float]:
        found: dict[int, float] = {}
        for start in range(0, len(places), LEFT_OUT_AT_A_TIME):
            chosen = list(places[start : start + LEFT_OUT_AT_A_TIME])
            gate = torch.ones(len(chosen), len(self.places), dtype=torch.float64)
            gate[range(len(chosen)), chosen] = 0.0
            without = self._log_intensity(self._embeddings(gate)[-1][self.event])
            found.update(zip(chosen, (log - without).tolist(), strict=True))
        return found

    def _contribution(self, part: _Pooled | Head, layers: Sequence[Mapping[int, Tensor]]) -> Contribution:
        if not self.dims[part.fact]:
            nothing = tuple(0.0 for _ in layers)
            assert isinstance(part, _Pooled), "nothing without an embedding attends"
            proofs = tuple(
                ProofPart(one, 0.0, 0.0, tuple(0.0 for _ in self.grounding.body[one])) for one in part.instances
            )
            return Contribution(part.fact, part.group, nothing, proofs, None)
        norms = tuple(float(_value(part, now, 1, layer).norm()) for layer, now in enumerate(layers))
        if isinstance(part, Head):
            return Contribution(part.fact, part.group, norms, (), part)
        return Contribution(part.fact, part.group, norms, self._proof_parts(part, layers), None)

    def _proof_parts(self, part: _Pooled, layers: Sequence[Mapping[int, Tensor]]) -> tuple[ProofPart, ...]:
        whole = torch.stack([part.entries(now, 1)[0].norm(dim=-1) for now in layers]).sum(0).tolist()
        sizes = [self.dims[column[0]] for column in part.columns]
        constant, *blocks = part.matrix.split([1, *sizes], dim=1)
        always = float(constant.norm()) * len(layers)
        shares = [
            torch.stack([torch.stack([now[fact][0] for fact in column]) @ block.T for now in layers])
            .norm(dim=-1)
            .sum(0)
            for column, block in zip(part.columns, blocks, strict=True)
        ]
        found = []
        for row, instance in enumerate(part.instances):
            conditions = [0.0] * len(self.grounding.body[instance])
            for place, share in zip(part.embedded, shares, strict=True):
                conditions[place] = float(share[row])
            found.append(ProofPart(instance, whole[row], always, tuple(conditions)))
        return tuple(sorted(found, key=lambda one: -one.norm))


def _value(part: _Pooled | Head, now: Mapping[int, Tensor], rows: int, layer: int) -> Tensor:
    """Return the vector that is summed inside the tanh: [rows, dim]. Attention is 0 below layer 1."""
    if isinstance(part, _Pooled):
        return part.value(now, rows)
    first = part.layers[0]
    if layer < first.layer:
        return torch.zeros(rows, len(first.value))
    return part.layers[layer - first.layer].value.expand(rows, -1)
