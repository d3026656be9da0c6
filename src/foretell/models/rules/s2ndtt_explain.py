"""The remaining contributions of additions to the states of an S2-NDTT just before one time: for each `r` that added a fact, the
share of each addition.

A jump decays and rotates with its state and does not change otherwise, so its remaining part is known. Its contribution is the
difference that it makes to the output of the layers. With one layer, these differences and the part of the state from deductions add up
to the output.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from foretell.data import EventSequence
from foretell.models.rules.andtt_attention import Look
from foretell.models.rules.cell_trace import CellShares, CellTrace, shared_out
from foretell.models.rules.rule_network import Embeddings
from foretell.models.rules.s2ndtt import S2NDTT
from foretell.models.rules.s2ndtt_network import PARTS, stream
from foretell.plan.cell_plan import CellPlan


@torch.no_grad()
def look_into_states(model: S2NDTT, history: EventSequence, at: float) -> Look:
    """Return the `Look` just before a time."""
    return _StateTrace(model, history, at).heads()


class _StateTrace(CellTrace[S2NDTT]):
    def embed(self, plan: CellPlan, times: Tensor) -> Embeddings:
        deduced: dict[int, list[Tensor]] = {}
        found = self.model.network(plan, self.cells[None], times, self.model.time_scale, deduced)
        self.deduced = {dim: torch.cat(levels) for dim, levels in deduced.items()}
        return found

    def left(self, fact: int, slot: int, last: int) -> CellShares:
        functor = int(self.model.layout.added_numbers(self.slots.grounding)[self.slots.grounding.keys[fact][0]])
        additions, jumps = self._jumps_left(functor, last)
        systems = self.model.network.of_functor(functor)
        by_layer = self.cells[last].unflatten(0, (-1, PARTS))
        elapsed = torch.full((1 + len(additions), 1), self.waited(last), dtype=torch.float64)
        turns = [
            one.rotation(own[2].expand(len(elapsed), -1), elapsed) for one, own in zip(systems, by_layer, strict=True)
        ]
        whole = by_layer[:, :2].flatten(1)  # [L, 2P]
        without = torch.cat([whole[None], whole - jumps])
        below = self.deduced[self.merger.dim[slot]][self.merger.row[slot]].expand(len(elapsed), -1)
        _, above = stream(systems, turns, without.unbind(1), below)
        given = above[:1] - above[1:]
        return CellShares(additions, given, above[0] - below[0] - given.sum(0))

    def _jumps_left(self, functor: int, last: int) -> tuple[np.ndarray, Tensor]:
        """Return the additions of a version and of all earlier ones, and the rest of their jumps after the last one: [A, L, 2P]."""
        systems, versions = self.model.network.of_functor(functor), self.versions
        rate = torch.stack([torch.complex(-one.log_decay.exp(), one.frequency) for one in systems])  # [L, P]
        survives = torch.ones_like(rate)
        found, jumps = [], []
        version, later = last, last
        while version:
            if version != later:
                step = self.cells[version].unflatten(0, (-1, PARTS))[:, 2]
                survives = survives * torch.exp(rate * step * self.passed(version, later))
            mine = versions.addition[versions.made == version]
            real, imaginary = self._jumps(mine).unbind(2)
            kept = torch.complex(real, imaginary) * survives
            found.append(mine)
            jumps.append(torch.cat([kept.real, kept.imag], dim=-1))
            version, later = int(versions.before[version]), version
        return np.concatenate(found), torch.cat(jumps)

    def _jumps(self, additions: np.ndarray) -> Tensor:
        """Return the contribution of each addition of one version to its state, by its share of the pool: [A, L, 2, P]."""
        said = self.proposals(additions)
        return shared_out(said.rows, said).unflatten(1, (self.model.layers, PARTS, -1))[:, :, :2]
