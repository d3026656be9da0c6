"""`foretell params RUN [--load FILE]`: print every parameter under its public name as JSON, or load edited ones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foretell.cli import flags
from foretell.errors import ForetellError

Option = typer.Option


def params(
    run: Annotated[Path | None, typer.Argument(help="A run folder.")] = None,
    program: Annotated[Path | None, Option(help="Instead: a fresh model of this program, P.ndtt.")] = None,
    model: Annotated[str, Option(help="With --program: andtt, ndtt or s2ndtt.")] = "andtt",
    data: Annotated[str | None, Option(help="With --program: data whose events give parameters their values.")] = None,
    dim: Annotated[int, Option(help="With --program: dimension of functors that it does not declare.")] = 32,
    layers: Annotated[int, Option(help="With --program: layers (andtt, s2ndtt).")] = 2,
    time_dim: Annotated[int | None, Option(help="With --program; default: as --dim.")] = None,
    preset: Annotated[
        str | None, Option(help="With --program: options by name; paper: the model exactly as its paper has it.")
    ] = None,
    seed: Annotated[int, Option(help="With --program.")] = 0,
    dtype: Annotated[str, Option(help="With --program: float32 or float64.")] = "float64",
    undeclared: flags.UndeclaredOption = flags.UndeclaredChoice.error,
    load: Annotated[Path | None, Option(help="Write the parameters of this JSON file into the run's model.")] = None,
    out: Annotated[Path | None, Option("--out", "-o", help="A file instead of stdout.")] = None,
    as_json: Annotated[bool, Option("--json", help="JSON on stdout (the default).")] = True,
) -> None:
    """Print a model's parameters, in the data's unit of time, or write edited ones back."""
    from foretell.cli.show import print_json
    from foretell.data.files import text_file
    from foretell.models.parameters import load_parameters, parameters_json, read_parameters
    from foretell.train.run import RunFolder

    if (run is None) == (program is None):
        raise ForetellError("give a run folder, or --program P.ndtt for a fresh model")
    if program is not None:
        if load is not None:
            raise ForetellError("--load writes into a run: give its folder")
        from foretell.cli.program_model import fresh_model, preset_options

        sizes = {**preset_options(model, preset), "dim": dim, "layers": layers, "time_dim": time_dim}
        found = parameters_json(fresh_model(program, data, model, sizes, seed, dtype, undeclared.value))
    else:
        assert run is not None
        if preset is not None:
            raise ForetellError("--preset is for a fresh model: give --program P.ndtt instead of a run")
        folder = RunFolder.open(run)
        opened = folder.model()
        if load is not None:
            load_parameters(opened, read_parameters(load), str(load))
            with folder.writing():
                folder.save_model(opened)
            typer.echo(f"{load}: loaded into {run}", err=True)
            return
        found = parameters_json(opened)
    if out is None:
        print_json(found)
        return
    import json

    with text_file(out) as file:
        file.write(json.dumps(found, ensure_ascii=False) + "\n")
    typer.echo(f"{len(found['parameters'])} parameters: {out}", err=True)
