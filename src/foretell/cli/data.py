"""`foretell data describe | convert | pack | simulate`: inspect event data, convert between formats, and simulate data."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foretell.cli import flags
from foretell.cli.group_help import CommandGroup
from foretell.cli.pack import pack
from foretell.errors import ForetellError
from foretell.reading import parse_json, read_document

if TYPE_CHECKING:
    from foretell.data import Dataset, EventData
    from foretell.data.summary import DataSummary
    from foretell.data.synthetic import Process

app = typer.Typer(
    name="data",
    cls=CommandGroup,
    help="Look at event data, convert it, pack it, simulate some.",
    no_args_is_help=True,
)
app.command()(pack)


class ReaderName(StrEnum):
    """The readers that `convert` can use."""

    auto = "auto"
    gatech = "gatech"
    easytpp = "easytpp"
    ndtt = "ndtt"


class ClockOrigin(StrEnum):
    """The choices for time 0 of a sequence."""

    window = "window"
    first_event = "first-event"


class ProcessName(StrEnum):
    """The processes that `simulate` can draw from."""

    poisson = "poisson"
    hawkes = "hawkes"
    self_correcting = "self-correcting"


ColumnsOption = Annotated[
    str, typer.Option("--columns", help="Columns of a long table: sequence=patient,time=when,event=code,arg1=room.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, on stdout.")]


@app.command()
@flags.with_reading(but=("unknown",))
def describe(
    path: Annotated[
        str | None, typer.Argument(help="A folder, a file, an embedded data set (robocup), or hf:NAME.")
    ] = None,
    as_json: JsonOption = False,
    plot: Annotated[Path | None, typer.Option("--plot", help="Also draw a picture: FILE.png, .pdf or .svg.")] = None,
    columns: ColumnsOption = "",
    participants: flags.ParticipantsOption = "",
    sql: flags.SqlOption = "",
    database: flags.DatabaseOption = "",
    *,
    given: flags.Given,
) -> None:
    """Describe data: counts, lengths, gaps, types, and the shares of ties and of times on a grid."""
    from foretell.data.summary import summarise

    source = flags.data_source(path, sql, database)
    if source is None:
        raise ForetellError("nothing to describe: give a folder, a file, an embedded name or hf:NAME, or --sql")
    dataset = _open(source, flags.reading(given, flags.with_participants(columns, participants)), ReaderName.auto, None)
    summary = summarise(dataset)
    if plot is not None:
        from foretell.report.data_picture import draw_data

        draw_data(dataset, plot)
    if as_json:
        typer.echo(json.dumps(summary.as_json(), ensure_ascii=False, indent=2))
        return
    _show(summary)
    if plot is not None:
        typer.echo(f"picture: {plot}")


@app.command()
@flags.with_reading(but=("unknown",))
def convert(
    source: Annotated[
        str,
        typer.Argument(
            metavar="IN", help="A file or a folder, of ours or of a foreign format, or hf:NAME; none with --sql."
        ),
    ],
    target: Annotated[
        Path | None,
        typer.Argument(
            metavar="OUT",
            help="A file (.jsonl, .csv, .parquet, .xes; the first, second and last also .gz), or a folder.",
        ),
    ] = None,
    columns: ColumnsOption = "",
    participants: flags.ParticipantsOption = "",
    sql: flags.SqlOption = "",
    database: flags.DatabaseOption = "",
    reader: Annotated[
        ReaderName, typer.Option("--input-format", help="The format of IN, where its content does not say.")
    ] = (ReaderName.auto),
    origin: Annotated[
        ClockOrigin | None, typer.Option(help="What time 0 is; first-event: the first event, which is not scored.")
    ] = None,
    suffix: Annotated[str, typer.Option("--format", help="The format inside a folder OUT.")] = ".jsonl.gz",
    as_json: JsonOption = False,
    *,
    given: flags.Given,
) -> None:
    """Read and check IN, and write OUT; if IN has a mistake, nothing is written."""
    from foretell.data.loading import SUFFIXES, save, save_dataset, suffix_of

    suffix = suffix if suffix.startswith(".") else f".{suffix}"
    if suffix not in SUFFIXES:
        raise ForetellError(f"--format is {suffix!r}, expected one of {', '.join(SUFFIXES)}")
    read_from, target = _in_and_out(source, target, sql, database)
    dataset = _open(read_from, flags.reading(given, flags.with_participants(columns, participants)), reader, origin)
    splits = dataset.splits()
    if suffix_of(target) is None:
        if target.suffix and not target.is_dir():
            raise ForetellError(f"{target}: written are {', '.join(SUFFIXES)}, or a folder")
        if target.is_file():
            raise ForetellError(f"{target}: this is a file; expected a folder, or one of {', '.join(SUFFIXES)}")
        save_dataset(dataset, target, suffix)
    elif len(splits) > 1:
        raise ForetellError(f"{read_from} has {len(splits)} splits ({', '.join(splits)}): OUT must be a folder")
    else:
        save(next(iter(splits.values())), target)
    _say_written(target, splits, as_json)


@app.command()
def simulate(
    process: Annotated[ProcessName, typer.Argument(help="The process to draw from.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="A file, or a folder: then train, dev and test, 60/20/20.")],
    sequences: Annotated[int, typer.Option(min=1, help="How many sequences.")] = 1000,
    t_end: Annotated[float, typer.Option(help="Each is observed on [0, T].")] = 100.0,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same data.")] = 0,
    rate: Annotated[
        list[str] | None, typer.Option(help="poisson: a rate for each type, repeated or with commas.")
    ] = None,
    mu: Annotated[
        str | None, typer.Option(help="hawkes: base rates, 0.2,0.1; self-correcting: growth. JSON or a .json file too.")
    ] = None,
    alpha: Annotated[
        str | None,
        typer.Option(help="hawkes: alpha[e][f] (or [e][f][decay]) as JSON or a .json file; self-correcting: a number."),
    ] = None,
    beta: Annotated[str | None, typer.Option(help="hawkes: the decay, or several with commas.")] = None,
    packed: Annotated[
        bool, typer.Option("--packed", help="OUT is a packed folder, written as sequences are drawn.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Draw sequences exactly; each has nll_true, its negative log-likelihood under the true process."""
    from foretell.data.loading import SUFFIXES, save, save_dataset, suffix_of
    from foretell.data.synthetic import simulate as draw

    truth = _process(process, rate, mu, alpha, beta)
    if packed:
        return _simulate_packed(truth, process.value, out, sequences, t_end, seed, as_json)
    data = draw(truth, sequences, t_end, seed, "train")
    if suffix_of(out) is not None:
        save(data, out)
        splits = {"train": data}
    else:
        if out.suffix or out.is_file():
            raise ForetellError(f"{out}: written are {', '.join(SUFFIXES)}, or a folder (a name without a dot)")
        dataset = _split(data, process.value)
        save_dataset(dataset, out)
        splits = dataset.splits()
    nll = sum(float(str(one.metadata["nll_true"])) for one in data)
    per_event = nll / data.event_count if data.event_count else None
    said = "" if per_event is None else f"true negative log-likelihood: {per_event:.4f} nats per event\n"
    _say_written(out, splits, as_json, said, nll_true_per_event=per_event)


