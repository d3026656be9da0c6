"""One training step: computes the gradients of a batch and makes an Adam update. CPU, CUDA and captured graphs give the same results.

A batch is computed in pieces of whole sequences, and their gradients are summed, so memory depends on the size of a piece, not of the
batch. Integration times or noise events are drawn anew for every step, from a seed computed from the run's seed and the step's number,
so a resumed run has the same draws.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from foretell.batches.batch import Batch, Sample
from foretell.batches.carrying import CarriesState
from foretell.errors import ForetellError
from foretell.models.base import IntensityModel
from foretell.models.capabilities import FusedLoss, HasRules, exact_integral_of
from foretell.models.pytree import tensors_of, with_tensors
from foretell.objective.loglik import Loss, Points, quadrature, stratified, training_loss, uniform
from foretell.objective.nce import NoiseSource, contrast
from foretell.objective.noise import NoiseEvents
from foretell.options import Integral
from foretell.train.adam import Adam
from foretell.train.executor import Executor
from foretell.train.processes import ProcessGroup

# Gaps and queries per piece on a CPU. Between the two limits of gaps, a batch is cut into four pieces, for threads and caches.
CPU_LEAST_GAPS, CPU_MOST_GAPS, CPU_MOST = 600, 2048, 1 << 14
CPU_MOST_IN_ORDER = 20_000  # queries per piece of recurrent models, which need many sequences at a time
GPU_LEAST, GPU_MOST = 1 << 15, 1 << 18  # queries per piece: the least for a GPU's occupancy, the most for its memory
# Between these two: queries per piece for each gap of the batch. With more points per gap, points are cut, not sequences.
GPU_A_GAP = 16
GPU_ENCODED = 1 << 19  # events that are encoded at a time
SEED_STRIDE = 1_000_003
RANK_STRIDE = 1 << 53  # larger than any seed of a run


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
    # Scored events of an average step, by which every step's loss is divided. Sequences of a batch have similar lengths; dividing by the
    # batch's own number would give more weight to events of short sequences, which would not be the likelihood. 0: the batch's own.
    events: float = 0.0
    carry: bool = False  # keep the model's state after a batch, so that the next batch can continue from it


@dataclass(frozen=True)
class PieceLimits:
    """The most queries in a piece: `encoded` for sequences that are encoded together, `queried` for queries computed together."""

    encoded: int
    queried: int


@dataclass(frozen=True)
class LikelihoodQueries:
    """The draws for the likelihood: integration times, and the sample of possible events if these are down-sampled."""

    points: Points | None  # None: the integral has a closed form
    sample: Sample | None


Draws = Tensor | NoiseEvents | None  # drawn before a batch is cut: numbers in [0, 1) for integration times, or noise
StepQueries = LikelihoodQueries | NoiseEvents


class Stepper:
    """Makes training steps: calling it updates the parameters and returns the batch's summed loss as a tensor on the device.

    With `noise`, the objective is noise contrast, which needs no integral.
    """

    def __init__(
        self,
        model: IntensityModel,
        lr: float,
        options: StepOptions,
        noise: NoiseSource | None = None,
        processes: ProcessGroup | None = None,
    ) -> None:
        if options.downsample and not isinstance(model, HasRules):
            raise ForetellError(f"down-sampling of possible events is for models made of rules, not for {model.title}")
        self.model, self.options, self.noise = model, options, noise
        self.processes = processes or ProcessGroup()
        self.device = model.device
        self.adam = Adam(model.parameters(), lr, options.decay, options.clip, self.device)
        self.parameters = self.adam.parameters
        self.generator = torch.Generator(self.device)
        # The integral of pseudo-events has no closed form.
        self.exact = exact_integral_of(model) is not None and not options.pseudo_rate
        # A graph cannot be replayed if random draws determine which operations are computed.
        fixed = not model.dropout and options.integral != "uniform" and not options.downsample and noise is None
        fixed &= not options.carry
        self.executor = Executor(self.device, options.capture and fixed and self.processes.size == 1)
        self.number = self.sampled = 0  # the step's number, and how often events were sampled in it
        self.inside = options.points  # queries per gap, without the event that ends the gap
        self.drawn = 0  # number of noise events in the last step
        self.uniform: list[Points] = []  # uniform integration times of the last step
        self.kept: dict[
            int, tuple[Tensor, ...]
        ] = {}  # the model's state after each piece of a step, by the first row of the piece

    def __call__(self, batch: Batch, number: int) -> Tensor:
        # Dropout masks are drawn while a piece is computed, so each process needs its own seed.
        own = self.processes.rank * RANK_STRIDE if self.model.dropout else 0
        self.generator.manual_seed(self.options.seed * SEED_STRIDE + number + own)
        self.number, self.sampled, self.uniform, self.kept = number, 0, [], {}
        self.model.noise = self.generator
        return self.executor.update(self, batch)

    def plans_ahead(self, batch: Batch) -> dict[Hashable, Any]:
        """Return the plans that a step with this batch will need; empty if the plans depend on the step's random draws."""
        options, found = self.options, dict[Hashable, Any]()
        if self.noise is not None or options.downsample or options.integral == "uniform":
            return found
        with self.executor.still:
            for place, piece in enumerate(self._shared_pieces(batch)):
                if self.processes.owns(place):
                    for part in piece.pieces(self.inside + 1, self._limits(piece).queried):
                        found |= self.model.collator.plans_ahead(part, options.points)
        return found

    def room_for_draws(self, batch: Batch) -> Tensor | None:
        """Return an empty tensor for the uniform numbers of a step; None if the step needs none."""
        if self.options.integral != "stratified":
            return None
        shape = *batch.gap_start.shape, self.options.points
        return torch.rand(shape, dtype=torch.float64, device=self.device)

    def gradients(self, batch: Batch, draws: Draws = None) -> Tensor:
        """Set `.grad` to the gradient of the loss per event; return the summed loss. `draws` are uniform numbers drawn beforehand."""
        if self.noise is not None:
            draws = self.noise.draw(batch, self.generator, self.options.pseudo_rate)
            self.inside = -(-draws.times.shape[1] // batch.gap_start.shape[1])  # average, rounded up
            self.drawn = draws.drawn
        elif draws is None:
            draws = self._draws(batch)
        self.adam.clear()
        if self.options.events:
            scored = torch.full((), self.options.events, dtype=self.model.dtype, device=self.device)
        else:
            scored = batch.event_counts.sum().clamp(min=1).to(self.model.dtype)
        pieces = list(self._shared_pieces(batch))
        queries = batch.gap_start.numel() * (self.inside + 1)
        in_order = self.model.rows_at_a_time > 1
        if not self.model.dropout and self.executor.on_threads(len(pieces), queries, in_order):
            summed = self._on_threads(pieces, draws, scored)
        else:
            summed = torch.zeros((), dtype=torch.float64, device=self.device)
            row = 0
            for place, piece in enumerate(pieces):
                own = _of_rows(draws, row, row + len(piece))
                if self.processes.owns(place):
                    summed += self._piece(piece, own, scored, row)
                else:
                    self._pass_over(piece, own)
                row += len(piece)
        if self.processes.size > 1:
            self.adam.complete()
            self.processes.sum(parameter.grad for parameter in self.parameters if parameter.grad is not None)
            self.processes.sum([summed])
        self.adam.finish()
        return summed

    def _draws(self, batch: Batch) -> Tensor | None:
        """Return uniform numbers for a whole batch if draws would depend on how it is cut; None: each piece makes its own draws."""
        options = self.options
        if (
            self.exact
            or options.integral == "quadrature"
            or (options.integral, self.processes.size) == ("stratified", 1)
        ):
            return None
        if options.integral == "uniform":
            shape = len(batch), int(self._counts(batch).max()) if len(batch) else 0
        else:
            shape = *batch.gap_start.shape, options.points
        return torch.rand(shape, generator=self.generator, dtype=torch.float64, device=self.device)

    def _shared_pieces(self, batch: Batch) -> Iterator[Batch]:
        """Yield the pieces of a batch; their number is a multiple of the number of processes."""
        return batch.pieces(self.inside + 1, self._limits(batch).encoded, self.processes.size)

    def _pass_over(self, batch: Batch, draws: Draws) -> None:
        """Make the draws of another process's piece, so that the generators of all processes stay equal."""
        row = 0
        for piece in batch.pieces(self.inside + 1, self._limits(batch).queried):
            self._queries(piece, _of_rows(draws, row, row + len(piece)))
            row += len(piece)

    def _on_threads(self, pieces: list[Batch], draws: Draws, scored: Tensor) -> Tensor:
        """Compute the pieces on threads; random draws are made before, in the order of the pieces."""
        first = np.cumsum([0, *map(len, pieces)]).tolist()
        asked = [
            (start, piece, self._queries(piece, _of_rows(draws, start, start + len(piece))))
            for piece, start in zip(pieces, first, strict=False)
        ]

        def losses(one: tuple[int, Batch, StepQueries]) -> tuple[Tensor, Tensor]:
            row, piece, queries = one  # models with rules plan pieces in `_loss`
            loss = self._loss(piece, queries, self._encoded(piece, row) if self.options.carry else None)
            return loss.objective / scored, loss.negative_log_likelihood

        asked = self.processes.share(asked)
        queries = sum(piece.gap_start.numel() for _, piece, _ in asked) * (self.inside + 1)
        return self.executor.add_gradients(self.parameters, asked, losses, queries)

    def _encoded(self, batch: Batch, row: int) -> Any:
        """Return the encoded history of a piece; `row` is the position of its first row in the batch."""
        history = self.model.encode(batch)
        if self.options.carry and isinstance(self.model, CarriesState):
            self.kept[row] = self.model.carry(history, batch)
        return history

    def carried(self, rows: int) -> tuple[Tensor, ...]:
        """Return the model's state after each row of the last step's batch, [rows, …] per tensor, collected from all processes."""
        assert isinstance(self.model, CarriesState)
        sizes = self.model.carried_sizes()
        made = [torch.zeros(rows, size, dtype=self.model.dtype, device=self.device) for size in sizes]
        for row, kept in self.kept.items():
            for whole, part in zip(made, kept, strict=True):
                whole[row : row + len(part)] = part
        self.processes.sum(made)
        return tuple(made)

    def _piece(self, batch: Batch, draws: Draws, scored: Tensor, row: int) -> Tensor:
        """Encode a piece once, then compute its queries in smaller pieces; their gradients are summed at the encoded history."""
        if self._is_fused():
            return self._descend(batch, draws, None, scored)
        batch = self.model.collator.plan_batch(batch)
        history = self._encoded(batch, row)
        pieces = list(batch.pieces(self.inside + 1, self._limits(batch).queried))
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
        if learned:  # a history that consists of indices has no gradients
            torch.autograd.backward([t for t, _ in learned], [g for _, g in learned])
        return summed

    def _descend(self, batch: Batch, draws: Draws, history: Any, scored: Tensor) -> Tensor:
        loss = self._loss(batch, self._queries(batch, draws), history)
        (loss.objective / scored).backward()
        return loss.negative_log_likelihood.detach().double()

    def _queries(self, batch: Batch, draws: Draws) -> StepQueries:
        if isinstance(draws, NoiseEvents):
            return draws
        return LikelihoodQueries(self._points(batch, draws), self._sample())

    def _loss(self, batch: Batch, queries: StepQueries, history: Any) -> Loss:
        if isinstance(queries, NoiseEvents):
            loss = contrast(self.model, batch, queries, history)
            return Loss(loss, loss)
        return training_loss(self.model, batch, queries.points, self.options.pseudo_rate, history, queries.sample)

    def _limits(self, batch: Batch) -> PieceLimits:
        """Return the limits of pieces. A CPU is fastest with few whole sequences, a GPU with one encoding and large pieces of queries."""
        if self.options.piece:
            return PieceLimits(self.options.piece, self.options.piece)
        if self.device.type == "cpu":
            parts = max(4, self.processes.size)
            gaps = min(max(batch.gap_start.numel() // parts, CPU_LEAST_GAPS), CPU_MOST_GAPS)
            piece = min(gaps * (self.inside + 1), CPU_MOST)
            # One piece per thread, unless pieces would have too few sequences or need too much memory.
            if self.model.rows_at_a_time > 1:
                rows = max(self.model.rows_at_a_time, -(-len(batch) // self.executor.threads))
                piece = max(piece, min(rows * batch.gap_start.shape[1] * (self.inside + 1), CPU_MOST_IN_ORDER))
            return PieceLimits(piece, piece)
        if self._is_fused():
            assert isinstance(self.model, FusedLoss)
            return PieceLimits(self.model.fused_queries, self.model.fused_queries)
        gaps = batch.gap_start.numel()
        return PieceLimits(GPU_ENCODED * (self.inside + 1), min(max(gaps * GPU_A_GAP, GPU_LEAST), GPU_MOST))

    def _is_fused(self) -> bool:
        """Whether fused kernels compute the gradients directly from the events, without an encoded history."""
        fused = isinstance(self.model, FusedLoss) and self.model.is_fused()
        return fused and self.noise is None and self.options.integral != "uniform"

    def _points(self, batch: Batch, draws: Tensor | None) -> Points | None:
        if self.exact:
            return None
        if self.options.integral == "quadrature":
            return quadrature(batch, self.options.points, self.model.short_time)
        if self.options.integral == "uniform":
            self.uniform.append(uniform(batch, self._counts(batch), self.generator, draws))
            return self.uniform[-1]
        return stratified(batch, self.options.points, self.generator, draws, self.model.short_time)

    def _counts(self, batch: Batch) -> Tensor:
        """Return the number of uniform points of each sequence: [sequences]."""
        return batch.lengths.clamp(min=1) * self.options.points

    def _sample(self) -> Sample | None:
        """Return a new sample of events for each piece, seeded by the run's seed and the step's number; None without down-sampling."""
        if not self.options.downsample:
            return None
        self.sampled += 1
        return Sample(self.options.downsample, np.random.default_rng([self.options.seed, self.number, self.sampled]))


def _of_rows(draws: Draws, start: int, stop: int) -> Draws:
    if isinstance(draws, NoiseEvents):
        return draws.rows(start, stop)
    return None if draws is None else draws[start:stop]
