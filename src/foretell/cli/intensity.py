"""`foretell intensity RUN DATA --times …`: what a model expects at chosen times of given histories."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foretell.cli import flags
from foretell.errors import ForetellError

Option = typer.Option


def intensity(
    run: Annotated[Path, typer.Argument(help="A run folder; with --program, the data.")],
    data: Annotated[str | None, typer.Argument(help="A file, a folder, a name; default: the run's own data.")] = None,
    program: Annotated[Path | None, Option(help="Without a run: the rules, P.ndtt …")] = None,
    params: Annotated[Path | None, Option(help="… and the parameters, as `foretell params` prints them.")] = None,
    dtype: Annotated[str, Option(help="With --program: float32 or float64.")] = "float64",
    undeclared: Annotated[str, Option(help="With --program: error or exogenous.")] = "error",
    impossible: flags.OtherImpossibleOption = None,
    times: Annotated[str, Option(help="Times, with commas: 0.5,1.2.")] = "",
    grid: Annotated[int, Option(help="Instead: this many times, evenly spaced over each sequence.")] = 0,
    sequence: flags.SequenceOption = None,
    split: Annotated[str | None, Option(help="train, dev or test.")] = None,
    top: Annotated[int, Option(help="Types shown in the table.")] = 5,
    plot: Annotated[Path | None, Option(help="Draw the first sequence: FILE.png, .svg or .pdf.")] = None,
    device: flags.DeviceOption = "cpu",
    columns: flags.ColumnsOption = "",
    as_json: flags.JsonOption = False,
) -> None:
    """Intensities of every event type at given times, each from the events before it."""
    from foretell.cli.input_data import chosen_sequences
    from foretell.cli.open_run import open_run
    from foretell.cli.show import out, print_json
    from foretell.evaluate.queries import intensities_at
    from foretell.options import Undeclared, check_choice

    if (times and grid) or not (times or grid or plot):
        raise ForetellError("say when: --times 0.5,1.2 or --grid 100")
    wanted = _parse(times)
    if plot is not None:
        from foretell.report.canvas import check_suffix

        check_suffix(plot)
    if program is not None or params is not None:
        if program is None or params is None or data is not None:
            raise ForetellError("without a run: foretell intensity DATA --program P.ndtt --params F --times …")
        from foretell.cli.input_data import chosen_among, open_data
        from foretell.cli.program_model import model_of

        check_choice("--undeclared", undeclared, Undeclared)
        found = open_data(str(run), split, columns)
        if len(found) > 1:
            raise ForetellError(f"{run}: several splits; say which with --split")
        way = impossible or flags.Impossible.error
        model, found = model_of(program, params, chosen_among(found, sequence), dtype, undeclared, way)  # pyright: ignore[reportArgumentType]
        chosen, time_unit = found[0], ""
    else:
        opened = open_run(run, data, split, columns, device)
        opened = opened.settled(impossible, chosen_sequences(opened.data, sequence))
        chosen, model, time_unit = opened.data, opened.model, opened.time_unit
    answers = intensities_at(model, chosen, wanted, grid=grid or None) if times or grid else []
    if plot is not None:
        from foretell.report.plots import intensity_plot, save_figure

        save_figure(intensity_plot(model, chosen, 0, time_unit=time_unit), plot)
    if as_json:
        print_json([answer.to_json(model.vocabulary) for answer in answers])
    else:
        console = out()
        for answer in answers:
            console.print(answer.table(model.vocabulary, top))
        if plot is not None:
            typer.echo(f"picture: {plot}")


def _parse(text: str) -> list[float]:
    found = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        try:
            found.append(float(part))
        except ValueError:
            raise ForetellError(f"--times {text!r}: {part!r} is not a number") from None
    bad = [value for value in found if not 0.0 <= value < float("inf")]
    if bad:
        raise ForetellError(f"--times {text!r}: {bad[0]} is not a time from 0 on")
    return found
