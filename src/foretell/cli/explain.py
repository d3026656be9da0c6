"""`foretell explain RUN DATA --at T`: explain an intensity: by proofs and attended events or, without rules, by leaving out past events."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foretell.cli import flags
from foretell.errors import ForetellError

if TYPE_CHECKING:
    from foretell.cli.open_run import OpenRun
    from foretell.data import EventData

Option = typer.Option


@flags.with_reading()
def explain(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    data: Annotated[str | None, typer.Argument(help="A file, a folder, a name; default: the run's own data.")] = None,
    at: Annotated[str | None, Option("--at", help="When: just before this time, a number or a date.")] = None,
    covariates: Annotated[
        bool, Option("--covariate-effects", help="Instead: what each covariate does, over all of the data.")
    ] = False,
    event: Annotated[
        str | None, Option(help="A possible event, as in data: 'pass(a,b)'; default: the most probable.")
    ] = None,
    sequence: Annotated[str | None, Option(help="The sequence with this id or place.")] = None,
    split: Annotated[str | None, Option(help="train, dev or test; default: test.")] = None,
    top: Annotated[int, Option(help="How much of every list is shown; 0: all.", min=0)] = 5,
    plot: Annotated[Path | None, Option(help="Draw what is attended to: FILE.png, .svg or .pdf.")] = None,
    past: Annotated[
        int, Option(help="Without rules: how many of the latest events are left out one by one; 0: all.", min=0)
    ] = 256,
    impossible: flags.OtherImpossibleOption = None,
    unseen: flags.UnseenOption = flags.UnseenChoice.mean,
    undeclared: flags.OtherUndeclaredOption = None,
    table: flags.TableOption = None,
    device: flags.DeviceOption = "cpu",
    columns: flags.ColumnsOption = "",
    as_json: flags.JsonOption = False,
    *,
    given: flags.Given,
) -> None:
    """Explain why an event is expected just before a time: by rules, facts and the past; without rules, by the past events that matter."""
    from dataclasses import replace

    from foretell.cli.input_data import chosen_sequences
    from foretell.cli.open_run import open_run
    from foretell.cli.other_rows import OtherRules
    from foretell.cli.replay import before
    from foretell.cli.show import out, print_json
    from foretell.evaluate.explain import check_explained, checked_time
    from foretell.evaluate.explain import explain as ask
    from foretell.models.rules.rule_model import RuleModel
    from foretell.report.explanation import heading, tables
    from foretell.train.progress_bar import bar

    if plot is not None:
        from foretell.report.canvas import check_suffix

        check_suffix(plot)
    if at is None and not covariates:
        raise typer.BadParameter("give --at TIME, or --covariate-effects", param_hint="--at")
    opened = open_run(run, data, split, flags.reading(given, columns), device, rules=OtherRules(table, undeclared))
    if covariates:
        _show_covariates(opened, as_json)
        return
    assert at is not None
    if isinstance(opened.model, RuleModel):
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
    chosen, time = _quiet_until(chosen, at)
    checked_time(chosen[0], time)
    (history,) = opened.settled(impossible, before(chosen, [time]), unseen).data
    with bar(as_json) as progress:

        def move(done: int, of: int) -> None:
            progress.move("leaving events out", done, of)

        found = ask(opened.model, history, time, event, most=past or None, progress=move)
    explained = replace(found, clock=chosen.clock, began=chosen[0].start)
    if plot is not None:
        from foretell.report.canvas import save_figure
        from foretell.report.explanation import explain_plot

        save_figure(explain_plot(explained, time_unit=opened.time_unit), plot)
    if as_json:
        print_json([explained.to_json(top or None)])
    else:
        console = out()
        console.print(heading(explained), markup=False)
        for one in tables(explained, top or None):
            console.print(one)
        if plot is not None:
            typer.echo(f"picture: {plot}")


def _quiet_until(data: EventData, at: str) -> tuple[EventData, float]:
    """Return the sequence and the time of `--at`; a sequence with an assumed end is extended to the time, with a message."""
    from foretell.cli.input_data import asked_times

    data, (time,) = asked_times(data, at, "--at")
    (one,) = data
    if not one.end_assumed or one.t_end >= time:
        return data, time
    sys.stderr.write(f"sequence {one.id} ends before {at}: nothing is taken to have happened in between\n")
    return replace(data, sequences=[replace(one, t_end=time, end_assumed=False)], report=None), time


def _show_covariates(opened: OpenRun, as_json: bool) -> None:
    """Print the importance and the effects of every covariate, over the data."""
    from foretell.cli.show import out, print_json
    from foretell.evaluate.covariate_effects import covariate_effects
    from foretell.report.covariate_tables import covariate_table
    from foretell.train.progress_bar import bar

    def move(done: int, of: int) -> None:
        progress.move("covariates", done, of)

    with bar(as_json) as progress:
        found = covariate_effects(opened.model, opened.data, progress=move)
    if as_json:
        print_json([one.to_json() for one in found])
    else:
        out().print(covariate_table(found))
