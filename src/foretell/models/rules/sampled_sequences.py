"""Sequences sampled by models of rules, and the data that all sequences of one sampler share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary

import numpy as np
from torch import Tensor

from foretell.models.rules.rule_network import Embeddings
from foretell.models.rules.sampler_parameters import RuleParameters
from foretell.models.rules.slot_tables import BoundedRows, SlotTables
from foretell.sampling.rules.living import LivingAdditions
from foretell.sampling.rules.states import DatabaseState, DatabaseStates, LocalPlan

if TYPE_CHECKING:
    from foretell.models.rules.product_blocks import StateProducts

NOTHING_LIVES = LivingAdditions()


@dataclass(frozen=True, eq=False)
class SampledSequence:
    """Never changes: copies of a sequence are the same object until one of them goes on."""

    state: DatabaseState
    past: Any  # what the model keeps of it
    last: float  # when its last event was; 0: there is none
    living: LivingAdditions = NOTHING_LIVES  # where additions expire
    start: float = 0.0  # the moment of time 0, where the model follows the calendar


class RuleQuery(Protocol):
    """How embeddings follow from pasts."""

    def prepare(
        self, tables: SlotTables, slots: Sequence[tuple[LocalPlan, int]], sequences: Sequence[SampledSequence]
    ) -> Any:
        """Sequences side by side: of each its plan and the number of its first slot."""

    def size(self, prepared: Any) -> int:
        """Numbers that are worked on for each piece of time."""
        ...

    def embeddings(self, prepared: Any, middle: Tensor, half: Tensor, degree: int) -> list[Embeddings]:
        """Embeddings of all slots on windows [sequences, P], layer by layer: rows of tables (`slot_tables.py`)."""
        ...

    def head(self, dim: int, deduced: Sequence[Tensor], on: BoundedRows) -> Tensor:
        """The top layer of events that no event ever added, from what is deduced for them in each layer: all are rows of tables."""
        ...


@dataclass(frozen=True, eq=False)
class RuleContext:
    """The data that all sequences of one sampler share."""

    states: DatabaseStates
    parameters: RuleParameters
    query: RuleQuery
    tables: WeakKeyDictionary[LocalPlan, SlotTables]
    products: WeakKeyDictionary[LocalPlan, StateProducts] = field(default_factory=WeakKeyDictionary, kw_only=True)
    columns: dict[int, int] = field(
        default_factory=dict, kw_only=True
    )  # where additions expire: of each event met so far

    @property
    def expires(self) -> bool:
        """A column is then one event for good, since states change between a draw and its append; else a place in its state."""
        return self.states.histories.expires

    @property
    def has_products(self) -> bool:
        return bool(self.states.grounding.products)

    def column(self, events: Sequence[int]) -> np.ndarray:
        """The columns of a state's possible events."""
        if not self.expires:
            return np.arange(len(events))
        return np.asarray([self.columns.setdefault(one, len(self.columns)) for one in events], dtype=np.int64)

    def event(self, state: DatabaseState, column: int) -> int:
        """The fact of a column."""
        return list(self.columns)[column] if self.expires else self.states.event(state, column)
