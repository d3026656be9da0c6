"""The working memory of a continuous-time LSTM, cut into views for each step, and reused by later calls.

A forward and backward pass writes 33 numbers per dimension and event, and uses 27 views per step. Allocating this memory and
making the views takes up to a third of the time. On a CPU the memory and its views are therefore kept for the next pass, as soon as nothing
refers to the results. A captured graph has its own memory, so on a GPU nothing is kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

# The gates in memory order: five with σ (the input and forget gates as pairs for memory and target), then tanh, then softplus.
GATES = ("output", "input", "target_input", "forget", "target_forget", "candidate", "decay")
OUTPUT, ENTER, KEEP, CANDIDATE, DECAY = 0, slice(1, 3), slice(3, 5), 5, 6
# The order in the backward pass: δ and o at the ends, and the candidate twice, for c and for c̄.
BACKWARD = (6, 1, 2, 3, 4, 5, 5, 0)
MOST_KEPT, MOST_NUMBERS = 4, 1 << 26  # limits of the number of blocks that are kept, and of their size
MOST_SHAPES, MOST_STEPS = 16, 256  # limits of the kept views per block, and of the steps whose views are made at a time

Steps = list[tuple[Tensor, ...]]
THERE = {
    "gates": len(GATES),
    "memories": 2,  # c and c̄ after each event
    "found": 2,  # c(t) and c̄ just before it
    "faded": 1,  # exp(−δ(t−s)) just before it
    "seen": 1,  # tanh(c(t)) just before it
    "before": 1,  # h(t) just before it
}
BACK = {
    "to_cells": 4,  # gradients of c, c̄, δ and o after each event
    "slope": len(BACKWARD),  # slopes of these by the gates that made them; later the gradients of the gates
    "drift": 3,  # slopes of the memory just before an event, and of c just after it, by c, c̄ and δ after the last event
    "by_h": 4,  # slopes of h by these and by o
}


@dataclass(frozen=True)
class StepShape:
    steps: int  # N + 1
    rows: int
    dim: int
    back: bool = True  # False: without gradients

    @property
    def sizes(self) -> dict[str, int]:
        return THERE | BACK if self.back else THERE

    @property
    def numbers(self) -> int:
        return self.steps * self.rows * self.dim * sum(self.sizes.values())


class StepViews:
    """One block of memory as arrays [N + 1, B, …, D], and as the views of each step of a pass."""

    def __init__(self, flat: Tensor, shape: StepShape) -> None:
        unit = shape.steps * shape.rows * shape.dim
        parts = flat[: shape.numbers].split([unit * size for size in shape.sizes.values()])
        arrays = {
            name: part.view(shape.steps, shape.rows, size, shape.dim)
            for part, (name, size) in zip(parts, shape.sizes.items(), strict=True)
        }
        self.gates, self.memories, self.found = arrays["gates"], arrays["memories"], arrays["found"]
        self.faded, self.seen, self.before = arrays["faded"], arrays["seen"][:, :, 0], arrays["before"][:, :, 0]
        if shape.back:
            self.to_cells, self.slope = arrays["to_cells"], arrays["slope"]
            self.drift, self.by_h = arrays["drift"], arrays["by_h"]
        self.keeps = shape.steps <= MOST_STEPS
        self._there: Steps | None = None
        self._back: Steps | None = None

    def there(self) -> Iterator[tuple[Tensor, ...]]:
        """Iterate over the views of the forward pass, from the first step on."""
        if self._there is not None:
            return iter(self._there)
        gates, memories, found = self.gates, self.memories, self.found
        arrays = (
            gates.flatten(2),
            gates[:, :, :CANDIDATE].flatten(2),
            gates[:, :, OUTPUT],
            gates[:, :, ENTER],
            gates[:, :, KEEP],
            gates[:, :, CANDIDATE : CANDIDATE + 1],
            gates[:, :, DECAY:],
            memories,
            memories[:, :, 1:],
            found,
            found[:, :, 0],
            self.faded,
            self.seen,
            self.before,
        )
        steps = _by_step(arrays)
        if not self.keeps:
            return steps
        with torch.inference_mode(False):
            self._there = list(steps)
        return iter(self._there)

    def back(self) -> Iterator[tuple[Tensor, ...]]:
        """Iterate over views of the backward pass, from the last step to the second: first those of the step, then of the one before."""
        if self._back is not None:
            return iter(self._back)
        to_cells, slope = self.to_cells, self.slope
        own = (
            slope[:, :, 1:-1].unflatten(2, (3, 2)),
            to_cells[:, :, None, :2],
            slope[:, :, :: len(BACKWARD) - 1],
            to_cells[:, :, 2:],
            slope.flatten(2),
            to_cells[:, :, :1],
            to_cells[:, :, 1],
            self.gates[:, :, KEEP][:, :, 1],
            self.by_h,
            self.drift,
        )
        before = to_cells, to_cells[:, :, :3], to_cells[:, :, 1]
        steps = _by_step((*(one[1:] for one in own), *(one[:-1] for one in before)), backwards=True)
        if not self.keeps:
            return steps
        self._back = list(steps)
        return iter(self._back)


def _by_step(arrays: tuple[Tensor, ...], backwards: bool = False) -> Iterator[tuple[Tensor, ...]]:
    """Yield the views of each step. For long sequences they are made in blocks of steps, since even a view takes memory."""
    starts = range(0, len(arrays[0]), MOST_STEPS)
    for start in reversed(starts) if backwards else starts:
        some = list(zip(*(array[start : start + MOST_STEPS].unbind() for array in arrays), strict=True))
        yield from reversed(some) if backwards else some


class StepMemory:
    """A block of memory for passes of any shape up to its size."""

    def __init__(self, numbers: int, like: Tensor) -> None:
        self.flat = like.new_empty(numbers)
        self.cuts: dict[StepShape, StepViews] = {}

    def cut(self, shape: StepShape) -> StepViews:
        found = self.cuts.get(shape)
        if found is None:
            while len(self.cuts) >= MOST_SHAPES:
                self.cuts.pop(next(iter(self.cuts)))
            found = self.cuts[shape] = StepViews(self.flat, shape)
        return found


_kept: deque[StepMemory] = deque(
    maxlen=MOST_KEPT
)  # its methods are atomic, so neither threads nor the garbage collector need a lock


class MemoryLease:
    """Exclusive use of a block and its views, as long as this object exists."""

    def __init__(self, shape: StepShape, like: Tensor) -> None:
        with torch.inference_mode(False):  # kept tensors must also work in training
            self.block = _block(shape.numbers, like)
            self.cut = self.block.cut(shape)

    def __del__(self) -> None:
        flat = self.block.flat
        if flat.device.type == "cpu" and flat.numel() <= MOST_NUMBERS:
            _kept.append(self.block)


def _block(numbers: int, like: Tensor) -> StepMemory:
    """Return the last released block if it is large enough; if it is too small, drop it."""
    others, found = [], None
    while _kept and found is None:
        try:
            block = _kept.pop()
        except IndexError:  # another thread was faster
            break
        if (block.flat.dtype, block.flat.device) != (like.dtype, like.device):
            others.append(block)
        elif block.flat.numel() >= numbers:
            found = block
        else:
            break
    _kept.extend(reversed(others))
    return found or StepMemory(numbers, like)
