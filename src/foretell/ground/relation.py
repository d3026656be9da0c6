"""The facts of one functor that are true now, indexed by the arguments that joins ask for.

A bucket holds the facts with one key; its version moves whenever it changes, so that the result of a join can be kept for as long as
every bucket it read is the same.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any

from foretell.ground.symbols import FactKey

SWEEP = 10_000  # buckets of an index, before empty ones are looked for
Getter = Callable[[Any], Any]  # from a sequence of numbers to a key: one number as it is, several as a tuple


def getter(places: tuple[int, ...]) -> Getter:
    return itemgetter(*places) if places else _nothing


def _nothing(_: Any) -> tuple[()]:
    return ()


class Bucket:
    __slots__ = ("facts", "version", "watchers")

    def __init__(self) -> None:
        self.facts: dict[int, None] = {}
        self.version = 0
        self.watchers: dict[int, None] = {}  # active proofs that need this bucket to stay empty


class Index:
    """Buckets by the arguments at some positions. Looking up a key that has none makes an empty one, which can be watched."""

    __slots__ = ("buckets", "key_of", "sweep_at")

    def __init__(self, positions: tuple[int, ...]) -> None:
        self.key_of = getter(
            tuple(1 + position for position in positions)
        )  # in front of a fact's arguments is its functor
        self.buckets: dict[Any, Bucket] = {}
        self.sweep_at = SWEEP

    def bucket(self, key: Any) -> Bucket:
        found = self.buckets.get(key)
        if found is None:
            if len(self.buckets) >= self.sweep_at:
                self._sweep()
            found = self.buckets[key] = Bucket()
        return found

    def _sweep(self) -> None:
        """Drop what is empty and unwatched; a new version tells whoever remembers having read it."""
        for key in [
            key for key, bucket in self.buckets.items() if not bucket.facts and not bucket.watchers and key != ()
        ]:
            self.buckets.pop(key).version += 1
        self.sweep_at = max(SWEEP, 2 * len(self.buckets))

    def insert(self, fact: int, fact_key: FactKey) -> None:
        bucket = self.bucket(self.key_of(fact_key))
        bucket.facts[fact] = None
        bucket.version += 1

    def delete(self, fact: int, fact_key: FactKey) -> None:
        key = self.key_of(fact_key)
        bucket = self.buckets[key]
        del bucket.facts[fact]
        bucket.version += 1
        if not bucket.facts and not bucket.watchers and key != ():
            del self.buckets[key]  # whoever read it sees by its version that it changed


class Relation:
    def __init__(self, is_static: bool) -> None:
        self.is_static = is_static  # no event can ever change it
        self.indexes: dict[tuple[int, ...], Index] = {}
        self._list: list[Index] = []
        self.facts = self.index(()).bucket(())

    def index(self, positions: tuple[int, ...], keys: list[FactKey] | None = None) -> Index:
        found = self.indexes.get(positions)
        if found is None:
            found = self.indexes[positions] = Index(positions)
            if self._list:
                assert keys is not None, "an index over present facts needs their keys"
                for fact in self.facts.facts:
                    found.insert(fact, keys[fact])
            self._list.append(found)
        return found

    def insert(self, fact: int, key: FactKey) -> None:
        for index in self._list:
            index.insert(fact, key)

    def delete(self, fact: int, key: FactKey) -> None:
        for index in self._list:
            index.delete(fact, key)
