"""`from_log(buy, 1)`: an argument of events, whose values are the rows of a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LogPlace:
    """`from_log(buy, 1)`: an event functor, and the place of the argument, counted from 1."""

    functor: str
    place: int

    def __str__(self) -> str:
        return f"from_log({self.functor}, {self.place})"

    def values(self, events: Iterable[tuple[str, Sequence[str]]]) -> list[str]:
        """Return the distinct values of the argument in events (functor, arguments), in order of occurrence."""
        found = (args[self.place - 1] for name, args in events if name == self.functor and len(args) >= self.place)
        return list(dict.fromkeys(found))
