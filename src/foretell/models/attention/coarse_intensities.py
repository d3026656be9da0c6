"""Intensities from embeddings of coarse types (paper, equation 5), optionally with a mixture over time scales.

`λ_e(t) = τ_e softplus(w_e·[1; emb]/τ_e)·r(t)`, where `emb` is the embedding of the type's coarse type. Without a mixture `r = 1`. With it

    r(t) = 1 + Σ_j softplus(v_j·[1; emb])·exp(−u/s_j)/s_j,

where `u` is the time since the last event, in units of the mean gap, and the scales `s_j` go from the shortest gaps to the longest. So
an intensity that is 10⁹ times its usual size for a millisecond needs no large weights.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from foretell.models.attention.hawkes_part import HawkesPart
from foretell.models.attention.structure import AnhpOptions, Structure
from foretell.models.base import IntensityModel
from foretell.models.capabilities import GapIntensities
from foretell.nn.elapsed import TimeScales
from foretell.nn.intensity import log_softplus
from foretell.nn.lookup import lookup
from foretell.sampling.bounds.values import Value, affine, components, side_by_side, softplus, summed

if TYPE_CHECKING:
    from collections.abc import Callable

NOTHING = 1e-30  # an intensity too small to change a sum, whose logarithm is finite
QUIET = -3.0  # the initial constant of the mixture's amplitudes: softplus(-3) is 0.05


class CoarseIntensities(IntensityModel[AnhpOptions]):
    """Computes intensities from a state: embeddings [..., groups·D], densities on time scales [..., scales], a Hawkes part [..., K]."""

    structure: Structure
    dim: int
    fine: nn.Parameter
    coarse_base: nn.Parameter
    back_to_types: Tensor
    group_order: Tensor
    group_of_type: Tensor

    def make_head(self, scales: int, decays: int) -> None:
        self.w = nn.Parameter(torch.empty(self.types, self.dim))
        self.w_constant = nn.Parameter(torch.empty(self.types))
        self.log_tau = nn.Parameter(torch.zeros(self.types))
        self.scales = TimeScales(scales)
        self.mixture = nn.Parameter(torch.zeros(scales, self.dim)) if scales else None  # the vectors v_j
        self.mixture_constant = nn.Parameter(torch.full((scales,), QUIET)) if scales else None
        self.hawkes = HawkesPart(self.types, decays, self.dim) if decays else None
        order = [member for group in self.structure.groups for member in group.members]
        self.register_buffer("back_to_types", torch.tensor(np.argsort(order), dtype=torch.long), persistent=False)
        self.register_buffer("group_order", torch.tensor(order, dtype=torch.long), persistent=False)
        of_type = np.empty(self.types, dtype=np.int64)
        for index, group in enumerate(self.structure.groups):
            of_type[list(group.members)] = index
        self.register_buffer("group_of_type", torch.from_numpy(of_type), persistent=False)

    def bases(self) -> Tensor:
        """Return the base vector of every group: [groups, D]."""
        if self.structure.groups[0].base is not None:
            return self.fine  # each type is its own group
        return self.coarse_base

    def _split(self, state: Tensor) -> tuple[Tensor, Tensor]:
        """Split a state into embeddings and densities on the time scales."""
        size = len(self.structure.groups) * self.dim
        return state[..., :size], state[..., size : size + self.scales.count]

    def _excited(self, state: Tensor) -> Tensor:
        """Return the Hawkes term of each intensity: [..., K]."""
        assert self.hawkes is not None
        embeddings, densities = self._split(state)
        before = embeddings.shape[-1] + densities.shape[-1]
        return self.hawkes.gains(embeddings, self.bases()[0]) * state[..., before:]

    # Scores

    def _scores(self, state: Tensor) -> Tensor:
        """Return `w_e·[1; emb]/τ_e` for all types, [..., K], from embeddings."""
        groups, tau = self.structure.groups, self.log_tau.exp()
        w, constant = self.w / tau[:, None], self._constants() / tau
        if len(groups) == 1:
            return F.linear(state, w, constant)
        if len(groups) == self.types:
            embeddings = state.unflatten(-1, (len(groups), self.dim))
            return (embeddings[..., self.group_of_type, :] * w).sum(-1) + constant
        return self._scores_of_groups(state.split(self.dim, dim=-1), w, constant)

    def _scores_of_groups(self, embeddings: Sequence[Value], w: Tensor, constant: Tensor) -> Value:
        sizes = [len(group.members) for group in self.structure.groups]
        in_order = lookup(torch.cat([w, constant[:, None]], dim=1), self.group_order).split(sizes)
        parts = [affine(one, rows[:, :-1], rows[:, -1]) for one, rows in zip(embeddings, in_order, strict=True)]
        return components(side_by_side(parts), self.back_to_types)

    def _constants(self) -> Tensor:
        """Return the constant part of every type's score: its bias plus the term of its group's base vector."""
        return self.w_constant + (self.w * lookup(self.bases(), self.group_of_type)).sum(-1)

    # The mixture over time scales

    def mixed(self, embeddings: Sequence[Value], densities: Value) -> list[Value]:
        """Return `r − 1` of each group: [..., 1] each."""
        assert self.mixture is not None and self.mixture_constant is not None
        found = []
        for one, base in zip(embeddings, self.bases(), strict=True):
            level = self.mixture_constant + self.mixture @ base
            found.append(summed(softplus(affine(one, self.mixture, level)) * densities))
        return found

    def _factors(self, embeddings: Tensor, densities: Tensor) -> Tensor:
        """Return `r − 1` of every group: [..., groups]."""
        return torch.cat(self.mixed(embeddings.split(self.dim, dim=-1), densities), dim=-1)

    # Intensities

    def intensities_of_groups(
        self, embeddings: Sequence[Value], densities: Callable[[], Value], raised: Callable[[], Value]
    ) -> Value:
        """Return intensities of all types, [..., K], from embeddings of the groups, as tensors or bounds."""
        found = self._own_intensities(embeddings, densities)
        if self.hawkes is None:
            return found
        return found + self.hawkes.gains(embeddings[0], self.bases()[0]) * raised()

    def _own_intensities(self, embeddings: Sequence[Value], densities: Callable[[], Value]) -> Value:
        tau = self.log_tau.exp()
        w, constant = self.w / tau[:, None], self._constants() / tau
        single = len(embeddings) == 1
        scores = affine(embeddings[0], w, constant) if single else self._scores_of_groups(embeddings, w, constant)
        found = softplus(scores) * (tau / self.time_scale)
        if self.mixture is None:
            return found
        more = side_by_side(self.mixed(embeddings, densities()))
        return found + found * components(more, self.group_of_type)

    def intensities(self, state: Tensor) -> Tensor:
        found = self._intensities(state)
        return found if self.hawkes is None else found + self._excited(state)

    def _intensities(self, state: Tensor) -> Tensor:
        embeddings, densities = self._split(state)
        found = softplus(self._scores(embeddings)) * (self.log_tau.exp() / self.time_scale)
        if self.mixture is None:
            return found
        return found * (1.0 + self._factors(embeddings, densities))[..., self.group_of_type]

    def log_intensities(self, state: Tensor) -> Tensor:
        found = self._log_intensities(state)
        return found if self.hawkes is None else torch.logaddexp(found, _log(self._excited(state)))

    def _log_intensities(self, state: Tensor) -> Tensor:
        embeddings, densities = self._split(state)
        found = log_softplus(self._scores(embeddings)) + (self.log_tau - math.log(self.time_scale))
        if self.mixture is None:
            return found
        return found + torch.log1p(self._factors(embeddings, densities))[..., self.group_of_type]

    def total(self, state: Tensor) -> Tensor:
        if self.hawkes is not None or (self.mixture is not None and len(self.structure.groups) > 1):
            return self.intensities(state).sum(-1)
        embeddings, densities = self._split(state)
        found = softplus(self._scores(embeddings)) @ (self.log_tau.exp() / self.time_scale)
        return found if self.mixture is None else found * (1.0 + self._factors(embeddings, densities).squeeze(-1))

    def log_intensity(self, state: Tensor, types: Tensor) -> Tensor:
        found = self._log_intensity(state, types)
        if self.hawkes is None:
            return found
        excited = self._excited(state).gather(-1, types.unsqueeze(-1)).squeeze(-1)
        return torch.logaddexp(found, _log(excited))

    def _log_intensity(self, state: Tensor, types: Tensor) -> Tensor:
        embeddings, densities = self._split(state)
        group = self.group_of_type[types].unsqueeze(-1)
        more = None if self.mixture is None else torch.log1p(self._factors(embeddings, densities)).gather(-1, group)
        if len(self.structure.groups) > 1:
            chosen = group.unsqueeze(-1).expand(*types.shape, 1, self.dim)
            embeddings = embeddings.unflatten(-1, (-1, self.dim)).gather(-2, chosen).squeeze(-2)
        own = lookup(torch.cat([self.w, self._constants()[:, None], self.log_tau[:, None]], dim=1), types)
        w, constant, log_tau = own.split([self.dim, 1, 1], dim=-1)
        score = (w * embeddings).sum(-1, keepdim=True) + constant
        found = log_softplus(score / log_tau.exp()) + (log_tau - math.log(self.time_scale))
        return (found if more is None else found + more).squeeze(-1)

    def at_ends_and_inside(self, state: Tensor, types: Tensor, pseudo: bool) -> GapIntensities:
        """Return the likelihood's terms from one product with `w`: scores at a gap's end are selected by type, inside they are summed."""
        if self.hawkes is not None or (self.mixture is not None and len(self.structure.groups) > 1):
            return super().at_ends_and_inside(state, types, pseudo)
        embeddings, densities = self._split(state)
        scores = self._scores(embeddings)
        tau = self.log_tau.exp()
        log_unit = self.log_tau - math.log(self.time_scale)
        log_at_end = log_softplus(scores[:, :-1, -1].gather(-1, types.unsqueeze(-1)).squeeze(-1))
        log_at_end = log_at_end + lookup(log_unit[:, None], types).squeeze(-1)
        inside = scores[:, :, :-1]
        total_inside = softplus(inside) @ (tau / self.time_scale)
        logs = (log_softplus(inside) + log_unit).sum(-1) if pseudo else None
        if self.mixture is not None:
            more = self._factors(embeddings, densities).squeeze(-1)
            log_at_end = log_at_end + torch.log1p(more[:, :-1, -1])
            total_inside = total_inside * (1.0 + more[:, :, :-1])
            logs = None if logs is None else logs + self.types * torch.log1p(more[:, :, :-1])
        return GapIntensities(log_at_end, total_inside, logs)


def _log(x: Tensor) -> Tensor:
    return x.clamp(min=NOTHING).log()
