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
    """Immutable: copies of a sequence are the same object until one of them gets an event."""

    state: DatabaseState
    past: Any  # in the model's own form
    last: float  # the time of its last event; 0: there is none
    living: LivingAdditions = NOTHING_LIVES  # additions that will expire
    start: float = 0.0  # the moment at time 0, if the model follows a calendar


class RuleQuery(Protocol):
    """Computes embeddings from pasts."""

    def prepare(
        self, tables: SlotTables, slots: Sequence[tuple[LocalPlan, int]], sequences: Sequence[SampledSequence]
    ) -> Any:
        """Prepare sequences for evaluation together; `slots` has for each its plan and the number of its first slot."""

    def size(self, prepared: Any) -> int:
        """Return the number of values computed per time piece."""
        ...

    def embeddings(self, prepared: Any, middle: Tensor, half: Tensor, degree: int) -> list[Embeddings]:
        """Return the embeddings of all slots on windows [sequences, P], layer by layer, as rows of tables (`slot_tables.py`)."""
        ...

    def head(self, dim: int, deduced: Sequence[Tensor], on: BoundedRows) -> Tensor:
        """Return the top layer of events that no event added, from deductions for them in each layer; all are rows of tables."""
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
    )  # with expiries: the column of each event so far

    @property
    def expires(self) -> bool:
        """Whether additions expire. Then a column always stands for the same event, since states may change before a draw is appended."""
        return self.states.histories.expires

    @property
    def has_products(self) -> bool:
        return bool(self.states.grounding.products)

    def column(self, events: Sequence[int]) -> np.ndarray:
        """Return the columns of a state's possible events."""
        if not self.expires:
            return np.arange(len(events))
        return np.asarray([self.columns.setdefault(one, len(self.columns)) for one in events], dtype=np.int64)

    def event(self, state: DatabaseState, column: int) -> int:
        """Return the fact of a column."""
        return list(self.columns)[column] if self.expires else self.states.event(state, column)
