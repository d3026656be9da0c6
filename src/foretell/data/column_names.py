"""The usual names of the columns of an event log, to find the columns for sequence, time and event in a header.

They are used if a table has no column with the expected name and the user has not set one. If two columns could be the time or the
event, none is chosen. A message reports the chosen columns.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from foretell.data.read_options import ColumnMap

# In order of preference. Case, spaces and punctuation are ignored: `Case ID` is `case_id`.
SEQUENCE_NAMES = (
    *("case:concept:name", "case_id", "case", "trace_id", "sequence_id", "session_id", "subject_id", "patient_id"),
    *("user_id", "customer_id", "account_id", "visitor_id", "device_id", "machine_id"),
)
TIME_NAMES = (
    *("time:timestamp", "timestamp", "event_time", "event_timestamp", "datetime", "date_time", "date"),
    *("created_at", "occurred_at", "complete_timestamp"),
)
EVENT_NAMES = ("concept:name", "activity", "activity_name", "event_type", "event_name", "action", "type")


def recognised(columns: ColumnMap, header: Sequence[str]) -> tuple[ColumnMap, tuple[str, ...]]:
    """Return the columns of a table with this header, and a message for each column that was recognised by a usual name."""
    usual = ColumnMap()
    roles = (
        ("sequence", columns.sequence is None, "sequence", SEQUENCE_NAMES),
        ("time", columns.time == usual.time, usual.time, TIME_NAMES),
        ("event", columns.event == usual.event, usual.event, EVENT_NAMES),
    )
    told: dict[str, str] = {}
    taken = {*columns.bounds, columns.metadata, *(columns.args or ()), columns.sequence, columns.time, columns.event}
    for role, open_, name, names in roles:
        if not open_ or name in header:
            continue
        found = [one for one in candidates(header, names) if one not in taken]
        if len(found) == 1 or (found and role == "sequence"):
            told[role] = found[0]
            taken.add(found[0])
    said = tuple(
        f'there is no column {role!r}: {name!r} is taken for it (another one: `columns={{"{role}": …}}`)'
        for role, name in told.items()
    )
    return (replace(columns, **told) if told else columns), said


def candidates(header: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the columns of a header whose names are in `names`, in the order of `names`."""
    place = {_folded(name): number for number, name in enumerate(names)}
    found = [(place[_folded(name)], name) for name in header if len(name) < 50 and _folded(name) in place]
    return [name for _, name in sorted(found, key=lambda one: one[0])]


def _folded(name: str) -> str:
    return re.sub(r"[\W_]+", "", name).casefold()
