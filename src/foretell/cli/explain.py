"""`foretell explain RUN DATA --at T`: why a model of rules expects what it expects: its proofs, and the past it attends to."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foretell.cli import flags
from foretell.errors import ForetellError

Option = typer.Option


def explain(
    run: Annotated[Path, typer.Argument(help="A run folder, of a model trained with --program.")],
    at: Annotated[float, Option("--at", help="When: just before this time.")],
    data: Annotated[str | None, typer.Argument(help="A file, a folder, a name; default: the run's own data.")] = None,
    event: Annotated[
        str | None, Option(help="A possible event, as in data: 'pass(a,b)'; default: the most probable.")
    ] = None,
    sequence: Annotated[str | None, Option(help="The sequence with this id or place.")] = None,
    split: Annotated[str | None, Option(help="train, dev or test.")] = None,
    top: Annotated[int, Option(help="How much of every list is shown; 0: all.", min=0)] = 5,
    plot: Annotated[Path | None, Option(help="Draw what is attended to: FILE.png, .svg or .pdf.")] = None,
    impossible: flags.OtherImpossibleOption = None,
    device: flags.DeviceOption = "cpu",
    columns: flags.ColumnsOption = "",
    as_json: flags.JsonOption = False,
) -> None:
    """Why an event is expected just before a time: which rules and facts make its intensity, and which past events they attend to."""
    from foretell.cli.input_data import chosen_sequences
    from foretell.cli.open_run import open_run
    from foretell.cli.replay import before, check_time
    from foretell.cli.show import out, print_json
    from foretell.evaluate.explain import check_explained, checked_time
    from foretell.evaluate.explain import explain as ask
    from foretell.report.explanation import heading, tables

    check_time(at)
    if plot is not None:
        from foretell.report.canvas import check_suffix

        check_suffix(plot)
    opened = open_run(run, data, split, columns, device)
    check_explained(opened.model)
    chosen = chosen_sequences(opened.data, sequence)
    if len(chosen) != 1:
        ids = [one.id for one in chosen]
        some = ", ".join(ids[:5]) + (", …" if len(ids) > 5 else "")
        raise ForetellError(
            f"{chosen.name}: there are {len(ids)} sequences ({some}); say which one with --sequence"
            if ids
            else f"{chosen.name}: there is no sequence in it"
        )
    checked_time(chosen[0], at)
    (history,) = opened.settled(impossible, before(chosen, at)).data
    explained = ask(opened.model, history, at, event)
    most = top or None
    if plot is not None:
        from foretell.report.canvas import save_figure
        from foretell.report.explanation import explain_plot

        save_figure(explain_plot(explained, time_unit=opened.time_unit), plot)
    if as_json:
        print_json([explained.to_json(most)])
    else:
        console = out()
        console.print(heading(explained), markup=False)
        for table in tables(explained, most):
            console.print(table)
        if plot is not None:
            typer.echo(f"picture: {plot}")
