"""The network of an NDTT (docs/explanation/rivals.md): gated cells of facts, and embeddings of slots from them.

`emb(h,t) = tanh(deduced(h,t) + cell_h(t))`.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from foretell.lang.program import GATES
from foretell.models.rules.cell_network import CellNetwork
from foretell.models.rules.rule_network import Embeddings
from foretell.nn.gated_cells import GatedCells, drifted
from foretell.plan.cell_plan import CellPlan
from foretell.plan.parameters import ParameterBook

# The gates of `G` are input, forget, candidate, target-input, target-forget, decay. Here those with the same activation are adjacent, and
# the forgotten share is σ(−x).
ORDER, SIGNS = (0, 1, 3, 4, 2, 5), (1.0, -1.0, 1.0, -1.0, 1.0, 1.0)


class GatedNetwork(CellNetwork):
    run = GatedCells

    def __init__(self, book: ParameterBook, seed: int) -> None:
        super().__init__(book, seed)
        self.cell_shape = 3, self.width
        self.gate_rows = GATES * self.width

    def gates(self, whole: Tensor) -> Tensor:
        gates = whole.unflatten(1, (GATES, -1))[:, ORDER] * whole.new_tensor(SIGNS).view(-1, 1, 1)
        return F.pad(gates, (0, 0, 0, self.width - gates.shape[2])).flatten(1, 2)

    def forward(self, plan: CellPlan, cells: Tensor, times: Tensor, scale: float) -> Embeddings:
        vectors: Embeddings = {}
        for dim, table in plan.deduced.items():
            vectors[dim] = table.vectors(self.vectors_of(dim, cells))
            read = plan.read.get(dim)
            if read is not None:
                c, target, decay = read.versions(cells)[..., :dim].unbind(1)
                value = drifted(c, target, decay, read.elapsed(times, scale).to(cells.dtype).unsqueeze(-1))
                vectors[dim] = vectors[dim].index_add(0, read.target, value)
        return self.deduced(plan.deduced, self.blocks_of(plan.deduced.values()), vectors, {})
