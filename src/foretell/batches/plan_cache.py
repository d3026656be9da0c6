"""Plans that were made, found again by what was asked; those not asked for longest are forgotten once there are too many slots in them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

KEPT_SLOTS = 6_000_000  # in all: some 200 bytes each


@dataclass(frozen=True, eq=False)
class QueryPlan:
    """What the events of a batch and the states of its queries come to: a plan, and where times are taken from and answers go."""

    plan: Any  # a `Frame`, of the kind that the model's network applies
    source: Tensor  # int64 [points]: in [0, all events' times, all queries' times]
    event: Tensor  # int64 [events]: among the batch's, row after row
    row: Tensor  # int64 [E]: sequence of each possible event
    column: Tensor  # int64 [E]: and its query
    query: Tensor  # int64 [E]: the two as one number


class Plans:
    def __init__(self) -> None:
        self.building = (
            threading.Lock()
        )  # threads ask about different pieces of a batch, but names are met by one at a time
        self._lock = threading.Lock()
        self._known: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._slots = 0

    def __deepcopy__(self, memo: dict[int, object]) -> Plans:
        """A copy of a model may come to other parameters, and so to other plans."""
        return Plans()

    def __reduce__(self) -> tuple[type[Plans], tuple[()]]:
        return Plans, ()

    def __len__(self) -> int:
        return len(self._known)

    def get(self, key: Hashable) -> Any:
        """None: it is not known, or no more."""
        with self._lock:
            found = self._known.get(key)
            if found is None:
                return None
            self._known.move_to_end(key)
            return found[0]

    def keep(self, key: Hashable, made: Any, slots: int) -> None:
        with self._lock:
            if key not in self._known:
                self._known[key] = made, slots
                self._slots += slots
            while self._slots > KEPT_SLOTS:
                _, (_, gone) = self._known.popitem(last=False)
                self._slots -= gone

    def clear(self) -> None:
        with self._lock:
            self._known.clear()
            self._slots = 0
