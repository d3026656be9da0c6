"""`foretell sample RUN --horizon T --n N`: whole futures, drawn exactly."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foretell.cli import flags
from foretell.errors import ForetellError
from foretell.wording import counted

if TYPE_CHECKING:
    from rich.table import Table

    from foretell.sampling.core.futures import Futures

Option = typer.Option
FULLY_SHOWN = 3  # histories


def sample(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    horizon: Annotated[float, Option(help="How far to go, in the data's unit of time.")],
    history: Annotated[
        str | None,
        Option(
            help="What happened so far: a file, a folder, a name, - for stdin; default: what is piped in, else nothing."
        ),
    ] = None,
    n: Annotated[int, Option("--n", help="Futures of each history.")] = 1,
    events: Annotated[int, Option(help="Stop a future after so many events, if the horizon is not first.")] = 10_000,
    start: Annotated[
        float | None, Option("--from", help="Begin here and not at the history's end; later events are not seen.")
    ] = None,
    sequence: Annotated[str | None, Option(help="Only the history with this id or place.")] = None,
    split: Annotated[str | None, Option(help="Of the history: train, dev or test.")] = None,
    seed: Annotated[int, Option(help="The same seed gives the same futures.")] = 0,
    output: Annotated[
        Path | None,
        Option("--output", "-o", help="Write the futures as data: FILE.jsonl, .jsonl.gz, .csv or .parquet."),
    ] = None,
    whole: Annotated[bool, Option(help="In that file, with the history in front of each future.")] = True,
    shown: Annotated[int, Option(help="Futures shown in the table.")] = 5,
    device: flags.DeviceOption = "cpu",
    impossible: Annotated[
        flags.Impossible | None,
        Option(help="Past events that the rules make impossible: an error, left out, or kept; default: the run's."),
    ] = None,
    columns: flags.ColumnsOption = "",
    as_json: flags.JsonOption = False,
    quiet: flags.QuietOption = False,
) -> None:
    """Futures of given histories by exact thinning; for a model of rules the database moves with them."""
    import numpy as np

    from foretell.cli.input_data import chosen_sequences, piped_content
    from foretell.cli.open_run import open_run
    from foretell.cli.show import bar, out, print_json
    from foretell.data import EventSequence, save
    from foretell.data.loading import SUFFIXES, suffix_of
    from foretell.sampling.core.futures import futures_as_data, sample_futures
    from foretell.train.fit import choose_device
    from foretell.train.run import RunFolder

    if output is not None and suffix_of(output) is None:
        raise ForetellError(f"{output}: expected a name that ends in {', '.join(SUFFIXES)}")
    if shown < 0:
        raise ForetellError(f"--shown {shown}: expected 0 or more")
    content = piped_content(history, split)
    if history is None and content is None:
        for name, value in (("--sequence", sequence), ("--split", split), ("--from", start)):
            if value is not None:
                raise ForetellError(f"{name}: there is no history to choose from; give one with --history")
        folder = RunFolder.open(run)
        model, time_unit = folder.model(str(choose_device(device))), folder.time_unit()
        histories: list[EventSequence] = [EventSequence(np.empty(0), np.empty(0, dtype=np.int32), 0.0, "future")]
    else:
        opened = open_run(run, history, split, columns, device, content)
        opened = opened.settled(impossible, chosen_sequences(opened.data, sequence))
        model, time_unit, histories = opened.model, opened.time_unit, list(opened.data)
    with bar(quiet or as_json) as progress:
        found = sample_futures(
            model,
            histories,
            horizon=horizon,
            n=n,
            start=start,
            events=events,
            seed=seed,
            progress=lambda done, of: progress.move("sampling", done, of),
        )
    if output is not None:
        save(futures_as_data(found, histories if whole else None, model.vocabulary), output)
    if as_json:
        print_json([one.to_json() for one in found])
        return
    console = out()
    if len(found) > FULLY_SHOWN:
        console.print(_short_table(found))
    else:
        for one in found:
            console.print(_table(one, shown, time_unit))
            console.print(_remark(one), markup=False)
    if output is not None:
        console.print(f"futures: {output}")


def _table(found: Futures, shown: int, time_unit: str) -> Table:
    from rich.markup import escape

    from foretell.cli.show import make_table

    unit = f" {time_unit}" if time_unit and len(time_unit) < 20 else ""
    title = f"sequence {found.sequence}: {counted(len(found.futures), 'future')}"
    words = ["the first of them", "ends"]
    table = make_table(f"{title} from {found.start:g} to {found.horizon:g}{unit}", ["future", "events", *words], words)
    decimals = min(9, max(0, 3 - math.floor(math.log10(found.horizon - found.start))))
    for number, one in enumerate(found.futures[:shown], 1):
        first = "  ".join(
            f"{time:.{decimals}f} {escape(name)}" for time, name in zip(one.times[:3], one.events[:3], strict=True)
        )
        why = "at the horizon" if one.end == "horizon" else "with the last event asked for"
        table.add_row(str(number), str(len(one.events)), first + ("  …" if len(one.events) > 3 else ""), why)
    return table


def _short_table(found: list[Futures]) -> Table:
    """One row a history."""
    from rich.markup import escape

    from foretell.cli.show import make_table

    names = ["sequence", "from", "to", "futures", "events a future", "90 %"]
    table = make_table(f"futures of {len(found)} histories", names, ["sequence"])
    for one in found:
        counts = _Counts.of(one)
        between = f"{counts.low} … {counts.high}"
        size = str(len(one.futures))
        table.add_row(escape(one.sequence), f"{one.start:g}", f"{one.horizon:g}", size, f"{counts.mean:.4g}", between)
    return table


@dataclass(frozen=True)
class _Counts:
    """Of events in a future."""

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
