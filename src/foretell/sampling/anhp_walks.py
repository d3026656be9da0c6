"""Walks of an A-NHP: keys and values of all past events are kept, so that one more event costs one more row in each table.

The network at a query is written once, over `Nodes`: values at some moments of a window, with how far they can be off in between, give a
bound; the value at one moment is the intensity.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Self

import torch
from torch import Tensor, nn

from foretell.data import EventData, EventSequence
from foretell.models.anhp import ANHP
from foretell.models.batch import make_batch
from foretell.models.structure import Head
from foretell.sampling.nodes import (
    DEGREE,
    ROUNDED,
    Nodes,
    constant,
    exp_off,
    overshoot,
    point,
    softplus,
    tanh,
    tighter,
    unless_known,
    waves,
)
from foretell.sampling.side_by_side import side_by_side
from foretell.sampling.sublayers import after
from foretell.sampling.walk import Bounds, Walks

# Numbers of a layer's attention weights that are worked on together; fewer are not worth another thread.
IN_CACHE = 1 << 17
KNOWN = 0.5  # of a total intensity: a remainder below which the polynomial tells it well enough to judge a bound
NOWHERE = -1e4  # the logit of what is not visible: that of the extra 1 is 0


@dataclass
class Table:
    """What one head of one layer offers to queries: first a row of zeros for the extra 1; rows beyond a walk's events are not visible."""

    folded: Tensor  # float64 [W, rows, 1 + T + D]: keys times Q
    values: Tensor  # float64 [W, rows, D]
    visible: Tensor  # bool [W, rows]: True where this head may look
    folded_size: Tensor  # absolute values of the two
    values_size: Tensor

    def between(self, first: int, last: int, rows: int) -> Table:
        """Of some walks the first rows, without a copy."""
        return Table(*(getattr(self, one.name)[first:last, :rows] for one in fields(self)))

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
    shares_out = True

    def __init__(self, model: ANHP, tables: list[list[Table]], rows: Tensor) -> None:
        self.model, self.tables, self.rows = model, tables, rows  # rows: int64 [W], so far
        time = model.time
        self._frequency = 2.0 * math.pi * time.turns_per_unit[1 : 1 + time.dim]
        self._phase = 2.0 * math.pi * time.quarter_turns[1 : 1 + time.dim]

    @classmethod
    @torch.inference_mode()
    def start(cls, model: ANHP, histories: Sequence[EventSequence], seen: Sequence[int]) -> ANHPWalks:
        """Walks that begin with the first `seen` events of each history."""
        model = copy.deepcopy(model).double().eval()
        cut = [
            replace(one, times=one.times[:n], types=one.types[:n], unscored=None)
            for one, n in zip(histories, seen, strict=True)
        ]
        batch = make_batch(EventData(cut, model.vocabulary), range(len(cut)), device=model.device)
        encoded = model.encode(batch)
        ahead = 2 if model.bos else 1
        inside = torch.arange(batch.times.shape[1] + ahead, device=model.device)[None] < batch.lengths[:, None] + ahead
        tables = []
        for layer, by_head in zip(model.layer_list(), encoded.tables, strict=True):
            made = []
            for number, one in enumerate(by_head):
                visible = inside if one.hidden is None else inside & ~one.hidden
                keep = inside.unsqueeze(-1)
                made.append(Table.of((one.keys @ layer.Q[number]) * keep, one.values * keep, visible))
            tables.append(made)
        return cls(model, tables, batch.lengths + ahead)

    @property
    def count(self) -> int:
        return len(self.rows)

    @property
    def width(self) -> float:
        return 0.6 * self.model.time.m

    def taken(self, walks: Tensor) -> Self:
        tables = [[one.taken(walks) for one in layer] for layer in self.tables]
        return type(self)(self.model, tables, self.rows[walks])

    def name(self, walk: int, choice: int) -> str:
        return self.model.vocabulary.names[choice]

    @torch.inference_mode()
    def intensities(self, times: Tensor) -> Tensor:
        return self._in_blocks(lambda walks, one, other: walks._rates(one, other, 0).v[0], times, times * 0.0, 1)

    @torch.inference_mode()
    def bounds(self, start: Tensor, end: Tensor) -> Bounds:
        found = self._in_blocks(ANHPWalks._bounded, (start + end) / 2.0, (end - start) / 2.0, DEGREE + 1)
        upper, middle, remainder, v = found.split([1, 1, self.model.types, (DEGREE + 1) * self.model.types], dim=-1)
        rates = Nodes(v.unflatten(-1, (DEGREE + 1, -1)).movedim(-2, 0), remainder)
        return Bounds(upper.squeeze(-1), middle.squeeze(-1), rates)

    def _bounded(self, middle: Tensor, half: Tensor) -> Tensor:
        """The upper bound, the middle, and of all types how far they can be off, and their values at the nodes, side by side."""
        rates = self._rates(middle, half, DEGREE)
        total = Nodes(rates.v.sum(-1), rates.remainder.sum(-1))
        shape = total.shape()
        upper, here = unless_known(shape.upper(total.remainder)), shape.c[0]
        sure = total.remainder < KNOWN * here
        if not bool(sure.all()):  # then only the network itself knows its middle
            here = torch.where(sure, here, self._rates(middle, half, 0).v[0].sum(-1))
        return torch.cat([upper.unsqueeze(-1), here.unsqueeze(-1), rates.remainder, *rates.v.unbind(0)], dim=-1)

    def _in_blocks(
        self, work: Callable[[ANHPWalks, Tensor, Tensor], Tensor], one: Tensor, other: Tensor, nodes: int
    ) -> Tensor:
        """`work` on [W, P] and [W, P], a block that fits a cache at a time, and blocks side by side on the threads of a CPU."""
        if one.device.type != "cpu":
            return work(self, one, other)
        walks, width = one.shape
        rows = int(self.rows.max())
        room = max(1, IN_CACHE // (rows * nodes))
        tall, wide = max(1, room // width), min(width, room)
        blocks = [(top, left) for top in range(0, walks, tall) for left in range(0, width, wide)]

        def done(block: tuple[int, int]) -> Tensor:
            top, left = block
            tables = [[table.between(top, top + tall, rows) for table in layer] for layer in self.tables]
            part = ANHPWalks(self.model, tables, self.rows[top : top + tall])
            inside = slice(top, top + tall), slice(left, left + wide)
            with torch.inference_mode():  # which a thread does not inherit
                return work(part, one[inside], other[inside])

        found = side_by_side(done, blocks, one.device)
        across = -(-width // wide)
        beside = [torch.cat(found[first : first + across], dim=1) for first in range(0, len(found), across)]
        return torch.cat(beside)

    @torch.inference_mode()
    def append(self, times: Tensor, choices: Tensor) -> None:
        model = self.model
        some = (choices >= 0).nonzero().squeeze(1)
        row, which = self.rows[some], choices[some]
        choices = choices.clamp(min=0)
        if len(some) and int(row.max()) >= self.tables[0][0].values.shape[1]:
            for table in (table for layer in self.tables for table in layer):
                table.widen()
        features = self._features(times[:, None], torch.zeros_like(times)[:, None], 0)
        ones = torch.ones(self.count, 1, dtype=torch.float64, device=times.device)
        time = features.v[0, :, 0]
        heads = [(i, head) for i, head in enumerate(model.structure.heads) if head.serves_history()]
        layers = self._layers(features, model.fine[choices][:, None], heads, choices)
        rows = []
        for layer, embedding in zip(model.layer_list(), layers, strict=False):
            whole = torch.cat([ones, time, embedding.v[0, :, 0]], dim=1)
            keys = torch.einsum("hdi,wi->hwd", layer.K, whole) / math.sqrt(model.dim)
            rows.append((torch.einsum("hwd,hdi->hwi", keys, layer.Q), torch.einsum("hdi,wi->hwd", layer.V, whole)))
        for by_head, (folded, values) in zip(self.tables, rows, strict=True):  # only now: an event does not see itself
            for number, (table, head) in enumerate(zip(by_head, model.structure.heads, strict=True)):
                seen = torch.ones_like(which, dtype=torch.bool) if head.source is None else which == head.source
                table.write(some, row, folded[number, some], values[number, some], seen)
        self.rows[some] += 1

    # The network at a query

    def _features(self, middle: Tensor, half: Tensor, degree: int) -> Nodes:
        return waves(middle, half, self._frequency, self._phase, degree)

    def _rates(self, middle: Tensor, half: Tensor, degree: int) -> Nodes:
        """Intensities of all types: [W, P, K]."""
        model = self.model
        features = self._features(middle, half, degree)
        tau = model.log_tau.exp()
        scores: list[Nodes] = []
        order: list[int] = []
        for number, group in enumerate(model.structure.groups):
            heads = [(i, head) for i, head in enumerate(model.structure.heads) if head.serves_group(number)]
            members = list(group.members)
            base = model._bases()[number].expand(len(middle), 1, -1)
            *_, top = self._layers(features, base, heads, None)
            w = model.w[members] / tau[members, None]
            scores.append(top.through(w.T).plus(model.w_constant[members] / tau[members]))
            order += members
        every = scores[0]
        if len(scores) > 1:
            back = torch.tensor(order, device=middle.device).argsort()
            every = Nodes(torch.cat([one.v for one in scores], -1), torch.cat([one.remainder for one in scores], -1))
            every = every.map(lambda x: x[..., back])
        if every.v.shape[2] < middle.shape[1]:  # nobody looks back
            every = every.map(lambda x: x.expand(*x.shape[:-2], middle.shape[1], -1))
        return softplus(every).times(tau / model.time_scale)

    def _layers(
        self, features: Nodes, base: Tensor, heads: list[tuple[int, Head]], readers: Tensor | None
    ) -> Iterator[Nodes]:
        """The embedding at layers 0 … L of what starts from `base` [W, P or 1, D]; `readers` are the types of events that look back [W]."""
        x = constant(base, features.degree)
        yield x
        for layer, by_head in zip(self.model.layer_list(), self.tables, strict=True):
            attended = constant(torch.zeros_like(base), features.degree)
            for number, head in heads:
                out = self._attend(by_head[number], features, x)
                if head.reader is not None and readers is not None:
                    out = out.times((readers == head.reader).double()[:, None, None])
                attended = attended + out
            x = after(layer, x + tanh(attended))
            yield x

    def _attend(self, table: Table, features: Nodes, x: Nodes) -> Nodes:
        """`Σ α v / (1 + Σ α)`: [W, P, D]."""
        parts = [1, self.model.time_dim, self.model.dim]
        by_one, by_time, by_embedding = table.folded.split(parts, dim=-1)
        # New memory for large tensors is slow, and threads wait for each other to get it: what can be done in place is.
        v = _by_walk(features.v, by_time.mT).add_(_by_walk(x.v, by_embedding.mT)).add_(by_one.mT)
        hidden = None if v.device.type == "cpu" and bool(table.visible.all()) else ~table.visible[:, None]
        if hidden is not None:
            v.masked_fill_(hidden, NOWHERE)
        # Weights are counted in units of about the largest, which changes nothing in their shares.
        unit = v.amax((0, -1))
        weights = (v - unit.unsqueeze(-1)).exp_()
        whole = weights.sum(-1)
        means = _by_walk(weights, table.values).div_(whole.unsqueeze(-1))
        if not features.degree:
            return point(means[0])
        one_size, time_size, embedding_size = table.folded_size.split(parts, dim=-1)
        remainder = features.remainder @ time_size.mT + x.remainder @ embedding_size.mT + ROUNDED * one_size.mT
        # Shares of the whole, whose own sum is 1 at all nodes: what they are off by elsewhere is all that there is to bound.
        shares = Nodes(v.sub_((whole.log() + unit).unsqueeze(-1)), remainder)
        off = exp_off(shares.shape(), remainder)
        if hidden is not None:
            off = off.masked_fill(hidden, 0.0)
        of_whole = off.sum(-1, keepdim=True)
        size = means.abs().amax(0) * overshoot(features.degree)
        found = Nodes(means, (off @ table.values_size + size * of_whole) / (1.0 - of_whole).clamp(min=0.0))
        # Whatever the weights are, the outcome lies among 0 and the values.
        shown = table.values * table.visible.unsqueeze(-1)
        low, high = (extreme.unsqueeze(1).expand_as(size) for extreme in (shown.amin(1), shown.amax(1)))
        return tighter(found, low, high)


def _by_walk(rows: Tensor, matrix: Tensor) -> Tensor:
    """`rows @ matrix` for [nodes, W, P, in] and [W, in, out]; nodes are put side by side, so that no matrix is repeated for them."""
    found = rows.movedim(0, 1).flatten(1, 2) @ matrix
    return found.unflatten(1, (len(rows), -1)).movedim(1, 0)
