"""The facts of a table file, and the numbers that some have beside their arguments."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from foretell.lang.source import Span
from foretell.lang.syntax import LogPlace

Numbers = tuple[float | None, ...]  # of one fact, column by column; None is missing


@dataclass(frozen=True)
class FactTable:
    """Facts that come from a file or a log: one row each, constants in their one spelling, no row twice."""

    functor: str
    arity: int
    rows: list[tuple[str, ...]] = field(repr=False)
    span: Span = field(repr=False)
    path: str  # as the program writes it
    header: tuple[str, ...]  # names of the columns
    features: tuple[str, ...] = ()  # columns that are no arguments but numbers
    numbers: list[Numbers] = field(default_factory=list, repr=False)  # of each row; empty without features
    log: LogPlace | None = None  # whose values the rows are
    trained: FactTable | None = field(default=None, repr=False)  # what it stands in place of, where it has other rows
    waits: bool = False  # for the log: its rows are not known yet

    @property
    def source(self) -> str:
        """The source of its rows, as written in the program."""
        return self.path if self.log is None else str(self.log)


def inputs(columns: int) -> int:
    """What so many columns give a matrix to multiply: the constant 1, each number (0 where it is missing), and for each whether it is."""
    return 1 + 2 * columns


def numbers_of(tables: Iterable[FactTable]) -> dict[str, dict[tuple[str, ...], Numbers]]:
    """The numbers of all rows of each functor with features, in all its tables."""
    found: dict[str, dict[tuple[str, ...], Numbers]] = {}
    for one in tables:
        if one.features:
            found.setdefault(one.functor, {}).update(zip(one.rows, one.numbers, strict=True))
    return found
