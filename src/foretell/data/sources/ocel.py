"""OCEL 2.0 logs → `EventTable`. An event with related objects becomes a term; its arguments are the objects, ordered by qualifier.

By default, the log is one sequence. With `sequence=TYPE`, there is one sequence per object of that type, with its related events;
objects of this type are then not arguments.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from foretell.data.csv_files import TextTable
from foretell.data.event_table import EventTable
from foretell.data.raw import Problem
from foretell.data.read_options import ColumnMap, ReadOptions
from foretell.data.sources.ocel_files import ObjectEvent, ObjectLog, read_json, read_sqlite
from foretell.data.sources.sqlite_files import is_sqlite
from foretell.data.tables import ONE_STREAM, CodedColumn, empty_table, event_table
from foretell.terms import build
from foretell.wording import did_you_mean

logger = logging.getLogger("foretell")

PARTS = ("sequence", "time", "event")
NOBODY = "none"  # the argument for a qualifier that an event lacks but other events of its type have
MANY_TYPES = 50


def read_ocel(path: Path, options: ReadOptions) -> EventTable:
    """Read a log in JSON or SQLite. `options.columns.args` selects qualifiers or object types as arguments; `none`: no arguments."""
    log = (read_sqlite if is_sqlite(path) else read_json)(path)
    if log.problems and not log.events:
        return empty_table(log.path, "event", log.problems)
    dangling = sum(target not in log.object_types for event in log.events for _, target in event.relations)
    if dangling:
        logger.warning("%s: %d relations point to objects that are not listed", log.path, dangling)
    cases = _cases(log, options.columns.sequence)
    if isinstance(cases, Problem):
        return empty_table(log.path, "event", [*log.problems, cases])
    table = event_table(
        _table(log, cases, options.columns), replace(options, columns=ColumnMap(sequence="sequence", args=()))
    )
    return replace(table, problems=(*log.problems, *table.problems))


def _cases(log: ObjectLog, kind: str | None) -> list[tuple[str, ObjectEvent]] | Problem:
    """Return (sequence id, event) for all events: one sequence in all, or one per object of the type `kind`."""
    if kind is None:
        return [(ONE_STREAM, event) for event in log.events]
    types = sorted(set(log.object_types.values()))
    if kind not in types:
        hint = did_you_mean(kind, types, before="; ", otherwise=f"; there are {', '.join(types[:10])}")
        return Problem(0, f"no object type {kind!r}{hint}")
    cases, without, several = [], 0, 0
    for event in log.events:
        found = dict.fromkeys(target for _, target in event.relations if log.object_types.get(target) == kind)
        cases += [(target, event) for target in found]
        without += not found
        several += len(found) > 1
    for count, said in (
        (without, "are related to no object of the type %r and are left out"),
        (several, "are related to several objects of the type %r and stand in each of their sequences"),
    ):
        if count:
            logger.warning(f"%s: %d events {said}", log.path, count, kind)
    return cases


def _table(log: ObjectLog, cases: Sequence[tuple[str, ObjectEvent]], columns: ColumnMap) -> TextTable:
    """Return a table with one row per event and sequence; attributes of events are columns."""
    relations = {event.id: _slots(log, event, columns) for event in log.events}
    order = _slot_order(log, relations, columns.args)
    attributes = list(dict.fromkeys(name for event in log.events for name in event.attributes))
    keys = [f"{name} (attribute)" if name in PARTS else name for name in attributes]
    cells: dict[str, list[str]] = {name: [] for name in (*PARTS, *keys)}
    for case, event in cases:
        arguments = _arguments(relations[event.id], order[event.type])
        row = (case, event.time, build(event.type, arguments) if arguments else event.type)
        for name, value in zip(PARTS, row, strict=True):
            cells[name].append(value)
        for name, key in zip(attributes, keys, strict=True):
            value = event.attributes.get(name)
            cells[key].append("" if value is None else str(value))
    _warn_of_many(log, cells["event"])
    places = np.array([event.place for _, event in cases], dtype=np.int64)
    return TextTable(log.path, list(cells), [_coded(column) for column in cells.values()], places, "event")


def _slots(log: ObjectLog, event: ObjectEvent, columns: ColumnMap) -> dict[str, list[str]]:
    """Return the objects of an event by qualifier, or by type if there is no qualifier. If `columns.args` is set, only objects with
    these qualifiers or types are returned. Objects that are sequences are left out."""
    found: dict[str, list[str]] = {}
    for qualifier, target in event.relations:
        kind = log.object_types.get(target, "")
        slot = qualifier or kind
        if columns.args is not None:
            slot = qualifier if qualifier in columns.args else kind
        if kind != columns.sequence and (columns.args is None or slot in columns.args):
            found.setdefault(slot, []).append(target)
    return found


def _slot_order(
    log: ObjectLog, relations: Mapping[str, dict[str, list[str]]], asked: tuple[str, ...] | None
) -> dict[str, list[str]]:
    """Return the slots of each event type, in the user's order or else alphabetically."""
    found: dict[str, set[str]] = {}
    for event in log.events:
        found.setdefault(event.type, set()).update(relations[event.id])
    return {
        kind: sorted(slots) if asked is None else [one for one in asked if one in slots]
        for kind, slots in found.items()
    }


def _arguments(slots: Mapping[str, list[str]], order: Sequence[str]) -> list[str]:
    """Return the arguments: objects in the order of slots, `none` for empty slots; all objects of a slot are adjacent."""
    return [target for slot in order for target in sorted(slots.get(slot, [NOBODY]))]


def _warn_of_many(log: ObjectLog, names: Sequence[str]) -> None:
    distinct = len(set(names))
    if distinct > MANY_TYPES and 2 * distinct > len(names):
        logger.warning(
            '%s: %d events have %d different names, because objects are arguments; `participants="none"` keeps the event types alone',
            log.path,
            len(names),
            distinct,
        )


def _coded(texts: Sequence[str]) -> CodedColumn:
    table: dict[str, int] = {}
    codes = [table.setdefault(text, len(table)) for text in texts]
    return CodedColumn(np.array(codes, dtype=np.int32), list(table))
