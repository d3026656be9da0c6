"""What walks of all models of rules take from their model: matrices in float64, all of one size, and intensities.

What is shorter than the longest embedding is filled up with zeros, which stay zeros on their way through the network, so that facts of
different dimensions are rows of one table. Rows of banks are numbered as they are asked for; names that training never met get the
parameters that they would have started with.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from foretell.plan.parameters import ParameterFamily
from foretell.sampling.rules.local_plan import DeductionRows

if TYPE_CHECKING:
    from foretell.models.rules.rule_model import RuleModel


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


class RuleParameters:
    def __init__(self, model: RuleModel) -> None:
        self.rules = copy.deepcopy(model.rule_network).double().eval()
        self.book, self.layout = self.rules.book, model.layout
        self.grounding = model.histories.grounding
        self._start_dtype = model.dtype
        self.device = model.device
        self.dim = max(self.layout.dims, default=1)
        self.conditions = max(
            (len(one.dims) for one in self.layout.rules if one is not None and one.kind == "add"), default=0
        )
        self.vectors, self.blocks = Bank((self.dim,), self.device), Bank((self.dim, self.dim), self.device)
        self._arrays = self.rules.named_arrays()
        self._deductions: dict[int, DeductionRows] = {}
        with torch.no_grad():
            self.w = torch.zeros(len(model.functors), 1 + self.dim, dtype=torch.float64, device=self.device)
            for number, w in enumerate(model.w):
                self.w[number, : len(w)] = w.double()
            self.tau = model.log_tau.detach().double().exp()
        self.functors = {name: number for number, name in enumerate(model.functors)}
        self.time_scale = model.time_scale

    def deduction(self, group: int) -> DeductionRows:
        found = self._deductions.get(group)
        if found is None:
            family, number, of_beta, which = self.book.of_group(self.grounding, group)
            beta = 1.0 if of_beta is None else float(self.array(f"deduce.{of_beta.names[which]}.beta"))
            vector, blocks = self._deduced(group, family, number)
            found = self._deductions[group] = DeductionRows(vector, blocks, beta)
        return found

    def _deduced(self, group: int, family: ParameterFamily, number: int) -> tuple[int, tuple[int, ...]]:
        """Groups of one rule have their blocks at the same columns; another rule may share the name and cut it up differently."""
        rule = self.grounding.groups[group][0]
        written = self.layout.rules[rule]
        assert written is not None
        whole = self.array(f"deduce.{family.names[number]}.W")
        vector = whole.new_zeros(1, self.dim)
        vector[0, : len(whole)] = whole[:, 0]
        blocks = whole.new_zeros(len(written.dims), self.dim, self.dim)
        first = 1
        for place, size in enumerate(written.dims):
            blocks[place, : len(whole), :size] = whole[:, first : first + size]
            first += size
        return self.vectors.take(vector)[0], tuple(self.blocks.take(blocks))

    def grow(self) -> None:
        """Parameters for names that the book has met since."""
        self.rules.grow(self._start_dtype, self.device)
        self.rules.double()  # as the model's own, which start in its own precision
        self._arrays = self.rules.named_arrays()

    def array(self, name: str) -> Tensor:
        found = self._arrays.get(name)
        if found is None:
            self.grow()
            found = self._arrays[name]
        return found.detach().double()
