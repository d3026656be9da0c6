"""The plain A-NHP's loss of a batch and its gradients: parameters and times in, a differentiable scalar out.

The gradients are computed together with the loss; the backward pass only scales them. `rows` below are
`[0; 0; 0; 1; time; embedding]` of the events (the zeros align the rest to 16 bytes). A layer's table is
`rows @ matrix`; `kernels.py` describes its columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

AT_ONCE = 2  # programs per multiprocessor of the GPU, limited by their registers
SHARE_COST = 0.6  # cost of dividing a sequence once more, whose gradients must be summed, in tiles
FEW_TILES = 8  # number of tiles of a sequence's events up to which one program computes them all
SMALLEST, LARGEST = 16, 128  # smallest and largest dimension for which there are tiles
MOST_TYPES = 1024


@dataclass(frozen=True)
class QueryTiling:
    """Rows per tile, keys per iteration, and how Triton builds the kernel."""

    rows: int
    keys: int
    warps: int
    stages: int

    def options(self) -> dict[str, Any]:
        return {"BM": self.rows, "BN": self.keys, "num_warps": self.warps, "num_stages": self.stages}


@dataclass(frozen=True)
class QueryTilings:
    queries: QueryTiling
    queries_back: QueryTiling  # with the same number of rows as `queries`
    history: QueryTiling
    history_back: QueryTiling


# Measured on an H200 at dimensions 32, 64 and 128: larger tiles run out of registers, smaller ones have idle times.
USUAL = QueryTilings(
    QueryTiling(32, 32, 4, 1), QueryTiling(32, 32, 4, 2), QueryTiling(16, 32, 4, 2), QueryTiling(16, 32, 4, 1)
)
WIDE = QueryTilings(
    QueryTiling(16, 32, 4, 1), QueryTiling(16, 32, 4, 1), QueryTiling(16, 32, 4, 1), QueryTiling(16, 32, 4, 1)
)
WIDE_ABOVE = 64  # the largest dimension for `USUAL`


def power_of_two(size: int) -> int:
    return 1 << max(size - 1, SMALLEST - 1).bit_length()


@dataclass(frozen=True)
class LossLayout:
    """The layout of a row of a layer's table."""

    heads: int
    dim: int
    time_dim: int

    @property
    def time_width(self) -> int:
        return power_of_two(self.time_dim)

    @property
    def key_width(self) -> int:
        """Columns of a row without its value: factors of time and of the embedding, two constant terms and six zeros."""
        return self.time_width + self.dim + 8

    @property
    def width(self) -> int:
        return self.key_width + self.dim


@dataclass(frozen=True)
class LossQueries:
    """The batch, its queries (`P` inside each of the `N + 1` gaps and one at its end), and the waves of time features."""

    times: Tensor  # float64 [B, N]
    types: Tensor  # int64 [B, N]
    counted: Tensor  # bool [B, N]: True where the event is scored
    ends: Tensor  # float64 [B, N + 1]
    inside: Tensor  # float64 [B, (N + 1)·P]
    weights: Tensor  # float64 [B, (N + 1)·P]
    waves: Tensor  # float64 [T], turns per unit of time
    quarters: Tensor  # float64 [T], in turns
    bos: bool
    log_unit: float  # added to the logarithm of every intensity
    pseudo_rate: float


