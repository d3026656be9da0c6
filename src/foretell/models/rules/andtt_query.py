"""The network of an A-NDTT at times after the last event of some walks (paper, section 5), or on windows of time (`nodes.py`).

What does not depend on time is worked out once for each event: which slots there are, the matrices between them, layer 0, and the keys
and values that they attend to, in tiles of a few rows of one `r` and one slot each. Tables of slots are those of `deduction.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from foretell.models.attention.layers import Sublayers
from foretell.models.rules.andtt_parameters import Parameters
from foretell.models.rules.andtt_past import EXTRA, Memory, Past
from foretell.models.rules.bounded_deduction import Level, height, levels_of, packed, unpacked, whole_numbers
from foretell.nn.sparse_sum import Lists, lists_of, summed
from foretell.sampling.bounds.chebyshev import (
    ROUNDED,
    ChebyshevPiece,
    constant,
    exp_off,
    overshoot,
    point,
    ranged,
    tanh,
    waves,
)
from foretell.sampling.rules.local_plan import LocalPlan

Ints = np.ndarray
TILE = 8  # rows of one segment that are summed by one product


@dataclass(frozen=True, eq=False)
class Deduced:
    """A sketch with its numbers, and what follows from it alone."""

    levels: tuple[Level, ...]
    first: Tensor  # [S, D]: layer 0
    dims: Tensor | None  # int64 [S], where sublayers must know

    @property
    def slots(self) -> int:
        return len(self.first)


@dataclass(frozen=True, eq=False)
class Looked:
    """Keys and values of one layer, in tiles, each with their absolute values."""

    by_time: tuple[Tensor, Tensor]  # [T·TILE, 1 + time]
    by_embedding: tuple[Tensor, Tensor] | None  # [T, TILE, D]; None at the first layer, where it goes into the constant
    values: tuple[Tensor, Tensor]  # [T, D + 1, TILE]; last 1, to sum up weights, and 0 where a tile is filled up
    largest: Tensor  # of all values of each segment: [segments, 1, 1]


@dataclass(frozen=True, eq=False)
class Attention:
    """A segment is what one `r` added to one slot's fact."""

    slot: Tensor  # int64 [T]: of each tile
    walks: tuple[tuple[int, int], ...]  # of each walk: its tiles
    tiles: Lists  # of every segment
    tile_segment: Tensor  # int64 [T]
    segments: Lists  # of every slot
    layers: tuple[Looked, ...]

    @property
    def rows(self) -> int:
        return len(self.slot) * TILE


@dataclass(frozen=True, eq=False)
class Prepared:
    """Some walks side by side."""

    deduced: Deduced
    attention: Attention | None  # None: nobody looks back


