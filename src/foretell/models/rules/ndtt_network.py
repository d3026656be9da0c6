"""The network of an NDTT (docs/explanation/rivals.md): cells of facts, which events move in waves, and embeddings of slots from them.

`emb(h,t) = tanh(deduced(h,t) + cell_h(t))`. Cells of all dimensions are rows of one table, as wide as the widest: what is beyond a
fact's own dimension stays zero.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from foretell.lang.program import GATES
from foretell.models.rules.rule_network import Embeddings, RuleNetwork
from foretell.nn.cells import CellUpdate, cells_in_waves, drifted
from foretell.nn.pool import at_least_one
from foretell.plan.parameters import ParameterBook, ParameterFamily
from foretell.plan.plan import CellPlan
from foretell.plan.waves import Kind, Recurrence, RowsByName

# The gates of `G` are input, forget, candidate, target-input, target-forget, decay; here those with one activation stand together,
# and what is forgotten is σ(−x).
ORDER, SIGNS = (0, 1, 3, 4, 2, 5), (1.0, -1.0, 1.0, -1.0, 1.0, 1.0)

_Found = tuple[Tensor, Tensor, list[Tensor]]


class CellNetwork(RuleNetwork):
    def __init__(self, book: ParameterBook, seed: int) -> None:
        super().__init__(book, seed)
        self.width = max(book.layout.dims, default=0)
        self._rows: dict[int, tuple[int, Tensor]] = {}  # of families in their stacks, by how many names there were
        self.grow(torch.float32, torch.device("cpu"))

    # Cells

    def cells(self, recurrence: Recurrence, elapsed: Tensor, elapsed_before: Tensor) -> Tensor:
        """All versions of all cells [sequences, most, 3, width]: `c`, `c̄`, `δ`; `elapsed` in the model's unit, before each row's event."""
        waves = recurrence.waves
        vectors, blocks = self._assembled(recurrence.vectors.kinds, 1, elapsed)
        gates, gate_blocks = self._assembled(recurrence.gates.kinds, GATES, elapsed)
        rows = self._rows_of(recurrence)
        deduced = vectors.new_zeros(waves.targets, self.width)
        deduced = deduced.index_add(0, recurrence.target, vectors.index_select(0, rows[0]))
        found = cells_in_waves(
            waves,
            deduced,
            gates.index_select(0, rows[1]),
            blocks,
            gate_blocks,
            at_least_one(self.stacks["beta_beta"]),
            elapsed.unsqueeze(-1),
            elapsed_before.unsqueeze(-1),
            rows[2],
        )
        return found.index_select(0, recurrence.place.flatten()).view(*recurrence.place.shape, 3, self.width)

    def _rows_of(self, recurrence: Recurrence) -> _Found:
        """Rows of constant parts, and of the matrices of each step: found again while there are no new names."""
        used = (recurrence.vectors, recurrence.gates)
        key = tuple(len(kind.family.names) for one in used for kind in one.kinds)
        found: _Found | None = recurrence.rows.get(key)
        if found is None:
            blocks = _rows(recurrence.blocks, True).split(list(recurrence.block_tiles))
            gate_blocks = _rows(recurrence.gate_blocks, True).split(list(recurrence.gate_tiles))
            matrices = [
                other if isinstance(step, CellUpdate) else one
                for step, one, other in zip(recurrence.waves.steps, blocks, gate_blocks, strict=True)
            ]
            found = _rows(recurrence.vectors, False), _rows(recurrence.gates, False), matrices
            recurrence.rows.clear()
            recurrence.rows[key] = found
        return found

    def _assembled(self, kinds: Sequence[Kind], times: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """Constant columns [·, times · width], and blocks of columns [·, width, times · width], of all names of all kinds."""
        width = self.width
        vectors, blocks = [like.new_zeros(0, times * width)], [like.new_zeros(0, width, times * width)]
        for kind in kinds:
            whole = self._stacked(kind.family)
            whole = whole.view(len(whole), times, -1, whole.shape[2])
            if times == GATES:
                whole = whole[:, ORDER] * whole.new_tensor(SIGNS).view(-1, 1, 1)
            whole = F.pad(whole, (0, 0, 0, width - whole.shape[2]))
            vectors.append(whole[..., 0].flatten(1))
            if kind.dims:
                parts = whole[..., 1:].split(list(kind.dims), dim=-1)
                cut = torch.stack([F.pad(part, (0, width - part.shape[-1])) for part in parts], dim=1)
                blocks.append(cut.flatten(2, 3).flatten(0, 1).transpose(1, 2))
        return torch.cat(vectors), torch.cat(blocks)

    def _stacked(self, family: ParameterFamily) -> Tensor:
        """All matrices of a family [names, out, in]."""
        known, rows = self._rows.get(family.place, (-1, None))
        if known != len(family.names) or rows is None or rows.device != self.stacks["beta_beta"].device:
            rows = torch.tensor(family.rows, device=self.stacks["beta_beta"].device).view(len(family.names), -1)
            self._rows[family.place] = len(family.names), rows
        letter = "G" if family.stem == "add" else "W"
        found = [
            self.stacks[f"{stack.key}_{letter}"].index_select(0, rows[:, place])
            for place, stack in enumerate(family.stacks)
        ]
        return found[0] if letter == "G" else torch.cat([found[0].unsqueeze(-1), *found[1:]], dim=-1)

    # Embeddings

    def forward(self, plan: CellPlan, cells: Tensor, times: Tensor, scale: float) -> Embeddings:
        """Of a plan's slots; `times` are those of its points, float64, and `cells` [sequences, most, 3, width]."""
        vectors: Embeddings = {}
        flat = cells.flatten(0, 1)
        for dim, table in plan.deduced.items():
            vectors[dim] = table.vectors(self.vectors_of(dim, cells))
            read = plan.read.get(dim)
            if read is not None:
                rows = flat.index_select(0, read.sequence * cells.shape[1] + read.version)[..., :dim]
                elapsed = (times.index_select(0, read.point) - times.index_select(0, read.since)) / scale
                c, target, decay = rows.unbind(1)
                value = drifted(c, target, decay, elapsed.to(cells.dtype).unsqueeze(-1))
                vectors[dim] = vectors[dim].index_add(0, read.target, value)
        return self.deduced(plan.deduced, self.blocks_of(plan.deduced.values()), vectors, {})


def _rows(named: RowsByName, blocks: bool) -> Tensor:
    """Where parameters lie in what is assembled."""
    each = [len(kind.dims) if blocks else 1 for kind in named.kinds]
    counts = [len(kind.family.names) * many for kind, many in zip(named.kinds, each, strict=True)]
    device = named.kind.device
    many = torch.tensor(each, dtype=torch.int64, device=device)
    start = torch.tensor([0, *counts], dtype=torch.int64, device=device).cumsum(0)
    return start[named.kind] + named.name * many[named.kind] + named.condition
