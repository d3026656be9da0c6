"""`foretell sample RUN --horizon T --n N`: exact draws of whole futures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foretell.cli import flags
from foretell.cli.result_file import SHOWN, more_rows
from foretell.errors import ForetellError
from foretell.wording import counted

if TYPE_CHECKING:
    from rich.table import Table

    from foretell.data import Clock
    from foretell.models.base import IntensityModel
    from foretell.sampling.core.future import Futures
    from foretell.sampling.core.sampler import FutureCovariates

Option = typer.Option
FULLY_SHOWN = 3  # most histories whose futures get one row each
COVARIATES = {
    "drawn": "covariates of drawn events: those of training events of their type, at random",
    "missing": "covariates of drawn events: missing",
}


@flags.with_reading()
def sample(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    past: flags.HistoryArgument = None,
    *,
    history: flags.HistoryOption = None,
    horizon: Annotated[
        str | None,
        Option(
            help="How far to go: 30 in the data's unit of time, or 10d, 2h, 30m; default: until there are --events."
        ),
    ] = None,
    n: Annotated[int, Option("--n", help="Futures of each history.")] = 1,
    events: Annotated[
        int | None, Option(help="Stop a future after so many events, if the horizon is not first; default: 10,000.")
    ] = None,
    begin: Annotated[
        str | None,
        Option(
            "--from", help="Begin here (a number or a date); later events are not seen; default: the history's end."
        ),
    ] = None,
    history_events: Annotated[
        int, Option(help="Look at the last so many events of each history alone; 0: at all.", min=0)
    ] = 0,
    sequence: Annotated[str | None, Option(help="Only the history with this id or place; default: all.")] = None,
    split: Annotated[str | None, Option(help="Of the history: train, dev or test; default: test.")] = None,
    seed: Annotated[int, Option(help="The same seed gives the same futures.")] = 0,
    future_covariates: Annotated[
        str | None,
        Option(
            metavar="<drawn|missing>",
            help="Covariates of drawn events: those of training events of their type, at random, or missing; default: drawn.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        Option("--out", "-o", help="Write the futures as data: FILE.jsonl, .jsonl.gz, .csv or .parquet."),
    ] = None,
    whole: Annotated[bool, Option(help="In that file, with the history in front of each future.")] = True,
    top: Annotated[int, Option(help="Futures shown in the table.", min=0)] = 5,
    device: flags.DeviceOption = "cpu",
    impossible: Annotated[
        flags.Impossible | None,
        Option(help="Past events that the rules make impossible: an error, left out, or kept; default: the run's."),
    ] = None,
    unseen: flags.UnseenOption = flags.UnseenChoice.mean,
    undeclared: flags.OtherUndeclaredOption = None,
    table: flags.TableOption = None,
    columns: flags.ColumnsOption = "",
    on: flags.OnOption = "this",
    as_json: flags.JsonOption = False,
    quiet: flags.QuietOption = False,
    given: flags.Given,
) -> None:
    """Draw futures of given histories, exactly, by thinning; models of rules update their database with every event."""
    import numpy as np

    from foretell.cli.input_data import asked_times, chosen_sequences, piped_content
    from foretell.cli.open_run import open_run
    from foretell.cli.other_rows import OtherRules, model_with
    from foretell.cli.show import print_json
    from foretell.cli.work_place import RunQuestion, shards_at
    from foretell.data import EventData, EventSequence, save
    from foretell.sampling.core.futures import futures_as_data, sample_futures
    from foretell.sampling.core.recent import recent_histories
    from foretell.shards.place import parse_place
    from foretell.train.fit import choose_device
    from foretell.train.progress_bar import bar
    from foretell.train.run import RunFolder

    place, history, rules = parse_place(on), flags.one_history(past, history), OtherRules(table, undeclared)
    _check_ends(horizon, events, out)
    content, starts = piped_content(history, split), None
    if history is None and content is None:
        for name, value in (("--sequence", sequence), ("--split", split), ("--from", begin)):
            if value is not None:
                raise ForetellError(f"{name}: there is no history to choose from; give one with --history")
        folder = RunFolder.open(run)
        model, time_unit, clock = folder.model(str(choose_device(device))), folder.time_unit(), folder.clock()
        model_with(model, rules)
        histories: list[EventSequence] = [EventSequence(np.empty(0), np.empty(0, dtype=np.int32), 0.0, "future")]
    else:
        opened = open_run(run, history, split, flags.reading(given, columns), device, content, rules)
        chosen = chosen_sequences(opened.data, sequence)
        if begin is not None:
            chosen, starts = asked_times(chosen, begin, "--from")
        opened = opened.settled(impossible, chosen, unseen)
        model, time_unit, histories, clock = opened.model, opened.time_unit, list(opened.data), opened.clock
    recent = recent_histories(histories, history_events, clock, starts)
    if starts is not None:
        starts = [start - one.zero for start, one in zip(starts, recent, strict=True)]
    far = None if horizon is None else clock.duration(horizon, "--horizon")
    asked: dict[str, Any] = {"horizon": far, "n": n, "start": starts, "events": events}
    asked |= {"seed": seed, "covariates": _chosen_covariates(future_covariates, model)}
    looked_at = [one.sequence for one in recent]
    question = RunQuestion(run, model, EventData(looked_at, model.vocabulary), asked)
    with bar(quiet or as_json) as progress, shards_at(place, question, quiet) as shards:
        found = sample_futures(
            model,
            looked_at,
            **asked,
            shards=shards,
            progress=lambda done, of: progress.move("sampling", done, of),
        )
    found = [one.back(futures) for one, futures in zip(recent, found, strict=True)]
    if out is not None:
        save(futures_as_data(found, histories, model.vocabulary, clock, whole=whole), out)
    began = [one.start for one in histories]
    if as_json:
        print_json([one.to_json(clock, at) for one, at in zip(found, began, strict=True)])
        return
    _say(found, top, time_unit, clock, began, None if horizon is not None else events)
    if out is not None:
        typer.echo(f"futures: {out}")


def _check_ends(horizon: str | None, events: int | None, out: Path | None) -> None:
    """Check that futures have an end, and that the name of the output file has a known format."""
    from foretell.data.loading import SUFFIXES, suffix_of

    if horizon is None and events is None:
        raise ForetellError("say how far futures go: --horizon 10d, or --events 5")
    if out is not None and suffix_of(out) is None:
        raise ForetellError(f"{out}: expected a name that ends in {', '.join(SUFFIXES)}")


def _say(
    found: Sequence[Futures],
    shown: int,
    time_unit: str,
    clock: Clock,
    began: list[int | None],
    events: int | None,
) -> None:
    """Print the futures of a few histories, or one row per history; `events` is the limit on events if there is no horizon."""
    from foretell.cli.show import out

    console = out()
    if len(found) > FULLY_SHOWN:
        console.print(_short_table(found[:SHOWN], clock, began, len(found), events))
        if (more := more_rows(len(found) - SHOWN, "sequence")) is not None:
            console.print(more, markup=False)
    else:
        for one, at in zip(found, began, strict=True):
            console.print(_table(one, shown, time_unit, clock, at, events))
            console.print(_remark(one), markup=False)
    if found and found[0].covariates is not None:
        console.print(COVARIATES[found[0].covariates])


def _chosen_covariates(name: str | None, model: IntensityModel) -> FutureCovariates:
    from foretell.options import check_choice

    if name is not None and not model.has_covariates:
        raise ForetellError(f"--future-covariates {name}: the model was trained without covariates; leave it out")
    check_choice("--future-covariates", name or "drawn", list(COVARIATES))
    return "missing" if name == "missing" else "drawn"


def _table(found: Futures, shown: int, time_unit: str, clock: Clock, began: int | None, events: int | None) -> Table:
    from foretell.cli.show import make_table
    from foretell.wording import escape

    unit = f" {time_unit}" if time_unit and len(time_unit) < 20 and began is None else ""
    begin, end = (clock.short(one, began) or f"{one:g}" for one in (found.start, found.horizon))
    title = f"sequence {found.sequence}: {counted(len(found.futures), 'future')}"
    words = ["the first of them", "ends"]
    until = f"to {end}{unit}" if events is None else f"until they have {counted(events, 'event')}"
    table = make_table(f"{title} from {begin} {until}", ["future", "events", *words], words)
    decimals = min(9, max(0, 3 - math.floor(math.log10(_length(found, events)))))
    for number, one in enumerate(found.futures[:shown], 1):
        first = "  ".join(
            f"{clock.short(time, began) or f'{time:.{decimals}f}'} {escape(name)}"
            for time, name in zip(one.times[:3].tolist(), one.events[:3], strict=True)
        )
        why = "at the horizon" if one.end == "horizon" else "with the last event asked for"
        table.add_row(str(number), str(len(one.events)), first + ("  …" if len(one.events) > 3 else ""), why)
    return table


def _length(found: Futures, events: int | None) -> float:
    """Return the length of futures: the horizon or, if there is none, the mean time until their last event."""
    ends = [float(one.times[-1]) - found.start for one in found.futures if len(one.times)]
    mean = sum(ends) / max(len(ends), 1)
    return found.horizon - found.start if events is None or mean <= 0.0 else mean


def _short_table(found: Sequence[Futures], clock: Clock, began: list[int | None], of: int, events: int | None) -> Table:
    """Return a table with one row per history."""
    from foretell.cli.show import make_table
    from foretell.wording import escape

    names = ["sequence", "from", "to", "futures", "events a future", "90 %"]
    table = make_table(f"futures of {of} histories", names, ["sequence"])
    for one, at in zip(found, began, strict=False):
        counts = _Counts.of(one)
        begin, end = (clock.short(time, at) or f"{time:g}" for time in (one.start, one.horizon))
        end = end if events is None else counted(events, "event")
        between = f"{counts.low} … {counts.high}"
        size = str(len(one.futures))
        table.add_row(escape(one.sequence), begin, end, size, f"{counts.mean:.4g}", between)
    return table


@dataclass(frozen=True)
class _Counts:
    """The numbers of events in futures."""

    mean: float
    low: int
    middle: int
    high: int

    @classmethod
    def of(cls, found: Futures) -> _Counts:
        counts = sorted(len(one.events) for one in found.futures)
        low, middle, high = (counts[round(share * (len(counts) - 1))] for share in (0.05, 0.5, 0.95))
        return cls(sum(counts) / len(counts), low, middle, high)


def _remark(found: Futures) -> str:
    cost, counts = found.cost, _Counts.of(found)
    proposals, bounds, pieces = (one / max(cost.accepted, 1) for one in (cost.proposals, cost.bounds, cost.pieces))
    each = f"{proposals:.2f} proposals and {bounds:.2f} bounds (of {pieces:.1f} pieces) an event"
    if len(found.futures) == 1:
        return f"exact, by {each}"
    spread = f"median {counts.middle}, 90 % from {counts.low} to {counts.high}"
    return f"events in a future: {counts.mean:.4g} on average, {spread}; exact, by {each}"
