"""The command behind `foretell reproduce` and `python -m foretell.reproduce`: names and options in, what is printed out.

It needs neither typer nor rich, so that it runs on a machine that has torch, numpy, safetensors and lark alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foretell.errors import ForetellError
from foretell.reproduce.definition import Choice, names, read_definition
from foretell.reproduce.experiment import ExperimentSummary, open_experiment
from foretell.reproduce.queue import ExperimentProgress, ReproduceOptions, default_out, missing_data, run_units
from foretell.reproduce.results import finding_lines, table_lines, write_results
from foretell.train.trainer import stopping

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
            {**course.to_json(), "findings": [one.to_json() for one in summary.findings], **summary.numbers}
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
                    "findings of the paper",
                    *(f"  {one.verdict}: {one.name}: {one.detail}" for one in summary.findings),
                    "",
                ]
            pending = (
                f"; {len(course.pending)} units are pending: `foretell reproduce {course.name}` goes on"
                if course.pending
                else ""
            )
            failed = f"; {len(course.failed)} failed" if course.failed else ""
            lines.append(f"{course.results.folder}: {len(course.results.records)} units done{failed}{pending}\n")
        return "\n".join(lines)


def reproduce(experiments: Sequence[str], wanted: ReproduceOptions, tell: Callable[[str], None]) -> Outcome:
    """All units that are pending, then tables, tests and findings of what is done."""
    with stopping() as asked:
        courses = run_units(_all(experiments, wanted, tell), wanted, tell, lambda: asked["stop"])
        interrupted = asked["stop"]
    summaries = [write_results(one, wanted.publish) if wanted.results else ExperimentSummary() for one in courses]
    return Outcome(courses, summaries, interrupted)


def _all(experiments: Sequence[str], wanted: ReproduceOptions, tell: Callable[[str], None]) -> list[str]:
    """`all` stands for every experiment whose data are there."""
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
    *,
    data: str | None,
    out: str | None,
    models: str,
    seeds: str,
    device: str,
    quick: bool,
    jobs: int,
    gpu_jobs: int,
    minutes: float | None,
    fit: bool,
    results: bool,
    publish: bool,
) -> ReproduceOptions:
    """Options as they were typed, checked."""
    if device not in ("auto", "cpu") and not device.startswith("cuda"):
        raise ForetellError(f"--device {device}: expected auto (what suits each unit), cpu or cuda")
    for name, value in (("--jobs", jobs), ("--gpu-jobs", gpu_jobs)):
        if value < 1:
            raise ForetellError(f"{name} {value}: expected 1 or more")
    if minutes is not None and not minutes > 0.0:
        raise ForetellError(f"--minutes {minutes:g}: expected a number above 0")
    if publish and (quick or models or seeds):
        raise ForetellError("--publish is for whole results: leave out --quick, --models and --seeds")
    if not results and (publish or not fit):
        raise ForetellError("--no-results leaves nothing to do: leave out --publish and --no-fit")
    choice = Choice(quick, tuple(part.strip() for part in models.split(",") if part.strip()), _seeds(seeds))
    return ReproduceOptions(
        out=Path(out) if out else default_out(quick),
        data=Path(data) if data else None,
        choice=choice,
        device=device,
        jobs=jobs,
        gpu_jobs=gpu_jobs,
        minutes=minutes,
        fit=fit,
        results=results,
        publish=publish,
    )


def listed() -> list[dict[str, Any]]:
    """The experiments that there are, with their first units."""
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
    """A Markdown table with columns of one width."""
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
        raise ForetellError(f"--seeds {text!r}: expected whole numbers with commas, such as 0,1,2") from None
    if any(seed < 0 for seed in found):
        raise ForetellError(f"--seeds {text!r}: expected numbers from 0 on")
    return found


__all__ = ["Outcome", "finding_lines", "listed", "listed_text", "reproduce", "reproduce_options"]
