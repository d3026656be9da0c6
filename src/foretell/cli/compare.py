"""`foretell compare RUN RUN…`: scores side by side, and which differences are more than luck."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

from foretell.cli.replay import OtherImpossibleOption
from foretell.errors import ForetellError

if TYPE_CHECKING:
    from foretell.batches.batch import Window
    from foretell.cli.open_run import Opened
    from foretell.cli.show import Bar
    from foretell.evaluate.scores import Scored
    from foretell.objective.integral import Integral

Option = typer.Option
Units = Literal["events", "sequences", "both"]


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
    points: Annotated[int, Option(help="Points a gap (uniform: an event).")] = 10,
    window: Annotated[str, Option(help="all, or events-2-to-I as other libraries score.")] = "all",
    plot: Annotated[Path | None, Option(help="Two runs: draw their scores by functor: FILE.png, .svg or .pdf.")] = None,
    seed: Annotated[int, Option(help="For the bootstrap, the permutations and drawn integrals.")] = 0,
    device: Annotated[str, Option(help="cpu, cuda or auto.")] = "cpu",
    impossible: OtherImpossibleOption = None,
    columns: Annotated[str, Option(help="Columns of a long table: sequence=patient,time=when,event=code.")] = "",
    as_json: Annotated[bool, Option("--json", help="Print JSON on stdout.")] = False,
    quiet: Annotated[bool, Option(help="No progress.")] = False,
) -> None:
    """Scores of several runs on the same events, with paired tests of every difference."""
    from foretell.batches.batch import Window
    from foretell.cli.open_run import open_run
    from foretell.cli.show import (
        bar,
        difference_tables,
        fit_table,
        functor_table,
        out,
        print_json,
        remarks,
        score_table,
    )
    from foretell.cli.unfinished import unfinished
    from foretell.evaluate.compare import Contender
    from foretell.evaluate.compare import compare as compared
    from foretell.objective.integral import Integral
    from foretell.options import check_choice

    check_choice("over", over, Units)
    check_choice("integral", integral, Integral)
    check_choice("window", window, Window)
    if len(runs) < 2:
        raise ForetellError("one run: comparing needs two or more, `foretell compare RUN RUN`")
    if plot is not None:
        from foretell.report.plots import check_suffix

        if len(runs) != 2:
            raise ForetellError(f"--plot draws two runs against each other, and there are {len(runs)}")
        check_suffix(plot)
    opened = [open_run(run, data, split, columns, device) for run in runs]
    ruled = [one.model.program_text() is not None for one in opened]  # the option is about these, where there are some
    opened = [
        one.settled(impossible if own or not any(ruled) else None) for one, own in zip(opened, ruled, strict=True)
    ]
    names = run_names([one.model.title for one in opened], runs)
    notes = [said for one in opened if (said := unfinished(one.run, one.model)) is not None]
    made = []
    with bar(quiet) as progress:
        for name, one in zip(names, opened, strict=True):
            way = cast("Integral", integral), points, cast("Window", window), times, seed
            made.append(Contender(name, _scored(one, way, predict or [], name, progress), one.data))
        progress.move("comparing", 0, 1)
        found = compared(made, cast(Units, over), seed=seed)
    if plot is not None:
        from foretell.report.plots import save_figure
        from foretell.report.scatter_plot import scatter_plot

        save_figure(scatter_plot(found, opened[0].time_unit), plot)
    if as_json:
        print_json({**found.to_json(), "unfinished": notes})
        return
    console = out()
    evaluations = found.named()
    console.print(score_table(evaluations, opened[0].time_unit))
    console.print(fit_table(evaluations))
    console.print(functor_table(found))
    for table in difference_tables(found):
        console.print(table)
    unit = opened[0].time_unit if len(opened[0].time_unit) < 20 else ""
    for one in found.differences:
        console.print(one.verdict(unit), markup=False)
    for line in [*remarks(evaluations), *notes, *([] if found.untested is None else [found.untested])]:
        console.print(line, markup=False)
    if plot is not None:
        console.print(f"picture: {plot}", markup=False)


def run_names(titles: list[str], runs: list[Path]) -> list[str]:
    """As short as tells them apart: the model, or with its folder, or with its path."""
    names = list(titles)
    for way in (lambda run: run.name, str):
        names = [
            name if names.count(name) == 1 else f"{title} ({way(run)})"
            for name, title, run in zip(names, titles, runs, strict=True)
        ]
    if len(set(names)) < len(names):
        raise ForetellError(f"{runs[0]}: a run is named twice; name different runs")
    return names


def _scored(
    opened: Opened, way: tuple[Integral, int, Window, bool, int], predict: list[str], name: str, progress: Bar
) -> Scored:
    """The scores that `foretell evaluate` left in the folder, where they are of just this; else new ones."""
    from foretell.evaluate.participants import check_patterns, guess_participants, parse_pattern
    from foretell.evaluate.record import Origin, read_scores
    from foretell.evaluate.scores import Scored, score, summarise
    from foretell.train.run import MODEL

    integral, points, window, times, seed = way
    model, data = opened.model, opened.data
    patterns = [parse_pattern(text) for text in predict]
    check_patterns(model, patterns)
    origin = Origin.of(opened.run.path / MODEL, data, window=window, integral=integral, points=points, seed=seed)
    kept = read_scores(opened.run.path, model, data, origin, times=times)
    if kept is None:
        return score(
            model,
            data,
            integral=integral,
            points=points,
            window=window,
            times=times,
            seed=seed,
            predict=predict,
            progress=lambda what, done, of: progress.move(f"{name}: {what}", done, of),
        )
    if not patterns:
        return kept
    with model.evaluating():
        guesses = tuple(guess_participants(model, data, patterns, window))
    evaluation = summarise(model, data, window, kept.events, kept.times, guesses, None, seed)
    return Scored(evaluation, kept.events, kept.times, guesses)
