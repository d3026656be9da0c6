"""The command behind `foretell reproduce` and `python -m foretell.reproduce`: takes names and options, prints and writes results.

An experiment's folder gets `results.json` (every number), `results.md` (tables and findings) and pictures. An earlier `results.json` may
have records of units whose files are gone; these records are kept.

The command needs neither typer nor rich, so it runs on a machine that has only torch, numpy, safetensors and lark.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from foretell.data.files import replacing, text_file
from foretell.errors import ForetellError
from foretell.reading import read_json
from foretell.reproduce.experiment import (
    Choice,
    ExperimentSummary,
    Finding,
    Results,
    TableSection,
    names,
    open_experiment,
    read_definition,
)
from foretell.reproduce.models import Models
from foretell.reproduce.queue import ExperimentProgress, ReproduceOptions, missing_data, run_units
from foretell.reproduce.unit import last_line
from foretell.train.interrupting import stopping

log = logging.getLogger("foretell")
RESULTS, PAGE = "results.json", "results.md"


def write_results(course: ExperimentProgress, published: bool = False) -> ExperimentSummary:
    """Write results into the folder of the units and, with `published`, also into the folder of the definition; return the summary."""
    if published:
        course = replace(course, results=with_published(course))
    if published and not course.results.records:  # an empty page must not replace published results
        raise ForetellError(
            f"{course.results.folder}: no unit is done there, so there is nothing to publish; see `out=`"
        )
    summary = course.experiment.summarise(course.results)
    for folder in (course.results.folder, *([course.definition.folder] if published else [])):
        _write(course, summary, folder)
    return summary


def with_published(course: ExperimentProgress) -> Results:
    """Return the results, completed by published results of missing units, so that models can be compared without their files."""
    results, path = course.results, course.definition.folder / RESULTS
    if not isinstance(course.experiment, Models) or not path.exists():
        return results
    found = _read_results(path)
    if found.get("quick", False) != course.definition.quick:
        return results
    theirs, records = {one["unit"]: one for one in found["records"]}, dict(results.records)
    while True:
        units = course.experiment.units(records)
        more = {
            one.name: theirs[one.name]
            for one in units
            if one.name not in records and one.name in theirs and theirs[one.name]["settings"] == one.plain()
        }
        if not more:
            return replace(results, units=units, records=records, earlier=found)
        records |= more


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
        "findings": [asdict(one) for one in summary.findings],
        **summary.numbers,
    }
    path = folder / RESULTS
    records = [*results.records.values(), *_earlier(path, results, definition.quick)]
    with text_file(path) as file:
        head = json.dumps(found, indent=1, allow_nan=False)
        rows = ",\n".join(
            f"  {json.dumps(one, allow_nan=False)}" for one in records
        )  # one line each, so that a change is one line
        file.write(f'{head[:-2]},\n "records": [\n{rows}\n ]\n}}\n')
    with replacing(folder / PAGE) as temporary:
        temporary.write_text(page(definition.title, definition.quick, found["units"], summary), encoding="utf-8")
    for picture in summary.pictures:
        try:
            picture.draw(folder / picture.name)
        except ForetellError as error:  # matplotlib is not installed
            log.warning("%s: no picture: %s", folder / picture.name, error)


def _earlier(path: Path, results: Results, quick: bool) -> list[dict[str, Any]]:
    """Return the records of units that are not here, so that results of several machines add up; not those with outdated settings."""
    if not path.exists():
        return []
    found = _read_results(path)
    if found.get("quick", False) != quick:
        return []
    wanted = {one.name: one.plain() for one in results.units}
    return [
        one
        for one in found["records"]
        if one["unit"] not in results.records and one["settings"] == wanted.get(one["unit"], one["settings"])
    ]


def _read_results(path: Path) -> dict[str, Any]:
    try:
        found = read_json(path)
        if all({"unit", "settings"} <= one.keys() for one in found["records"]):
            return found
        raise KeyError("unit")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
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
        parts += ["## Findings", "", *finding_lines(summary.findings), ""]
    for picture in summary.pictures:
        parts += [f"![{Path(picture.name).stem.replace('-', ' ')}]({picture.name})", ""]
    return "\n".join(parts)


def table_lines(section: TableSection) -> list[str]:
    return [_row(section.columns), _row(["---"] * len(section.columns)), *(_row(row) for row in section.rows)]


def finding_lines(findings: Sequence[Finding]) -> list[str]:
    head = [_row(["finding", "verdict", "measured"]), _row(["---"] * 3)]
    return head + [_row([f"{one.name}: {one.claim}", f"**{one.verdict}**", one.detail]) for one in findings]


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


ALL = "all"


@dataclass(frozen=True)
class Outcome:
    courses: list[ExperimentProgress]
    summaries: list[ExperimentSummary]
    interrupted: bool

    @property
    def code(self) -> int:
        if self.interrupted:
            return 130
        return 1 if any(course.failed for course in self.courses) else 0

    def to_json(self) -> dict[str, Any]:
        found = [
            {**course.to_json(), "findings": [asdict(one) for one in summary.findings], **summary.numbers}
            for course, summary in zip(self.courses, self.summaries, strict=True)
        ]
        return {"experiments": found, "interrupted": self.interrupted}

    def text(self) -> str:
        lines: list[str] = []
        for course, summary in zip(self.courses, self.summaries, strict=True):
            lines += [course.definition.title, ""]
            if course.definition.quick:
                lines += [
                    "a quick run on little data, to see that everything works: its numbers and verdicts mean nothing",
                    "",
                ]
            for section in summary.sections:
                lines += [section.title, *aligned(table_lines(section)), ""]
            if summary.findings:
                lines += [
                    "findings",
                    *(f"  {one.verdict}: {one.name}: {one.detail}" for one in summary.findings),
                    "",
                ]
            told = f"{course.results.folder}: {len(course.results.records)} units done"
            if course.failed:
                told += f"; {len(course.failed)} failed"
            if course.pending:
                told += f"; {len(course.pending)} units are pending: `foretell reproduce {course.name}` goes on"
            lines.append(f"{told}\n")
        return "\n".join(lines)


def reproduce(experiments: Sequence[str], wanted: ReproduceOptions, tell: Callable[[str], None]) -> Outcome:
    """Run all pending units, then write tables, tests and findings of the finished ones."""
    with stopping() as asked:
        courses = run_units(_all(experiments, wanted, tell), wanted, tell, lambda: asked["stop"])
        interrupted = asked["stop"]
    summaries = [write_results(one, wanted.publish) if wanted.results else ExperimentSummary() for one in courses]
    return Outcome(courses, summaries, interrupted)


def _all(experiments: Sequence[str], wanted: ReproduceOptions, tell: Callable[[str], None]) -> list[str]:
    """Return the names of experiments; `all` stands for every experiment whose data exist."""
    found: list[str] = []
    for name in experiments:
        if name != ALL:
            found.append(name)
            continue
        for one in names():
            definition = read_definition(one, wanted.choice)
            wrong = missing_data(definition, wanted.data)
            if wanted.choice.models and not definition.has_any(wanted.choice.models):
                tell(f"{one}: left out: it has none of {', '.join(wanted.choice.models)}")
            elif wrong:
                tell(f"{one}: left out: {wrong[0]}")
            else:
                found.append(one)
    return list(dict.fromkeys(found))


def reproduce_options(
    *, data: str | None, out: str | None, models: str, seeds: str, quick: bool, **others: Any
) -> ReproduceOptions:
    """Check options from a command line and convert them; `others` are fields of `ReproduceOptions`."""
    choice = Choice(quick, tuple(part.strip() for part in models.split(",") if part.strip()), _seeds(seeds))
    folder = Path(out or ("reproduced/quick" if quick else "reproduced"))
    return ReproduceOptions(out=folder, data=Path(data) if data else None, choice=choice, **others)


def listed() -> list[dict[str, Any]]:
    """Return all experiments with their first units."""
    found = []
    for name in names():
        definition = read_definition(name)
        units = open_experiment(definition).units({})
        data = definition.table.get("data", [])
        found.append(
            {
                "experiment": name,
                "title": definition.title,
                "kind": definition.kind,
                "data": [data] if isinstance(data, str) else list(data),
                "units": len(units),
                "minutes": round(sum(one.minutes for one in units), 1),
            }
        )
    return found


def listed_text() -> str:
    rows = [["experiment", "title", "data", "units"]]
    rows += [[one["experiment"], one["title"], ", ".join(one["data"]), str(one["units"])] for one in listed()]
    return "\n".join(aligned(["| " + " | ".join(row) + " |" for row in rows])) + "\n"


def aligned(lines: Sequence[str]) -> list[str]:
    """Return the lines of a Markdown table, padded so that columns are aligned."""
    rows = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines]
    rows = [row for row in rows if set("".join(row)) != {"-"}]
    widths = [
        max(len(row[place]) for row in rows if place < len(row)) for place in range(max(map(len, rows), default=0))
    ]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip() for row in rows]


def _seeds(text: str) -> tuple[int, ...]:
    try:
        found = tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise ForetellError(f"`seeds={text!r}`: expected whole numbers with commas, such as 0,1,2") from None
    if any(seed < 0 for seed in found):
        raise ForetellError(f"`seeds={text!r}`: expected numbers from 0 on")
    return found


__all__ = ["Outcome", "finding_lines", "listed", "listed_text", "reproduce", "reproduce_options"]
