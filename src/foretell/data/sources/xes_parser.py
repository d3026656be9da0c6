"""XES text → traces, events and attributes as flat columns, without building a tree.

In: chunks of bytes. Out: `XesColumns`. expat calls a handler for each element; this is the hot path, so an attribute takes only two
lookups and two appends. Entity declarations are refused, so that nothing is expanded or fetched.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from xml.parsers import expat

import numpy as np

from foretell.data.raw import Problem

TIME_KEY = "time:timestamp"
KINDS = frozenset({"string", "date", "int", "float", "boolean", "id"})
GROUPS = frozenset({"list", "container", "values"})  # tags that contain other attributes and have no value
MOST_KEYS = 2_000  # the largest number of distinct attribute names in a log
DEEPEST = 64
LONGEST_TAG = 64 * 1024 * 1024  # bytes of one tag, which expat keeps in memory
LONGEST_TIME = 64  # characters of a time that are read
TIMES_AT_ONCE = 65_536  # chunk size in which texts of times are converted to fixed-width bytes


class XmlError(Exception):
    """The XML uses a feature that event logs do not need, and that is refused."""


@dataclass(slots=True)
class AttributeCells:
    """The values of one attribute in the order of the file: rows, codes, and a table of distinct texts."""

    rows: array = field(default_factory=lambda: array("q"))
    codes: array = field(default_factory=lambda: array("i"))
    table: dict[str, int] = field(default_factory=dict)


CellsByKind = dict[str, dict[str, AttributeCells]]  # kind of attribute → key → values


@dataclass
class XesColumns:
    """The content of one file; `times` has the texts of `time:timestamp`, and `time_rows` the events that they belong to."""

    trace_lines: array = field(default_factory=lambda: array("q"))
    trace_of: array = field(default_factory=lambda: array("i"))
    event_lines: array = field(default_factory=lambda: array("q"))
    time_rows: array = field(default_factory=lambda: array("q"))
    times: list[np.ndarray] = field(default_factory=list)  # chunks of fixed-width bytes
    event_cells: CellsByKind = field(default_factory=dict)
    trace_cells: CellsByKind = field(default_factory=dict)
    classifiers: dict[str, str] = field(default_factory=dict)  # name → keys as written
    outside: int = 0  # number of events outside of traces
    problems: list[Problem] = field(default_factory=list)


def parse(chunks: Iterable[bytes]) -> XesColumns:
    """Parse a file; damage and structural mistakes are in `problems` of the result."""
    handler = _Handler()
    parser = handler.parser
    fed = 0
    try:
        for chunk in chunks:
            parser.Parse(chunk, False)
            fed += len(chunk)
            if fed - parser.CurrentByteIndex > LONGEST_TAG:
                raise XmlError(f"a tag of more than {LONGEST_TAG >> 20} MB; this is no event log")
        parser.Parse(b"", True)
    except expat.ExpatError as error:
        said = expat.ErrorString(error.code)
        handler.fault(
            f"not XML that can be read: {said} at column {error.offset + 1}; is the file whole?", error.lineno
        )
    except (LookupError, ValueError) as error:  # the declared encoding is unknown or not suitable for XML
        handler.fault(f"not XML that can be read: {error}; save it as UTF-8")
    except XmlError as refused:
        handler.fault(str(refused))
    handler.pack_times()
    return handler.content


class _Handler:
    """The callbacks for expat. The depth is the number of open elements: log 1, trace 2, event 3, its attributes 4 or more."""

    def __init__(self) -> None:
        self.content = XesColumns()
        self.keys = [""] * (DEEPEST + 1)  # keys of the open attributes, by depth
        self.parser = parser = expat.ParserCreate()
        parser.StartElementHandler, parser.EndElementHandler = self.element_handlers()
        parser.EntityDeclHandler = self.entity
        self.event = self.trace = -1  # indices of the current event and trace
        self.in_trace = False
        self.prefix = ""
        self.event_tag = "event"
        self.times: list[str] = []
        self.names = 0

    def element_handlers(self) -> tuple[Callable[[str, dict[str, str]], None], Callable[[str], None]]:
        """Return the handlers for the start and the end of elements: closures, because their variables are faster than attributes."""
        depth, row, in_event = 0, -1, False
        by_kind, keys, rows_of_times = self.content.event_cells, self.keys, self.content.time_rows

        def start(tag: str, attributes: dict[str, str]) -> None:
            nonlocal depth, row, in_event
            depth += 1
            if depth == 4 and in_event and "key" in attributes and "value" in attributes:
                keys[4] = key = attributes["key"]
                value = attributes["value"]
                if key == TIME_KEY:
                    self.times.append(value[:LONGEST_TIME])
                    rows_of_times.append(row)
                    return
                try:
                    cells = by_kind[tag][key]
                except KeyError:
                    cells = self.new_cells(by_kind, tag, key)
                code = cells.table.get(value)
                if code is None:
                    code = cells.table[value] = len(cells.table)
                cells.codes.append(code)
                cells.rows.append(row)
            elif depth == 3 and self.in_trace and tag == self.event_tag:
                row = self.begin_event()
                in_event = True
            elif self.in_trace:
                self.attribute(tag, attributes, depth, in_event)
            else:
                self.outside_traces(tag, attributes, depth)

        def end(_: str) -> None:
            nonlocal depth, in_event
            depth -= 1
            if depth == 2:
                in_event = False
            elif depth == 1:
                self.in_trace = False

        return start, end

    def fault(self, text: str, line: int | None = None) -> None:
        self.content.problems.append(Problem(self.parser.CurrentLineNumber if line is None else line, text))

    def entity(self, name: str, *_: object) -> None:
        why = "they can expand without end, or read other files"
        raise XmlError(f"it declares the entity {name[:40]!r}; entities are refused: {why}")

    def begin_event(self) -> int:
        """Add an event to the open trace and return its index."""
        self.event += 1
        self.content.trace_of.append(self.trace)
        self.content.event_lines.append(self.parser.CurrentLineNumber)
        if len(self.times) >= TIMES_AT_ONCE:
            self.pack_times()
        return self.event

    def pack_times(self) -> None:
        """Convert the collected texts of times to fixed-width bytes, which need a third of the memory."""
        self.content.times.append(np.array([text.encode("ascii", "replace") for text in self.times], dtype=np.bytes_))
        self.times = []

    def outside_traces(self, tag: str, attributes: dict[str, str], depth: int) -> None:
        """Handle the elements of the log itself: header, traces, and events without a trace."""
        name = tag.rpartition(":")[2]
        if depth == 1:
            if name != "log":
                raise XmlError(f"its first element is <{tag}>, expected <log>: this is no XES file")
            self.prefix = tag[: -len(name)]
            self.event_tag = f"{self.prefix}event"
        elif depth == 2 and name == "trace":
            self.trace += 1
            self.in_trace = True
            self.content.trace_lines.append(self.parser.CurrentLineNumber)
        elif depth == 2 and name == "event":
            self.content.outside += 1
        elif depth == 2 and name == "classifier":
            self.content.classifiers[attributes.get("name", "")] = attributes.get("keys", "")

    def attribute(self, tag: str, attributes: dict[str, str], depth: int, in_event: bool) -> None:
        """Handle the rarer attributes: attributes of traces, nested ones (named outer/inner), and ones with mistakes."""
        if depth > DEEPEST:
            raise XmlError(f"elements are nested more than {DEEPEST} deep")
        kind = tag.removeprefix(self.prefix)
        self.keys[depth] = key = attributes.get("key", "")
        if kind == "values":
            return
        if kind not in KINDS | GROUPS:
            expected = f"event, {', '.join(sorted(KINDS))}, list or container"
            self.fault(f"<{tag}> stands where attributes do; expected {expected}")
        elif not key:
            self.fault(f"<{tag}> has no key")
        elif kind in KINDS and "value" not in attributes:
            self.fault(f"<{tag}> with the key {key!r} has no value")
        elif kind in KINDS:
            name = "/".join(part for part in self.keys[4 if in_event else 3 : depth + 1] if part)
            by_kind = self.content.event_cells if in_event else self.content.trace_cells
            cells = by_kind.get(tag, {}).get(name) or self.new_cells(by_kind, tag, name)
            cells.codes.append(cells.table.setdefault(attributes["value"], len(cells.table)))
            cells.rows.append(self.event if in_event else self.trace)

    def new_cells(self, by_kind: CellsByKind, tag: str, key: str) -> AttributeCells:
        """Return the storage for the values of a new attribute."""
        if tag.removeprefix(self.prefix) not in KINDS:
            self.fault(f"<{tag}> with the key {key!r} is no kind of attribute; expected {', '.join(sorted(KINDS))}")
        self.names += 1
        if self.names > MOST_KEYS:
            raise XmlError(f"more than {MOST_KEYS} different attributes")
        cells = by_kind.setdefault(tag, {})[key] = AttributeCells()
        return cells
