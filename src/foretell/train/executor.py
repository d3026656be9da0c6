"""How steps run on a device: piece by piece, on CPU threads, or as a captured CUDA graph. The results are the same in all cases."""

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

SIDE_BY_SIDE = 1 << 13  # queries per batch from which threads compute pieces in parallel
MOST_GRAPHS = 64  # captured batch shapes; further ones run uncaptured
# Up to this many events per batch, tensors are copied by few calls: launching them takes longer than copying.
COPIED_TOGETHER = 1 << 15

Piece = TypeVar("Piece")


class Executor:
    """Runs the steps of one model on one device. Only this class knows threads and graphs; neither changes a result."""

    def __init__(self, device: torch.device, capture: bool = False) -> None:
        self.device, self.capture = device, capture and device.type == "cuda"
        self.threads = torch.get_num_threads() if device.type == "cpu" else 1
        self.pool: ThreadPoolExecutor | None = None
        self.graphs: dict[Hashable, _Graph] = {}
        self.still = threading.Lock()  # held while a graph is captured: no other thread may use the device then
        self.met: dict[Hashable, int] = {}  # how often each kind of uncaptured batch has occurred

    def update(self, work: Stepper, batch: Batch) -> Tensor:
        """Make one update; return the summed loss of the batch as a tensor on the device."""
        graph = self._graph(work, batch) if self.capture else None
        if graph is not None:
            return graph.replay(batch, work.generator)
        with interruptible():
            loss = work.gradients(batch)
        work.adam.optimizer.step()
        return loss

    def _graph(self, work: Stepper, batch: Batch) -> _Graph | None:
        """Return the captured graph for batches of this kind; None if it is not captured (yet)."""
        kind = work.model.collator.capture_key(batch)
        if kind not in self.graphs:
            met = self.met[kind] = self.met.get(kind, 0) + 1
            if met < work.model.collator.captured_after or len(self.graphs) >= MOST_GRAPHS:
                return None
            with self.still:
                self.graphs[kind] = _Graph(work, batch)
        return self.graphs[kind]

    def on_threads(self, pieces: int, queries: int, in_order: bool) -> bool:
        """Whether `add_gradients` should compute the pieces of a batch on threads; `in_order`: the model runs many small operations.

        One thread finishes those sooner than several threads that wait for each other.
        """
        return self.threads > 1 and (pieces > 1 or (in_order and queries < SIDE_BY_SIDE))

    def add_gradients(
        self,
        parameters: Sequence[nn.Parameter],
        pieces: Sequence[Piece],
        losses: Callable[[Piece], tuple[Tensor, Tensor]],
        queries: int,
    ) -> Tensor:
        """Compute pieces on threads. `losses` returns two losses per piece: gradients of the first are added to `.grad`, the second summed.

        Each thread works on its own piece, instead of all threads on every small operation. Gradients are added in the order of the pieces,
        so the result does not depend on the number of threads.
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
            torch.set_num_threads(self.threads)  # a pool thread's setting would become the default of new threads
        return summed


class _Graph:
    """The update of one batch shape as a CUDA graph: copies the inputs in, makes new draws, and replays the graph."""

    def __init__(self, work: Stepper, batch: Batch) -> None:
        self.inputs = batch.clone()
        kinds = [tensor.dtype for tensor in batch.all_tensors()]
        # One call can copy all tensors of one dtype.
        self.alike = [[i for i, one in enumerate(kinds) if one == kind] for kind in dict.fromkeys(kinds)]
        self.draws = work.room_for_draws(batch)
        work.adam.start()
        with held_tiles() as self.tiles, work.model.collator.keeping() as self.plans:
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):  # run once uncaptured, so that cuBLAS and the allocator are set up
                work.gradients(self.inputs, self.draws)
            torch.cuda.current_stream().wait_stream(side)
            torch._C._cuda_clearCublasWorkspaces()  # frees the workspaces of the side stream; the capture gets its own
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
