"""What an experiment leaves in its folder: `results.json` (every number), `results.md` (tables and findings), pictures.

Records of units that this folder has no files of any more, from an earlier `results.json`, are kept.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from foretell.data.files import replacing, text_file
from foretell.errors import ForetellError
from foretell.reproduce.experiment import ExperimentSummary, Finding, Results, TableSection
from foretell.reproduce.queue import ExperimentProgress
from foretell.reproduce.unit import last_line

log = logging.getLogger("foretell")
RESULTS, PAGE = "results.json", "results.md"


def write_results(course: ExperimentProgress, published: bool = False) -> ExperimentSummary:
    """Into the folder of its units; `published`: into that of its definition as well."""
    if published and not course.results.records:  # an empty page must not take the place of what is published
        raise ForetellError(
            f"{course.results.folder}: no unit is done there, so there is nothing to publish; see --out"
        )
    summary = course.experiment.summarise(course.results)
    for folder in (course.results.folder, *([course.definition.folder] if published else [])):
        _write(course, summary, folder)
    return summary


def _write(course: ExperimentProgress, summary: ExperimentSummary, folder: Path) -> None:
    results, definition = course.results, course.definition
    failed = {
        one.name: last_line(results.unit_folder(one.name).error())
        for one in results.units
        if results.unit_folder(one.name).state(one) == "failed"
    }
    found: dict[str, Any] = {
        "experiment": definition.name,
        "title": definition.title,
        "quick": definition.quick,
        "units": {
            "done": len(results.records),
            "pending": len(results.units) - len(results.records) - len(failed),
            "failed": failed,
        },
        "findings": [one.to_json() for one in summary.findings],
        **summary.numbers,
    }
    path = folder / RESULTS
    records = [*results.records.values(), *_earlier(path, results, definition.quick)]
    with text_file(path) as file:
        head = json.dumps(found, indent=1, allow_nan=False)
        rows = ",\n".join(
            f"  {json.dumps(one, allow_nan=False)}" for one in records
        )  # a line each, so that a change is one line
        file.write(f'{head[:-2]},\n "records": [\n{rows}\n ]\n}}\n')
    with replacing(folder / PAGE) as temporary:
        temporary.write_text(page(definition.title, definition.quick, found["units"], summary), encoding="utf-8")
    for picture in summary.pictures:
        try:
            picture.draw(folder / picture.name)
        except ForetellError as error:  # matplotlib is not here
            log.warning("%s: no picture: %s", folder / picture.name, error)


def _earlier(path: Path, results: Results, quick: bool) -> list[dict[str, Any]]:
    """Records of other units, so that results add up wherever they were made; not those of settings that have changed since."""
    if not path.exists():
        return []
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict) or found.get("quick", False) != quick:
            return []
        wanted = {one.name: one.plain() for one in results.units}
        return [
            one
            for one in found["records"]
            if one["unit"] not in results.records and one["settings"] == wanted.get(one["unit"], one["settings"])
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise ForetellError(f"{path}: not results of an experiment ({error}); move it away") from error


def page(title: str, quick: bool, units: dict[str, Any], summary: ExperimentSummary) -> str:
    parts = [f"# {title}", "", "<!-- made by `foretell reproduce`; do not edit -->", ""]
    scale = "A quick run on little data, to see that everything works: its numbers mean nothing. " if quick else ""
    failed = f", {len(units['failed'])} failed" if units["failed"] else ""
    parts += [f"{scale}{units['done']} units done, {units['pending']} pending{failed}.", ""]
    for section in summary.sections:
        parts += [f"## {section.title}", "", *table_lines(section), ""]
        if section.note:
            parts += [section.note, ""]
    if summary.findings:
        parts += ["## Findings of the paper", "", *finding_lines(summary.findings), ""]
    for picture in summary.pictures:
        parts += [f"![{section_name(picture.name)}]({picture.name})", ""]
    return "\n".join(parts)


def table_lines(section: TableSection) -> list[str]:
    return [_row(section.columns), _row(["---"] * len(section.columns)), *(_row(row) for row in section.rows)]


def finding_lines(findings: Sequence[Finding]) -> list[str]:
    head = [_row(["finding", "verdict", "measured"]), _row(["---"] * 3)]
    return head + [_row([f"{one.name}: {one.claim}", f"**{one.verdict}**", one.detail]) for one in findings]


def section_name(file: str) -> str:
    return Path(file).stem.replace("-", " ")


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
