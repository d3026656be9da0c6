"""Event names in, few groups out: each type by itself where there are few, else functors, and what is rare together."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from foretell.data import Vocabulary
from foretell.terms import split

OTHERS = "others"


@lru_cache(maxsize=1 << 16)
def functor_of(name: str) -> str:
    """`pass` of `pass(a,b)`; a name without arguments is its own."""
    return split(name)[0] if name.endswith(")") else name


@dataclass(frozen=True)
class Grouping:
    kind: Literal["type", "functor"]
    names: tuple[str, ...]  # the most frequent first; `others`, where there are some, last
    has_others: bool

    def place(self, name: str) -> int:
        """The group of an event's name; -1 where it has none."""
        label = name if self.kind == "type" else functor_of(name)
        own = self.names[:-1] if self.has_others else self.names
        if label in own:
            return own.index(label)
        return len(own) if self.has_others else -1

    def places(self, vocabulary: Vocabulary) -> np.ndarray:
        """The group of every type: int64 [K]."""
        return np.asarray([self.place(name) for name in vocabulary.names], dtype=np.int64)


def group_events(vocabulary: Vocabulary, counts: np.ndarray, most: int) -> Grouping:
    """At most `most` groups of the types that occur."""
    used = {vocabulary.names[kind]: int(counts[kind]) for kind in np.flatnonzero(counts).tolist()}
    if len(used) <= most:
        return Grouping("type", tuple(_by_count(Counter(used))), False)
    functors: Counter[str] = Counter()
    for name, count in used.items():
        functors[functor_of(name)] += count
    # One functor would say nothing, and as many as types no more than the types.
    kind: Literal["type", "functor"] = "functor" if 1 < len(functors) < len(used) else "type"
    ranked = _by_count(functors if kind == "functor" else Counter(used))
    if len(ranked) <= most:
        return Grouping(kind, tuple(ranked), False)
    return Grouping(kind, (*ranked[: most - 1], OTHERS), True)


def _by_count(counts: Counter[str]) -> list[str]:
    return sorted(counts, key=lambda name: (-counts[name], name))