def fused_loss(
    asked: LossQueries,
    layout: LossLayout,
    matrices: Tensor,
    vectors: Tensor,
    w: Tensor,
    constant: Tensor,
    log_tau: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return the objective and the negative log-likelihood, which has no gradient: float64 scalars.

    matrices: [L, 4 + T + D, H·width]; vectors: [K or K + 1 with a `bos`, D]; w: [K, D], constant and log_tau: [K].
    """
    return _Loss.apply(asked, layout, matrices, vectors, w, constant, log_tau)  # pyright: ignore[reportReturnType]


class _Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, asked: LossQueries, layout: LossLayout, *parameters: Tensor) -> tuple[Tensor, Tensor]:
        back = any(ctx.needs_input_grad)
        with torch.cuda.device_of(parameters[0]):  # Triton starts kernels on the current device
            losses, gradients = _loss_and_gradients(asked, layout, *(p.contiguous() for p in parameters), back=back)
        ctx.save_for_backward(*gradients)
        objective, likelihood = losses.unbind()
        ctx.mark_non_differentiable(likelihood)
        return objective, likelihood

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        scale = grad_outputs[0].to(torch.float32)
        return None, None, *torch._foreach_mul(list(ctx.saved_tensors), scale)  # pyright: ignore[reportPrivateImportUsage]


@lru_cache(maxsize=256)
def _shares(batch: int, tiles: int, device: torch.device) -> int:
    """Return the number of programs per sequence among which its tiles are divided, for the shortest total time."""
    slots = AT_ONCE * torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1

    def time(shares: int) -> float:
        programs = batch * shares
        return -(-programs // slots) * -(-tiles // shares) + SHARE_COST * programs / slots

    return min(range(1, max(tiles, 1) + 1), key=time)


def _loss_and_gradients(
    asked: LossQueries,
    layout: LossLayout,
    matrices: Tensor,
    vectors: Tensor,
    w: Tensor,
    constant: Tensor,
    log_tau: Tensor,
    *,
    back: bool,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    kernels: Any = import_module("foretell.nn.fused.kernels")  # imported here, because it needs Triton

    tilings = USUAL if max(layout.dim, layout.time_width) <= WIDE_ABOVE else WIDE
    batch, events = asked.times.shape
    layers, inputs, columns = matrices.shape
    heads, dim, features = layout.heads, layout.dim, layout.time_dim
    keys = events + asked.bos
    count = batch * keys
    device, empty = matrices.device, matrices.new_empty
    sizes = {"D": dim, "TD": layout.time_width}
    common = {**sizes, "H": heads, "STRIDE": columns}

    known = _of_types(matrices[0], vectors, 4 + features)
    front = 0 if known is None else len(known) - (4 + features)
    rows = [empty(count, front + inputs), *empty(layers - 1, count, inputs)]
    # The factors whose products with `by_layer` are the tables; in the first layer [type; 1; time] if that is shorter.
    factors = [rows[0] if known is None else rows[0][:, : len(known)], *rows[1:]]
    by_layer = [matrices[0] if known is None else known, *matrices[1:]]
    tables = empty(layers, batch, keys, columns)
    gathered = empty(layers - 1, batch, heads, keys, dim)
    denominators = empty(layers - 1, batch, heads, keys)
    if count:
        kernels.rows_kernel[(-(-count // 32),)](
            asked.times, asked.types, vectors, asked.waves, asked.quarters, rows[0],
            batch, keys, events, len(vectors), features, int(asked.bos), front,
            **sizes, BM=32, FRONT=power_of_two(front) if front else 0,
        )  # fmt: skip
    for layer in range(layers):
        torch.mm(factors[layer], by_layer[layer], out=tables[layer].view(count, columns))
        if layer < layers - 1 and count:
            kernels.history_kernel[(batch, -(-keys // tilings.history.rows))](
                rows[layer], rows[layer + 1], tables[layer], gathered[layer], denominators[layer],
                batch, keys, features, front if layer == 0 else 0, **common, **tilings.history.options(),
            )  # fmt: skip

    gaps, per_gap = asked.ends.shape[1], asked.inside.shape[1] // asked.ends.shape[1]
    query_tiles = -(-gaps * (per_gap + 1) // tilings.queries.rows)
    shares = _shares(batch, query_tiles, device)
    programs = batch * shares
    types = len(w)
    queries = batch * query_tiles * tilings.queries.rows
    of_time = empty(queries, layout.time_width)
    asked_gathered = empty((layers, heads, queries, dim) if back else 0)
    asked_denominators = empty((layers, heads, queries) if back else 0)
    of_queries = empty((queries, dim) if back else 0)  # the gradient of the queries' embeddings
    back_w = torch.zeros((programs, types, dim) if back else 0, device=device)
    back_levels = torch.zeros((programs, 2, types) if back else 0, device=device)
    losses = empty((programs, 2), dtype=torch.float64)
    kept = empty(programs, max(layers, 2), tilings.queries.rows, dim)
    kernels.queries_kernel[(batch, shares)](
        tables, asked.inside, asked.weights, asked.ends, asked.types, asked.counted.view(torch.uint8),
        asked.waves, asked.quarters, w, constant, log_tau,
        of_time, asked_gathered, asked_denominators, of_queries, back_w, back_levels, losses, kept,
        asked.log_unit, asked.pseudo_rate, batch, keys, events, gaps, per_gap, types, features, shares, query_tiles,
        int(asked.bos), **common, **tilings.queries.options(), L=layers, BK=min(32, power_of_two(types)), BACK=back,
        PSEUDO=asked.pseudo_rate != 0.0,
    )  # fmt: skip
    summed = losses.sum(0)
    if not back:
        return summed, ()

    back_by_layer = [torch.empty_like(matrix) for matrix in by_layer]
    above: Tensor | None = None  # the gradient of the next layer's embeddings
    tiles = -(-keys // tilings.history_back.rows)
    by_events = 1 if tiles <= FEW_TILES else _shares(batch, tiles, device)
    for layer in reversed(range(layers)):
        by_share = torch.zeros(shares, batch, keys, columns, device=device)
        kernels.queries_back_kernel[(batch, shares)](
            tables[layer], of_time, asked_gathered, asked_denominators, of_queries, by_share, kept,
            layer, batch, keys, gaps, per_gap, shares, query_tiles, int(asked.bos),
            **common, **tilings.queries_back.options(), EMBEDDED=layer > 0,
        )  # fmt: skip
        of_table = by_share.sum(0) if shares > 1 else by_share[0]
        del by_share
        below: Tensor | None = None
        if above is not None and count:
            below = torch.empty_like(above)
            own = of_table if by_events == 1 else torch.zeros(by_events, *of_table.shape, device=device)
            kernels.history_back_kernel[(batch, by_events)](
                rows[layer], tables[layer], gathered[layer], denominators[layer], above, below, own,
                empty(batch, by_events, tilings.history_back.rows, dim), batch, keys, features, by_events, tiles,
                front if layer == 0 else 0, **common, **tilings.history_back.options(),
            )  # fmt: skip
            if by_events > 1:
                of_table += own.sum(0)
        flat = of_table.view(count, columns)
        torch.mm(factors[layer].T, flat, out=back_by_layer[layer])
        above = below
        if layer > 0 or known is None:
            by_embedding = matrices[layer, 4 + features :].T
            above = flat @ by_embedding if below is None else below.addmm_(flat, by_embedding)
    back_w, back_levels = back_w.sum(0), back_levels.sum(0)
    if known is None:
        assert above is not None
        one_hot = _one_hot(asked.types, len(vectors), asked.bos, above.dtype)
        back_matrix, back_vectors = back_by_layer[0], one_hot @ above
    else:
        of_type = back_by_layer[0][: len(vectors)]
        embedding_rows = matrices[0, 4 + features :]
        back_matrix = torch.cat([back_by_layer[0][front:], vectors.T @ of_type])
        back_vectors = of_type @ embedding_rows.T
        if above is not None:
            back_vectors.addmm_(rows[0][:, : len(vectors)].T, above)
    back_matrices = torch.stack([back_matrix, *back_by_layer[1:]])
    return summed, (back_matrices, back_vectors, back_w, back_levels[0], back_levels[1])


def _of_types(matrix: Tensor, vectors: Tensor, others: int) -> Tensor | None:
    """Return the first layer's matrix for rows with the type instead of its vector, or None if there are more types than dimensions.

    Its rows are: the products of each type's vector; zeros up to a multiple of 4; the rows of the constant and of the time.
    """
    if len(vectors) > vectors.shape[1]:
        return None
    front = -(-len(vectors) // 4) * 4
    known = torch.zeros(front + others, matrix.shape[1], device=matrix.device)
    torch.mm(vectors, matrix[others:], out=known[: len(vectors)])
    known[front:] = matrix[:others]
    return known


def _one_hot(types: Tensor, rows: int, bos: bool, dtype: torch.dtype) -> Tensor:
    if bos:
        types = torch.nn.functional.pad(types, (1, 0), value=rows - 1)
    return (torch.arange(rows, device=types.device)[:, None] == types.flatten()).to(dtype)
