"""`foretell explain RUN DATA --at T`: why a model of rules expects what it expects: its proofs, and the past it attends to."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foretell.cli import flags
from foretell.errors import ForetellError

Option = typer.Option


@flags.with_reading()
def explain(
    run: Annotated[Path, typer.Argument(help="A run folder, of a model trained with --program.")],
    at: Annotated[str, Option("--at", help="When: just before this time, a number or a date.")],
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
    *,
    given: flags.Given,
) -> None:
    """Why an event is expected just before a time: which rules and facts make its intensity, and which past events they attend to."""
    from dataclasses import replace

    from foretell.cli.input_data import asked_times, chosen_sequences
    from foretell.cli.open_run import open_run
    from foretell.cli.replay import before
    from foretell.cli.show import out, print_json
    from foretell.evaluate.explain import check_explained, checked_time
    from foretell.evaluate.explain import explain as ask
    from foretell.report.explanation import heading, tables

    if plot is not None:
        from foretell.report.canvas import check_suffix

        check_suffix(plot)
    opened = open_run(run, data, split, flags.reading(given, columns), device)
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
    chosen, (time,) = asked_times(chosen, at, "--at")
    checked_time(chosen[0], time)
    (history,) = opened.settled(impossible, before(chosen, [time])).data
    explained = replace(ask(opened.model, history, time, event), clock=chosen.clock, began=chosen[0].start)
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
