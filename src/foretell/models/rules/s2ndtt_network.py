"""The network of an S2-NDTT (docs/explanation/rivals.md): states of facts, and embeddings of slots from them.

Each functor has its own parameters of states in each layer. The equations of a query are written once, for tensors and `ChebyshevPiece`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from foretell.errors import ForetellError
from foretell.models.rules.cell_network import CellNetwork
from foretell.models.rules.rule_network import Embeddings, seed_of
from foretell.models.state_space.layer import LinearSystem, Rotation
from foretell.nn.intensity import inverse_softplus
from foretell.nn.state_cells import StateCells
from foretell.plan.cell_plan import CellGroup, CellPlan
from foretell.plan.parameters import ParameterBook
from foretell.sampling.bounds.values import Value, gelu

SLOWEST, FASTEST = 0.05, 8.0  # initial decays per mean gap are evenly spaced between these on a log scale
TURNS = 0.5  # initial frequencies as a share of the decays; more would be noise before training
PARTS = 3  # of a version in each layer: real part, imaginary part, step
ARRAYS = ("frequency", "B", "C", "step_bias")  # shown unchanged


class FactSystem(LinearSystem):
    """The states of the facts of one functor, in one layer.

    Args:
        dim: the dimension of the functor.
        states: P, the complex components.
    """

    def __init__(self, dim: int, states: int) -> None:
        super().__init__()
        self.log_decay = nn.Parameter(torch.zeros(states))
        self.frequency = nn.Parameter(torch.zeros(states))
        self.B = nn.Parameter(torch.zeros(states, dim, 2))
        self.C = nn.Parameter(torch.zeros(dim, states, 2))
        self.step_bias = nn.Parameter(torch.zeros(states))

    def input_matrix(self) -> nn.Parameter:
        assert self.B is not None
        return self.B

    @torch.no_grad()
    def reset(self, generator: torch.Generator) -> None:
        """Set initial parameters. A slow state sums more of a steady stream of additions, so its initial weight in `C` is smaller."""
        into = self.input_matrix()
        states, dim, _ = into.shape
        decay = torch.logspace(math.log10(SLOWEST), math.log10(FASTEST), states, dtype=torch.float64)
        self.log_decay.copy_(decay.log())
        self.frequency.copy_(TURNS * decay)
        self.step_bias.fill_(float(inverse_softplus(torch.tensor(1.0, dtype=torch.float64))))
        into.copy_(torch.randn(into.shape, generator=generator, dtype=torch.float64) / math.sqrt(2 * max(dim, 1)))
        drawn = torch.randn(self.C.shape, generator=generator, dtype=torch.float64) / math.sqrt(8 * states)
        self.C.copy_(drawn * decay.clamp(max=1.0).unsqueeze(-1))


def stream(
    systems: Sequence[FactSystem], rotations: Sequence[Rotation[Value]], states: Sequence[Tensor], deduced: Value
) -> tuple[list[Value], Value]:
    """Return states at a time, and the output of all layers: `u_ℓ = u_{ℓ−1} + GELU(2 Re(C_ℓ x_ℓ))`, without GELU in the last.

    `states` [..., 2P] are those right after the last addition, and `deduced` [..., D] is `u_0`.
    """
    found, below = [], deduced
    for number, (system, g, state) in enumerate(zip(systems, rotations, states, strict=True), 1):
        x = system.moved(g, state, system.pushed(g, below))
        y = system.read_out(x)
        below = below + (y if number == len(systems) else gelu(y))
        found.append(x)
    return found, below


class StateNetwork(CellNetwork):
    run = StateCells

    def __init__(self, book: ParameterBook, seed: int, depth: int, states: int) -> None:
        super().__init__(book, seed)
        self.depth, self.states = depth, states
        self.cell_shape, self.gate_rows = (PARTS * depth, states), PARTS * depth * states
        dims = [book.layout.dimension(name) for name in book.layout.added]
        self.systems = nn.ModuleList(FactSystem(dim, states) for dim in dims for _ in range(depth))
        for name, layer, system in self._named_systems():
            system.reset(torch.Generator().manual_seed(seed_of(seed, f"state.{name}.{layer}")))

    def _named_systems(self) -> list[tuple[str, int, FactSystem]]:
        """Return all systems with their functors and layers, counted from 1."""
        named = [(name, layer) for name in self.book.layout.added for layer in range(1, self.depth + 1)]
        own = [system for system in self.systems if isinstance(system, FactSystem)]
        return [(name, layer, system) for (name, layer), system in zip(named, own, strict=True)]

    def of_functor(self, number: int) -> list[FactSystem]:
        """Return the systems of all layers for the functor with this number among those whose facts are added."""
        first = number * self.depth
        return [system for _, _, system in self._named_systems()[first : first + self.depth]]

    # Cells

    def gates(self, whole: Tensor) -> Tensor:
        return whole

    def cell_parameters(self) -> tuple[Tensor, ...]:
        """See `nn.state_cells.SystemParameters`."""
        systems, width = [system for _, _, system in self._named_systems()], self.width
        shape = len(self.book.layout.added), self.depth
        B = [one.input_matrix().transpose(1, 2).flatten(0, 1) for one in systems]
        B = [nn.functional.pad(one, (0, width - one.shape[1])) for one in B]
        signs = systems[0].C.new_tensor([2.0, -2.0])
        C = [nn.functional.pad((one.C * signs).flatten(1), (0, 0, 0, width - len(one.C))) for one in systems]
        decay = [one.log_decay.exp() for one in systems]
        plain = ([getattr(one, name) for one in systems] for name in ("frequency", "step_bias"))
        frequency, bias = plain
        return tuple(torch.stack(some).unflatten(0, shape) for some in (decay, frequency, B, C, bias))

    # Embeddings

    def forward(
        self, plan: CellPlan, cells: Tensor, times: Tensor, scale: float, deduced: dict[int, list[Tensor]] | None = None
    ) -> Embeddings:
        """Return the embeddings of slots. If `deduced` is given, it receives the deductions for the slots of each level and dimension."""
        vectors = {dim: table.vectors(self.vectors_of(dim, cells)) for dim, table in plan.deduced.items()}
        groups: dict[tuple[int, int], list[tuple[CellGroup, Tensor, Tensor, Tensor]]] = {}
        for dim, read in plan.read.items():
            counts = [one.count for one in read.groups]
            elapsed = read.elapsed(times, scale).to(cells.dtype).unsqueeze(-1)
            parts = (one.split(counts) for one in (read.row, read.versions(cells), elapsed))
            for group, *rows in zip(read.groups, *parts, strict=True):
                groups.setdefault((dim, group.level), []).append((group, *rows))

        def inside(dim: int, level: int, rows: Tensor) -> Tensor:
            if deduced is not None:
                deduced.setdefault(dim, []).append(rows)
            for group, row, versions, elapsed in groups.get((dim, level), ()):
                systems = self.of_functor(group.functor)
                by_layer = versions.unflatten(1, (self.depth, PARTS)).unbind(1)
                turns = [one.rotation(own[:, 2], elapsed) for one, own in zip(systems, by_layer, strict=True)]
                below = rows.index_select(0, row)
                _, above = stream(systems, turns, [one[:, :2].flatten(1) for one in by_layer], below)
                rows = rows.index_copy(0, row, above)
            return rows

        return self.deduced(plan.deduced, self.blocks_of(plan.deduced.values()), vectors, {}, inside=inside)

    # Files and public names

    def named_arrays(self) -> dict[str, Tensor]:
        found = super().named_arrays()
        for name, layer, system in self._named_systems():
            found[f"state.{name}.{layer}.decay"] = system.log_decay.exp()
            found |= {f"state.{name}.{layer}.{array}": getattr(system, array) for array in ARRAYS}
        return found

    def load_named_arrays(self, arrays: Mapping[str, Tensor]) -> None:
        for name, layer, _ in self._named_systems():
            if not bool((arrays[f"state.{name}.{layer}.decay"] > 0).all()):
                raise ForetellError(f"state.{name}.{layer}.decay: expected numbers above 0")
        super().load_named_arrays(arrays)
        with torch.no_grad():
            for name, layer, system in self._named_systems():
                system.log_decay.copy_(arrays[f"state.{name}.{layer}.decay"].log())
                for array in ARRAYS:
                    getattr(system, array).copy_(arrays[f"state.{name}.{layer}.{array}"])
