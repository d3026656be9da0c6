"""The network of an A-NDTT after the last event of some sequences (paper, section 5), at times or on windows of time (`chebyshev.py`).

Deductions and layers are computed by the network itself (`andtt_network.py`). Attention is computed here: sampling keeps keys and values
of the past, and bounds need the weights between nodes. Everything that does not depend on time is computed once per event: the tables of
slots, layer 0, and the attended keys and values, in tiles of a few rows of one `r` and one slot each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from foretell.models.rules.andtt_memory import EXTRA, ANDTTParameters, KeyMemory, Past
from foretell.models.rules.andtt_network import after
from foretell.models.rules.rule_network import Embeddings
from foretell.models.rules.sampled_sequences import SampledSequence
from foretell.models.rules.slot_tables import BoundedRows, SlotTables, constant_rows, packed
from foretell.nn.sparse_sum import Lists, lists_of, summed
from foretell.sampling.bounds.chebyshev import ChebyshevPiece, constant, exp_off, overshoot, point, ranged, waves
from foretell.sampling.bounds.values import side_by_side
from foretell.sampling.rules.states import LocalPlan

TILE = 8  # rows of one segment that one product sums
NO_PAST: dict[int, np.ndarray] = {}


@dataclass(frozen=True, eq=False)
class KeyTiles:
    """Keys and values of one layer in tiles, each with their absolute values."""

    by_time: tuple[Tensor, Tensor]  # [T·TILE, 1 + time]
    by_embedding: tuple[Tensor, Tensor] | None  # [T, TILE, D]; None at the first layer, where it is constant
    values: tuple[Tensor, Tensor]  # [T, D + 1, TILE]; the last row is 1, to sum weights, and 0 in padding
    largest: Tensor  # the largest value of each segment: [segments, 1, 1]


@dataclass(frozen=True, eq=False)
class PastAttention:
    """The additions that slots of one dimension attend to. A segment has the additions by one `r` to one slot's fact."""

    dim: int
    slot: Tensor  # int64 [T]: the slot of each tile
    sequences: tuple[tuple[int, int], ...]  # the range of tiles of each sequence
    tiles: Lists  # the tiles of every segment
    tile_segment: Tensor  # int64 [T]
    segments: Lists  # the segments of every slot
    layers: tuple[KeyTiles, ...]

    @property
    def rows(self) -> int:
        return len(self.slot) * TILE


@dataclass(frozen=True, eq=False)
class ANDTTTables:
    """The precomputed tables of some sequences, evaluated together."""

    slots: SlotTables
    first: Embeddings  # layer 0: [slots, dim]
    attention: dict[int, PastAttention]  # by dimension; those without attention are left out
    starts: Tensor  # float64 [sequences]: the moment at time 0


