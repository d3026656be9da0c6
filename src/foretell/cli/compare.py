"""`foretell compare RUN RUN…`: scores of several runs, and tests of their differences."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, cast

import typer

from foretell.cli import flags
from foretell.errors import ForetellError

Option = typer.Option
Units = Literal["events", "sequences", "both"]


@flags.with_reading()
def compare(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, two or more.")],
    data: Annotated[str | None, Option(help="Other data than the runs' own: a folder, a file, a name.")] = None,
    split: Annotated[str | None, Option(help="train, dev or test; default: test.")] = None,
    over: Annotated[str, Option(help="What is exchanged in the tests: events, sequences or both.")] = "both",
    predict: Annotated[
        list[str] | None, Option(help="Also who: 'pass(+P,-Q)', + given and - predicted; may be repeated.")
    ] = None,
    times: Annotated[bool, Option(help="Predict the time of every next event (the RMSE).")] = True,
    integral: Annotated[str, Option(help="quadrature, stratified or uniform.")] = "quadrature",
    points: Annotated[int, Option(help="Points per gap (uniform: per event).")] = 10,
    window: Annotated[str, Option(help="all, or events-2-to-I as other libraries score.")] = "all",
    plot: Annotated[Path | None, Option(help="Two runs: draw their scores by functor: FILE.png, .svg or .pdf.")] = None,
    seed: Annotated[int, Option(help="For the bootstrap, the permutations and drawn integrals.")] = 0,
    device: flags.DeviceOption = "cpu",
    impossible: flags.OtherImpossibleOption = None,
    unseen: flags.UnseenOption = flags.UnseenChoice.mean,
    undeclared: flags.OtherUndeclaredOption = None,
    columns: flags.ColumnsOption = "",
    on: flags.OnOption = "this",
    as_json: flags.JsonOption = False,
    quiet: flags.QuietOption = False,
    *,
    given: flags.Given,
) -> None:
    """Compare the scores of several runs on the same events, with a paired test of every difference."""
    from foretell.batches.batch import Window
    from foretell.cli.open_run import open_scored, unfinished
    from foretell.cli.other_rows import OtherRules
    from foretell.cli.scoring import kept_scores, score_at, show_comparison
    from foretell.cli.show import print_json
    from foretell.evaluate.compare import ComparedRun
    from foretell.evaluate.compare import compare as compared
    from foretell.evaluate.scores import ScoringOptions
    from foretell.models.capabilities import HasRules
    from foretell.options import Integral, check_choice
    from foretell.shards.place import parse_place
    from foretell.train.progress_bar import bar

    place = parse_place(on)
    check_choice("over", over, Units)
    check_choice("integral", integral, Integral)
    check_choice("window", window, Window)
    if len(runs) < 2:
        raise ForetellError("one run: comparing needs two or more, `foretell compare RUN RUN`")
    if plot is not None:
        from foretell.report.canvas import check_suffix

        if len(runs) != 2:
            raise ForetellError(f"--plot draws two runs against each other, and there are {len(runs)}")
        check_suffix(plot)
    options = ScoringOptions(cast(Integral, integral), points, cast(Window, window), times, seed, predict or ())
    opened = open_scored(runs, data, split, flags.reading(given, columns), device, OtherRules(None, undeclared))
    ruled = [isinstance(one.model, HasRules) for one in opened]  # if any: only these have the option
    opened = [
        one.settled(impossible if own or not any(ruled) else None, unseen=unseen)
        for one, own in zip(opened, ruled, strict=True)
    ]
    names = run_names([one.model.title for one in opened], runs)
    notes = [said for one in opened if (said := unfinished(one.run, one.model)) is not None]
    made = []
    with bar(quiet) as progress:
        for name, one in zip(names, opened, strict=True):
            scored = kept_scores(one, options) or score_at(place, one, options, name, progress, quiet=quiet)
            made.append(ComparedRun(name, scored, one.data))
        progress.move("comparing", 0, 1)
        found = compared(made, cast(Units, over), seed=seed)
    if plot is not None:
        from foretell.report.canvas import save_figure
        from foretell.report.run_plots import scatter_plot

        save_figure(scatter_plot(found, opened[0].time_unit), plot)
    if as_json:
        print_json({**found.to_json(), "unfinished": notes})
        return
    show_comparison(found, opened[0].time_unit, notes)
    if plot is not None:
        typer.echo(f"picture: {plot}")


def run_names(titles: list[str], runs: list[Path]) -> list[str]:
    """Return the shortest distinct names of runs: the model, the model with its folder, or the model with its path."""
    names = list(titles)
    for way in (lambda run: run.name, str):
        names = [
            name if names.count(name) == 1 else f"{title} ({way(run)})"
            for name, title, run in zip(names, titles, runs, strict=True)
        ]
    if len(set(names)) < len(names):
        raise ForetellError(f"{runs[0]}: a run is named twice; name different runs")
    return names
