"""Intensities as a softplus of a state (paper, equation 5): `λ_k = τ_k softplus(w_k·[1; h]/τ_k)`. NHP and S2P2 use it."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from foretell.batches.batch import Batch, Queries
from foretell.errors import ForetellError
from foretell.models.base import IntensityModel, OptionsT
from foretell.models.capabilities import GapIntensities
from foretell.nn.intensity import log_softplus
from foretell.nn.lookup import lookup
from foretell.sampling.bounds.values import Value, affine, softplus

MOST_SCORES = 2  # types per dimension, up to which computing all scores is cheaper than selecting vectors by type


class SoftplusIntensities(IntensityModel[OptionsT]):
    """A model whose state at a query is one vector h, [..., dim]."""

    dim: int
    w: nn.Parameter  # [K, dim]
    w_constant: nn.Parameter  # [K]
    log_tau: nn.Parameter  # [K]

    def scores(self, state: Value) -> Value:
        """Return `w_k·[1; h]/τ_k` for all types: [..., K]."""
        tau = self.log_tau.exp()
        return affine(state, self.w / tau[:, None], self.w_constant / tau)

    def intensities_at(self, scores: Value) -> Value:
        """Return the intensities of all types in the data's unit, [..., K], from scores."""
        return softplus(scores) * (self.log_tau.exp() / self.time_scale)

    def intensities(self, state: Value) -> Value:
        return self.intensities_at(self.scores(state))

    def log_intensities(self, state: Tensor) -> Tensor:
        return log_softplus(self.scores(state)) + (self.log_tau - math.log(self.time_scale))

    def total(self, state: Tensor) -> Tensor:
        return softplus(self.scores(state)) @ (self.log_tau.exp() / self.time_scale)

    def log_intensity(self, state: Tensor, types: Tensor) -> Tensor:
        own = lookup(torch.cat([self.w, self.w_constant[:, None], self.log_tau[:, None]], dim=1), types)
        w, constant, log_tau = own.split([self.dim, 1, 1], dim=-1)
        score = (w * state).sum(-1, keepdim=True) + constant
        return (log_softplus(score / log_tau.exp()) + (log_tau - math.log(self.time_scale))).squeeze(-1)

    def gap_intensities(
        self, before: Tensor, state: Tensor, batch: Batch, queries: Queries, pseudo: bool
    ) -> GapIntensities:
        """Return the likelihood's terms from states just `before` each event [B, N, dim] and states at the queries."""
        scores = self.scores(state)
        log_unit = self.log_tau - math.log(self.time_scale)
        if self.types <= MOST_SCORES * self.dim:
            at_end = self.scores(before).gather(-1, batch.types.unsqueeze(-1)).squeeze(-1)
            log_at_end = log_softplus(at_end) + lookup(log_unit[:, None], batch.types).squeeze(-1)
        else:
            log_at_end = self.log_intensity(before, batch.types)
        if queries.visible.per_gap is not None:
            scores = scores.unflatten(1, (-1, queries.visible.per_gap))
        return GapIntensities(
            log_at_end,
            softplus(scores) @ (self.log_tau.exp() / self.time_scale),
            (log_softplus(scores) + log_unit).sum(-1) if pseudo else None,
        )

    # Public names of the parameters

    def intensity_arrays(self) -> dict[str, Tensor]:
        """Return `w` and `τ` in the data's unit, under their public names."""
        w = torch.cat([self.w_constant[:, None], self.w], dim=1) / self.time_scale
        tau = self.log_tau.exp() / self.time_scale
        found = {}
        for index, name in enumerate(self.vocabulary.names):
            found[f"intensity.{name}.w"], found[f"intensity.{name}.tau"] = w[index], tau[index]
        return found

    def check_positive(self, arrays: dict[str, Tensor], *others: str) -> None:
        """Check that every `τ`, and every array named in `others`, is above 0."""
        for name in [*(f"intensity.{name}.tau" for name in self.vocabulary.names), *others]:
            if not bool((arrays[name] > 0).all()):
                raise ForetellError(f"{name} = {float(arrays[name].min())}: expected a number above 0")

    @torch.no_grad()
    def load_intensity_arrays(self, arrays: dict[str, Tensor]) -> None:
        names = self.vocabulary.names
        w = torch.stack([arrays[f"intensity.{name}.w"] for name in names]) * self.time_scale
        self.w_constant.copy_(w[:, 0])
        self.w.copy_(w[:, 1:])
        tau = torch.stack([arrays[f"intensity.{name}.tau"] for name in names])
        self.log_tau.copy_((tau * self.time_scale).log())
