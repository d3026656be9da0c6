"""Parts of samplers of models of rules: copies of sampled sequences, and scores of possible events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from foretell.models.rules.rule_network import Embeddings
from foretell.models.rules.sampler_parameters import RuleParameters
from foretell.models.rules.slot_tables import unpacked
from foretell.plan.int_arrays import joined, offsets
from foretell.sampling.bounds.chebyshev import ChebyshevPiece, point, softplus
from foretell.sampling.bounds.curves import exp
from foretell.sampling.bounds.values import summed


@dataclass(frozen=True, eq=False)
class Copies:
    """Sequences that are equal so far. They are evaluated together, as one sequence with more times."""

    first: Tensor  # int64 [kinds]: one sequence of each kind
    kind: Tensor  # int64 [W]
    number: Tensor  # int64 [W]: the number within its kind
    most: int

    @classmethod
    def of(cls, kinds: Sequence[Sequence[int]], device: torch.device) -> Copies:
        counts = [len(members) for members in kinds]
        kind = np.repeat(np.arange(len(kinds)), counts)
        number = joined([np.arange(one) for one in counts])
        first, of_kind, of_number = (on_device(device, one) for one in (offsets(counts)[:-1], kind, number))
        return cls(first, of_kind, of_number, max(counts, default=0))

    def spread(self, times: Tensor) -> Tensor:
        """Reshape [W, P] to [kinds, most · P]. A kind with fewer copies is padded with arbitrary times."""
        if self.most == 1:
            return times
        out = times[self.first].unsqueeze(1).repeat(1, self.most, 1)
        out[self.kind, self.number] = times
        return out.flatten(1)

    def back(self, values: Tensor) -> Tensor:
        """Reshape [kinds, most · P, …] to [W, P, …]."""
        return values if self.most == 1 else values.unflatten(1, (self.most, -1))[self.kind, self.number]


@dataclass(frozen=True, eq=False)
class EventScoreTable:
    """Possible events with embeddings of one dimension; of one functor, if functors have factors of their own."""

    dim: int
    row: Tensor  # int64 [E]: in the table of that dimension
    w: Tensor  # float64 [E, 1 + dim], in units of tau
    mixture: Tensor | None  # float64 [scales, 1 + dim]
    shape: Tensor | None  # float64 [scales, 1 + dim]
    clock: Tensor | None  # float64 [features, 1 + dim], in units of tau
    kind: Tensor  # int64 [E]: the kind of sequence

    def scores(self, top: Embeddings, degree: int) -> ChebyshevPiece:
        """Return `w·[1; emb]/τ`: [E, P]."""
        table = top[self.dim]
        rows, w = table[self.row], self.w[:, 1:].unsqueeze(-1)
        shape = len(rows), degree + 1, table.shape[2]
        v = (rows[:, : degree + 1].flatten(1, 2) @ w).view(shape).transpose(0, 1)
        found = ChebyshevPiece(v, (rows[:, -1] @ w.abs()).squeeze(-1)) if degree else point(v[0])
        return found.plus(self.w[:, :1])

    def turned(self, top: Embeddings, waves: ChebyshevPiece, degree: int) -> ChebyshevPiece:
        """Return the terms of the calendar's waves [kinds, P, features] in scores: [E, P]."""
        assert self.clock is not None
        moved = waves.through(self.clock).map(lambda part: part[..., self.kind, :, :])
        rows = unpacked(top[self.dim][self.row], degree)
        of_embedding = summed(rows * moved.map(lambda part: part[..., 1:])).map(lambda part: part[..., 0])
        return moved.map(lambda part: part[..., 0]) + of_embedding

    def amplitudes(self, top: Embeddings, degree: int) -> ChebyshevPiece:
        """Return `softplus(v_j·[1; emb])`: [E, P, scales]."""
        assert self.mixture is not None
        return softplus(self._scores_of(self.mixture, top, degree))

    def exponents(self, top: Embeddings, degree: int) -> ChebyshevPiece:
        """Return `a_k·[1; emb]`: [E, P, scales]."""
        assert self.shape is not None
        return self._scores_of(self.shape, top, degree)

    def _scores_of(self, vectors: Tensor, top: Embeddings, degree: int) -> ChebyshevPiece:
        rows, weight = top[self.dim][self.row], vectors[:, 1:].T
        v = (rows[:, : degree + 1] @ weight).transpose(0, 1)
        found = ChebyshevPiece(v, rows[:, -1] @ weight.abs()) if degree else point(v[0])
        return found.plus(vectors[:, 0])


@dataclass(frozen=True, eq=False)
class ScoredEvents:
    """Events of some sequences, and everything besides embeddings that their intensities depend on."""

    by_dim: tuple[EventScoreTable, ...]  # together E events
    kind: Tensor  # int64 [E]: the kind of sequence
    scale: Tensor  # float64 [E]: tau in the data's unit of time
    last: Tensor  # float64 [kinds]: the time of the last event
    starts: Tensor  # float64 [kinds]: the moment at time 0

    def rates(
        self, parameters: RuleParameters, top: Embeddings, middle: Tensor, half: Tensor, degree: int
    ) -> ChebyshevPiece:
        """Return intensities on windows [kinds, P]: [E, P]."""
        scores = joined_pieces([one.scores(top, degree) for one in self.by_dim], -2)
        if parameters.clock is not None:
            waves = parameters.clock_waves(self.starts, middle, half, degree)
            scores = scores + joined_pieces([one.turned(top, waves, degree) for one in self.by_dim], -2)
        rates = softplus(scores).times(self.scale.unsqueeze(-1))
        if parameters.mixture:
            amplitudes = joined_pieces([one.amplitudes(top, degree) for one in self.by_dim], -3)
            densities = parameters.densities(middle, half, self.last, degree)
            rates = rates + rates * over_scales(amplitudes, densities, self.kind)
        if parameters.shape:
            exponents = joined_pieces([one.exponents(top, degree) for one in self.by_dim], -3)
            shapes = parameters.shapes(middle, half, self.last, degree)
            rates = rates * exp(over_scales(exponents, shapes, self.kind))
        return rates


def on_device(device: torch.device, values: np.ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values)).to(device)


def over_scales(amplitudes: ChebyshevPiece, densities: ChebyshevPiece, kind: Tensor) -> ChebyshevPiece:
    """Return the sum over scales of amplitudes of events [E, P, scales] times densities of their sequences: [E, P]."""
    whole = summed(amplitudes * densities.map(lambda part: part[..., kind, :, :]))
    return whole.map(lambda part: part.squeeze(-1))


def joined_pieces(parts: Sequence[ChebyshevPiece], dim: int) -> ChebyshevPiece:
    if len(parts) == 1:
        return parts[0]
    return ChebyshevPiece(torch.cat([one.v for one in parts], dim), torch.cat([one.remainder for one in parts], dim))
