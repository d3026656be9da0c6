"""Walks of an A-NHP: keys and values of all past events are kept, so that one more event costs one more row in each table.

The network at a query is written once, over Taylor models: a bound is one of some degree on a window, an intensity is one of degree 0
at a point, where nothing is left over.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Self

import torch
from torch import Tensor, nn

from foretell.data import EventData, EventSequence
from foretell.models.anhp import ANHP
from foretell.models.anhp_layers import AttentionLayer
from foretell.models.batch import make_batch
from foretell.models.structure import Head
from foretell.sampling.taylor import DEGREE, Taylor, between, constant, exp, inverse_power, relu, softplus, tanh, waves
from foretell.sampling.walk import Bounds, Walks


@dataclass
class Table:
    """What one head of one layer offers to queries. Rows beyond a walk's events are zero, and not visible."""

    folded: Tensor  # float64 [W, rows, 1 + T + D]: keys times Q
    values: Tensor  # float64 [W, rows, D]
    visible: Tensor  # bool [W, rows]: True where this head may look
    folded_size: Tensor  # absolute values of the two
    values_size: Tensor

    @classmethod
    def of(cls, folded: Tensor, values: Tensor, visible: Tensor) -> Table:
        return cls(folded, values, visible, folded.abs(), values.abs())

    def taken(self, walks: Tensor) -> Table:
        return Table(*(getattr(self, one.name)[walks] for one in fields(self)))

    def write(self, walks: Tensor, row: Tensor, folded: Tensor, values: Tensor, visible: Tensor) -> None:
        """One more row for some walks."""
        written = (folded, values, visible, folded.abs(), values.abs())
        for one, value in zip(fields(self), written, strict=True):
            getattr(self, one.name)[walks, row] = value

    def widen(self) -> None:
        """Room for half as many events again."""
        more = max(16, self.values.shape[1] // 2)
        for one in fields(self):
            tensor = getattr(self, one.name)
            setattr(self, one.name, nn.functional.pad(tensor, (*[0] * (2 * tensor.dim() - 4), 0, more)))


class ANHPWalks(Walks):
    def __init__(self, model: ANHP, tables: list[list[Table]], events: Tensor) -> None:
        self.model, self.tables, self.events = model, tables, events  # events: int64 [W], so far
        time = model.time
        self._frequency = 2.0 * math.pi * time.turns_per_unit[1 : 1 + time.dim]
        self._phase = 2.0 * math.pi * time.quarter_turns[1 : 1 + time.dim]

    @classmethod
    @torch.no_grad()
    def start(cls, model: ANHP, histories: Sequence[EventSequence], seen: Sequence[int]) -> ANHPWalks:
        """Walks that begin with the first `seen` events of each history."""
        model = copy.deepcopy(model).double().eval()
        cut = [
            replace(one, times=one.times[:n], types=one.types[:n], unscored=None)
            for one, n in zip(histories, seen, strict=True)
        ]
        batch = make_batch(EventData(cut, model.vocabulary), range(len(cut)), device=model.device)
        encoded = model.encode(batch)
        ahead = 1 if model.bos else 0
        inside = torch.arange(batch.times.shape[1] + ahead, device=model.device)[None] < batch.lengths[:, None] + ahead
        tables = []
        for layer, by_head in zip(model.layer_list(), encoded.tables, strict=True):
            made = []
            for number, one in enumerate(by_head):
                visible = inside if one.hidden is None else inside & ~one.hidden[:, 1:]
                keep = inside.unsqueeze(-1)
                folded = (one.keys[:, 1:] @ layer.Q[number]) * keep
                made.append(Table.of(folded, one.values[:, 1:] * keep, visible))
            tables.append(made)
        return cls(model, tables, batch.lengths + ahead)

    @property
    def count(self) -> int:
        return len(self.events)

    @property
    def width(self) -> float:
        return 2.0 * self.model.time.m

    def taken(self, walks: Tensor) -> Self:
        tables = [[one.taken(walks) for one in layer] for layer in self.tables]
        return type(self)(self.model, tables, self.events[walks])

    def name(self, walk: int, choice: int) -> str:
        return self.model.vocabulary.names[choice]

    @torch.no_grad()
    def intensities(self, times: Tensor) -> Tensor:
        return self._rates(times, torch.zeros_like(times), 0).c[0]

    @torch.no_grad()
    def bounds(self, start: Tensor, end: Tensor) -> Bounds:
        middle = (start + end) / 2.0
        total = self._rates(middle, (end - start) / 2.0, DEGREE).sum(-1)
        return Bounds(total.upper().nan_to_num(nan=math.inf), self.intensities(middle).sum(-1))

    @torch.no_grad()
    def append(self, times: Tensor, choices: Tensor) -> None:
        model = self.model
        some = (choices >= 0).nonzero().squeeze(1)
        row, which = self.events[some], choices[some]
        choices = choices.clamp(min=0)
        if len(some) and int(row.max()) >= self.tables[0][0].values.shape[1]:
            for table in (table for layer in self.tables for table in layer):
                table.widen()
        features = self._features(times[:, None], torch.zeros_like(times)[:, None], 0)
        ones = torch.ones(self.count, 1, dtype=torch.float64, device=times.device)
        time = features.c[0, :, 0]
        heads = [(i, head) for i, head in enumerate(model.structure.heads) if head.serves_history()]
        layers = self._layers(features, model.fine[choices][:, None], heads, choices)
        rows = []
        for layer, embedding in zip(model.layer_list(), layers, strict=False):
            whole = torch.cat([ones, time, embedding.c[0, :, 0]], dim=1)
            keys = torch.einsum("hdi,wi->hwd", layer.K, whole) / math.sqrt(model.dim)
            rows.append((torch.einsum("hwd,hdi->hwi", keys, layer.Q), torch.einsum("hdi,wi->hwd", layer.V, whole)))
        for by_head, (folded, values) in zip(self.tables, rows, strict=True):  # only now: an event does not see itself
            for number, (table, head) in enumerate(zip(by_head, model.structure.heads, strict=True)):
                seen = torch.ones_like(which, dtype=torch.bool) if head.source is None else which == head.source
                table.write(some, row, folded[number, some], values[number, some], seen)
        self.events[some] += 1

    # The network at a query

    def _features(self, middle: Tensor, half: Tensor, degree: int) -> Taylor:
        return waves(middle, half, self._frequency, self._phase, degree)

    def _rates(self, middle: Tensor, half: Tensor, degree: int) -> Taylor:
        """Intensities of all types: [W, P, K]."""
        model = self.model
        features = self._features(middle, half, degree)
        tau = model.log_tau.exp()
        scores: list[Taylor] = []
        order: list[int] = []
        for number, group in enumerate(model.structure.groups):
            heads = [(i, head) for i, head in enumerate(model.structure.heads) if head.serves_group(number)]
            members = list(group.members)
            base = model._bases()[number].expand(*middle.shape, -1)
            *_, top = self._layers(features, base, heads, None)
            w = model.w[members] / tau[members, None]
            scores.append(top.through(w.T).plus(model.w_constant[members] / tau[members]))
            order += members
        back = torch.tensor(order, device=middle.device).argsort()
        every = Taylor(torch.cat([one.c for one in scores], -1), torch.cat([one.remainder for one in scores], -1))
        every = every if len(scores) == 1 else every.map(lambda x: x[..., back])
        return softplus(every).times(tau / model.time_scale)

    def _layers(
        self, features: Taylor, base: Tensor, heads: list[tuple[int, Head]], readers: Tensor | None
    ) -> Iterator[Taylor]:
        """The embedding at layers 0 … L of what starts from `base` [W, P, D]; `readers` are the types of events that look back [W]."""
        x = constant(base, features.degree)
        yield x
        for layer, by_head in zip(self.model.layer_list(), self.tables, strict=True):
            attended = constant(torch.zeros_like(base), features.degree)
            for number, head in heads:
                out = self._attend(by_head[number], features, x)
                if head.reader is not None and readers is not None:
                    out = out.times((readers == head.reader).double()[:, None, None])
                attended = attended + out
            x = _after(layer, x + tanh(attended))
            yield x

    def _attend(self, table: Table, features: Taylor, x: Taylor) -> Taylor:
        """`Σ α v / (1 + Σ α)`: [W, P, D]."""
        time_dim = self.model.time_dim
        if not table.values.shape[1]:
            return constant(torch.zeros_like(x.c[0]), x.degree)
        parts = [1, time_dim, self.model.dim]
        by_one, by_time, by_embedding = table.folded.split(parts, dim=-1)
        _, time_size, embedding_size = table.folded_size.split(parts, dim=-1)
        logits = features.through(by_time.mT, time_size.mT) + x.through(by_embedding.mT, embedding_size.mT)
        level = (logits.c[0] + by_one.mT).masked_fill(~table.visible[:, None], -torch.inf)
        largest = level.amax(-1, keepdim=True).clamp(min=0.0)
        level, alone = level - largest, -largest.squeeze(-1)
        # What all logits do together is taken off them, and off that of the extra 1: no ratio changes, and the sum hardly moves.
        share = torch.exp(level)
        together = (share * logits.c[1:]).sum(-1) / (share.sum(-1) + torch.exp(alone))
        weights = exp(Taylor(torch.cat([level[None], logits.c[1:] - together.unsqueeze(-1)]), logits.remainder))
        one = exp(Taylor(torch.cat([alone[None], -together]), torch.zeros_like(alone)))
        whole = weights.sum(-1) + one
        found = weights.through(table.values, table.values_size) * inverse_power(whole, 1.0).map(
            lambda part: part.unsqueeze(-1)
        )
        if found.degree == 0:
            return found
        # Whatever the weights are, the outcome lies among 0 and the values.
        shown = table.values * table.visible.unsqueeze(-1)
        low, high = (
            extreme.clamp(**limit).unsqueeze(1)
            for extreme, limit in ((shown.amin(1), {"max": 0.0}), (shown.amax(1), {"min": 0.0}))
        )
        return _tighter(found, low.expand_as(x.c[0]), high.expand_as(x.c[0]))


def _tighter(found: Taylor, low: Tensor, high: Tensor) -> Taylor:
    """What was found, or, where its remainder is no use, just the range."""
    if found.degree == 0:
        return found
    plain = between(low, high, found.degree)
    use = ~(found.spread() <= high - low)  # what is not a number is no use either
    if not bool(use.any()):
        return found
    return Taylor(torch.where(use, plain.c, found.c), torch.where(use, plain.remainder, found.remainder))


def _after(layer: AttentionLayer, x: Taylor) -> Taylor:
    """The optional sublayers."""
    if layer.is_plain:
        return x
    if layer.norms is not None:
        x = _layer_norm(layer.norms[0], x)
    if layer.expand is not None and layer.contract is not None:
        inner = relu(x.through(layer.expand.weight.T).plus(layer.expand.bias))
        x = x + inner.through(layer.contract.weight.T).plus(layer.contract.bias)
        if layer.norms is not None:
            x = _layer_norm(layer.norms[1], x)
    return x


def _layer_norm(norm: nn.Module, x: Taylor) -> Taylor:
    assert isinstance(norm, nn.LayerNorm)
    size = x.shape[-1]
    centre = torch.eye(size, dtype=x.c.dtype, device=x.c.device) - 1.0 / size
    moved = x.through(centre)
    variance = (moved * moved).sum(-1).times(1.0 / size)
    scale = inverse_power(variance.plus(variance.c.new_tensor(norm.eps)), 0.5).map(lambda part: part.unsqueeze(-1))
    found = _tighter(moved * scale, *(torch.full_like(moved.c[0], side * math.sqrt(size)) for side in (-1.0, 1.0)))
    return found.times(norm.weight).plus(norm.bias)
