"""Scores of runs for `evaluate`, `compare` and `report`: stored ones where they match, else new ones, with the floors if requested."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from foretell.cli.open_run import OpenRun, fitted_floors, unfinished
from foretell.cli.result_file import SHOWN, more_rows, row_objects, write_result
from foretell.cli.show import (
    difference_tables,
    fit_table,
    functor_table,
    future_table,
    make_table,
    out,
    participant_table,
    print_json,
    remarks,
    score_table,
)
from foretell.cli.work_place import RunQuestion, shards_at
from foretell.data import EventData
from foretell.data.frame_output import arrow_table
from foretell.evaluate.compare import RunComparison
from foretell.evaluate.metrics import EventRecord
from foretell.evaluate.patterns import check_patterns, guess_participants, parse_pattern
from foretell.evaluate.record import Origin, read_scores, score_columns, write_scores
from foretell.evaluate.scores import ScoredModel, ScoringOptions, score, summarise
from foretell.shards.place import WorkPlace
from foretell.shards.shard_map import Shards
from foretell.train.likelihood_task import scored_alike
from foretell.train.progress_bar import Bar, bar
from foretell.train.run import MODEL
from foretell.wording import counted, escape


def score_run(
    opened: OpenRun, options: ScoringOptions, name: str, progress: Bar, shards: Shards | None = None
) -> ScoredModel:
    """Compute the scores of a run."""
    return score(
        opened.model,
        opened.data,
        options,
        progress=lambda what, done, of: progress.move(f"{name}: {what}", done, of),
        shards=shards,
    )


def score_at(
    place: WorkPlace, opened: OpenRun, options: ScoringOptions, name: str, progress: Bar, *, quiet: bool = False
) -> ScoredModel:
    """Compute the scores of a run at a place (`--on`)."""
    with shards_at(place, RunQuestion(opened.run.path, opened.model, opened.data, asdict(options)), quiet) as shards:
        return score_run(opened, options, name, progress, shards)


def kept_scores(opened: OpenRun, options: ScoringOptions) -> ScoredModel | None:
    """Return the scores stored by `foretell evaluate` if model, data and settings agree, else None; participants are predicted anew."""
    model, data = opened.model, opened.data
    patterns = [parse_pattern(text) for text in options.predict]
    check_patterns(model, patterns)
    origin = Origin.of(opened.run.path / MODEL, data, options)
    kept = read_scores(opened.run.path, model, data, origin, times=options.times)
    if kept is None or not patterns:
        return kept
    with model.evaluating():
        guesses = tuple(guess_participants(model, data, patterns, options.window))
    return summarise(model, data, options, EventRecord(kept.events, kept.times, guesses))


def show_evaluation(
    opened: OpenRun, options: ScoringOptions, place: WorkPlace, *, floors: bool, as_json: bool, quiet: bool
) -> ScoredModel:
    """Compute the scores of a run at a place (its floors in this process), write them into its folder, and print them."""
    results, run = [], opened.run.path
    with bar(quiet) as progress:
        for floor in fitted_floors(opened, (), progress) if floors else ():
            alike = scored_alike(opened.data, opened.model)
            results.append(score_run(replace(opened, model=floor, data=alike), options, floor.title, progress))
        results.append(score_at(place, opened, options, opened.model.title, progress, quiet=quiet))
    written = write_scores(results[-1], opened.data, run, Origin.of(run / MODEL, opened.data, options))
    warning = unfinished(opened.run, opened.model)
    evaluations = [result.evaluation for result in results]
    if as_json:
        print_json(
            {
                **evaluations[-1].to_json(),
                "impossible": opened.impossible.value,
                "impossible_events": opened.impossible_events,
                "floors": [e.to_json() for e in evaluations[:-1]],
                "scores": str(written),
                "unfinished": warning,
            }
        )
        return results[-1]
    console = out()
    console.print(score_table(evaluations, opened.time_unit))
    console.print(fit_table(evaluations))
    if options.futures is not None:
        console.print(future_table(evaluations, opened.time_unit))
    if options.predict:
        console.print(participant_table(evaluations))
    for line in [*remarks(evaluations), *([] if warning is None else [warning])]:
        console.print(line, markup=False)
    console.print(f"event by event: {written}", markup=False)
    return results[-1]


EVENT_COLUMNS = ("sequence", "index", "time", "event", "log_likelihood", "predicted_event", "predicted_time")


def give_events(scored: ScoredModel, data: EventData, file: Path | None, as_json: bool) -> None:
    """Write the scores of every event to a file, or print those of the first events."""
    columns = arrow_table(score_columns(scored, data))
    if file is not None:
        write_result(file, lambda: columns, row_objects(columns))
    if as_json:
        return
    if file is not None:
        out().print(f"scores of {counted(columns.num_rows, 'row')}: {file}", markup=False)
        return
    table = make_table("event by event", EVENT_COLUMNS, ("sequence", "event", "predicted_event"))
    for row in columns.select(EVENT_COLUMNS).slice(0, SHOWN).to_pylist():
        cells = (
            f"{value:.5g}" if isinstance(value, float) else "" if value is None else str(value)
            for value in row.values()
        )
        table.add_row(*map(escape, cells))
    out().print(table)
    if (more := more_rows(columns.num_rows - SHOWN, "row")) is not None:
        out().print(more, markup=False)


def show_comparison(found: RunComparison, time_unit: str, notes: Sequence[str]) -> None:
    """Print the scores of runs side by side, and a verdict on every difference."""
    console, evaluations = out(), found.named()
    for table in (score_table(evaluations, time_unit), fit_table(evaluations), functor_table(found)):
        console.print(table)
    for table in difference_tables(found):
        console.print(table)
    verdicts = [one.verdict(time_unit if len(time_unit) < 20 else "") for one in found.differences]
    untested = [] if found.untested is None else [found.untested]
    for line in [*verdicts, *remarks(evaluations), *notes, *untested]:
        console.print(line, markup=False)
