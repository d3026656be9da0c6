"""`foretell evaluate RUN`: scores of a trained model on held-out data, with intervals; event by event in `scores.parquet`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from foretell.cli.replay import OtherImpossibleOption
from foretell.errors import ForetellError

if TYPE_CHECKING:
    from foretell.evaluate.long_horizon import Futuring

Option = typer.Option


def evaluate(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    data: Annotated[str | None, typer.Argument(help="Other data than the run's own: a folder, a file, a name.")] = None,
    split: Annotated[str | None, Option(help="train, dev or test; default: test.")] = None,
    integral: Annotated[str, Option(help="quadrature, stratified or uniform.")] = "quadrature",
    points: Annotated[int, Option(help="Points a gap (uniform: an event).")] = 10,
    window: Annotated[str, Option(help="all, or events-2-to-I as other libraries score.")] = "all",
    times: Annotated[bool, Option(help="Predict the time of every next event (the RMSE).")] = True,
    predict: Annotated[
        list[str] | None, Option(help="Also who: 'pass(+P,-Q)', + given and - predicted; may be repeated.")
    ] = None,
    futures: Annotated[int, Option(help="Also sample this many futures from many times; needs --horizon.")] = 0,
    horizon: Annotated[float, Option(help="How far futures go, in the unit of the data.")] = 0.0,
    delta: Annotated[float, Option(help="T-mAP: how near in time is right; default: a fifth of the horizon.")] = 0.0,
    costs: Annotated[str, Option(help="Optimal transport: costs of an insertion, with commas; default: delta/2.")] = "",
    floors: Annotated[bool, Option(help="Also fit and score the Poisson and Hawkes floors.")] = False,
    seed: Annotated[int, Option(help="For the bootstrap and for drawn integrals.")] = 0,
    device: Annotated[str, Option(help="cpu, cuda or auto.")] = "cpu",
    impossible: OtherImpossibleOption = None,
    columns: Annotated[str, Option(help="Columns of a long table: sequence=patient,time=when,event=code.")] = "",
    as_json: Annotated[bool, Option("--json", help="Print JSON on stdout.")] = False,
    quiet: Annotated[bool, Option(help="No progress.")] = False,
) -> None:
    """Log-likelihood (total, of times, of types), errors of next time and type, goodness of fit; with 95 % intervals."""
    from foretell.batches.batch import Window
    from foretell.cli.fitted_floors import fitted_floors
    from foretell.cli.open_run import open_run
    from foretell.cli.show import bar, fit_table, future_table, out, participant_table, print_json, remarks, score_table
    from foretell.cli.task_runs import evaluate_task, is_task
    from foretell.cli.unfinished import unfinished
    from foretell.evaluate.record import Origin, write_scores
    from foretell.evaluate.scores import score
    from foretell.objective.integral import Integral
    from foretell.options import check_choice
    from foretell.train.run import MODEL
    from foretell.train.scored_events import scored_alike

    if is_task(run):
        _refuse(
            integral=integral != "quadrature",
            points=points != 10,
            window=window != "all",
            no_times=not times,
            predict=predict,
            futures=futures,
            horizon=horizon,
            delta=delta,
            costs=costs,
            floors=floors,
            impossible=impossible,
        )
        evaluate_task(run, data, split, columns, device, seed, as_json)
        return
    check_choice("integral", integral, Integral)
    check_choice("window", window, Window)
    asked = _futures(futures, horizon, delta, costs)
    opened = open_run(run, data, split, columns, device).settled(impossible)
    results = []
    with bar(quiet) as progress:
        for model in [*(fitted_floors(opened, (), progress) if floors else ()), opened.model]:
            results.append(
                score(
                    model,
                    opened.data if model is opened.model else scored_alike(opened.data, opened.model),
                    integral=cast(Integral, integral),
                    points=points,
                    window=cast(Window, window),
                    times=times,
                    seed=seed,
                    predict=predict or (),
                    futures=asked,
                    progress=lambda what, done, of, title=model.title: progress.move(f"{title}: {what}", done, of),
                )
            )
    origin = Origin.of(run / MODEL, opened.data, window=window, integral=integral, points=points, seed=seed)
    written = write_scores(results[-1], opened.data, run, origin)
    warning = unfinished(opened.run, opened.model)
    evaluations = [result.evaluation for result in results]
    if as_json:
        print_json(
            {
                **evaluations[-1].to_json(),
                "impossible": opened.impossible.value,
                "impossible_events": opened.impossible_events,
                "floors": [e.to_json() for e in evaluations[:-1]],
                "scores": str(written),
                "unfinished": warning,
            }
        )
        return
    console = out()
    console.print(score_table(evaluations, opened.time_unit))
    console.print(fit_table(evaluations))
    if asked is not None:
        console.print(future_table(evaluations, opened.time_unit))
    if predict:
        console.print(participant_table(evaluations))
    for line in [*remarks(evaluations), *([] if warning is None else [warning])]:
        console.print(line, markup=False)
    console.print(f"event by event: {written}", markup=False)


def _refuse(**options: object) -> None:
    """What is asked of a model of what happens next, and of nothing else."""
    given = [f"--{name.replace('_', '-')}" for name, value in options.items() if value]
    if given:
        raise ForetellError(f"{', '.join(given)}: this run was not trained to say what happens next; leave it out")


def _futures(number: int, horizon: float, delta: float, costs: str) -> Futuring | None:
    from foretell.evaluate.long_horizon import Futuring

    if not number:
        if horizon or delta or costs:
            raise ForetellError(
                "--horizon, --delta and --costs are for sampled futures: say how many with --futures 100"
            )
        return None
    if not horizon:
        raise ForetellError(f"--futures {number}: say how far they go with --horizon, in the unit of the data")
    try:
        prices = tuple(float(part) for part in costs.split(",") if part.strip())
    except ValueError:
        raise ForetellError(f"--costs {costs!r}: expected numbers with commas, such as 0.5,1,2") from None
    return Futuring(number, horizon, delta or None, prices)
