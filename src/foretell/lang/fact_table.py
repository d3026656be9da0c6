"""The facts of a table, and the numbers that some facts have as features."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from foretell.lang.source import Span
from foretell.lang.syntax import LogPlace

Numbers = tuple[float | None, ...]  # the features of one fact, column by column; None: missing


@dataclass(frozen=True)
class FactTable:
    """Facts from a file or a log: distinct rows of normalised constants."""

    functor: str
    arity: int
    rows: list[tuple[str, ...]] = field(repr=False)
    span: Span = field(repr=False)
    path: str  # the path as written in the program
    header: tuple[str, ...]  # the names of the columns
    features: tuple[str, ...] = ()  # columns with numbers, which are not arguments
    numbers: list[Numbers] = field(default_factory=list, repr=False)  # one entry per row; empty without features
    log: LogPlace | None = None  # the place in events whose values are the rows; None: the rows come from a file
    trained: FactTable | None = field(default=None, repr=False)  # the table of training that this one replaces
    waits: bool = False  # True for a table from a log that has no rows yet

    @property
    def source(self) -> str:
        """The source of its rows, as written in the program."""
        return self.path if self.log is None else str(self.log)


def inputs(columns: int) -> int:
    """Return the number of inputs for this many feature columns: the constant 1, and per column the value and whether it is missing."""
    return 1 + 2 * columns


def numbers_of(tables: Iterable[FactTable]) -> dict[str, dict[tuple[str, ...], Numbers]]:
    """Return the features of all rows, by functor and row."""
    found: dict[str, dict[tuple[str, ...], Numbers]] = {}
    for one in tables:
        if one.features:
            found.setdefault(one.functor, {}).update(zip(one.rows, one.numbers, strict=True))
    return found
