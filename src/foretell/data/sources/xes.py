"""XES files (IEEE 1849: `.xes`, `.xes.gz`) → `EventTable`: a trace becomes a sequence, and an event's activity its type.

If the files have several lifecycle transitions for one activity, the type is both (`Check+START`). Other attributes of traces and
events are kept as columns. A nested attribute is called outer/inner, and a list becomes JSON text.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from foretell.data.columns import Attribute
from foretell.data.event_table import EventTable
from foretell.data.files import Mistakes, byte_chunks
from foretell.data.raw import PlaceUnit, Problem, TimeNotes
from foretell.data.read_options import BOUNDS, ColumnMap, ReadOptions
from foretell.data.sequence import Vocabulary
from foretell.data.sources.xes_columns import coded_text, typed_column
from foretell.data.sources.xes_parser import TIME_KEY, CellsByKind, XesColumns, parse
from foretell.data.tables import CodedColumn, TimeColumn, empty_table, event_table
from foretell.data.timestamps import parse_times
from foretell.wording import did_you_mean

logger = logging.getLogger("foretell")

NAME, TRANSITION = "concept:name", "lifecycle:transition"
JOIN = "+"  # separator of activity and transition, as in other tools
CASE = "case:"  # prefix of the keys of traces, to distinguish them from keys of events
TRACE_NAME = f"{CASE}{NAME}"
EXPECTED = "a time such as 2012-03-01T12:00:00+01:00"


def read_xes(
    files: Mapping[str, Path], options: ReadOptions, vocabulary: Vocabulary | None = None
) -> dict[str, EventTable]:
    """Read the files of a data set, by split. Transitions are part of the names in all splits or in none.

    `options.columns` may name other attributes for `event` and `time`, and participants as `arg1`, …. Attributes of traces are called
    `case:KEY`. A given vocabulary decides whether names include transitions.
    """
    logs = {split: XesLog.read(path) for split, path in files.items()}
    given, usual = options.columns, ColumnMap()
    columns = replace(
        given,
        sequence=given.sequence or TRACE_NAME,
        time=TIME_KEY if given.time == usual.time else given.time,
        event=_event_key(list(logs.values()), vocabulary, bool(given.args))
        if given.event == usual.event
        else given.event,
        args=given.args or (),
        # an attribute with the same name has another meaning
        **{role: f"({role})" for role in (*BOUNDS, "metadata") if getattr(given, role) == role},
    )
    return {split: log.table(replace(options, columns=columns)) for split, log in logs.items()}


@dataclass(eq=False)
class XesLog:
    """A `TableSource` for one file. Attributes of traces are columns called `case:KEY`."""

    path: str
    content: XesColumns
    unit: PlaceUnit = "line"

    @classmethod
    def read(cls, path: Path) -> XesLog:
        """Read a plain or gzip file, and collect its structural mistakes."""
        damage = Mistakes()
        content = parse(byte_chunks(path, damage))
        if damage.problems:  # damage also makes the XML incomplete, which is not reported
            content.problems[:] = damage.problems
        return cls(str(path), content)

    def __post_init__(self) -> None:
        self.places = np.array(self.content.event_lines, dtype=np.int64)
        self.traces = np.array(self.content.trace_of, dtype=np.int64)
        self.keys = _keys(self.content.event_cells)
        self.trace_keys = _keys(self.content.trace_cells)
        self.trace_names = _trace_names(self.content, self.path)
        timed = [TIME_KEY] if len(self.content.time_rows) else []
        of_traces = {TRACE_NAME, *(f"{CASE}{key}" for key in self.trace_keys)}
        both = [f"{NAME}{JOIN}{TRANSITION}"] if {NAME, TRANSITION} <= set(self.keys) else []
        self.header = [*timed, *both, *self.keys, *sorted(of_traces)]  # available columns

    def table(self, options: ReadOptions) -> EventTable:
        """Return the events with names from the chosen columns, and the attributes of the traces."""
        content, whole = self.content, options.columns.sequence == TRACE_NAME
        missing = self._missing(options.columns)
        if missing or not len(self.places):
            return empty_table(self.path, "line", [*content.problems, *missing])
        empty = len(content.trace_lines) - len(np.unique(self.traces))
        for count, what in ((content.outside, "events stand outside of traces"), (empty, "traces have no events")):
            if count:
                logger.warning("%s: %d %s and are left out", self.path, count, what)
        found = event_table(self, options)
        place = {name: number for number, name in enumerate(self.trace_names)} if whole else {}
        used = np.array([place[name] for name in found.ids], dtype=np.int64) if whole else None
        columns = {
            key: typed_column(content.trace_cells, key, len(place)) for key in self.trace_keys if whole and key != NAME
        }
        kept = {key: column.take(used) for key, column in columns.items() if column is not None}
        return replace(
            found,
            t_starts=_bound("t_start", kept, found.t_starts),
            t_ends=_bound("t_end", kept, found.t_ends),
            score_from=_bound("score_from", kept, found.score_from),
            sequence_attributes=kept,
            unused_columns=tuple(key for key in found.unused_columns if key in self.keys),
            problems=(*content.problems, *self._without_anything(options.columns), *found.problems),
        )

    def _missing(self, columns: ColumnMap) -> list[Problem]:
        """Return a mistake for each needed attribute that does not occur in the file."""
        if not len(self.places):
            return []
        needed = [columns.event, columns.time, *(columns.args or ()), columns.sequence or TRACE_NAME]
        there = [name for name in self.header if name != TRACE_NAME]
        how = 'others are named with `columns={"event": …, "time": …}`'
        return [
            Problem(
                0,
                f"no event has the attribute {name!r}; found {', '.join(there[:10])}{did_you_mean(name, there, '; ')} ({how})",
            )
            for name in dict.fromkeys(needed)
            if name not in self.header
        ]

    def coded(self, name: str) -> CodedColumn:
        """Return a column as text; `concept:name+lifecycle:transition` is the two columns joined."""
        rows = len(self.traces)
        if name == TRACE_NAME:
            return CodedColumn(self.traces, self.trace_names)
        if name.startswith(CASE) and name not in self.keys:
            column = coded_text(self.content.trace_cells, name.removeprefix(CASE), len(self.content.trace_lines))
            return CodedColumn(column.codes[self.traces], column.values)
        if name == TIME_KEY:
            times, at = self._time_texts(name)
            texts = [""] * rows
            for place, text in zip(at.tolist(), (one for chunk in times for one in chunk), strict=True):
                texts[place] = text
            return CodedColumn(np.arange(rows), texts)
        if name in self.keys:
            return coded_text(self.content.event_cells, name, rows)
        first, second = (coded_text(self.content.event_cells, key, rows) for key in (NAME, TRANSITION))
        pairs, codes = np.unique(first.codes.astype(np.int64) * len(second.values) + second.codes, return_inverse=True)
        each = [divmod(pair, len(second.values)) for pair in pairs.tolist()]
        joined = [JOIN.join(filter(None, (first.values[one], second.values[other]))) for one, other in each]
        return CodedColumn(
            codes, [text if first.values[one] else "" for (one, _), text in zip(each, joined, strict=True)]
        )

    def times(self, name: str, options: ReadOptions) -> TimeColumn:
        """Return the times of the events, parsed in chunks."""
        count = len(self.traces)
        instants, given, wrong = (
            np.zeros(count, dtype=np.int64),
            np.zeros(count, dtype=bool),
            np.zeros(count, dtype=bool),
        )
        texts, rows = self._time_texts(name)
        pattern = options.time_format if "%" in options.time_format else ""
        notes, start = TimeNotes(), 0
        for chunk in texts:
            found = parse_times(chunk, options.zone, pattern)
            at = rows[start : start + len(chunk)]
            instants[at], given[at], wrong[at] = found.instants, True, ~found.valid
            notes = TimeNotes(notes.zoneless + found.zoneless, notes.twice + found.twice, notes.never + found.never)
            start += len(chunk)
        return TimeColumn(instants.astype("datetime64[ns]"), given, wrong, notes, EXPECTED)

    def attribute(self, name: str) -> Attribute | None:
        """Return an attribute of events as a column; None for attributes of traces, which belong to the sequences."""
        return typed_column(self.content.event_cells, name, len(self.traces)) if name in self.keys else None

    def is_integer(self, name: str) -> bool:
        """Always False: integer values in XES are not event types."""
        return False

    def _time_texts(self, name: str) -> tuple[list[list[str]], np.ndarray]:
        """Return the texts of a column of times in chunks, and the indices of the events that have a time."""
        if name == TIME_KEY:
            return [chunk.astype(np.str_).tolist() for chunk in self.content.times], np.array(
                self.content.time_rows, dtype=np.int64
            )
        column = self.coded(name)
        rows = np.flatnonzero(column.where(bool))
        return [[column.values[code] for code in column.codes[rows].tolist()]], rows

    def _without_anything(self, columns: ColumnMap) -> list[Problem]:
        """Return a mistake for each event without name and time, since such a row of a table means an empty sequence."""
        if columns.event not in self.header or columns.time not in self.header:
            return []
        named, timed = self.coded(columns.event).where(bool), np.zeros(len(self.traces), dtype=bool)
        timed[self._time_texts(columns.time)[1]] = True
        said = f"event: neither {columns.event} nor {columns.time}"
        return [Problem(line, said) for line in self.places[~named & ~timed].tolist()]


def _bound(name: str, attributes: dict[str, Attribute], given: np.ndarray | None) -> np.ndarray | None:
    """Return a bound of all sequences from the traces' attribute `name`, if it is a date, and remove this attribute."""
    column = attributes.get(name)
    if given is not None or column is None or column.values.dtype.kind != "M":
        return given
    return attributes.pop(name).values


