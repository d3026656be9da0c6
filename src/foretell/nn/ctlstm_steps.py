"""The memory that a continuous-time LSTM works in, cut up for its steps: sizes in, views of every step out, kept from one call to the next.

A pass there and back writes 33 numbers for each dimension of each event and looks at 27 pieces of every step. Fetching that memory from
the system and cutting it up takes as long as a third of the work. On a CPU it is therefore kept, cut up, for the next pass, once nothing
needs what was written there. A captured graph has its memory for itself, so that on a GPU nothing is kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

# The gates in the order in which they are kept: five with σ, in pairs those of the memory and of its target; then tanh; then softplus.
GATES = ("output", "input", "target_input", "forget", "target_forget", "candidate", "decay")
OUTPUT, ENTER, KEEP, CANDIDATE, DECAY = 0, slice(1, 3), slice(3, 5), 5, 6
# The same on the way back: between the two that act on their own, δ and o, the candidate comes twice, by c and by c̄.
BACKWARD = (6, 1, 2, 3, 4, 5, 5, 0)
MOST_KEPT, MOST_NUMBERS = 4, 1 << 26  # blocks of memory, and their size
MOST_SHAPES, MOST_STEPS = 16, 256  # ways of cutting a block up that are kept, and steps that are cut up at a time

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
    "slope": len(BACKWARD),  # by how much these move with the gates that made them; then the gradients of the gates
    "drift": 3,  # how the memory just before an event, and c just after it, moves with c, c̄ and δ after the last
    "by_h": 4,  # how h does with these and with o
}


@dataclass(frozen=True)
class StepShape:
    steps: int  # N + 1
    rows: int
    dim: int
    back: bool = True  # False: nothing will be learned

    @property
    def sizes(self) -> dict[str, int]:
        return THERE | BACK if self.back else THERE

    @property
    def numbers(self) -> int:
        return self.steps * self.rows * self.dim * sum(self.sizes.values())


class StepViews:
    """One block of memory as arrays [N + 1, B, …, D], and as what the steps of a pass look at."""

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
        """From the first step on."""
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
        """From the last step to the second; of each what it has itself and, at the end, what the one before it has."""
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
    """What the arrays hold of each step; of long sequences not all at once, since even a view takes memory."""
    starts = range(0, len(arrays[0]), MOST_STEPS)
    for start in reversed(starts) if backwards else starts:
        some = list(zip(*(array[start : start + MOST_STEPS].unbind() for array in arrays), strict=True))
        yield from reversed(some) if backwards else some


class StepMemory:
    """Memory for passes of any shape up to its size."""

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
)  # its methods are atomic: threads, and the garbage collector, need no lock


class MemoryLease:
    """A cut of a block that nobody else uses as long as this is held."""

    def __init__(self, shape: StepShape, like: Tensor) -> None:
        with torch.inference_mode(False):  # what is kept must serve for training, too
            self.block = _block(shape.numbers, like)
            self.cut = self.block.cut(shape)

    def __del__(self) -> None:
        flat = self.block.flat
        if flat.device.type == "cpu" and flat.numel() <= MOST_NUMBERS:
            _kept.append(self.block)


def _block(numbers: int, like: Tensor) -> StepMemory:
    """The last one that was given back, if it is large enough; one that is too small makes room for it."""
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
