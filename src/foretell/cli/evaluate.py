"""`foretell evaluate RUN`: scores of a trained model on held-out data, with intervals; scores per event go to `scores.parquet`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from foretell.cli import flags
from foretell.cli.result_file import ResultOption, check_result_file
from foretell.errors import ForetellError

if TYPE_CHECKING:
    from foretell.data import Clock
    from foretell.evaluate.long_horizon import FutureOptions

Option = typer.Option


@flags.with_reading()
def evaluate(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    data: Annotated[str | None, typer.Argument(help="Other data than the run's own: a folder, a file, a name.")] = None,
    split: Annotated[str | None, Option(help="train, dev or test; default: test.")] = None,
    integral: Annotated[str, Option(help="quadrature, stratified or uniform.")] = "quadrature",
    points: Annotated[int, Option(help="Points per gap (uniform: per event).")] = 10,
    downsample: Annotated[
        int, Option(help="Models of rules: estimate from this many of the possible events at each time; 0: all.", min=0)
    ] = 0,
    window: Annotated[str, Option(help="all, or events-2-to-I as other libraries score.")] = "all",
    times: Annotated[bool, Option(help="Predict the time of every next event (the RMSE).")] = True,
    predict: Annotated[
        list[str] | None, Option(help="Also who: 'pass(+P,-Q)', + given and - predicted; may be repeated.")
    ] = None,
    futures: Annotated[int, Option(help="Also sample this many futures from many times; needs --horizon.")] = 0,
    horizon: Annotated[str, Option(help="How far futures go: 30 in the unit of the data, or 10d, 2h, 30m.")] = "",
    delta: Annotated[str, Option(help="T-mAP: how near in time is right; default: a fifth of the horizon.")] = "",
    costs: Annotated[str, Option(help="Optimal transport: costs of an insertion, with commas; default: delta/2.")] = "",
    floors: Annotated[bool, Option(help="Also fit and score the Poisson and Hawkes floors.")] = False,
    seed: Annotated[int, Option(help="For the bootstrap and for drawn integrals.")] = 0,
    device: flags.DeviceOption = "cpu",
    impossible: flags.OtherImpossibleOption = None,
    unseen: flags.UnseenOption = flags.UnseenChoice.mean,
    undeclared: flags.OtherUndeclaredOption = None,
    table: flags.TableOption = None,
    columns: flags.ColumnsOption = "",
    on: flags.OnOption = "this",
    by_event: Annotated[
        bool, Option("--by-event", help="Give the scores of every event: the first, or all with -o.")
    ] = False,
    out: ResultOption = None,
    as_json: flags.JsonOption = False,
    quiet: flags.QuietOption = False,
    *,
    given: flags.Given,
) -> None:
    """Score a run on held-out data: log-likelihood, errors of the next time and type, goodness of fit, with 95 % intervals."""
    from foretell.batches.batch import Window
    from foretell.cli.drawn import refuse_with_draws, show_drawn
    from foretell.cli.open_run import open_network, open_scored
    from foretell.cli.other_rows import OtherRules
    from foretell.cli.scoring import give_events, show_evaluation
    from foretell.cli.task_runs import evaluate_task, is_task
    from foretell.evaluate.scores import ScoringOptions
    from foretell.options import Integral, check_choice
    from foretell.shards.place import parse_place

    place = parse_place(on)
    check_result_file(out)
    by_event = by_event or out is not None

    if is_task(run):
        changed = {"integral": integral != "quadrature", "points": points != 10, "window": window != "all"}
        asked = {"predict": predict, "futures": futures, "horizon": horizon, "delta": delta, "costs": costs}
        _refuse(
            changed
            | {"no-times": not times}
            | asked
            | {
                "floors": floors,
                "impossible": impossible,
                "table": table,
                "on": place.kind != "this",
                "by-event": by_event,
            }
        )
        evaluate_task(open_network(run, data, split, flags.reading(given, columns), device), seed, as_json)
        return
    check_choice("integral", integral, Integral)
    check_choice("window", window, Window)
    _check_futures(futures, horizon, delta, costs)
    (opened,) = open_scored([run], data, split, flags.reading(given, columns), device, OtherRules(table, undeclared))
    opened = opened.settled(impossible, unseen=unseen, say=False)
    if downsample:
        changed = {"integral": integral != "quadrature", "no-times": not times, "predict": predict, "floors": floors}
        refuse_with_draws(changed | {"futures": futures, "on": place.kind != "this", "by-event": by_event})
        show_drawn(opened, downsample, points if points != 10 else 2, window, seed, as_json, quiet)
        return
    wanted = _futures(futures, horizon, delta, costs, opened.clock) if futures else None
    options = ScoringOptions(cast(Integral, integral), points, cast(Window, window), times, seed, predict or (), wanted)
    scored = show_evaluation(opened, options, place, floors=floors, as_json=as_json, quiet=quiet)
    if by_event:
        give_events(scored, opened.data, out, as_json)


def _refuse(options: dict[str, object]) -> None:
    """Raise `ForetellError` for options that only apply to models of the next event."""
    given = [f"--{name}" for name, value in options.items() if value]
    if given:
        raise ForetellError(f"{', '.join(given)}: this run was not trained to say what happens next; leave it out")


def _check_futures(number: int, horizon: str, delta: str, costs: str) -> None:
    if not number and (horizon or delta or costs):
        raise ForetellError("--horizon, --delta and --costs are for sampled futures: say how many with --futures 100")
    if number and not horizon:
        raise ForetellError(f"--futures {number}: say how far they go with --horizon, in the unit of the data")


def _futures(number: int, horizon: str, delta: str, costs: str, clock: Clock) -> FutureOptions:
    from foretell.evaluate.long_horizon import FutureOptions

    try:
        prices = tuple(float(part) for part in costs.split(",") if part.strip())
    except ValueError:
        raise ForetellError(f"--costs {costs!r}: expected numbers with commas, such as 0.5,1,2") from None
    near = clock.duration(delta, "--delta") if delta else None
    return FutureOptions(number, clock.duration(horizon, "--horizon"), near, prices)
