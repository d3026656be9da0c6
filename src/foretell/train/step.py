"""One training step: a batch in, gradients and an Adam update out, the same on a CPU, on CUDA, and as a captured graph.

A batch is worked through in pieces of whole sequences, whose gradients add up: memory follows the piece, not the batch. Integration
times are drawn afresh for every step, from a seed made of the run's seed and the step's number, so that a resumed run draws the same.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

import torch
from torch import Tensor

from foretell.models.base import IntensityModel
from foretell.models.batch import Batch
from foretell.objective.integral import Integral, Points, quadrature, stratified, uniform
from foretell.objective.loglik import training_loss

log = logging.getLogger("foretell")

PIECE = {"cpu": 1 << 13, "cuda": 1 << 16}  # queries at a time: a CPU's caches, a GPU's occupancy
MOST_GRAPHS = 64  # captured batch shapes; further ones run uncaptured
SEED_STRIDE = 1_000_003


@dataclass(frozen=True)
class StepOptions:
    integral: Integral = "stratified"
    points: int = 1
    clip: float = 5.0
    decay: float = 0.0
    pseudo_rate: float = 0.0
    piece: int = 0
    capture: bool = True
    seed: int = 0


class Stepper:
    """Holds the optimiser; `__call__` takes one step and gives the batch's summed loss as a tensor on the device."""

    def __init__(self, model: IntensityModel, lr: float, options: StepOptions) -> None:
        self.model, self.options = model, options
        self.device = model.device
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        kept = [p for p in self.parameters if p.ndim > 1]  # matrices and embeddings shrink; levels and scales do not
        free = [p for p in self.parameters if p.ndim <= 1]
        groups = [{"params": kept, "weight_decay": options.decay}, {"params": free, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW([group for group in groups if group["params"]], lr=lr, fused=True)
        self.generator = torch.Generator(self.device)
        kind = self.device.type if self.device.type in PIECE else "cuda"
        self.piece = options.piece or PIECE[kind]
        self.capturing = options.capture and kind == "cuda" and not model.dropout and options.integral != "uniform"
        self.graphs: dict[tuple[int, ...], _Graph] = {}

    def __call__(self, batch: Batch, number: int) -> Tensor:
        self.generator.manual_seed(self.options.seed * SEED_STRIDE + number)
        self.model.noise = self.generator
        loss = self._captured(batch) if self.capturing else self._gradients(batch, None)
        self.optimizer.step()
        return loss

    def _gradients(self, batch: Batch, draws: Tensor | None) -> Tensor:
        """Fill `.grad` with the gradient of the mean loss an event; the summed loss comes back."""
        for parameter in self.parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        torch._foreach_zero_([p.grad for p in self.parameters])  # pyright: ignore[reportPrivateImportUsage]
        scored = batch.scored.sum().clamp(min=1).to(self.model.dtype)
        summed = torch.zeros((), dtype=torch.float64, device=self.device)
        row = 0
        for piece in batch.pieces(self.options.points + 1, self.piece):
            uniform_draws = None if draws is None else draws[row : row + len(piece)]
            loss = training_loss(self.model, piece, self._points(piece, uniform_draws), self.options.pseudo_rate)
            (loss.objective / scored).backward()
            summed += loss.negative_log_likelihood.detach().double()
            row += len(piece)
        if self.options.clip:
            torch.nn.utils.clip_grad_norm_(self.parameters, self.options.clip)
        return summed

    def _points(self, batch: Batch, draws: Tensor | None) -> Points:
        if self.options.integral == "quadrature":
            return quadrature(batch, self.options.points)
        if self.options.integral == "uniform":
            return uniform(batch, batch.lengths.clamp(min=1) * self.options.points, self.generator)
        return stratified(batch, self.options.points, self.generator, draws)

    def _captured(self, batch: Batch) -> Tensor:
        shape = tuple(batch.times.shape)
        graph = self.graphs.get(shape)
        if graph is None:
            if len(self.graphs) >= MOST_GRAPHS:
                return self._gradients(batch, None)
            graph = self.graphs[shape] = _Graph(self, batch)
        return graph.replay(batch, self.generator)


class _Graph:
    """The gradients of one batch shape as a CUDA graph: inputs are copied in, draws are made anew, the graph is replayed."""

    def __init__(self, stepper: Stepper, batch: Batch) -> None:
        self.inputs = Batch(*(tensor.clone() for tensor in batch.tensors()))
        rows, width = batch.times.shape
        self.draws: Tensor | None = None
        if stepper.options.integral == "stratified":
            self.draws = torch.rand(rows, width + 1, stepper.options.points, dtype=torch.float64, device=stepper.device)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # once outside, so that cuBLAS and the allocator are set up
            stepper._gradients(self.inputs, self.draws)
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.loss = stepper._gradients(self.inputs, self.draws)

    def replay(self, batch: Batch, generator: torch.Generator) -> Tensor:
        for target, source in zip(self.inputs.tensors(), batch.tensors(), strict=True):
            target.copy_(source, non_blocking=True)
        if self.draws is not None:
            self.draws.uniform_(generator=generator)
        self.graph.replay()
        return self.loss.clone()
