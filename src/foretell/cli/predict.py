"""`foretell predict RUN HISTORY`: predict the time, the type and the participants of the next event."""

from __future__ import annotations

import sys
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foretell.cli import flags
from foretell.cli.result_file import SHOWN, ResultOption, check_result_file, more_rows, write_result
from foretell.errors import ForetellError
from foretell.wording import counted

if TYPE_CHECKING:
    from foretell.data import EventData, ResultList
    from foretell.evaluate.prediction import Prediction

Option = typer.Option
FULLY_SHOWN = 3  # most sequences that are shown in full; if there are more, each gets one row


class MethodChoice(StrEnum):
    quadrature = "quadrature"
    samples = "samples"
    both = "both"


@flags.with_reading()
def predict(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    past: flags.HistoryArgument = None,
    history: flags.HistoryOption = None,
    sequence: flags.SequenceOption = None,
    begin: Annotated[
        str | None,
        Option(
            "--from",
            help="Predict from this time on (a number or a date), from what happened up to it; default: t_end.",
        ),
    ] = None,
    pattern: Annotated[str | None, Option(help="Who: 'pass(purple7,Q)'; places in upper case are free.")] = None,
    top: Annotated[int, Option(help="How many events are listed.", min=1)] = 5,
    by: Annotated[
        MethodChoice, Option(help="How: quadrature of the survival function, exact samples, or both.")
    ] = MethodChoice.quadrature,
    n: Annotated[int, Option("--n", help="Samples of each next event.", min=1)] = 1000,
    seed: Annotated[int, Option(help="Of the samples.", min=0)] = 0,
    split: Annotated[str | None, Option(help="train, dev or test; default: test.")] = None,
    device: flags.DeviceOption = "cpu",
    impossible: flags.OtherImpossibleOption = None,
    unseen: flags.UnseenOption = flags.UnseenChoice.mean,
    undeclared: flags.OtherUndeclaredOption = None,
    table: flags.TableOption = None,
    columns: flags.ColumnsOption = "",
    on: flags.OnOption = "this",
    out: ResultOption = None,
    as_json: flags.JsonOption = False,
    quiet: flags.QuietOption = False,
    *,
    given: flags.Given,
) -> None:
    """Predict the next event of each sequence: its time, its type and its participants; or give the labels of a classifier."""
    from foretell.cli.input_data import asked_times, chosen_sequences, piped_content
    from foretell.cli.open_run import open_run
    from foretell.cli.other_rows import OtherRules
    from foretell.cli.show import print_json
    from foretell.cli.task_runs import is_task, label_data
    from foretell.cli.work_place import RunQuestion, shards_at
    from foretell.evaluate.predict import predict_each, seen_until
    from foretell.shards.place import parse_place
    from foretell.train.progress_bar import bar

    place, history, rules = parse_place(on), flags.one_history(past, history), OtherRules(table, undeclared)
    check_result_file(out)
    if is_task(run):
        asked = {
            "from": begin is not None,
            "pattern": pattern,
            "by": by is not MethodChoice.quadrature,
            "impossible": impossible,
            "table": table,
            "on": place.kind != "this",
        }
        stray = [f"--{name}" for name, value in asked.items() if value]
        if stray:
            raise ForetellError(
                f"{', '.join(stray)}: a classifier labels whole sequences or their events; leave it out"
            )
        label_data(run, history, split, flags.reading(given, columns), device, sequence, out, as_json)
        return
    content = piped_content(history, split)
    opened = open_run(run, history, split, flags.reading(given, columns), device, content, rules)
    chosen = chosen_sequences(opened.data, sequence)
    if begin is not None:
        chosen, starts = asked_times(chosen, begin, "--from")
        _say_quiet(chosen, starts, begin)
        chosen = seen_until(chosen, starts)
    opened = opened.settled(impossible, chosen, unseen)
    asked: dict[str, Any] = {"pattern": pattern, "top": top, "by": by.value, "n": n, "seed": seed}
    question = RunQuestion(run, opened.model, opened.data, asked)
    with bar(quiet or as_json) as progress, shards_at(place, question, quiet) as shards:
        found = predict_each(
            opened.model,
            opened.data,
            **asked,
            shards=shards,
            progress=lambda done, of: progress.move("next events", done, of),
        )
    if out is not None:
        write_result(out, lambda: _asked_for(found).arrow(), (one.to_json() for one in found))
    if as_json:
        print_json([one.to_json() for one in found])
    elif out is not None:
        typer.echo(f"predictions of {counted(len(found), 'sequence')}: {out}")
    else:
        _show(found, chosen.name, opened.time_unit)


def _asked_for(found: ResultList[Prediction]) -> ResultList[Prediction]:
    """Return the predictions with the events that tables show: the most probable ones, or those that match the pattern."""
    from foretell.data import ResultList

    with_who = ((one, one.who) for one in found)
    return ResultList(
        one if who is None else replace(one, outlook=replace(one.outlook, events=who.events)) for one, who in with_who
    )


def _show(found: list[Prediction], name: str, time_unit: str) -> None:
    from foretell.cli.show import out
    from foretell.report.predict_tables import event_tables, remarks, sentence, when_table

    console = out()
    if not found:
        console.print(f"{name}: there is no sequence in it", markup=False)
        return
    few = len(found) <= FULLY_SHOWN
    if few:
        for one in found:
            console.print(sentence(one, time_unit), markup=False)
    console.print(when_table(found[:SHOWN], time_unit, what=not few))
    if (left := more_rows(len(found) - SHOWN, "sequence")) is not None:
        console.print(left, markup=False)
    for one in found if few else ():
        for line in remarks(one):
            console.print(line, markup=False)
        for table in event_tables(one):
            console.print(table)


def _say_quiet(data: EventData, starts: list[float], begin: str) -> None:
    ended = [one for one, start in zip(data, starts, strict=True) if one.t_end < start]
    if ended:
        first = f"sequence {ended[0].id} was" if len(ended) == 1 else f"{len(ended)} sequences were"
        sys.stderr.write(f"{first} observed until before {begin}: nothing is taken to have happened in between\n")
