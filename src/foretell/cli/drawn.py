"""`foretell evaluate RUN --downsample J`: scores estimated from a sample of the possible events, with standard errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import typer

from foretell.cli.open_run import OpenRun
from foretell.cli.show import print_json
from foretell.errors import ForetellError
from foretell.evaluate.drawn_scores import drawn_scores
from foretell.options import Window
from foretell.train.progress_bar import bar
from foretell.wording import counted


def refuse_with_draws(options: Mapping[str, object]) -> None:
    """Raise `ForetellError` for options that need all possible events."""
    given = [f"--{name}" for name, value in options.items() if value]
    if given:
        raise ForetellError(
            f"{', '.join(given)}: with --downsample there are the log-likelihood and ranks only; leave it out"
        )


def show_drawn(opened: OpenRun, keep: int, points: int, window: str, seed: int, as_json: bool, quiet: bool) -> None:
    """Print the estimated scores of a run; they are not stored in its folder."""
    model = opened.model
    with bar(quiet) as shown:
        found = drawn_scores(
            model,
            opened.data,
            keep,
            points=points,
            window=cast(Window, window),
            seed=seed,
            progress=lambda done, of: shown.move(f"{model.title}: log-likelihood", done, of),
        )
    if as_json:
        print_json({"model": model.title, **found.to_json(seed)})
        return
    scores = found.estimates(seed)
    typer.echo(
        f"{model.title} on {found.data}: {counted(found.events, 'event')} in {counted(found.sequences, 'sequence')}"
    )
    typer.echo(
        f"  log-likelihood, nats per event: {scores['log_likelihood']}, standard error of the draws {found.standard_error:.1e}"
    )
    typer.echo(
        f"  rank of what happened, given its time: {scores['rank']}, standard error of the draws {found.rank_standard_error:.1e}"
    )
    much = f"{keep} of the possible events at each time, {counted(points, 'point')} per gap"
    typer.echo(f"  estimated from {much}, drawn twice; [95 % intervals]")
