"""`foretell embed RUN DATA -o X.parquet`: the embedding of every event, for use in other software."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

from foretell.cli import flags
from foretell.cli.result_file import check_result_file, write_result
from foretell.errors import ForetellError
from foretell.wording import counted

if TYPE_CHECKING:
    import pyarrow

Option = typer.Option


@flags.with_reading()
def embed(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    data: Annotated[str | None, typer.Argument(help="A file, a folder, a name; default: the run's own data.")] = None,
    out: Annotated[Path | None, Option("--out", "-o", help="The file to write: FILE.csv, .parquet or .jsonl.")] = None,
    layers: Annotated[
        str, Option("--output-layers", help="all: layers 0 to L side by side; top: the last one.")
    ] = "all",
    context: Annotated[
        str | None, Option(help="What an event sees: causal (the past) or two-sided; default: as the run was trained.")
    ] = None,
    sequence: flags.SequenceOption = None,
    split: Annotated[str | None, Option(help="train, dev or test; default: test.")] = None,
    device: flags.DeviceOption = "cpu",
    columns: flags.ColumnsOption = "",
    as_json: flags.JsonOption = False,
    quiet: flags.QuietOption = False,
    *,
    given: flags.Given,
) -> None:
    """Embed events in the context of earlier events, or of all others (--context two-sided, pretrained runs)."""
    from foretell.cli.input_data import chosen_sequences
    from foretell.cli.open_run import open_network
    from foretell.cli.show import print_json
    from foretell.evaluate.queries import embeddings_of
    from foretell.options import Sight, check_choice
    from foretell.train.progress_bar import bar

    if layers not in ("all", "top"):
        raise ForetellError(f"--output-layers {layers}: expected all or top")
    if out is None and not as_json:
        raise ForetellError("say where to: -o FILE.csv, FILE.parquet or FILE.jsonl, or --json for stdout")
    check_result_file(out)
    if context is not None:
        check_choice("--context", context, Sight)
    opened = open_network(run, data, split, flags.reading(given, columns), device)
    chosen = chosen_sequences(opened.data, sequence)
    wanted = cast(Literal["all", "top"], layers)
    with bar(quiet or as_json) as progress:
        told = lambda done, of: progress.move("embeddings", done, of)  # noqa: E731
        sight = cast("Sight | None", context)
        arrays = embeddings_of(opened.network, chosen, wanted, history=sight, progress=told)
    rows = [
        {
            "sequence": one.id,
            "times": one.times.tolist(),
            "events": chosen.names_of(one),
            "embeddings": array.tolist(),
        }
        for one, array in zip(chosen, arrays, strict=True)
    ]
    if as_json:
        print_json(rows)
    if out is not None:
        write_result(out, lambda: _long_table(rows), rows)
        if not as_json:
            events = sum(len(row["times"]) for row in rows)
            typer.echo(f"embeddings of {counted(events, 'event')} of {counted(len(rows), 'sequence')}: {out}")


def _long_table(rows: list[dict[str, list]]) -> pyarrow.Table:
    """Return the embeddings as a table with one row per event."""
    from foretell.data.parquet import pyarrow_modules

    return pyarrow_modules()[0].table(
        {
            "sequence": [row["sequence"] for row in rows for _ in row["times"]],
            "index": [index for row in rows for index in range(len(row["times"]))],
            "time": [time for row in rows for time in row["times"]],
            "event": [event for row in rows for event in row["events"]],
            "embedding": [vector for row in rows for vector in row["embeddings"]],
        }
    )
