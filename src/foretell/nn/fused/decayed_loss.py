"""The loss of an A-NHP with elapsed time as input, and its gradients: parameters and times in, a differentiable scalar out.

Gradients are computed together with the loss; the backward pass only scales them. Projections and gradients of matrices are matrix
products over all rows of a batch; each step between them is one kernel. `decayed_kernels.py` describes the layout of rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from foretell.nn.fused.loss import power_of_two

SUBLAYER = 8  # number of parameters: gain and shift, expand and its bias, contract and its bias, gain and shift


@dataclass(frozen=True)
class KernelTiles:
    """Per kernel: rows of a program, keys or columns per iteration, and warps; measured on an H200 at dimensions 32 and 64."""

    attend: tuple[int, int, int] = (32, 16, 2)
    queries_back: tuple[int, int, int] = (32, 16, 2)
    keys_back: tuple[int, int, int] = (32, 16, 1)
    forwards: tuple[int, int, int] = (16, 32, 2)
    back: tuple[int, int, int] = (16, 16, 2)
    scores: tuple[int, int, int] = (16, 32, 2)


TILES = KernelTiles()


@dataclass(frozen=True)
class DecayedLayout:
    dim: int
    heads: int
    layers: int
    hidden: int  # width of the sublayer's hidden layer
    decay: bool
    unit: float  # unit of time of the heads' decays and of the mixture
    eps: float  # epsilon of LayerNorm


@dataclass(frozen=True)
class DecayedQueries:
    """The batch, its queries (`P` inside each of the `N + 1` gaps and one at its end), and the time scales."""

    times: Tensor  # float64 [B, N]
    types: Tensor  # int64 [B, N]
    counted: Tensor  # bool [B, N]: True where the event is scored
    ends: Tensor  # float64 [B, N + 1]
    inside: Tensor  # float64 [B, (N + 1)·P]
    weights: Tensor  # float64 [B, (N + 1)·P]
    seen_scales: Tensor  # float64: time scales of the elapsed time in attention
    turns: Tensor  # float64: its periods, as turns per unit of time
    mixture_scales: Tensor  # float64
    pseudo_rate: float

    @property
    def front(self) -> int:
        """The number of columns of a row up to the 1, chosen so that the columns before the embedding are a multiple of four."""
        return 1 + -self.own % 4

    @property
    def own(self) -> int:
        return 1 + 2 * len(self.seen_scales) + 2 * len(self.turns)


def decayed_loss(
    asked: DecayedQueries,
    layout: DecayedLayout,
    projections: Tensor,
    vectors: Tensor,
    log_decay: Tensor,
    head: tuple[Tensor, Tensor, Tensor],
    sublayers: list[Tensor],
) -> tuple[Tensor, Tensor]:
    """Return the objective and the negative log-likelihood, which has no gradient: float64 scalars.

    projections: [L, 3D, own + D], K, V and Q of each layer; vectors: those of the types, then the queries' vector; log_decay: [L, H];
    head: `w` and `v` [K + J, D], their biases, and the types' log τ; sublayers: `SUBLAYER` parameters per layer.
    """
    return _Loss.apply(asked, layout, projections, vectors, log_decay, *head, *sublayers)  # pyright: ignore[reportReturnType]


class _Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, asked: DecayedQueries, layout: DecayedLayout, *parameters: Tensor) -> tuple[Tensor, Tensor]:
        with torch.cuda.device_of(parameters[0]):  # Triton starts kernels on the current device
            step = _Step(asked, layout, [p.contiguous() for p in parameters], any(ctx.needs_input_grad))
            losses, gradients = step.losses_and_gradients()
        ctx.save_for_backward(*gradients)
        objective, likelihood = losses.unbind()
        ctx.mark_non_differentiable(likelihood)
        return objective, likelihood

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        scale = grad_outputs[0].to(torch.float32)
        return None, None, *torch._foreach_mul(list(ctx.saved_tensors), scale)  # pyright: ignore[reportPrivateImportUsage]


class _Step:
    """The forward and backward pass of one batch."""

    def __init__(self, asked: DecayedQueries, layout: DecayedLayout, parameters: list[Tensor], back: bool) -> None:
        self.kernels: Any = import_module("foretell.nn.fused.decayed_kernels")  # imported here, because it needs Triton
        self.of_layers: Any = import_module("foretell.nn.fused.layer_kernels")
        self.asked, self.layout, self.back = asked, layout, back
        projections, self.vectors, self.log_decay, self.matrix, self.constants, self.log_tau = parameters[:6]
        self.sublayers = [parameters[first : first + SUBLAYER] for first in range(6, len(parameters), SUBLAYER)]
        self.projections = torch.nn.functional.pad(
            projections, (asked.front - 1, 0)
        )  # zeros for the columns in front of the 1
        self.batch, self.events = asked.times.shape
        self.points = asked.inside.shape[1] // (self.events + 1)
        self.each = (self.events + 1) * (self.points + 1)  # number of queries per sequence
        self.before = self.batch * self.events  # number of rows of events, which are in front of the queries
        self.rows = self.before + self.batch * self.each
        self.width = self.projections.shape[2]
        self.new = projections.new_empty
        size = layout.dim // layout.heads
        self.heads = {
            "H": layout.heads,
            "D": layout.dim,
            "SIZE": size,
            "WIDE": power_of_two(size),
            "DECAY": layout.decay,
        }
        self.now, self.elapsed = (self.new(self.rows, dtype=torch.float64) for _ in range(2))

    def losses_and_gradients(self) -> tuple[Tensor, tuple[Tensor, ...]]:
        layers, dim, first = self.layout.layers, self.layout.dim, self.before
        inputs = [self._first_rows()]
        asking, tables, attended, levels, inner = [], [], [], [], []
        top = self.new(self.rows, dim)
        for layer, weights in enumerate(self.projections):
            last = layer == layers - 1
            start = first if last else 0  # the last layer has only queries
            asking.append(self.new(self.rows, dim))
            torch.mm(inputs[layer][start:], weights[2 * dim :].T, out=asking[layer][start:])
            tables.append(inputs[layer][:first] @ weights[: 2 * dim].T)
            attended.append(self.new(self.rows, dim))
            levels.append(self.new(self.layout.heads, self.rows))
            self._attend(layer, asking[layer], tables[layer], attended[layer], levels[layer])
            inner.append(self.new(self.rows, dim))
            out = top if last else self.new(self.rows, self.width)
            self._follow(layer, inputs[layer], attended[layer], inner[layer], out, start)
            inputs.append(out)
        losses, grad, of_head = self._score(top)
        if not self.back:
            return losses, ()
        of_projections = self.new(layers, 3 * dim, self.width)
        of_rates = self.log_decay.new_zeros(
            layers, self.layout.heads, self.batch * sum(self._tiles(self._plan("queries_back")[0]))
        )
        of_sublayers: list[Tensor] = []
        for layer in reversed(range(layers)):
            start = first if layer == layers - 1 else 0
            below = self.new(self.rows, dim)
            found, of_attended = self._follow_back(
                layer, inputs[layer], attended[layer], inner[layer], grad, below, start
            )
            of_sublayers = found + of_sublayers
            of_query, of_table = self._attend_back(
                layer, (asking[layer], tables[layer], attended[layer], levels[layer]), of_attended, of_rates[layer]
            )
            weights, by_projection = self.projections[layer], of_projections[layer]
            own = self.width - dim
            torch.mm(of_query[start:].T, inputs[layer][start:], out=by_projection[2 * dim :])
            torch.mm(of_table.T, inputs[layer][:first], out=by_projection[: 2 * dim])
            if start:
                torch.mm(of_table, weights[: 2 * dim, own:], out=below[:first])
            else:
                below[:first].addmm_(of_table, weights[: 2 * dim, own:])
            below[start:].addmm_(of_query[start:], weights[2 * dim :, own:])
            grad = below
        return losses, (
            of_projections[:, :, self.asked.front - 1 :].contiguous(),
            self._of_vectors(grad),
            of_rates.sum(-1),
            *of_head,
            *of_sublayers,
        )

    @staticmethod
    def _plan(name: str) -> tuple[int, int, dict[str, int]]:
        rows, columns, warps = getattr(TILES, name)
        return rows, columns, {"num_warps": warps}

    def _tiles(self, rows: int) -> tuple[int, int]:
        """Return the number of tiles of a sequence's queries, and of its events."""
        return -(-self.each // rows), -(-self.events // rows)

    def _first_rows(self) -> Tensor:
        asked, found = self.asked, self.new(self.rows, self.width)
        scales, periods = len(asked.seen_scales), len(asked.turns)
        self.kernels.rows_kernel[(-(-self.rows // 32),)](
            asked.times, asked.types, asked.inside, asked.ends, self.vectors, asked.seen_scales, asked.turns,
            found, self.now, self.elapsed, self.batch, self.events, self.points, len(self.vectors),
            J=scales, M=periods, FRONT=asked.front, D=self.layout.dim,
            JP=power_of_two(max(scales, 1)), MP=power_of_two(max(periods, 1)), BM=32,
        )  # fmt: skip
        return found

    def _sizes(self) -> tuple[float, float, int, int, int, int]:
        scale = (self.layout.dim // self.layout.heads) ** -0.5
        return self.layout.unit, scale, self.batch, self.events, self.points, self.rows

    def _attend(self, layer: int, query: Tensor, table: Tensor, out: Tensor, level: Tensor) -> None:
        rows, keys, options = self._plan("attend")
        queries, events = self._tiles(rows)
        tiles = queries + (0 if layer == self.layout.layers - 1 else events)
        self.kernels.attend_kernel[(tiles, self.batch, self.layout.heads)](
            query, table, self.now, self.asked.times, self.log_decay[layer], out, level, *self._sizes(), queries,
            **self.heads, BM=rows, BN=keys, **options,
        )  # fmt: skip

    def _attend_back(
        self, layer: int, known: tuple[Tensor, Tensor, Tensor, Tensor], grad: Tensor, of_rates: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the gradients of queries, and of keys and values."""
        query, table, out, level = known
        last = layer == self.layout.layers - 1
        rows, keys, options = self._plan("queries_back")
        queries, events = self._tiles(rows)
        of_query, share = torch.empty_like(query), torch.empty_like(level)
        self.kernels.queries_back_kernel[(queries + (0 if last else events), self.batch, self.layout.heads)](
            query, table, self.now, self.asked.times, self.log_decay[layer], out, level, grad, of_query, share, of_rates,
            *self._sizes(), queries, queries + events, **self.heads, BM=rows, BN=keys, **options,
        )  # fmt: skip
        rows, keys, options = self._plan("keys_back")
        of_table = torch.empty_like(table)
        if not self.events:
            return of_query, of_table
        self.kernels.keys_back_kernel[(-(-self.events // keys), self.batch, self.layout.heads)](
            query, table, self.now, self.asked.times, self.log_decay[layer], level, grad, share, of_table, *self._sizes(),
            **self.heads, EVENTS=not last, BM=rows, BN=keys, **options,
        )  # fmt: skip
        return of_query, of_table

    def _follow(self, layer: int, rows: Tensor, attended: Tensor, inner: Tensor, out: Tensor, start: int) -> None:
        tile, columns, options = self._plan("forwards")
        self.of_layers.forwards_kernel[(-(-(self.rows - start) // tile),)](
            rows, attended, *self.sublayers[layer], inner, out, self.layout.eps, start, self.rows,
            W=self.width, D=self.layout.dim, F=self.layout.hidden, TO=out.shape[1], BM=tile, BF=columns,
            FP=power_of_two(self.width - self.layout.dim), **options,
        )  # fmt: skip

    def _follow_back(
        self, layer: int, rows: Tensor, attended: Tensor, inner: Tensor, grad: Tensor, below: Tensor, start: int
    ) -> tuple[list[Tensor], Tensor]:
        """Return the gradients of a layer's sublayer parameters and of the output of attention; write that of embeddings to `below`."""
        dim, hidden = self.layout.dim, self.layout.hidden
        tile, columns, options = self._plan("back")
        programs = -(-(self.rows - start) // tile)
        of_attended, normed, of_inner = (self.new(self.rows, dim) for _ in range(3))
        active, of_hidden = (self.new(self.rows, hidden) for _ in range(2))
        sums = self.new(programs, 5 * dim + hidden)
        gain_1, shift_1, expand, of_expand, contract, _, gain_2, _ = self.sublayers[layer]
        self.of_layers.back_kernel[(programs,)](
            rows, attended, gain_1, shift_1, expand, of_expand, contract, gain_2, inner, grad,
            below, of_attended, normed, active, of_hidden, of_inner, sums, self.layout.eps, start, self.rows,
            W=self.width, D=dim, F=hidden, BM=tile, BF=columns, **options,
        )  # fmt: skip
        by_gain_2, by_shift_2, by_contract, by_gain_1, by_shift_1, by_expand = sums.sum(0).split([*[dim] * 5, hidden])
        found = [
            *(by_gain_1, by_shift_1, of_hidden[start:].T @ normed[start:], by_expand),
            *(of_inner[start:].T @ active[start:], by_contract, by_gain_2, by_shift_2),
        ]
        return found, of_attended

    def _score(self, top: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Return both losses, the gradient of the queries' embeddings, and the gradients of the head's parameters."""
        kernels: Any = import_module("foretell.nn.fused.mixture_kernels")
        asked, types, scales = self.asked, len(self.log_tau), len(self.asked.mixture_scales)
        tile, columns, options = self._plan("scores")
        queries = self.rows - self.before
        programs = -(-queries // tile)
        grad = self.new(self.rows if self.back else 0, self.layout.dim)
        back = self.new(queries if self.back else 0, types + scales)
        sums = self.new(programs, 2 * types + scales)
        losses = self.new(programs, 2, dtype=torch.float64)
        kernels.scores_kernel[(programs,)](
            top, self.elapsed, asked.types, asked.counted.view(torch.uint8), asked.weights, self.matrix, self.constants, self.log_tau,
            asked.mixture_scales, grad, back, sums, losses, self.layout.unit, -math.log(self.layout.unit), asked.pseudo_rate,
            self.batch, self.events, self.points, types, self.before,
            J=scales, JP=power_of_two(max(scales, 1)), D=self.layout.dim, BM=tile, BK=min(columns, power_of_two(types)),
            BACK=self.back, PSEUDO=asked.pseudo_rate != 0.0, **options,
        )  # fmt: skip
        if not self.back:
            return losses.sum(0), grad, []
        by_constants, by_tau = sums.sum(0).split([types + scales, types])
        return losses.sum(0), grad, [back.T @ top[self.before :], by_constants, by_tau]

    def _of_vectors(self, grad: Tensor) -> Tensor:
        """Sum the gradient of all rows' vectors into that of the types' vectors and of the queries' vector."""
        types = len(self.vectors) - 1
        one_hot = (torch.arange(types, device=grad.device)[:, None] == self.asked.types.flatten()).to(grad.dtype)
        found = self.new(types + 1, self.layout.dim)
        torch.mm(one_hot, grad[: self.before], out=found[:types])
        torch.sum(grad[self.before :], 0, out=found[types])
        return found
