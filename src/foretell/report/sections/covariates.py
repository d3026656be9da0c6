"""The effect of each covariate on a model, with intervals, as a table for each run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from foretell.data import EventData
from foretell.errors import ForetellError
from foretell.evaluate.bootstrap import Estimate
from foretell.evaluate.covariate_effects import CovariateEffect, covariate_effects
from foretell.report.entry import Entry
from foretell.report.markup import Markup, PageSection, element, figure, joined, remark, table, text_of

TITLE = "What each column does"
MOST_EVENTS = 20_000  # most events that are scored; each column needs a dozen scores of all events
HEADS = ("column", "of", "importance", "change", "effect")


def covariates_section(entries: Sequence[Entry], progress: Callable[[str, int, int], None]) -> PageSection | None:
    """Return the section; None if no model uses columns of these data."""
    parts = [part for entry in entries if (part := _of_entry(entry, progress)) is not None]
    return PageSection("covariates", TITLE, joined(*parts)) if parts else None


def _of_entry(entry: Entry, progress: Callable[[str, int, int], None]) -> Markup | None:
    encoder = entry.model.collator.covariates
    columns = entry.data.columns
    if encoder is None or not {*columns.attributes, *columns.sequence_attributes} & {*encoder.encoding.names}:
        return None
    told = lambda done, of: progress(f"{entry.name}: covariates", done, of)  # noqa: E731
    data = first_sequences(entry.data, MOST_EVENTS)
    try:
        found = covariate_effects(entry.model, data, progress=told)
    except ForetellError as error:
        return remark(f"{entry.title}: {error}")
    some = "" if len(data) == len(entry.data) else f", on the first {len(data):,} of {len(entry.data):,} sequences"
    rows = [row for one in found for row in _rows(one)]
    body = table(HEADS, rows, label=f"Covariates of {entry.title}", words=(0, 1, 3))
    return figure(element("h3", f"{entry.title}{some}"), body, caption=text_of("covariates"), stacked=True)


def first_sequences(data: EventData, events: int) -> EventData:
    """Return the first sequences that together have at most this many events, but at least one sequence."""
    count = int(np.searchsorted(data.columns.offsets[1:], events, side="right"))
    return data if count >= len(data) else data.select(range(max(count, 1)))


def _rows(one: CovariateEffect) -> list[tuple[str, ...]]:
    """Return one table row for each change of a column; only the first row has the column's name."""
    about: tuple[str, ...] = (one.column, "sequences" if one.static else "events", _cell(one.importance))
    found = []
    for change, effect in one.effects or (("–", None),):
        found.append((*about, change, "–" if effect is None else _cell(effect)))
        about = ("", "", "")
    return found


def _cell(one: Estimate) -> Markup:
    value, low, high = (f"{part:+.3f}".replace("-", "−") for part in (one.value, one.low, one.high))
    return joined(element("span", value), element("small", f"{low} to {high}"))