def _keys(cells: CellsByKind) -> list[str]:
    """Return the names of all attributes, sorted."""
    return sorted({key for found in cells.values() for key in found})


def _trace_names(content: XesColumns, path: str) -> list[str]:
    """Return a unique name per trace. A trace without a name gets its number; a repeated name gets a suffix, NAME#2."""
    column = coded_text(content.trace_cells, NAME, len(content.trace_lines))
    made: dict[str, None] = {}
    again = 0
    for number, code in enumerate(column.codes.tolist()):
        name = first = column.values[code] or str(number)
        repeat = 1
        while name in made:
            repeat += 1
            name = f"{first}#{repeat}"
        again += repeat > 1
        made[name] = None
    if again:
        logger.warning("%s: %d traces have the name of one before them; they get a number: NAME#2", path, again)
    return list(made)


def _event_key(logs: Sequence[XesLog], vocabulary: Vocabulary | None, participants: bool) -> str:
    """Return the column that names events: the activity, joined with its transition if an activity has several. Without
    activities, it is the key of a classifier."""
    if not any(NAME in log.keys for log in logs):
        return _classifier(logs)
    both = f"{NAME}{JOIN}{TRANSITION}"
    pairs = {pair for log in logs if both in log.header for pair in _pairs(log)}
    activities = {name for name, _ in pairs}
    joined = len({name for name, step in pairs if step}) < len({pair for pair in pairs if pair[1]})
    if vocabulary is not None and pairs and not participants:
        # a short file may have fewer transitions than the training data, so the form with more known names is used
        known = sum(name in vocabulary for name in activities)
        joined = sum(JOIN.join(filter(None, pair)) in vocabulary for pair in pairs) > known
    if joined and vocabulary is None:
        how = f'`columns={{"event": "{NAME}"}}` takes the activity alone'
        logger.warning(
            "%s: an activity has several lifecycle transitions, so events are named by both; %s", logs[0].path, how
        )
    return both if joined else NAME


def _pairs(log: XesLog) -> set[tuple[str, str]]:
    """Return all (activity, transition) pairs of a file."""
    first, second = log.coded(NAME), log.coded(TRANSITION)
    found = np.unique(first.codes.astype(np.int64) * len(second.values) + second.codes)
    each = (divmod(pair, len(second.values)) for pair in found.tolist())
    return {(first.values[one], second.values[other]) for one, other in each if first.values[one]}


def _classifier(logs: Sequence[XesLog]) -> str:
    """Return the key of the first usable classifier, for events without an activity; the activity's key if there is none."""
    for log in logs:
        for name, written in log.content.classifiers.items():
            if written.strip("'\"") in log.keys:
                logger.warning(
                    "%s: events have no %s; the classifier %r names them, by %s", log.path, NAME, name, written
                )
                return written.strip("'\"")
    return NAME