class Query:
    def __init__(self, parameters: Parameters, memory: Memory) -> None:
        self.parameters, self.memory = parameters, memory
        self.device, self.dim, self.layers = parameters.device, parameters.dim, parameters.layers
        time = parameters.network.time
        self._frequency = 2.0 * math.pi * time.turns_per_unit[1 : 1 + time.dim]
        self._phase = 2.0 * math.pi * time.quarter_turns[1 : 1 + time.dim]
        self._width = 1 + time.dim

    # Once for each event

    def deduced(self, sketch: LocalPlan) -> Deduced:
        levels = levels_of(sketch, self.parameters)
        slots = len(sketch.fact)
        nothing = torch.zeros(slots, self.dim, dtype=torch.float64, device=self.device)
        first = self._deduced(0, Deduced(levels, nothing, None), None, None, 0, 1)[:slots, 0, 0]
        dims = self._dims(sketch) if len(self.parameters.network.sublayers) else None
        return Deduced(levels, first, dims)

    def _dims(self, sketch: LocalPlan) -> Tensor:
        grounding, dimension = self.parameters.grounding, self.parameters.layout.dimension
        functors = [int(grounding.keys[fact][0]) for fact in sketch.fact.tolist()]
        return self._numbers(np.asarray([dimension(str(grounding.functors[one])) for one in functors], dtype=np.int64))

    def prepared(
        self, deduced: Deduced, facts: Sequence[Ints], rows: Sequence[Ints], pasts: Sequence[Past]
    ) -> Prepared:
        """Sampler with these facts, whose slots are these `rows`."""
        return Prepared(deduced, self._attention(deduced, facts, rows, pasts))

    def size(self, prepared: Prepared) -> int:
        """Numbers that are worked on for each piece of time."""
        attention = prepared.attention
        return max(prepared.deduced.slots * self.dim, 0 if attention is None else attention.rows)

    def _attention(
        self, deduced: Deduced, facts: Sequence[Ints], rows: Sequence[Ints], pasts: Sequence[Past]
    ) -> Attention | None:
        slot: list[int] = []
        found: list[np.ndarray] = []
        before = [0]  # segments of the walks up to each
        for own, where, past in zip(facts, rows, pasts, strict=True):
            for fact, row in zip(own.tolist(), where.tolist(), strict=True):
                for some in past.get(fact, NO_PAST).values():
                    slot.append(row)
                    found.append(some)
            before.append(len(found))
        if not found:
            return None
        lengths = np.asarray([len(one) for one in found], dtype=np.int64)
        tiles = -(-(1 + lengths) // TILE)
        stop = np.cumsum(tiles)
        first = (stop - tiles) * TILE
        whole = np.concatenate(found)
        padded = np.zeros(int(stop[-1]) * TILE, dtype=np.int64)
        padded[first] = EXTRA
        padded[np.arange(len(whole)) + np.repeat(first + 1 - (np.cumsum(lengths) - lengths), lengths)] = whole
        of_slot = np.asarray(slot, dtype=np.int64)
        of_tile = np.repeat(np.arange(len(found)), tiles)
        edges = np.concatenate([[0], stop])[before].tolist()
        slots = self._numbers(of_slot[of_tile])
        return Attention(
            slots,
            tuple(pairwise(edges)),
            lists_of(of_tile, np.arange(len(of_tile)), len(found)).to(self.device),
            self._numbers(of_tile),
            lists_of(of_slot, np.arange(len(of_slot)), deduced.slots).to(self.device),
            tuple(
                self._looked(layer, self._numbers(padded), slots, deduced.first, self._numbers(of_tile))
                for layer in range(self.layers)
            ),
        )

    def _looked(self, layer: int, rows: Tensor, slot: Tensor, first: Tensor, segment: Tensor) -> Looked:
        keys, values = self.memory.keys[layer].rows[rows], self.memory.values[layer].rows[rows]
        by_time, by_embedding = keys[:, : self._width].contiguous(), keys[:, self._width :].unflatten(0, (-1, TILE))
        if layer == 0:
            by_time[:, 0] += (by_embedding @ first[slot].unsqueeze(-1)).flatten()
        there = (rows > 0).double().view(-1, 1, TILE)
        by_value = torch.cat([values.unflatten(0, (-1, TILE)).mT, there], dim=1)
        most = values.abs().unflatten(0, (-1, TILE)).amax((1, 2))
        largest = most.new_zeros(int(segment[-1]) + 1).scatter_reduce_(0, segment, most, "amax").view(-1, 1, 1)
        return Looked(_sized(by_time), _sized(by_embedding) if layer else None, _sized(by_value), largest)

    def _numbers(self, values: Ints) -> Tensor:
        return whole_numbers(values, self.device)

    # At times

    def features(self, middle: Tensor, half: Tensor, degree: int) -> ChebyshevPiece:
        """`[1; time]`: [walks, P, 1 + T]."""
        found = waves(middle, half, self._frequency, self._phase, degree)
        one = constant(torch.ones_like(middle).unsqueeze(-1), degree)
        return ChebyshevPiece(torch.cat([one.v, found.v], -1), torch.cat([one.remainder, found.remainder], -1))

    def embeddings(self, prepared: Prepared, middle: Tensor, half: Tensor, degree: int) -> list[Tensor]:
        """Of all slots on windows [walks, P], layers 0 … L: tables with a row of zeros behind."""
        time = self.features(middle, half, degree)
        deduced, pieces = prepared.deduced, middle.shape[1]
        below = deduced.first.new_zeros(deduced.slots + 1, height(degree), pieces, self.dim)
        below[:-1, : degree + 1] = deduced.first[:, None, None]
        if degree:
            below[:-1, -1] = ROUNDED * deduced.first.abs().unsqueeze(1)
        found = [below]
        for layer in range(1, self.layers + 1):
            attended = None
            if prepared.attention is not None:
                attended = self._attended(layer, prepared.attention, time, below)
            below = self._deduced(layer, deduced, below, attended, degree, pieces)
            found.append(below)
        return found

    def _attended(self, layer: int, attention: Attention, time: ChebyshevPiece, below: Tensor) -> Tensor:
        """`Σ_r Σ α v / (1 + Σ α)` of every slot: [S, nodes, P, D]."""
        looked, pieces = attention.layers[layer - 1], below.shape[2]
        logits = self._logits(looked, attention, time, below)
        nodes, tiles, segments = len(logits.v), len(attention.slot), len(attention.tiles.start) - 1
        by_tile = logits.v.view(nodes, tiles, TILE, pieces)
        # Weights are counted in units of about the largest, which changes nothing in their shares.
        tops = by_tile.amax(2).amax(0)
        whose = attention.tile_segment.unsqueeze(-1).expand_as(tops)
        unit = tops.new_zeros(segments, pieces).scatter_reduce_(0, whose, tops, "amax")
        weights = torch.exp(by_tile - unit[attention.tile_segment].unsqueeze(1)).permute(1, 2, 0, 3).flatten(2)
        both = summed((looked.values[0] @ weights).flatten(1), attention.tiles)
        both = both.view(segments, self.dim + 1, nodes, pieces).permute(2, 0, 3, 1)
        whole = both[..., -1]
        means = both[..., :-1] / whole.unsqueeze(-1)
        found = point(means[0])
        if time.degree:
            # Shares of the whole, whose own sum is 1 at all nodes: what they are off by elsewhere is all that there is to bound.
            level = (whole.log() + unit)[:, attention.tile_segment].unsqueeze(2)
            shares = ChebyshevPiece((by_tile - level).flatten(1, 2), logits.remainder)
            off = exp_off(shares.shape(), shares.remainder).view(tiles, TILE, pieces)
            off = summed((looked.values[1] @ off).flatten(1), attention.tiles).view(segments, self.dim + 1, pieces).mT
            found = self._within(means, off, looked, attention)
        return summed(packed(found).flatten(1), attention.segments).view(len(below) - 1, -1, pieces, self.dim)

    def _logits(self, looked: Looked, attention: Attention, time: ChebyshevPiece, below: Tensor) -> ChebyshevPiece:
        """[T·TILE, P]."""
        nodes, pieces = len(time.v), below.shape[2]
        features = time.v.permute(1, 3, 0, 2).flatten(2)  # [walks, 1 + T, nodes · P]
        found, left = [], []
        for walk, (low, high) in enumerate(attention.walks):
            rows = slice(low * TILE, high * TILE)
            found.append(looked.by_time[0][rows] @ features[walk])
            if time.degree:
                left.append(looked.by_time[1][rows] @ time.remainder[walk].T)
        whole = found[0] if len(found) == 1 else torch.cat(found)
        off = whole.new_zeros(1) if not left else left[0] if len(left) == 1 else torch.cat(left)
        if looked.by_embedding is not None:
            rows = below[attention.slot].permute(0, 3, 1, 2)  # [T, D, nodes and remainder, P]
            whole = whole + (looked.by_embedding[0] @ rows[:, :, :nodes].flatten(2)).flatten(0, 1)
            if time.degree:
                off = off + (looked.by_embedding[1] @ rows[:, :, nodes]).flatten(0, 1)
        v = whole.view(-1, nodes, pieces).transpose(0, 1).contiguous()
        return ChebyshevPiece(v, off) if time.degree else point(v[0])

    def _within(self, v: Tensor, off: Tensor, looked: Looked, attention: Attention) -> ChebyshevPiece:
        """The weighted means of values, from what weighted values and weights are `off` by: [segments, P, D + 1]."""
        degree = len(v) - 1
        of_values, of_whole = off[..., :-1], off[..., -1:]
        size = v.abs().amax(0) * overshoot(degree)
        found = ChebyshevPiece(v, (of_values + size * of_whole) / (1.0 - of_whole).clamp(min=0.0))
        worse = ~(found.remainder <= looked.largest)  # whatever the other pieces and walks are
        if not bool(worse.any()):
            return found
        # Whatever the weights are, the outcome lies among 0 and the values.
        values = looked.values[0][:, :-1]
        whose = attention.tile_segment.unsqueeze(-1).expand(-1, self.dim)
        none = values.new_zeros(len(attention.tiles.start) - 1, self.dim)
        low = none.scatter_reduce(0, whose, values.amin(-1), "amin").unsqueeze(1).expand_as(v[0])
        high = none.scatter_reduce(0, whose, values.amax(-1), "amax").unsqueeze(1).expand_as(v[0])
        return ranged(found, worse, low, high)

    def _deduced(
        self, layer: int, deduced: Deduced, below: Tensor | None, attended: Tensor | None, degree: int, pieces: int
    ) -> Tensor:
        """`emb^(ℓ-1) + tanh(deduced + attended)`, level by level; behind the slots a row of zeros."""
        done = deduced.first.new_zeros(deduced.slots + 1, height(degree), pieces, self.dim)
        for level in deduced.levels:
            inside = level.inside(done, degree)
            if attended is not None:
                inside = inside + attended[level.start : level.stop]
            out = tanh(unpacked(inside, degree))
            if below is not None:
                out = out + unpacked(below[level.start : level.stop], degree)
            if deduced.dims is not None and layer:
                out = self._sublayers(layer, out, deduced.dims[level.start : level.stop])
            done[level.start : level.stop] = packed(out)
        return done

    def _sublayers(self, layer: int, x: ChebyshevPiece, dims: Tensor) -> ChebyshevPiece:
        """The optional sublayers, which all facts of one dimension share."""
        out = packed(x)
        for name, layers in self.parameters.network.sublayers.items():
            assert isinstance(layers, nn.ModuleList)
            one = layers[layer - 1]
            assert isinstance(one, Sublayers)
            size = int(name)
            mine = (dims == size).nonzero().squeeze(1)
            if len(mine):
                rows = x.map(lambda part, mine=mine, size=size: part[..., mine, :, :size])
                out[mine, :, :, :size] = packed(one.after(rows))
        return unpacked(out, x.degree)


NO_PAST: dict[int, np.ndarray] = {}


def _sized(values: Tensor) -> tuple[Tensor, Tensor]:
    return values.contiguous(), values.abs()