def _simulate_packed(
    truth: Process, name: str, out: Path, sequences: int, t_end: float, seed: int, as_json: bool
) -> None:
    """Draw sequences from the process in chunks, and write them to a packed folder."""
    from foretell.data.packed.simulating import simulate_packed
    from foretell.train.progress_bar import bar

    with bar(as_json) as progress:
        found = simulate_packed(truth, name, out, sequences, t_end, seed, progress.move)
    if as_json:
        splits = {split: {"sequences": one[0], "events": one[1]} for split, one in found.counts.items()}
        per_event = {"nll_true_per_event": found.nll_per_event}
        typer.echo(json.dumps({"path": str(out), "types": truth.type_count, "splits": splits, **per_event}))
        return
    for split, (count, events) in found.counts.items():
        typer.echo(f"{split}: {count} sequences, {events} events")
    if found.nll_per_event is not None:
        typer.echo(f"true negative log-likelihood: {found.nll_per_event:.4f} nats per event")
    typer.echo(f"written: {out}")


def _in_and_out(source: str, target: Path | None, sql: str, database: str) -> tuple[str, Path]:
    """Return the paths to read and to write; with a query, the only given path is the one to write."""
    if sql and target is None:
        found = flags.data_source(None, sql, database)
        assert found is not None
        return found, Path(source)
    found = flags.data_source(source, sql, database)
    if target is None or found is None:
        raise ForetellError(f"where to? foretell data convert {source} OUT")
    return found, target


