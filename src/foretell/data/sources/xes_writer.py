"""Sequences → XES: one trace per sequence, with its attributes. `xes` reads the same events and times back."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from xml.sax.saxutils import quoteattr

import numpy as np

from foretell.data.clock import Clock, iso_texts
from foretell.data.columns import Attribute
from foretell.data.covariate_columns import with_listed_attributes
from foretell.data.files import text_file
from foretell.data.sources.xes_parser import TIME_KEY
from foretell.data.written_attributes import cell_texts
from foretell.data.written_times import end_instants, ends_known, event_instants, score_instants, starts_known

if TYPE_CHECKING:
    from foretell.data.dataset import EventData

logger = logging.getLogger("foretell")

HEAD = """<?xml version="1.0" encoding="UTF-8"?>
<log xes.version="1849-2016" xes.features="" xmlns="http://www.xes-standard.org/">
  <extension name="Concept" prefix="concept" uri="http://www.xes-standard.org/concept.xesext"/>
  <extension name="Time" prefix="time" uri="http://www.xes-standard.org/time.xesext"/>
  <global scope="trace">
    <string key="concept:name" value="name"/>
  </global>
  <global scope="event">
    <string key="concept:name" value="name"/>
    <date key="time:timestamp" value="1970-01-01T00:00:00Z"/>
  </global>
  <classifier name="Activity" keys="concept:name"/>
"""
_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")  # not allowed in XML 1.0


def write_xes(data: EventData, path: Path) -> None:
    """Write one trace per sequence. Times without dates are written as if sequences started in 1970, with a warning."""
    data = _with_dates(data, path)
    columns, instants = data.columns, event_instants(data)
    assert instants is not None
    names = [_element("string", "concept:name", name) for name in data.vocabulary.names]
    texts = iso_texts(instants)
    events = {
        key: _elements(key, one) for key, one in columns.attributes.items() if key not in ("concept:name", TIME_KEY)
    }
    traces = {key: _elements(key, one) for key, one in columns.sequence_attributes.items()} | _bounds(data)
    types = columns.types.tolist()
    with text_file(path) as file:
        file.write(HEAD)
        for place, (start, stop) in enumerate(
            zip(columns.offsets[:-1].tolist(), columns.offsets[1:].tolist(), strict=True)
        ):
            lines = ["<trace>", f"  {_element('string', 'concept:name', columns.ids[place])}"]
            lines += [f"  {one[place]}" for one in traces.values() if one[place]]
            lines += [f"  {_plain(key, value)}" for key, value in columns.metadata[place].items()]
            for row in range(start, stop):
                lines += ["  <event>", f"    {names[types[row]]}", f'    <date key="{TIME_KEY}" value="{texts[row]}"/>']
                lines += [f"    {one[row]}" for one in events.values() if one[row]]
                lines.append("  </event>")
            file.write("".join(f"  {line}\n" for line in [*lines, "</trace>"]))
        file.write("</log>\n")


def _with_dates(data: EventData, path: Path) -> EventData:
    """Return the data with a start for each sequence, and with lists in the metadata converted to attributes of events."""
    columns, clock = with_listed_attributes(data.columns), data.clock
    if columns.starts is None:
        unit = clock.unit if clock.seconds_per_unit is not None else "seconds"
        said = "%s: XES has dates, and these times are numbers: they are written as %s since 1970-01-01"
        logger.warning(said, path, unit)
        clock = Clock(unit, clock.seconds_per_unit or 1.0, absolute=True)
        columns = replace(columns, starts=np.zeros(len(columns), dtype=np.int64))
    return replace(data, sequences=columns, clock=clock)


def _bounds(data: EventData) -> dict[str, list[str]]:
    """Return the known starts and ends of the observation as attributes of the traces."""
    ends, starts = end_instants(data), data.columns.starts
    made: dict[str, list[str]] = {}
    if ends is not None and ends_known(data).any():
        said = zip(iso_texts(ends), ends_known(data).tolist(), strict=True)
        made["t_end"] = [_element("date", "t_end", text) if known else "" for text, known in said]
    if starts is not None and starts_known(data):
        made["t_start"] = [_element("date", "t_start", text) for text in iso_texts(starts)]
    later = score_instants(data)
    if later is not None:
        made["score_from"] = [_element("date", "score_from", text) for text in iso_texts(later)]
    return made


def _elements(key: str, column: Attribute) -> list[str]:
    """Return one XML element per row, "" for missing values; elements are made once per distinct value."""
    values = column.values
    if column.categories is not None:
        kind = "boolean" if set(column.categories) <= {"true", "false"} else "string"
        made = [*(_element(kind, key, text) for text in column.categories), ""]
        return [made[code] for code in values.tolist()]
    kind = {"M": "date", "i": "int"}.get(values.dtype.kind, "float")
    return [_element(kind, key, text) if text else "" for text in cell_texts(column)]


def _plain(key: str, value: object) -> str:
    """Return a value of a sequence's metadata as an XML element; values that are not scalars become JSON."""
    kinds: Mapping[type, str] = {str: "string", bool: "boolean", int: "int", float: "float"}
    kind = kinds.get(type(value))
    if kind is None:
        return _element("string", key, json.dumps(value, ensure_ascii=False, default=str))
    return _element(kind, key, str(value).lower() if kind == "boolean" else str(value))


def _element(kind: str, key: str, value: str) -> str:
    return f"<{kind} key={_quoted(key)} value={_quoted(value)}/>"


def _quoted(text: str) -> str:
    """Quote an attribute's value; line breaks and tabs become references, because XML would read them as spaces."""
    return quoteattr(_NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text), {"\n": "&#10;", "\r": "&#13;", "\t": "&#9;"})
