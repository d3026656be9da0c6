"""`foretell intensity RUN DATA --at …`: the intensities of a model at chosen times of given histories."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foretell.cli import flags
from foretell.cli.result_file import SHOWN, ResultOption, check_result_file, more_rows, write_result
from foretell.errors import ForetellError
from foretell.wording import counted

if TYPE_CHECKING:
    from foretell.data import EventData, ResultList
    from foretell.evaluate.queries import IntensityTable
    from foretell.models.base import IntensityModel

Option = typer.Option


@flags.with_reading()
def intensity(
    run: Annotated[Path, typer.Argument(help="A run folder; with --program, the data.")],
    data: Annotated[str | None, typer.Argument(help="A file, a folder, a name; default: the run's own data.")] = None,
    program: Annotated[Path | None, Option(help="Without a run: the rules, P.ndtt …")] = None,
    params: Annotated[Path | None, Option(help="… and the parameters, as `foretell params` prints them.")] = None,
    dtype: Annotated[str, Option(help="With --program: float32 or float64.")] = "float64",
    undeclared: flags.OtherUndeclaredOption = None,
    impossible: flags.OtherImpossibleOption = None,
    unseen: flags.UnseenOption = flags.UnseenChoice.mean,
    table: flags.TableOption = None,
    at: Annotated[str, Option("--at", help="Times, with commas: 0.5,1.2 or 2012-03-01T12:00.")] = "",
    grid: Annotated[int, Option(help="Instead: this many times, evenly spaced over each sequence.")] = 0,
    sequence: flags.SequenceOption = None,
    split: Annotated[str | None, Option(help="train, dev or test; default: test.")] = None,
    top: Annotated[int, Option(help="Types shown in the table.")] = 5,
    plot: Annotated[Path | None, Option(help="Draw the first sequence: FILE.png, .svg or .pdf.")] = None,
    device: flags.DeviceOption = "cpu",
    columns: flags.ColumnsOption = "",
    out: ResultOption = None,
    as_json: flags.JsonOption = False,
    quiet: flags.QuietOption = False,
    *,
    given: flags.Given,
) -> None:
    """Compute the intensities of every event type at given times, each from the events before it."""
    from foretell.cli.input_data import chosen_sequences
    from foretell.cli.open_run import open_run
    from foretell.cli.other_rows import OtherRules
    from foretell.evaluate.queries import intensities_at
    from foretell.train.progress_bar import bar

    check_result_file(out)
    if (at and grid) or not (at or grid or plot):
        raise ForetellError("say when: --at 0.5,1.2 or --grid 100")
    if plot is not None:
        from foretell.report.canvas import check_suffix

        check_suffix(plot)
    if program is not None or params is not None:
        if program is None or params is None or data is not None:
            raise ForetellError("without a run: foretell intensity DATA --program P.ndtt --params F --at …")
        if table:
            raise ForetellError("--table gives a run other rows: with --program, name the file in the program")
        from foretell.cli.input_data import chosen_among, open_data
        from foretell.cli.program_model import model_of

        found = open_data(str(run), split, flags.reading(given, columns))
        if len(found) > 1:
            raise ForetellError(f"{run}: several splits; say which with --split")
        way, told = impossible or flags.Impossible.error, (undeclared or flags.UndeclaredChoice.error).value
        model, found = model_of(program, params, chosen_among(found, sequence), dtype, told, way, unseen)
        chosen, time_unit = found[0], ""
    else:
        opened = open_run(run, data, split, flags.reading(given, columns), device, rules=OtherRules(table, undeclared))
        opened = opened.settled(impossible, chosen_sequences(opened.data, sequence), unseen)
        chosen, model, time_unit = opened.data, opened.model, opened.time_unit
    chosen, wanted = _asked(chosen, at) if at else (chosen, [])
    with bar(quiet or as_json) as progress:
        told = lambda done, of: progress.move("intensities", done, of)  # noqa: E731
        answers = intensities_at(model, chosen, wanted, grid=grid or None, progress=told) if at or grid else []
    if plot is not None:
        from foretell.report.plots import intensity_plot, save_figure

        save_figure(intensity_plot(model, chosen, 0, time_unit=time_unit), plot)
    _give(answers, model, top, out, as_json)
    if plot is not None and not as_json:
        typer.echo(f"picture: {plot}")


def _give(
    answers: ResultList[IntensityTable] | list[IntensityTable],
    model: IntensityModel,
    top: int,
    file: Path | None,
    as_json: bool,
) -> None:
    """Write the answers to a file, or print them as JSON or as tables of at most a screen."""
    from foretell.cli.show import out, print_json
    from foretell.data import ResultList

    if file is not None:
        write_result(file, ResultList(answers).arrow, (one.to_json(model.vocabulary) for one in answers))
    times = sum(len(one.times) for one in answers)
    if as_json:
        print_json([answer.to_json(model.vocabulary) for answer in answers])
    elif file is not None:
        typer.echo(f"intensities at {counted(times, 'time')} of {counted(len(answers), 'sequence')}: {file}")
    else:
        console, left = out(), SHOWN
        for answer in answers:
            if left > 0:
                console.print(answer.table(model.vocabulary, top, left))
            left -= len(answer.times)
        if (more := more_rows(-left, "time")) is not None:
            console.print(more, markup=False)


def _asked(data: EventData, text: str) -> tuple[EventData, list[list[float]]]:
    """Return the data, and the times of `--at` on the clock of each sequence that has begun by then."""
    from foretell.cli.input_data import asked_times

    parts = [piece.strip() for piece in text.split(",") if piece.strip()]
    if not parts:
        raise ForetellError(f"--at {text!r}: expected times with commas, 0.5,1.2 or 2012-03-01T12:00")
    by_time = [asked_times(data, part, "--at") for part in parts]
    common = [name for name in data.columns.ids if all(name in one.columns.ids for one, _ in by_time)]
    if not common and len(data):
        raise ForetellError(f"--at {text}: no sequence has begun at all of these times; ask for them one by one")
    found = [dict(zip(one.columns.ids, numbers, strict=True)) for one, numbers in by_time]
    chosen = data.select([place for place, name in enumerate(data.columns.ids) if name in set(common)])
    return chosen, [[numbers[name] for numbers in found] for name in chosen.columns.ids]
