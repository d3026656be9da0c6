"""Entries in, the text of the report's page out: which sections there are, and in which order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from foretell.data.summary import DataSummary
from foretell.report.entry import Entry
from foretell.report.page import page
from foretell.report.sections.calibration import calibration_section
from foretell.report.sections.confusion import confusion_section
from foretell.report.sections.data import data_section
from foretell.report.sections.fit import fit_section
from foretell.report.sections.functors import functors_section
from foretell.report.sections.glance import glance
from foretell.report.sections.learning import learning_section
from foretell.report.sections.moments import moments_section
from foretell.report.sections.over_time import over_time_section
from foretell.report.sections.scores import scores_section


@dataclass(frozen=True)
class Contents:
    """What a report is made of."""

    summary: DataSummary
    entries: Sequence[Entry]  # floors among them; at least one that is none
    places: Sequence[int]  # of the chosen sequence in the data of each entry that is no floor
    time_unit: str = ""
    start: float = 0.0  # from when on the sequence is shown


def report_page(contents: Contents, progress: Callable[[str, int, int], None] | None = None) -> str:
    told = progress or (lambda words, done, of: None)
    runs = [entry for entry in contents.entries if not entry.floor]
    data = runs[0].data
    sections = [
        data_section(contents.summary, data),
        learning_section(runs),
        scores_section(contents.entries),
        over_time_section(runs, contents.places, contents.time_unit, contents.start, told),
        fit_section(runs),
        calibration_section(runs),
        confusion_section(runs),
        functors_section(runs),
    ]
    moments = moments_section(runs, contents.places, contents.start, told)
    if moments is not None:
        sections.append(moments)
    verb = "predicts" if len(runs) == 1 else "predict"
    subtitle = f"How well {_listed([entry.title for entry in runs])} {verb} what happens in {data.name}, and when."
    return page(contents.summary.name, subtitle, [entry.name for entry in runs], glance(contents.entries), sections)


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
