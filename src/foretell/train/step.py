"""One training step: a batch in, gradients and an Adam update out, the same on a CPU, on CUDA, and as a captured graph.

A batch is worked through in pieces of whole sequences, whose gradients add up: memory follows the piece, not the batch. Integration
times, or noise events, are drawn afresh for every step, from a seed made of the run's seed and the step's number, so that a resumed
run draws the same.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from foretell.batches.batch import Batch
from foretell.batches.queries import Sample
from foretell.errors import ForetellError
from foretell.models.attention.fused import fuses
from foretell.models.base import IntensityModel
from foretell.models.pytree import tensors_of, with_tensors
from foretell.nn.attention import held_tiles
from foretell.objective.integral import Integral, Points, quadrature, stratified, uniform
from foretell.objective.loglik import Loss, training_loss
from foretell.objective.nce import contrast
from foretell.objective.noise import NoiseEvents
from foretell.objective.noise_source import NoiseSource
from foretell.train.adam import adam, set_rate

log = logging.getLogger("foretell")

# Gaps, and queries, at a time on a CPU: between the two limits a batch is cut into four, so that threads and caches are well used.
CPU_LEAST_GAPS, CPU_MOST_GAPS, CPU_MOST = 600, 2048, 1 << 14
CPU_MOST_IN_ORDER = 20_000  # queries at a time of models that go from event to event and want many sequences together
SIDE_BY_SIDE = 1 << 13  # queries of a batch from which on threads take pieces side by side and not one after the other
GPU_LEAST, GPU_MOST = 1 << 15, 1 << 18  # queries at a time: a GPU's occupancy, and its memory
# Between these two, queries at a time for each gap of the batch: more points a gap are cut, not more sequences.
GPU_A_GAP = 16
GPU_ENCODED = 1 << 19  # events encoded at a time
GPU_FUSED = 1 << 21  # queries at a time in the fused kernels, which keep four vectors of a query and not dozens
MOST_GRAPHS = 64  # captured batch shapes; further ones run uncaptured
# Events of a batch up to which its tensors are copied by few calls: there the calls take longer than the copies.
COPIED_TOGETHER = 1 << 15
SEED_STRIDE = 1_000_003


@dataclass(frozen=True)
class StepOptions:
    integral: Integral = "stratified"
    points: int = 1
    clip: float = 5.0
    decay: float = 0.0
    pseudo_rate: float = 0.0
    downsample: int = 0
    piece: int = 0
    capture: bool = True
    seed: int = 0
    # Scored events of a usual step, by which every step's loss is divided. Dividing by the batch's own number would weigh the events of
    # short sequences more, since batches are formed by length, and what is learned would not be the likelihood. 0: the batch's own.
    events: float = 0.0


@dataclass(frozen=True)
class Limits:
    """Queries at a time: of sequences encoded together, and of those asked about together."""

    whole: int
    asked: int


@dataclass(frozen=True)
class Integrated:
    """What the likelihood is estimated from: integration times and, where possible events are down-sampled, how."""

    points: Points
    sample: Sample | None


Draws = Tensor | NoiseEvents | None  # made before a batch is cut: numbers on [0, 1) for integration times, or noise
Question = Integrated | NoiseEvents


class Stepper:
    """Holds the optimiser; `__call__` takes one step and gives the batch's summed loss as a tensor on the device.

    With `noise` it contrasts real events with drawn ones instead of integrating.
    """

    def __init__(
        self, model: IntensityModel, lr: float, options: StepOptions, noise: NoiseSource | None = None
    ) -> None:
        self.model, self.options, self.noise = model, options, noise
        self.device = model.device
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = adam(self.parameters, lr, options.decay, self.device)
        self.generator = torch.Generator(self.device)
        self.threads = torch.get_num_threads() if self.device.type == "cpu" else 1
        self.pool: ThreadPoolExecutor | None = None
        self.capturing = (
            options.capture
            and self.device.type == "cuda"
            and not model.dropout
            and options.integral != "uniform"
            and not options.downsample  # what is drawn decides what is computed
            and noise is None  # as it does here
        )
        self.graphs: dict[Hashable, _Graph] = {}
        self.met: dict[Hashable, int] = {}  # how often, of what is not captured
        if options.downsample and not model.samples:
            raise ForetellError(f"down-sampling of possible events is for models made of rules, not for {model.title}")
        self.number = self.sampled = 0  # of the step, and how often events were drawn in it
        self.inside = options.points  # queries a gap, besides the event that ends it
        self.drawn = 0  # noise events of the last step
        self.uniform: list[Points] = []  # integration times of the last step that do not lie gap by gap

    def __call__(self, batch: Batch, number: int) -> Tensor:
        self.generator.manual_seed(self.options.seed * SEED_STRIDE + number)
        self.number, self.sampled, self.uniform = number, 0, []
        self.model.noise = self.generator
        if self.capturing:
            return self._captured(batch)
        loss = self._gradients(batch, None)
        self.optimizer.step()
        return loss

    def set_lr(self, lr: float) -> None:
        set_rate(self.optimizer, lr)

    def start_optimizer(self) -> None:
        """Give Adam its moments, all zero, without moving a parameter: a graph must find them in place."""
        if self.optimizer.state:
            return
        lr = float(self.optimizer.param_groups[0]["lr"])
        self._zero_gradients()
        self.set_lr(0.0)
        self.optimizer.step()
        self.set_lr(lr)
        for state in self.optimizer.state.values():
            state["step"].zero_()

    def _gradients(self, batch: Batch, draws: Draws) -> Tensor:
        """Fill `.grad` with the gradient of the loss an event; the summed loss comes back."""
        if self.noise is not None:
            draws = self.noise.draw(batch, self.generator, self.options.pseudo_rate)
            self.inside = -(-draws.times.shape[1] // batch.gap_start.shape[1])  # on average, rounded up
            self.drawn = draws.drawn
        if self.device.type == "cuda":
            for parameter in self.parameters:
                parameter.grad = None  # the first piece's gradient is taken as it is, and not added to zeros
        else:
            self._zero_gradients()
        if self.options.events:
            scored = torch.full((), self.options.events, dtype=self.model.dtype, device=self.device)
        else:
            scored = batch.event_counts.sum().clamp(min=1).to(self.model.dtype)
        pieces = list(batch.pieces(self.inside + 1, self._limits(batch).whole))
        # Many small operations one after the other are done by one thread sooner than by several that wait for each other.
        small = self.model.rows_at_a_time > 1 and batch.gap_start.numel() * (self.inside + 1) < SIDE_BY_SIDE
        if (len(pieces) > 1 or small) and self.threads > 1 and not self.model.dropout:
            summed = self._side_by_side(pieces, draws, scored)
        else:
            summed = torch.zeros((), dtype=torch.float64, device=self.device)
            row = 0
            for piece in pieces:
                summed += self._piece(piece, _of_rows(draws, row, row + len(piece)), scored)
                row += len(piece)
        for parameter in self.parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        if self.options.clip:
            torch.nn.utils.clip_grad_norm_(self.parameters, self.options.clip)
        return summed

    def _side_by_side(self, pieces: list[Batch], draws: Draws, scored: Tensor) -> Tensor:
        """On a CPU: a thread for each piece, of which each works alone, instead of all threads on every small operation.

        Draws are made before and gradients added after, both in the order of the pieces: threads change no number.
        """
        if self.pool is None:
            self.pool = ThreadPoolExecutor(self.threads, "piece", initializer=lambda: torch.set_num_threads(1))
        first = np.cumsum([0, *map(len, pieces)]).tolist()
        tasks = [
            (piece, self._question(piece, _of_rows(draws, start, start + len(piece))))
            for piece, start in zip(pieces, first, strict=False)
        ]
        queries = sum(piece.gap_start.numel() for piece in pieces) * (self.inside + 1)
        summed = torch.zeros((), dtype=torch.float64)
        try:
            for group in [tasks] if queries >= SIDE_BY_SIDE else [[task] for task in tasks]:
                done = self.pool.map(lambda task: self._apart(task[0], task[1], scored), group)
                summed += self._gather(done)
        finally:
            torch.set_num_threads(self.threads)  # a pool thread's own number becomes that of threads to come
        return summed

    def _gather(self, done: Iterable[tuple[Tensor, tuple[Tensor | None, ...]]]) -> Tensor:
        summed = torch.zeros((), dtype=torch.float64)
        for loss, gradients in done:
            summed += loss
            for parameter, gradient in zip(self.parameters, gradients, strict=True):
                if gradient is not None and parameter.grad is not None:
                    parameter.grad += gradient
        return summed

    def _apart(self, piece: Batch, question: Question, scored: Tensor) -> tuple[Tensor, tuple[Tensor | None, ...]]:
        loss = self._loss(piece, question, None)
        gradients = torch.autograd.grad(loss.objective / scored, self.parameters, allow_unused=True)
        return loss.negative_log_likelihood.detach().double(), gradients

    def _zero_gradients(self) -> None:
        for parameter in self.parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        torch._foreach_zero_(gradients)  # pyright: ignore[reportPrivateImportUsage]

    def _piece(self, batch: Batch, draws: Draws, scored: Tensor) -> Tensor:
        """Encode some sequences once, then ask about them in pieces whose gradients meet again at the encoded history."""
        if self._is_fused():
            return self._descend(batch, draws, None, scored)
        batch = self.model.collator.plan_batch(batch)
        history = self.model.encode(batch)
        pieces = list(batch.pieces(self.inside + 1, self._limits(batch).asked))
        if len(pieces) == 1:
            return self._descend(batch, draws, history, scored)
        tensors = tensors_of(history)
        gradients = [torch.empty_like(tensor) for tensor in tensors]
        summed = torch.zeros((), dtype=torch.float64, device=self.device)
        row = 0
        for piece in pieces:
            rows = slice(row, row + len(piece))
            part = [tensor[rows].detach().requires_grad_(tensor.requires_grad) for tensor in tensors]
            piece_draws = _of_rows(draws, row, row + len(piece))
            summed += self._descend(piece, piece_draws, with_tensors(history, part, rows), scored)
            for gradient, tensor in zip(gradients, part, strict=True):
                gradient[rows] = 0.0 if tensor.grad is None else tensor.grad
            row += len(piece)
        learned = [(t, g) for t, g in zip(tensors, gradients, strict=True) if t.requires_grad]
        if learned:  # a history of indices alone has nothing to learn from
            torch.autograd.backward([t for t, _ in learned], [g for _, g in learned])
        return summed

    def _descend(self, batch: Batch, draws: Draws, history: Any, scored: Tensor) -> Tensor:
        loss = self._loss(batch, self._question(batch, draws), history)
        (loss.objective / scored).backward()
        return loss.negative_log_likelihood.detach().double()

    def _question(self, batch: Batch, draws: Draws) -> Question:
        if isinstance(draws, NoiseEvents):
            return draws
        return Integrated(self._points(batch, draws), self._sample())

    def _loss(self, batch: Batch, question: Question, history: Any) -> Loss:
        if isinstance(question, NoiseEvents):
            loss = contrast(self.model, batch, question, history)
            return Loss(loss, loss)
        return training_loss(self.model, batch, question.points, self.options.pseudo_rate, history, question.sample)

    def _limits(self, batch: Batch) -> Limits:
        """A CPU does best with few whole sequences at a time, a GPU with one encoding and large pieces of queries."""
        if self.options.piece:
            return Limits(self.options.piece, self.options.piece)
        if self.device.type == "cpu":
            gaps = min(max(batch.gap_start.numel() // 4, CPU_LEAST_GAPS), CPU_MOST_GAPS)
            piece = min(gaps * (self.inside + 1), CPU_MOST)
            # A piece for each thread, unless that is too few sequences, or too much memory.
            if self.model.rows_at_a_time > 1:
                rows = max(self.model.rows_at_a_time, -(-len(batch) // self.threads))
                piece = max(piece, min(rows * batch.gap_start.shape[1] * (self.inside + 1), CPU_MOST_IN_ORDER))
            return Limits(piece, piece)
        if self._is_fused():
            return Limits(GPU_FUSED, GPU_FUSED)
        gaps = batch.gap_start.numel()
        return Limits(GPU_ENCODED * (self.inside + 1), min(max(gaps * GPU_A_GAP, GPU_LEAST), GPU_MOST))

    def _is_fused(self) -> bool:
        """Whether kernels go from the events to the gradients at once, without an encoded history in between."""
        return self.noise is None and self.options.integral != "uniform" and fuses(self.model)

    def _points(self, batch: Batch, draws: Tensor | None) -> Points:
        if self.options.integral == "quadrature":
            return quadrature(batch, self.options.points)
        if self.options.integral == "uniform":
            self.uniform.append(uniform(batch, batch.lengths.clamp(min=1) * self.options.points, self.generator))
            return self.uniform[-1]
        return stratified(batch, self.options.points, self.generator, draws)

    def _sample(self) -> Sample | None:
        """Events are drawn anew for every step and piece, from the run's seed and the step's number."""
        if not self.options.downsample:
            return None
        self.sampled += 1
        return Sample(self.options.downsample, np.random.default_rng([self.options.seed, self.number, self.sampled]))

    def _captured(self, batch: Batch) -> Tensor:
        kind = self.model.collator.capture_key(batch)
        graph = self.graphs.get(kind)
        if graph is None:
            met = self.met[kind] = self.met.get(kind, 0) + 1
            if met < self.model.collator.captured_after or len(self.graphs) >= MOST_GRAPHS:
                loss = self._gradients(batch, None)
                self.optimizer.step()
                return loss
            graph = self.graphs[kind] = _Graph(self, batch)
        return graph.replay(batch, self.generator)


def _of_rows(draws: Draws, start: int, stop: int) -> Draws:
    if isinstance(draws, NoiseEvents):
        return draws.rows(start, stop)
    return None if draws is None else draws[start:stop]


class _Graph:
    """The gradients of one batch shape as a CUDA graph: inputs are copied in, draws are made anew, the graph is replayed."""

    def __init__(self, stepper: Stepper, batch: Batch) -> None:
        self.inputs = batch.clone()
        kinds = [tensor.dtype for tensor in batch.tensors()]
        # Tensors of one dtype can be copied by one call.
        self.alike = [[i for i, one in enumerate(kinds) if one == kind] for kind in dict.fromkeys(kinds)]
        rows, width = batch.times.shape
        self.draws: Tensor | None = None
        if stepper.options.integral == "stratified":
            self.draws = torch.rand(rows, width + 1, stepper.options.points, dtype=torch.float64, device=stepper.device)
        stepper.start_optimizer()
        with held_tiles() as self.tiles, stepper.model.collator.keeping() as self.plans:
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):  # once outside, so that cuBLAS and the allocator are set up
                stepper._gradients(self.inputs, self.draws)
            torch.cuda.current_stream().wait_stream(side)
            torch._C._cuda_clearCublasWorkspaces()  # those of the side stream; the capture gets its own
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.loss = stepper._gradients(self.inputs, self.draws)
                stepper.optimizer.step()

    def replay(self, batch: Batch, generator: torch.Generator) -> Tensor:
        targets, sources = self.inputs.tensors(), batch.tensors()
        if batch.times.numel() < COPIED_TOGETHER:
            for alike in self.alike:
                torch._foreach_copy_([targets[i] for i in alike], [sources[i] for i in alike], non_blocking=True)  # pyright: ignore[reportPrivateImportUsage]
        else:
            for target, source in zip(targets, sources, strict=True):
                target.copy_(source, non_blocking=True)
        if self.draws is not None:
            self.draws.uniform_(generator=generator)
        self.graph.replay()
        return self.loss.clone()
