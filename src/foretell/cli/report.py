"""`foretell report RUN…`: one self-contained HTML page with scores, calibration, and predictions over time."""

from __future__ import annotations

import logging
import os
import re
import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foretell.cli import flags
from foretell.errors import ForetellError

if TYPE_CHECKING:
    from foretell.cli.open_run import OpenRun
    from foretell.data import EventSequence
    from foretell.data.summary import DataSummary
    from foretell.report.entry import Entry
    from foretell.shards.place import WorkPlace
    from foretell.train.progress_bar import Bar

Option = typer.Option
log = logging.getLogger("foretell")
SUFFIXES = (".html", ".htm")


@flags.with_reading(but=("start",))
def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN…", help="Run folders: one, or several on the same data.")],
    data: Annotated[
        str | None, Option("--data", help="Other data than the runs' own: a folder, a file, a name.")
    ] = None,
    split: Annotated[str | None, Option(help="train, dev or test; default: test.")] = None,
    sequence: Annotated[
        str | None, Option(help="The sequence that is shown over time, by id or place; default: the longest.")
    ] = None,
    begin: Annotated[
        str,
        Option("--from", help="From when on the sequence is shown, a number or a date; default: where it is scored."),
    ] = "",
    out: Annotated[Path, Option("--out", "-o", help="The page to write; one that is there is replaced.")] = Path(
        "report.html"
    ),
    floors: Annotated[bool, Option(help="Also fit and score the floors: Poisson, weekly Poisson, Hawkes.")] = True,
    impossible: flags.OtherImpossibleOption = None,
    unseen: flags.UnseenOption = flags.UnseenChoice.mean,
    undeclared: flags.OtherUndeclaredOption = None,
    device: flags.DeviceOption = "cpu",
    columns: flags.ColumnsOption = "",
    on: flags.OnOption = "this",
    as_json: flags.JsonOption = False,
    quiet: flags.QuietOption = False,
    *,
    given: flags.Given,
) -> None:
    """Write one self-contained page: scores, intensities over time, sampled futures, goodness of fit, calibration, rules at work."""
    import time

    from foretell.cli.open_run import names_its_data, open_scored, without_floors
    from foretell.cli.other_rows import OtherRules
    from foretell.cli.show import print_json
    from foretell.data.files import replacing
    from foretell.evaluate.metrics import has_times
    from foretell.report.entry import place_of_same
    from foretell.report.page import Contents, report_page
    from foretell.shards.place import parse_place
    from foretell.train.progress_bar import bar

    begun, where = time.monotonic(), parse_place(on)
    if out.suffix.lower() not in SUFFIXES:
        raise ForetellError(f"{out}: expected a name that ends in {' or '.join(SUFFIXES)}")
    _check_distinct(runs)
    read = flags.reading(given, columns)
    opened = [
        one.settled(impossible, unseen=unseen)
        for one in open_scored(runs, data, split, read, device, OtherRules(None, undeclared))
    ]
    chosen = _chosen(opened[0], sequence)
    clock = opened[0].clock
    shown_from = clock.number_of(begin, chosen.start, "--from") if begin else chosen.scored_from
    if not 0.0 <= shown_from < chosen.t_end:
        until = clock.shown(chosen.t_end, chosen.start)
        raise ForetellError(
            f"--from {begin}: expected a time from the start of sequence {chosen.id} on, which ends at {until}"
        )
    places = [place_of_same(one.data, chosen, str(run)) for one, run in zip(opened, runs, strict=True)]
    with bar(quiet) as progress:
        summary = _summary(opened[0], data, flags.reading(given, columns))
        names = _names(runs)
        entries = [_entry(one, name, progress, where) for one, name in zip(opened, names, strict=True)]
        if floors and not names_its_data(opened[0].run):
            log.warning("%s", without_floors(opened[0].run))
        elif floors:
            timed = any(has_times(entry.evaluation) for entry in entries)
            entries = [*_floors(opened, timed, progress), *entries]
        made = datetime.now(UTC).strftime("%Y-%m-%d"), _without_passwords(shlex.join(["foretell", *sys.argv[1:]]))
        contents = Contents(summary, entries, places, opened[0].time_unit, shown_from, *made)
        text = report_page(contents, progress.move)
    with replacing(out) as temporary:
        temporary.write_text(text, encoding="utf-8")
    size, seconds = out.stat().st_size, time.monotonic() - begun
    if as_json:
        print_json(
            {"path": str(out), "bytes": size, "seconds": round(seconds, 3), "runs": names, "sequence": chosen.id}
        )
    else:
        typer.echo(f"report: {out} ({size / 1e6:.1f} MB, {seconds:.0f} s)")


