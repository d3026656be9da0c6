"""The matrices of an A-NDTT's additions in float64, with keys and queries folded into one, and filled up to one size."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from foretell.models.rules.andtt_network import Network
from foretell.models.rules.sampler_parameters import Bank, RuleParameters

if TYPE_CHECKING:
    from foretell.models.rules.andtt import ANDTT


class Parameters(RuleParameters):
    def __init__(self, model: ANDTT) -> None:
        super().__init__(model)
        assert isinstance(self.rules, Network)
        self.network = self.rules
        self.layers, self.time_dim = self.network.layers, self.network.time.dim
        past = 1 + self.time_dim + self.conditions * self.dim
        self.additions = [Bank((1 + self.time_dim + 2 * self.dim, past), self.device) for _ in range(self.layers)]
        self._added: dict[int, int] = {}

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
                v, k, q = (self.array(f"add.{name}.{layer}.{letter}") for letter in "VKQ")
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
