"""The remaining contributions of additions to the cells of an NDTT just before one time: for each `r` that added a fact, the
share of each addition.

An addition adds `i·z` to a cell and `ī·z` to its target, and reduces the old values of both by a factor. Then the cell decays towards its
target. With fixed gates, a cell is linear in its inputs. So the remaining part of each addition is known, and these parts add up to
the cell. If several additions of one event are pooled, each counts with its share of the pool.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from foretell.data import EventSequence
from foretell.lang.program import GATES
from foretell.models.rules.andtt_attention import Look
from foretell.models.rules.cell_trace import CellShares, CellTrace, shared_out
from foretell.models.rules.ndtt import NDTT
from foretell.models.rules.rule_network import Embeddings
from foretell.nn.gated_cells import drifted
from foretell.plan.cell_plan import CellPlan


@torch.no_grad()
def look_into_cells(model: NDTT, history: EventSequence, at: float) -> Look:
    """Return the `Look` just before a time."""
    return _GatedTrace(model, history, at).heads()


class _GatedTrace(CellTrace[NDTT]):
    def embed(self, plan: CellPlan, times: Tensor) -> Embeddings:
        return self.model.network(plan, self.cells[None], times, self.model.time_scale)

    def left(self, fact: int, slot: int, last: int) -> CellShares:
        dim, versions = self.merger.dim[slot], self.versions
        found, given = [], []
        version, later = last, 0
        matters = torch.tensor([1.0, 0.0], dtype=torch.float64)[:, None].expand(2, dim)  # weights of c and c̄
        while version:
            elapsed = self.passed(version, later) if later else self.waited(version)
            faded = torch.exp(-self.cells[version, 2, :dim] * elapsed)
            matters = torch.stack([matters[0] * faded, matters[0] * (1.0 - faded) + matters[1]])
            mine = versions.addition[versions.made == version]
            entered, kept = self._moved(mine, version, dim)
            found.append(mine)
            given.append((entered * matters).sum(1))
            matters = matters * kept
            version, later = int(versions.before[version]), version
        c, target, decay = self.cells[last, :, :dim]
        value = drifted(c, target, decay, torch.tensor([self.waited(last)], dtype=torch.float64))
        whole = torch.cat(given)
        return CellShares(np.concatenate(found), whole, value - whole.sum(0))

    def _moved(self, additions: np.ndarray, version: int, dim: int) -> tuple[Tensor, Tensor]:
        """Return each addition's input to a cell and its target [A, 2, dim], and the factors of their old values [2, dim]."""
        said = self.proposals(additions)
        enter, keep, candidate, target_enter, target_keep, _ = said.rows.unflatten(1, (GATES, dim)).unbind(1)
        entered = torch.stack([enter, target_enter], 1).sigmoid() * candidate.tanh().unsqueeze(1)
        forgotten = torch.stack([-keep, -target_keep], 1).sigmoid()
        change = entered - forgotten * self._just_before(version, dim)
        share = shared_out(change.flatten(1), said).view_as(change)
        scale = torch.where(change == 0.0, 1.0, share / torch.where(change == 0.0, 1.0, change))
        return scale * entered, 1.0 - (scale * forgotten).sum(0)

    def _just_before(self, version: int, dim: int) -> Tensor:
        """Return a cell and its target just before a version's event: [2, dim]."""
        before = int(self.versions.before[version])
        if not before:
            return torch.zeros(2, dim, dtype=torch.float64)
        c, target, decay = self.cells[before, :, :dim]
        elapsed = torch.tensor([self.passed(before, version)], dtype=torch.float64)
        return torch.stack([drifted(c, target, decay, elapsed), target])
