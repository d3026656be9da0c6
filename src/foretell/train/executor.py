"""How steps run on a device: piece by piece, on the threads of a CPU, or as a captured CUDA graph; none of it changes a number."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor, nn

from foretell.batches.batch import Batch
from foretell.nn.attention import held_tiles
from foretell.train.interrupting import interruptible

if TYPE_CHECKING:
    from foretell.train.step import Stepper

SIDE_BY_SIDE = 1 << 13  # queries of a batch from which on threads take pieces side by side and not one after the other
MOST_GRAPHS = 64  # captured batch shapes; further ones run uncaptured
# Events of a batch up to which its tensors are copied by few calls: there the calls take longer than the copies.
COPIED_TOGETHER = 1 << 15

Piece = TypeVar("Piece")


class Executor:
    """Runs the steps of one model on one device; nothing else knows threads or graphs, and neither changes a number."""

    def __init__(self, device: torch.device, capture: bool = False) -> None:
        self.device, self.capture = device, capture and device.type == "cuda"
        self.threads = torch.get_num_threads() if device.type == "cpu" else 1
        self.pool: ThreadPoolExecutor | None = None
        self.graphs: dict[Hashable, _Graph] = {}
        self.still = threading.Lock()  # held while a graph is captured: no other thread may use the device then
        self.met: dict[Hashable, int] = {}  # how often a kind of batch that is not captured has occurred

    def update(self, work: Stepper, batch: Batch) -> Tensor:
        """One update; returns the batch's summed loss, on the device."""
        graph = self._graph(work, batch) if self.capture else None
        if graph is not None:
            return graph.replay(batch, work.generator)
        with interruptible():
            loss = work.gradients(batch)
        work.adam.optimizer.step()
        return loss

    def _graph(self, work: Stepper, batch: Batch) -> _Graph | None:
        """The captured graph for batches of this kind; None where it is not to be captured (yet)."""
        kind = work.model.collator.capture_key(batch)
        if kind not in self.graphs:
            met = self.met[kind] = self.met.get(kind, 0) + 1
            if met < work.model.collator.captured_after or len(self.graphs) >= MOST_GRAPHS:
                return None
            with self.still:
                self.graphs[kind] = _Graph(work, batch)
        return self.graphs[kind]

    def on_threads(self, pieces: int, queries: int, in_order: bool) -> bool:
        """Whether the pieces of a batch should be given to `add_gradients`; `in_order`: they are many small operations.

        Those are done by one thread sooner than by several that wait for each other.
        """
        return self.threads > 1 and (pieces > 1 or (in_order and queries < SIDE_BY_SIDE))

    def add_gradients(
        self,
        parameters: Sequence[nn.Parameter],
        pieces: Sequence[Piece],
        losses: Callable[[Piece], tuple[Tensor, Tensor]],
        queries: int,
    ) -> Tensor:
        """On threads: `losses` gives two losses of a piece; the gradients of the first are added to `.grad`, the second are summed.

        Each thread works on a piece alone, instead of all threads on every small operation. Gradients are added in the order of the
        pieces: threads change no number.
        """
        if self.pool is None:
            self.pool = ThreadPoolExecutor(self.threads, "piece", initializer=lambda: torch.set_num_threads(1))

        def differentiated(piece: Piece) -> tuple[Tensor, tuple[Tensor | None, ...]]:
            objective, reported = losses(piece)
            return reported.detach().double(), torch.autograd.grad(objective, parameters, allow_unused=True)

        summed = torch.zeros((), dtype=torch.float64)
        try:
            for group in [pieces] if queries >= SIDE_BY_SIDE else [[piece] for piece in pieces]:
                for reported, gradients in self.pool.map(differentiated, group):
                    summed += reported
                    for parameter, gradient in zip(parameters, gradients, strict=True):
                        if gradient is not None and parameter.grad is not None:
                            parameter.grad += gradient
        finally:
            torch.set_num_threads(self.threads)  # a pool thread's own number becomes that of threads to come
        return summed


class _Graph:
    """The update of one batch shape as a CUDA graph: inputs are copied in, draws are made anew, the graph is replayed."""

    def __init__(self, work: Stepper, batch: Batch) -> None:
        self.inputs = batch.clone()
        kinds = [tensor.dtype for tensor in batch.all_tensors()]
        # Tensors of one dtype can be copied by one call.
        self.alike = [[i for i, one in enumerate(kinds) if one == kind] for kind in dict.fromkeys(kinds)]
        self.draws = work.room_for_draws(batch)
        work.adam.start()
        with held_tiles() as self.tiles, work.model.collator.keeping() as self.plans:
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):  # once outside, so that cuBLAS and the allocator are set up
                work.gradients(self.inputs, self.draws)
            torch.cuda.current_stream().wait_stream(side)
            torch._C._cuda_clearCublasWorkspaces()  # those of the side stream; the capture gets its own
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.loss = work.gradients(self.inputs, self.draws)
                work.adam.optimizer.step()

    def replay(self, batch: Batch, generator: torch.Generator) -> Tensor:
        targets, sources = self.inputs.all_tensors(), batch.all_tensors()
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