class ANDTTQuery:
    def __init__(self, parameters: ANDTTParameters, memory: KeyMemory) -> None:
        self.parameters, self.memory = parameters, memory
        self.network, self.device = parameters.attention, parameters.device
        time = self.network.time
        self._frequency = 2.0 * math.pi * time.turns_per_unit[1 : 1 + time.dim]
        self._phase = 2.0 * math.pi * time.quarter_turns[1 : 1 + time.dim]
        self._width = 1 + time.dim

    # Once per event

    def prepare(
        self, tables: SlotTables, slots: Sequence[tuple[LocalPlan, int]], sequences: Sequence[SampledSequence]
    ) -> ANDTTTables:
        first = tables.layer_zero
        if first is None:
            first = tables.layer_zero = self.network.deduced(tables.deduced, tables.blocks, tables.vectors, {})
        found: dict[int, tuple[list[int], list[np.ndarray], list[int]]] = {
            dim: ([], [], [0]) for dim in tables.deduced
        }  # the totals of slots, memory rows and segments over the sequences so far
        for (plan, start), sequence in zip(slots, sequences, strict=True):
            past: Past = sequence.past
            for fact, slot in plan.slot.items():
                for some in past.get(fact, NO_PAST).values():
                    row, rows, _ = found[int(tables.dim[start + slot])]
                    row.append(int(tables.row[start + slot]))
                    rows.append(some)
            for _, rows, before in found.values():
                before.append(len(rows))
        attention = {dim: self._attention(dim, first[dim], *parts) for dim, parts in found.items() if parts[1]}
        starts = torch.tensor([one.start for one in sequences], dtype=torch.float64, device=self.device)
        return ANDTTTables(tables, first, attention, starts)

    def size(self, prepared: ANDTTTables) -> int:
        """Return the number of values computed per time piece."""
        numbers = sum(table.numel() for table in prepared.first.values())
        return max(numbers, sum(one.rows for one in prepared.attention.values()))

    def _attention(
        self, dim: int, first: Tensor, slot: list[int], found: list[np.ndarray], before: list[int]
    ) -> PastAttention:
        lengths = np.asarray([len(one) for one in found], dtype=np.int64)
        tiles = -(-(1 + lengths) // TILE)
        stop = np.cumsum(tiles)
        start = (stop - tiles) * TILE
        whole = np.concatenate(found)
        padded = np.zeros(int(stop[-1]) * TILE, dtype=np.int64)
        padded[start] = EXTRA
        padded[np.arange(len(whole)) + np.repeat(start + 1 - (np.cumsum(lengths) - lengths), lengths)] = whole
        of_slot = np.asarray(slot, dtype=np.int64)
        of_tile = np.repeat(np.arange(len(found)), tiles)
        edges = np.concatenate([[0], stop])[before].tolist()
        slots, segment, rows = (torch.from_numpy(one).to(self.device) for one in (of_slot[of_tile], of_tile, padded))
        return PastAttention(
            dim,
            slots,
            tuple(pairwise(edges)),
            lists_of(of_tile, np.arange(len(of_tile)), len(found)).to(self.device),
            segment,
            lists_of(of_slot, np.arange(len(of_slot)), len(first)).to(self.device),
            tuple(self._key_tiles(layer, rows, slots, first, segment) for layer in range(self.network.layers)),
        )

    def _key_tiles(self, layer: int, rows: Tensor, slot: Tensor, first: Tensor, segment: Tensor) -> KeyTiles:
        dim = first.shape[1]
        keys, values = self.memory.keys[layer].rows[rows], self.memory.values[layer].rows[rows][:, :dim]
        by_time = keys[:, : self._width].contiguous()
        by_embedding = keys[:, self._width : self._width + dim].unflatten(0, (-1, TILE))
        if layer == 0:
            by_time[:, 0] += (by_embedding @ first[slot].unsqueeze(-1)).flatten()
        there = (rows > 0).double().view(-1, 1, TILE)
        by_value = torch.cat([values.unflatten(0, (-1, TILE)).mT, there], dim=1)
        most = values.abs().unflatten(0, (-1, TILE)).amax((1, 2))
        largest = most.new_zeros(int(segment[-1]) + 1).scatter_reduce_(0, segment, most, "amax").view(-1, 1, 1)
        return KeyTiles(_sized(by_time), _sized(by_embedding) if layer else None, _sized(by_value), largest)

    # At times

    def features(self, starts: Tensor, middle: Tensor, half: Tensor, degree: int) -> ChebyshevPiece:
        """Return `[1; time]` of sequences that start at these moments: [sequences, P, 1 + T]."""
        one = constant(torch.ones_like(middle).unsqueeze(-1), degree)
        time, clock = waves(middle, half, self._frequency, self._phase, degree), self.parameters.clock
        if clock is not None and clock.time is not None:
            time = time + self.parameters.clock_waves(starts, middle, half, degree).through(clock.time)
        return side_by_side([one, time])

    def embeddings(self, prepared: ANDTTTables, middle: Tensor, half: Tensor, degree: int) -> list[Embeddings]:
        """Return the embeddings of all slots on windows [sequences, P], for layers 0 … L."""
        time = self.features(prepared.starts, middle, half, degree)
        pieces, tables = middle.shape[1], prepared.slots
        below = {dim: constant_rows(one, degree).expand(-1, -1, pieces, -1) for dim, one in prepared.first.items()}

        def attend(layer: int, below: Embeddings) -> Embeddings:
            return {dim: self._attended(layer, one, time, below[dim]) for dim, one in prepared.attention.items()}

        vectors, on = tables.constant_parts(degree, pieces), BoundedRows(degree, tables.sizes)
        above = self.network.layers_above(below, tables.deduced, tables.blocks, vectors, attend, on)
        return [below, *above]

    def head(self, dim: int, deduced: Sequence[Tensor], on: BoundedRows) -> Tensor:
        """Return the top layer of events that no event added, as rows of a table, from their deductions in each layer."""
        below = on.tanh(deduced[0])
        for layer, one in enumerate(deduced[1:], start=1):
            below = after(self.network.sublayers, dim, layer, below + on.tanh(one), on)
        return below

    def _attended(self, layer: int, attention: PastAttention, time: ChebyshevPiece, below: Tensor) -> Tensor:
        """Return `Σ_r Σ α v / (1 + Σ α)` of every slot: [S, nodes, P, D]."""
        looked, pieces, dim = attention.layers[layer - 1], below.shape[2], attention.dim
        logits = self._logits(looked, attention, time, below)
        nodes, tiles, segments = len(logits.v), len(attention.slot), len(attention.tiles.start) - 1
        by_tile = logits.v.view(nodes, tiles, TILE, pieces)
        # Dividing weights by about the largest one avoids overflow and does not change their shares.
        tops = by_tile.amax(2).amax(0)
        whose = attention.tile_segment.unsqueeze(-1).expand_as(tops)
        unit = tops.new_zeros(segments, pieces).scatter_reduce_(0, whose, tops, "amax")
        weights = torch.exp(by_tile - unit[attention.tile_segment].unsqueeze(1)).permute(1, 2, 0, 3).flatten(2)
        both = summed((looked.values[0] @ weights).flatten(1), attention.tiles)
        both = both.view(segments, dim + 1, nodes, pieces).permute(2, 0, 3, 1)
        whole = both[..., -1]
        means = both[..., :-1] / whole.unsqueeze(-1)
        found = point(means[0])
        if time.degree:
            # These shares sum to 1 at all nodes, so only their error between the nodes has to be bounded.
            level = (whole.log() + unit)[:, attention.tile_segment].unsqueeze(2)
            shares = ChebyshevPiece((by_tile - level).flatten(1, 2), logits.remainder)
            off = exp_off(shares.shape(), shares.remainder).view(tiles, TILE, pieces)
            off = summed((looked.values[1] @ off).flatten(1), attention.tiles).view(segments, dim + 1, pieces).mT
            found = self._within(means, off, looked, attention)
        return summed(packed(found).flatten(1), attention.segments).view(len(below), -1, pieces, dim)

    def _logits(
        self, looked: KeyTiles, attention: PastAttention, time: ChebyshevPiece, below: Tensor
    ) -> ChebyshevPiece:
        """Return the logits: [T·TILE, P]."""
        nodes, pieces = len(time.v), below.shape[2]
        features = time.v.permute(1, 3, 0, 2).flatten(2)  # [sequences, 1 + T, nodes · P]
        found, left = [], []
        for sequence, (low, high) in enumerate(attention.sequences):
            rows = slice(low * TILE, high * TILE)
            found.append(looked.by_time[0][rows] @ features[sequence])
            if time.degree:
                left.append(looked.by_time[1][rows] @ time.remainder[sequence].T)
        whole = found[0] if len(found) == 1 else torch.cat(found)
        off = whole.new_zeros(1) if not left else left[0] if len(left) == 1 else torch.cat(left)
        if looked.by_embedding is not None:
            rows = below[attention.slot].permute(0, 3, 1, 2)  # [T, D, nodes and remainder, P]
            whole = whole + (looked.by_embedding[0] @ rows[:, :, :nodes].flatten(2)).flatten(0, 1)
            if time.degree:
                off = off + (looked.by_embedding[1] @ rows[:, :, nodes]).flatten(0, 1)
        v = whole.view(-1, nodes, pieces).transpose(0, 1).contiguous()
        return ChebyshevPiece(v, off) if time.degree else point(v[0])

    def _within(self, v: Tensor, off: Tensor, looked: KeyTiles, attention: PastAttention) -> ChebyshevPiece:
        """Return weighted means of values, [segments, P, D]. `off` [segments, P, D + 1] has the errors of weighted values and weights."""
        degree, dim = len(v) - 1, attention.dim
        of_values, of_whole = off[..., :-1], off[..., -1:]
        size = v.abs().amax(0) * overshoot(degree)
        found = ChebyshevPiece(v, (of_values + size * of_whole) / (1.0 - of_whole).clamp(min=0.0))
        worse = ~(found.remainder <= looked.largest)  # must not depend on the other pieces and sequences
        if not bool(worse.any()):
            return found
        # Whatever the weights are, the result lies between the smallest and the largest of 0 and the values.
        values = looked.values[0][:, :-1]
        whose = attention.tile_segment.unsqueeze(-1).expand(-1, dim)
        none = values.new_zeros(len(attention.tiles.start) - 1, dim)
        low = none.scatter_reduce(0, whose, values.amin(-1), "amin").unsqueeze(1).expand_as(v[0])
        high = none.scatter_reduce(0, whose, values.amax(-1), "amax").unsqueeze(1).expand_as(v[0])
        return ranged(found, worse, low, high)


def _sized(values: Tensor) -> tuple[Tensor, Tensor]:
    return values.contiguous(), values.abs()
