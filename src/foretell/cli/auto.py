"""`foretell auto DATA --minutes 10`: try models that suit the data, keep the best on dev as a run, and write a page of results."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foretell.cli import flags
from foretell.cli.train import add
from foretell.train.config import DataOptions, TrainOptions

if TYPE_CHECKING:
    from foretell.search.auto import AutoResult

Option = typer.Option
DATA_FLAGS = (*flags.READING, "covariates", "static", "train_fraction", "impossible")
TRAIN_FLAGS = ("seed", "device", "dtype")


@flags.with_flags(
    {"data": DataOptions, "train": TrainOptions},
    only=[*(f"data.{name}" for name in DATA_FLAGS), *(f"train.{name}" for name in TRAIN_FLAGS)],
)
def auto(
    data: Annotated[
        str | None, typer.Argument(help="A folder, a file, the name of embedded data (robocup), or hf:NAME.")
    ] = None,
    minutes: Annotated[float, Option(help="How long it may take, earlier calls for the same folder included.")] = 10.0,
    program: Annotated[
        Path | None, Option(help="Rules: models made of them are tried, too. P.ndtt, or robocup.")
    ] = None,
    undeclared: flags.ModelUndeclaredOption = None,
    out: Annotated[
        Path | None, Option("--out", "-o", help="The folder to write, and to go on with; default: auto/DATA.")
    ] = None,
    jobs: Annotated[int | None, Option(help="Processes; default: one for each core, on a GPU two.")] = None,
    on: flags.OnOption = "this",
    test: Annotated[bool, Option(help="Score the chosen model on test in the end.")] = True,
    columns: flags.ColumnsOption = "",
    participants: flags.ParticipantsOption = "",
    sql: flags.SqlOption = "",
    database: flags.DatabaseOption = "",
    as_json: flags.SummaryOption = False,
    quiet: flags.QuietOption = False,
    *,
    given: flags.Given,
) -> None:
    """Find the best model for data within some minutes, judged on dev. After Ctrl-C, the same command continues the search."""
    began = time.time()
    from foretell.cli.show import print_json
    from foretell.cli.train import check_source
    from foretell.search.auto import SearchListener
    from foretell.search.auto import auto as search
    from foretell.train.interrupting import stopping
    from foretell.train.progress_bar import bar

    source = flags.data_source(data, sql, database)
    if source is not None:
        given["data"]["path"] = source
    check_source(None, given, "search")
    add(given, flags.with_participants(columns, participants), None)
    if undeclared is not None:
        given["model"] = {"undeclared": undeclared.value}
    device, seed = given["train"].pop("device", "auto"), given["train"].pop("seed", 0)
    with bar(quiet) as progress, stopping() as asked:
        found = search(
            given["data"].pop("path"),
            program=program,
            out=out,
            minutes=minutes,
            jobs=jobs,
            on=on,
            device=device,
            test=test,
            seed=seed,
            settings=given,
            listener=SearchListener(progress.move, progress.keep, lambda: asked["stop"], began),
        )
    if as_json:
        print_json(found.to_json())
    else:
        _say(found)
    if found.stopped == "interrupted":
        typer.echo("interrupted; the same command goes on", err=True)
        raise typer.Exit(130)


def _say(found: AutoResult) -> None:
    """Print the leaderboard, the reasons for the choice, and the paths of the results."""
    from foretell.cli.show import cell, make_table, out
    from foretell.wording import escape

    board = found.board
    columns = ["model", "dev", "behind by", "epochs", "state", "seconds"]
    title = f"{len(board.entries)} models in {found.seconds / 60:.1f} of {found.minutes:g} minutes"
    table = make_table(title, columns, ["model", "state"], "nats per event on dev, higher is better; [95 % intervals]")
    for one in board.entries:
        behind = "" if one.behind is None else cell(one.behind, False).replace("\n", " ")
        star = " *" if one.candidate == board.chosen else ""
        epochs = "–" if one.is_floor else str(one.epochs)
        dev = cell(one.dev, False).replace("\n", " ")
        table.add_row(escape(one.title + star), dev, behind, epochs, one.state, f"{one.seconds:.0f}")
    out().print(table)
    for title, why in board.failed.items():
        typer.echo(f"{title}: {why}", err=True)
    if board.untried:
        typer.echo(f"no time for {', '.join(board.untried)}: the same command with more --minutes goes on", err=True)
    lines = [f"chosen: {board.best.title}; {board.reason}", board.verdict]
    if found.test is not None:
        lines.append(f"test, scored once after the choice: {found.test.log_likelihood} nats per event")
    lines.append(f"page: {found.page}")
    lines.append(f"run: {found.folder / 'best'}    next: foretell evaluate {found.folder / 'best'}")
    typer.echo("\n".join(line for line in lines if line))
