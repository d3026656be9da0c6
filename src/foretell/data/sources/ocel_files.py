"""OCEL 2.0 files, JSON and SQLite → checked events with their related objects. SQLite files are opened read-only.

The format is described in the OCEL 2.0 specification (Berti et al., 2023, https://www.ocel-standard.org).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from foretell.data.files import byte_chunks
from foretell.data.raw import Problem
from foretell.data.sources.sqlite_files import read_only
from foretell.errors import short
from foretell.reading import parse_json

TABLES = ("event", "object", "event_object", "event_map_type")


@dataclass(frozen=True)
class ObjectEvent:
    """One event; `relations` has (qualifier, object id) pairs in the order of the file."""

    place: int
    id: str
    type: str
    time: str
    relations: tuple[tuple[str, str], ...]
    attributes: Mapping[str, object]


@dataclass
class ObjectLog:
    """The content of a file: events, types of objects, and mistakes."""

    path: str
    events: list[ObjectEvent] = field(default_factory=list)
    object_types: dict[str, str] = field(default_factory=dict)  # object id → type
    problems: list[Problem] = field(default_factory=list)

    def fault(self, place: int, text: str) -> None:
        """Note a mistake."""
        self.problems.append(Problem(place, text))


def is_ocel_json(content: object) -> bool:
    """Whether a JSON value is an OCEL log, version 2.0 or 1.0."""
    return isinstance(content, dict) and (
        "objectTypes" in content or "ocel:events" in content or "eventTypes" in content
    )


def read_json(path: Path) -> ObjectLog:
    """Read a log from JSON."""
    log = ObjectLog(str(path))
    text = b"".join(byte_chunks(path, log))
    if log.problems:
        return log
    try:
        content = parse_json(text.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        log.fault(0, f"not JSON that can be read: {error}; is the file whole?")
        return log
    if isinstance(content, dict) and "ocel:events" in content:
        log.fault(
            0,
            "this is OCEL 1.0 (its keys begin with `ocel:`), expected OCEL 2.0; convert it with a process-mining tool",
        )
    elif not isinstance(content, dict) or "events" not in content:
        found = f"the keys {', '.join(map(short, list(content)[:10]))}" if isinstance(content, dict) else short(content)
        log.fault(0, f"expected an object with `events` and `objects` (OCEL 2.0), found {found}")
    else:
        _objects(log, content.get("objects", []))
        _events(log, content["events"])
    return log


def _objects(log: ObjectLog, listed: object) -> None:
    for number, one in _records(log, listed, "objects"):
        name, kind = one.get("id"), one.get("type")
        if not isinstance(name, str) or not isinstance(kind, str) or not name:
            log.fault(0, f"objects[{number}]: id is {short(name)} and type {short(kind)}, expected text")
        elif log.object_types.setdefault(name, kind) != kind:
            log.fault(
                0,
                f"objects[{number}]: {short(name)} is of type {short(kind)} here and {short(log.object_types[name])} before",
            )


def _events(log: ObjectLog, listed: object) -> None:
    seen: dict[str, int] = {}
    for number, one in _records(log, listed, "events"):
        before = len(log.problems)
        place, where = number + 1, f"events[{number}]"
        for key in ("id", "type", "time"):
            if not isinstance(one.get(key), str) or not one[key]:
                log.fault(place, f"{where}: {key} is {short(one.get(key))}, expected text")
        relations, attributes = [], {}
        for index, relation in _records(log, one.get("relationships") or [], f"{where}.relationships", place):
            target, qualifier = relation.get("objectId"), relation.get("qualifier", "")
            if not isinstance(target, str) or not isinstance(qualifier, str) or not target:
                found = f"objectId is {short(target)} and qualifier {short(qualifier)}"
                log.fault(place, f"{where}.relationships[{index}]: {found}, expected text")
            else:
                relations.append((qualifier, target))
        for index, pair in _records(log, one.get("attributes") or [], f"{where}.attributes", place):
            value = pair.get("value")
            if not isinstance(pair.get("name"), str) or isinstance(value, dict | list):
                log.fault(place, f"{where}.attributes[{index}]: expected a name and a value, found {short(pair)}")
            else:
                attributes[pair["name"]] = value
        if len(log.problems) == before and seen.setdefault(one["id"], place) != place:
            log.fault(
                place, f"{where}: the id {short(one['id'])} was used before, at event {seen[one['id']]}; ids are unique"
            )
        if len(log.problems) == before:
            log.events.append(ObjectEvent(place, one["id"], one["type"], one["time"], tuple(relations), attributes))


def _records(log: ObjectLog, listed: object, where: str, place: int = 0) -> Iterator[tuple[int, dict]]:
    """Yield (place, object) of a JSON list; items that are not objects are noted as mistakes."""
    if not isinstance(listed, list):
        log.fault(place, f"{where} is {short(listed)}, expected a list")
        return
    for number, one in enumerate(listed):
        if isinstance(one, dict):
            yield number, one
        else:
            log.fault(place or number + 1, f"{where}[{number}] is {short(one)}, expected an object")


def read_sqlite(path: Path) -> ObjectLog:
    """Read a log from SQLite, without changing the file or running code in it."""
    log = ObjectLog(str(path))
    try:
        with read_only(path) as connection:
            _from_tables(log, connection)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        log.fault(0, f"not a SQLite file that can be read: {error}")
    return log


def _from_tables(log: ObjectLog, connection: sqlite3.Connection) -> None:
    there = {
        name
        for name, sql in connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'")
        if not (sql or "").upper().startswith("CREATE VIRTUAL")
    }
    missing = [name for name in TABLES if name not in there]
    if missing:
        found = f"found {', '.join(sorted(there)[:10]) or 'none'}"
        hint = "for a database of your own give `sql=` and `database=`"
        log.fault(0, f"no table {', '.join(missing)}, which OCEL 2.0 has; {found}; {hint}")
        return
    log.object_types |= {
        str(name): str(kind) for name, kind in connection.execute("SELECT ocel_id, ocel_type FROM object")
    }
    relations: dict[str, list[tuple[str, str]]] = {}
    for event, target, qualifier in connection.execute(
        "SELECT ocel_event_id, ocel_object_id, ocel_qualifier FROM event_object ORDER BY rowid"
    ):
        relations.setdefault(str(event), []).append((str(qualifier or ""), str(target)))
    details = _details(log, connection, there)
    for place, (name, kind) in enumerate(connection.execute("SELECT ocel_id, ocel_type FROM event ORDER BY rowid"), 1):
        cells = dict(details.get(str(name), {}))
        time = cells.pop("ocel_time", None)
        if not isinstance(time, str) or not time:
            log.fault(
                place, f"event {short(name)}: ocel_time is {short(time)}, expected text such as 2023-01-31T12:00:00Z"
            )
        elif not kind:
            log.fault(place, f"event {short(name)} has no ocel_type")
        else:
            log.events.append(
                ObjectEvent(place, str(name), str(kind), time, tuple(relations.get(str(name), ())), cells)
            )


def _details(log: ObjectLog, connection: sqlite3.Connection, there: set[str]) -> dict[str, dict[str, object]]:
    """Return time and attributes of each event, by event id, from the tables of the event types."""
    details: dict[str, dict[str, object]] = {}
    for kind, suffix in connection.execute("SELECT ocel_type, ocel_type_map FROM event_map_type").fetchall():
        table = f"event_{suffix}"
        if table not in there:
            log.fault(0, f"event type {short(kind)} should have the table {table!r}, which is not there")
            continue
        quoted = table.replace('"', '""')
        rows = connection.execute(f'SELECT * FROM "{quoted}"')
        names = [column[0] for column in rows.description]
        if "ocel_id" not in names:
            log.fault(0, f"table {table!r} has no column ocel_id; found {', '.join(names[:10])}")
            continue
        at = names.index("ocel_id")
        for row in rows:
            cells = {
                name: value for name, value in zip(names, row, strict=True) if name != "ocel_id" and value is not None
            }
            details[str(row[at])] = {name: short(one) if isinstance(one, bytes) else one for name, one in cells.items()}
    return details