def _say_written(path: Path, splits: dict[str, EventData], as_json: bool, said: str = "", **more: object) -> None:
    """Print which files were written, with the sequences and events of each split."""
    if as_json:
        counts = {name: {"sequences": len(data), "events": data.event_count} for name, data in splits.items()}
        types = len(next(iter(splits.values())).vocabulary)
        typer.echo(json.dumps({"path": str(path), "types": types, "splits": counts, **more}))
        return
    for name, data in splits.items():
        typer.echo(f"{name}: {len(data)} sequences, {data.event_count} events")
    typer.echo(f"{said}written: {path}")


def _open(path: str, reading: dict[str, Any], reader: ReaderName, origin: ClockOrigin | None) -> Dataset:
    """Open a data set in one of our formats or in a foreign one."""
    from dataclasses import replace

    from foretell.data import load
    from foretell.data.foreign import foreign_files, is_foreign, load_foreign
    from foretell.data.sources import is_source
    from foretell.train.config import DataOptions

    options = replace(DataOptions(), **reading).reading()
    place = Path(path)
    foreign = reader is not ReaderName.auto
    if is_source(path):
        foreign = False
    elif not foreign and place.is_file():
        foreign = is_foreign(place)
    elif not foreign and place.is_dir():
        foreign = bool(foreign_files(place))
    if foreign:
        if not place.exists():
            return load(path)  # raises an error that names similar files
        clock = ClockOrigin.window if origin is None else origin
        return load_foreign(place, None if reader is ReaderName.auto else reader.value, clock.value)
    dataset = load(path, options=options)
    if origin is None or origin.value == dataset.card.origin:
        return dataset
    parts = {name: replace(data, origin=origin.value) for name, data in dataset.splits().items()}
    card = replace(dataset.card, origin=origin.value)
    return replace(dataset, card=card, **parts)


def _split(data: EventData, name: str) -> Dataset:
    from dataclasses import replace

    from foretell.data import Card, Dataset
    from foretell.data.packed.simulating import borders

    cuts = borders(len(data))
    parts = [
        replace(data.select(range(start, stop)), name=split)
        for split, start, stop in zip(("train", "dev", "test"), cuts[:-1], cuts[1:], strict=True)
    ]
    card = Card(f"Simulated: {name}", "window", "none", len(data.vocabulary))
    return Dataset(parts[0], parts[1], parts[2], data.vocabulary, card)


