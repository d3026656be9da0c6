"""Options for reading a file's columns and times, set by the user, a card or a run."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from foretell.data.clock import Clock
from foretell.data.covariates import CovariateNames, check_names
from foretell.data.remarks import kind_of
from foretell.data.timestamps import check_format, find_zone, parse_time
from foretell.errors import DataError, ForetellError
from foretell.wording import did_you_mean

log = logging.getLogger("foretell")

BOUNDS = ("t_start", "t_end", "score_from")  # columns with one time per sequence
ROLES = ("sequence", "time", "event", *BOUNDS, "metadata")
START_RULES = ("first-event", "day", "week", "month")
Unknown = Literal["error", "skip", "other"]


@dataclass(frozen=True)
class ColumnMap:
    """The names of the columns of a long table. With `args=None`, the arguments are the columns `arg1`, `arg2`, … that exist.

    With `sequence=None`, it is the column `sequence`, or one with a usual name such as `case_id`. Without such a column, or with
    `sequence=""`, the whole table is one sequence. `time` and `event` also match usual names.
    """

    sequence: str | None = None
    time: str = "time"
    event: str = "event"
    t_start: str = "t_start"
    t_end: str = "t_end"
    score_from: str = "score_from"
    metadata: str = "metadata"
    args: tuple[str, ...] | None = None

    @classmethod
    def parse(cls, text: str) -> ColumnMap:
        """Parse text such as `sequence=patient,time=when,event=code,arg1=room`."""
        problems: list[str] = []
        given: dict[str, str] = {}
        for part in filter(None, (piece.strip() for piece in text.split(","))):
            role, equals, column = (piece.strip() for piece in part.partition("="))
            is_argument = role.startswith("arg") and role[3:].isdecimal()
            if not equals or not (column or role == "sequence"):
                problems.append(f"columns: {part!r} is not of the form part=column, as in time=when")
            elif role not in ROLES and not is_argument:
                expected = f"{', '.join(ROLES)} or arg1, arg2, …{did_you_mean(role, ROLES, before='; ')}"
                problems.append(f"columns: no part {role!r}; expected {expected}")
            elif given.setdefault(role, column) != column:
                problems.append(f"columns: {role} is given twice")
        numbers = sorted(int(role[3:]) for role in given if role.startswith("arg"))
        if numbers != list(range(1, len(numbers) + 1)):
            problems.append("columns: arguments are numbered arg1, arg2, … without gaps")
        if problems:
            raise DataError(problems)
        args = tuple(given.pop(f"arg{number}") for number in numbers)
        return cls(**given, args=args or None)

    @property
    def bounds(self) -> list[str]:
        """The names of the columns for `BOUNDS`, in that order."""
        return [self.t_start, self.t_end, self.score_from]

    def arguments(self, header: list[str]) -> tuple[str, ...]:
        """Return the argument columns of a table with this header."""
        if self.args is not None:
            return self.args
        found: list[str] = []
        while f"arg{len(found) + 1}" in header:
            found.append(f"arg{len(found) + 1}")
        return tuple(found)


_COLUMNS = re.compile(r"`columns=\{([^`]*)\}`")
_COLUMN = re.compile(r'"(\w+)": ')


def for_frames(sentence: str) -> str:
    """Reword a message for users of data frames: columns are named by keywords, `time=…`, not by `columns={"time": …}`."""
    return _COLUMNS.sub(lambda found: "`" + _COLUMN.sub(r"\1=", found[1]) + "`", sentence)


@dataclass(frozen=True)
class ReadOptions:
    """Options for reading a file; "" means not set."""

    columns: ColumnMap = ColumnMap()
    time_format: str = ""  # auto, iso, number, unix-s, unix-ms, unix-us, unix-ns, or a pattern with %
    timezone: str = ""  # the zone of times without one, and of output
    start: str = ""  # when windows start: first-event, day, week, month, or a time
    observed_until: str = ""  # the end of every sequence without one, such as the time of export
    sorted: bool = False  # True: rows of a sequence out of order are an error, even with timestamps
    terms: bool = False  # True: names with parentheses must be terms
    unknown: Unknown = "error"  # what to do with event types outside the given vocabulary
    covariates: tuple[str, ...] = ()  # covariates of events, such as `amount` or `channel:category`
    static: tuple[str, ...] = ()  # covariates of sequences
    clock: Clock | None = None  # the clock of a run, whose unit is used
    keywords: bool = False  # True: as for frames, columns are named by keywords, and messages are shown once
    told: set[str] = field(default_factory=set, repr=False, compare=False)  # messages already shown
    kept: list[tuple[str, str]] | None = field(
        default=None, repr=False, compare=False
    )  # receives messages instead of the log

    def __post_init__(self) -> None:
        if self.time_format:
            check_format(self.time_format)
        find_zone(self.zone)
        if self.start and self.start not in START_RULES and parse_time(self.start, self.zone) is None:
            hint = did_you_mean(self.start, START_RULES, before="; ")
            expected = f"{', '.join(START_RULES)}, or a time such as 2012-03-01"
            raise ForetellError(f"`start={self.start!r}`: expected {expected}{hint}")
        if self.observed_until and self.until_number is None and parse_time(self.observed_until, self.zone) is None:
            expected = "a time such as 2012-03-01T12:00, or a number where times are numbers"
            raise ForetellError(f"`observed_until={self.observed_until!r}`: expected {expected}")
        if self.unknown not in get_args(Unknown):
            raise ForetellError(f"`unknown={self.unknown!r}`: expected {', '.join(get_args(Unknown))}")
        check_names(self.covariate_names)

    @property
    def covariate_names(self) -> CovariateNames:
        """The names of the covariates."""
        return CovariateNames(self.covariates, self.static)

    def tell(self, path: object, sentence: str) -> None:
        """Log an assumption about a source, unless an earlier message differs only in its numbers."""
        if self.kept is not None:
            self.kept.append((str(path), sentence))
            return
        kind = kind_of(sentence)
        if kind not in self.told:
            log.warning("%s: %s", path, for_frames(sentence) if self.keywords else sentence)
        if self.keywords:
            self.told.add(kind)

    @property
    def zone(self) -> str:
        """The time zone of times without one."""
        return self.timezone or "UTC"

    @property
    def until_number(self) -> float | None:
        """`observed_until` as a number, or None if it is no plain number."""
        try:
            return float(self.observed_until)
        except ValueError:
            return None


def read_options(columns: ColumnMap | Mapping[str, str] | None, options: ReadOptions | None) -> ReadOptions:
    """Return the options, with `columns` in place of their columns if given."""
    options = ReadOptions() if options is None else options
    if columns is None:
        return options
    if not isinstance(columns, ColumnMap):
        columns = ColumnMap.parse(",".join(f"{part}={name}" for part, name in columns.items()))
    return replace(options, columns=columns)
