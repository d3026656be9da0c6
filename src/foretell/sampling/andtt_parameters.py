"""The matrices of an A-NDTT's rules in float64, all of one size: what is shorter than the longest embedding is filled up with zeros.

Zeros stay zeros on their way through the network, so that facts of different dimensions are rows of one table. Rows of banks are
numbered as they are asked for; names that training never met get the parameters that they would have started with.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from foretell.models.andtt import ANDTT
from foretell.models.andtt_network import Network
from foretell.plan.book import Family


class Bank:
    """Rows of one shape, more of which may come."""

    def __init__(self, shape: tuple[int, ...], device: torch.device) -> None:
        self._rows = torch.zeros(0, *shape, dtype=torch.float64, device=device)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def rows(self) -> Tensor:
        return self._rows[: self._count]

    def take(self, more: Tensor) -> range:
        """Numbers of rows that are added."""
        first, last = self._count, self._count + len(more)
        if last > len(self._rows):
            room = self._rows.new_zeros(max(last, 2 * len(self._rows), 64), *self._rows.shape[1:])
            room[:first] = self._rows[:first]
            self._rows = room
        self._rows[first:last] = more
        self._count = last
        return range(first, last)


@dataclass(frozen=True)
class Deduction:
    """What one `r` does to the conditions of a proof."""

    vector: int  # row of `vectors`
    blocks: tuple[int, ...]  # rows of `blocks`, one for each embedded condition
    beta: float


class Parameters:
    def __init__(self, model: ANDTT) -> None:
        self.network: Network = copy.deepcopy(model.network).double().eval()
        self.book, self.layout = self.network.book, model.layout
        self.grounding = model.histories.grounding
        self._start_dtype = model.dtype
        device = model.device
        self.device = device
        self.layers, self.time_dim = self.network.layers, self.network.time.dim
        self.dim = max(self.layout.dims, default=1)
        self.conditions = max(
            (len(one.dims) for one in self.layout.rules if one is not None and one.kind == "add"), default=0
        )
        self.vectors, self.blocks = Bank((self.dim,), device), Bank((self.dim, self.dim), device)
        past = 1 + self.time_dim + self.conditions * self.dim
        self.additions = [Bank((1 + self.time_dim + 2 * self.dim, past), device) for _ in range(self.layers)]
        self._arrays = self.network.named_arrays()
        self._deductions: dict[int, Deduction] = {}
        self._added: dict[int, int] = {}
        with torch.no_grad():
            self.w = torch.zeros(len(model.functors), 1 + self.dim, dtype=torch.float64, device=device)
            for number, w in enumerate(model.w):
                self.w[number, : len(w)] = w.double()
            self.tau = model.log_tau.detach().double().exp()
        self.functors = {name: number for number, name in enumerate(model.functors)}
        self.time_scale = model.time_scale

    def deduction(self, group: int) -> Deduction:
        found = self._deductions.get(group)
        if found is None:
            family, number, of_beta, which = self.book.of_group(self.grounding, group)
            beta = 1.0 if of_beta is None else float(self._array(f"deduce.{of_beta.names[which]}.beta"))
            vector, blocks = self._deduced(group, family, number)
            found = self._deductions[group] = Deduction(vector, blocks, beta)
        return found

    def _deduced(self, group: int, family: Family, number: int) -> tuple[int, tuple[int, ...]]:
        """Groups of one rule have their blocks at the same columns; another rule may share the name and cut it up differently."""
        rule = self.grounding.groups[group][0]
        written = self.layout.rules[rule]
        assert written is not None
        whole = self._array(f"deduce.{family.names[number]}.W")
        vector = whole.new_zeros(1, self.dim)
        vector[0, : len(whole)] = whole[:, 0]
        blocks = whole.new_zeros(len(written.dims), self.dim, self.dim)
        first = 1
        for place, size in enumerate(written.dims):
            blocks[place, : len(whole), :size] = whole[:, first : first + size]
            first += size
        return self.vectors.take(vector)[0], tuple(self.blocks.take(blocks))

    def addition(self, group: int) -> int:
        """The row of a group in the banks of additions. It makes a folded key `[1; time; embedding]` and a value of `[1; time(s); …]`."""
        found = self._added.get(group)
        if found is None:
            family, number, _, _ = self.book.of_group(self.grounding, group)
            written = self.layout.rules[self.grounding.groups[group][0]]
            assert written is not None
            name, time, dim = family.names[number], 1 + self.time_dim, self.dim
            size = self.layout.dimension(written.head)
            row = -1
            for layer, bank in enumerate(self.additions, start=1):
                v, k, q = (self._array(f"add.{name}.{layer}.{letter}") for letter in "VKQ")
                folded = q.T @ k / math.sqrt(max(len(k), 1))
                made = folded.new_zeros(1, time + 2 * dim, time + self.conditions * dim)
                for matrix, first, low, high in (
                    (folded, 0, 0, time),
                    (folded, time, time, time + size),
                    (v, time + dim, 0, size),
                ):
                    made[0, first : first + high - low, :time] = matrix[low:high, :time]
                    column = time
                    for place, width in enumerate(written.dims):
                        into = slice(time + place * dim, time + place * dim + width)
                        made[0, first : first + high - low, into] = matrix[low:high, column : column + width]
                        column += width
                row = bank.take(made)[0]
            found = self._added[group] = row
        return found

    def grow(self) -> None:
        """Parameters for names that the book has met since."""
        self.network.grow(self._start_dtype, self.device)
        self.network.double()  # as the model's own, which start in its own precision
        self._arrays = self.network.named_arrays()

    def _array(self, name: str) -> Tensor:
        found = self._arrays.get(name)
        if found is None:
            self.grow()
            found = self._arrays[name]
        return found.detach().double()
