"""`foretell reproduce NAME…`: run the experiments of the paper, in work units that can be interrupted and resumed."""

from __future__ import annotations

from typing import Annotated

import typer

from foretell.cli import flags

Option = typer.Option


def reproduce(
    experiments: Annotated[list[str] | None, typer.Argument(help="Names (see --list), folders, or all.")] = None,
    data: Annotated[str | None, Option(help="The folder with one folder a data set; default: FORETELL_DATA.")] = None,
    out: Annotated[
        str | None, Option("--out", "-o", help="Where results go; default: reproduced, or reproduced/quick.")
    ] = None,
    models: Annotated[str, Option(help="Only these, with commas: nhp,a-nhp.")] = "",
    seeds: Annotated[str, Option(help="Instead of the experiment's own: 0,1,2.")] = "",
    device: Annotated[str, Option(help="auto: what suits each unit; or cpu or cuda for all.")] = "auto",
    quick: Annotated[bool, Option("--quick", help="Little data, few epochs: to see that everything works.")] = False,
    jobs: Annotated[int, Option(help="Units at once, each a process with one thread.")] = 1,
    on: flags.OnOption = "this",
    gpu_jobs: Annotated[int, Option(help="Of these, at most so many on the GPU.")] = 4,
    minutes: Annotated[
        float | None, Option(help="Stop after so long; the same command goes on; default: no limit.")
    ] = None,
    fit: Annotated[bool, Option(help="--no-fit: only say what came of the units that are done.")] = True,
    results: Annotated[bool, Option(help="--no-results: only work on units, and leave the rest to later.")] = True,
    publish: Annotated[bool, Option("--publish", help="Also write the results beside experiment.toml.")] = False,
    as_json: flags.JsonOption = False,
    list_: Annotated[bool, Option("--list", help="Print the experiments that there are, and stop.")] = False,
) -> None:
    """Fit, score and compare the paper's models, and report which of its findings hold. Finished work is skipped."""
    from foretell.cli.show import print_json
    from foretell.reproduce.command import listed, listed_text, reproduce_options
    from foretell.reproduce.command import reproduce as run
    from foretell.shards.place import parse_place

    if list_ or not experiments:
        if as_json:
            print_json(listed())
        else:
            typer.echo(listed_text(), nl=False)
        return
    wanted = reproduce_options(
        data=data,
        out=out,
        models=models,
        seeds=seeds,
        device=device,
        quick=quick,
        jobs=jobs,
        on=parse_place(on),
        gpu_jobs=gpu_jobs,
        minutes=minutes,
        fit=fit,
        results=results,
        publish=publish,
    )
    outcome = run(experiments, wanted, lambda line: typer.echo(line, err=True))
    if as_json:
        print_json(outcome.to_json())
    else:
        typer.echo(outcome.text(), nl=False)
    if outcome.code:
        raise typer.Exit(outcome.code)