def _process(name: ProcessName, rate: list[str] | None, mu: str | None, alpha: str | None, beta: str | None) -> Process:
    from foretell.data.synthetic import HawkesProcess, PoissonProcess, SelfCorrectingProcess

    given = {"--rate": rate, "--mu": mu, "--alpha": alpha, "--beta": beta}
    wanted = {"poisson": ("--rate",), "hawkes": ("--mu", "--alpha", "--beta"), "self-correcting": ("--mu", "--alpha")}
    stray = [option for option, value in given.items() if value and option not in wanted[name.value]]
    if stray:
        raise ForetellError(f"{name.value} has no {', '.join(stray)}; it takes {', '.join(wanted[name.value])}")
    if name is ProcessName.poisson:
        return PoissonProcess(tuple(_list("--rate", ",".join(rate or ["1.0"]))))
    if name is ProcessName.self_correcting:
        return SelfCorrectingProcess(_single("--mu", mu or "1"), _single("--alpha", alpha or "1"))
    # the defaults are a common test case: one type, branching ratio 0.8
    rates, jumps, decays = ("--mu", mu or "0.2"), ("--alpha", alpha or "[[0.8]]"), ("--beta", beta or "1.0")
    return HawkesProcess(*(_list(*one) for one in (rates, jumps, decays)))


def _list(option: str, text: str) -> list[Any]:
    """Parse `0.2,0.1`, a JSON list, or the name of a file that contains one."""
    if text.endswith(".json"):
        try:
            text = read_document(text)
        except ForetellError as error:
            raise ForetellError(f"{option}: {error}") from None
    try:
        value = parse_json(text if text.lstrip().startswith("[") else f"[{text}]")
    except ValueError:
        raise ForetellError(f"{option} is {text!r}: expected numbers with commas, or a JSON list") from None
    assert isinstance(value, list)
    return value


def _single(option: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ForetellError(f"{option} is {text!r}: expected a number") from None


def _show(summary: DataSummary) -> None:
    from rich.console import Console

    from foretell.cli.show import plain_table
    from foretell.data.dataset import grid_name, percent
    from foretell.wording import escape

    console = Console()
    clock = "time 0 is the first event, which is not scored" if summary.origin == "first-event" else "clocks start at 0"
    unit = f"; time unit: {summary.time_unit}" if summary.time_unit else ""
    if summary.first is not None:
        unit += f"; from {summary.first} to {summary.last}"
    console.print(f"[bold]{escape(summary.name)}[/bold]  {clock}{escape(unit)}", highlight=False)
    table = plain_table(["", *summary.splits], [""])
    splits = list(summary.splits.values())

    def row(label: str, cells: list[str]) -> None:
        table.add_row(label, *cells)

    row("sequences", [f"{one.sequences:,}" for one in splits])
    row("events", [f"{one.events:,}" for one in splits])
    for field in ("min", "median", "mean", "max"):
        row(f"length {field}", [f"{getattr(one.lengths, field):,.6g}" if one.lengths else "–" for one in splits])
    for field in ("min", "quantile_01", "median", "mean", "max"):
        label = "gap 1 % quantile" if field == "quantile_01" else f"gap {field}"
        row(label, [f"{getattr(one.gaps, field):.4g}" if one.gaps else "–" for one in splits])
    row("largest t_end", [f"{one.t_end_max:.6g}" if one.t_end_max is not None else "–" for one in splits])
    row("t_end not given", [f"{one.t_end_missing:,}" for one in splits])
    if any(one.history_before for one in splits):
        row("scored from later", [f"{one.history_before:,}" for one in splits])
    row("types used", [f"{one.types_used:,} of {summary.types:,}" for one in splits])
    row("ties (gaps of 0)", [percent(one.ties) for one in splits])
    row("times on a grid", [f"{percent(one.grid_share)} {grid_name(one.grid)}" if one.grid else "no" for one in splits])
    console.print(table, highlight=False)
    if summary.most_frequent:
        total = sum(one.events for one in splits)
        named = ", ".join(f"{name} {percent(count / total)}" for name, count in summary.most_frequent[:8])
        console.print(f"most frequent: {escape(named)}", highlight=False)
    if summary.attributes:
        console.print(f"attributes: {escape(', '.join(summary.attributes))}", highlight=False)
    for leak in summary.leaks:
        console.print(f"[yellow]warning:[/yellow] {escape(leak.sentence())}", highlight=False)