def _without_passwords(text: str) -> str:
    """Return the text without passwords in addresses of databases, because pages are shared."""
    return re.sub(r"(://[^:/@\s]+):[^@\s]+@", r"\1:…@", text)


def _real(run: Path) -> Path:
    """Return the path of a run with links resolved; unlike `resolve`, it accepts cyclic links."""
    return Path(os.path.realpath(run))


def _check_distinct(runs: list[Path]) -> None:
    seen: dict[Path, Path] = {}
    for run in runs:
        other = seen.setdefault(_real(run), run)
        if other is not run:
            raise ForetellError(f"{run}: this run is named twice")


def _names(runs: list[Path]) -> list[str]:
    """Return the names of the folders, with their parents where names are equal."""
    parts = [_real(run).parts for run in runs]
    for depth in range(1, max(len(one) for one in parts) + 1):
        names = ["/".join(one[-depth:]) for one in parts]
        if len(set(names)) == len(names):
            return names
    raise AssertionError("distinct folders have distinct paths")


def _chosen(opened: OpenRun, sequence: str | None) -> EventSequence:
    from foretell.cli.input_data import chosen_sequences

    data = opened.data
    if not len(data):
        raise ForetellError(f"{data.name}: there is no sequence in it")
    if sequence is not None:
        return chosen_sequences(data, sequence)[0]
    return data[int(data.lengths.argmax())]


def _summary(opened: OpenRun, data: str | None, reading: dict[str, Any]) -> DataSummary:
    from foretell.data import load
    from foretell.data.summary import summarise
    from foretell.train.splits import load_run

    if data is None:
        return summarise(load_run(opened.run.config()))
    return summarise(load(data, options=opened.run.reading(**reading)))


def _entry(opened: OpenRun, name: str, progress: Bar, where: WorkPlace) -> Entry:
    """Return a run with its scores: stored ones if they match the data and options, else new ones."""
    from foretell.cli.scoring import kept_scores, score_at
    from foretell.evaluate.scores import ScoringOptions
    from foretell.report.entry import Entry
    from foretell.train.run import CONFIG

    # Next times take longer than all else; `foretell evaluate` computes them.
    without = ScoringOptions(times=False)
    kept = kept_scores(opened, ScoringOptions()) or kept_scores(opened, without)
    scored = kept or score_at(where, opened, without, name, progress)
    evaluation, records = scored.evaluation.to_json(), opened.run.metrics()
    settings = _without_passwords((opened.run.path / CONFIG).read_text(encoding="utf-8"))
    scores = scored.events, evaluation, records
    return Entry(name, opened.model, opened.data, *scores, settings=settings, reused=kept is not None)


def _floors(runs: list[OpenRun], timed: bool, progress: Bar) -> list[Entry]:
    """Return Poisson and Hawkes, fitted to the first run's training data and scored on the same events; `timed`: including next times."""
    from foretell.cli.open_run import fitted_floors
    from foretell.evaluate.scores import ScoringOptions, score
    from foretell.report.entry import Entry
    from foretell.train.likelihood_task import scored_alike

    opened, there = runs[0], {one.model.kind for one in runs}
    data, found = scored_alike(opened.data, opened.model), []
    for floor in fitted_floors(opened, there, progress):
        progress.move(f"scoring {floor.title}", 0, 1)
        scored = score(floor, data, ScoringOptions(times=timed))
        found.append(Entry(floor.title, floor, data, scored.events, scored.evaluation.to_json(), floor=True))
    return found
