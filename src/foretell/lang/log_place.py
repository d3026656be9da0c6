"""`from_log(buy, 1)`: a place in events whose values are rows of a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LogPlace:
    """`from_log(buy, 1)`: the values of this argument, counted from 1, of such events."""

    functor: str
    place: int

    def __str__(self) -> str:
        return f"from_log({self.functor}, {self.place})"

    def values(self, events: Iterable[tuple[str, Sequence[str]]]) -> list[str]:
        """The values of the argument in events (functor and arguments), each once, in order of occurrence."""
        found = (args[self.place - 1] for name, args in events if name == self.functor and len(args) >= self.place)
        return list(dict.fromkeys(found))
