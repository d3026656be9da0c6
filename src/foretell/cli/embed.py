"""`foretell embed RUN DATA -o X.parquet`: the embedding of every event, for use elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal, cast

import typer

from foretell.cli import flags
from foretell.errors import ForetellError

Option = typer.Option


@flags.with_reading()
def embed(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    data: Annotated[str | None, typer.Argument(help="A file, a folder, a name; default: the run's own data.")] = None,
    out: Annotated[Path | None, Option("--out", "-o", help="FILE.parquet or FILE.jsonl.")] = None,
    layers: Annotated[
        str, Option("--output-layers", help="all: layers 0 to L side by side; top: the last one.")
    ] = "all",
    context: Annotated[
        str | None, Option(help="What an event sees: causal (the past) or two-sided; default: as the run was trained.")
    ] = None,
    sequence: flags.SequenceOption = None,
    split: Annotated[str | None, Option(help="train, dev or test.")] = None,
    device: flags.DeviceOption = "cpu",
    columns: flags.ColumnsOption = "",
    as_json: flags.JsonOption = False,
    *,
    given: flags.Given,
) -> None:
    """Embed events in the context of what came before them, or of all others (--context two-sided, pretrained runs)."""
    from foretell.cli.input_data import chosen_sequences
    from foretell.cli.open_run import open_network
    from foretell.cli.show import print_json
    from foretell.data.files import text_file
    from foretell.evaluate.queries import embeddings_of
    from foretell.options import Sight, check_choice

    if layers not in ("all", "top"):
        raise ForetellError(f"--output-layers {layers}: expected all or top")
    if out is None and not as_json:
        raise ForetellError("say where to: -o FILE.parquet, -o FILE.jsonl, or --json for stdout")
    if out is not None and out.suffix not in (".parquet", ".jsonl"):
        raise ForetellError(f"{out}: expected a name that ends in .parquet or .jsonl")
    if context is not None:
        check_choice("--context", context, Sight)
    opened = open_network(run, data, split, flags.reading(given, columns), device)
    chosen = chosen_sequences(opened.data, sequence)
    wanted = cast(Literal["all", "top"], layers)
    arrays = embeddings_of(opened.network, chosen, wanted, history=cast("Sight | None", context))
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
    if out is not None and out.suffix == ".jsonl":
        with text_file(out) as file:
            file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    elif out is not None:
        _write_parquet(out, rows)
    if out is not None and not as_json:
        events = sum(len(row["times"]) for row in rows)
        typer.echo(f"{events} events of {len(rows)} sequences: {out}")


def _write_parquet(path: Path, rows: list[dict[str, list]]) -> None:
    """A long table: one row per event."""
    from foretell.data.files import replacing

    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise ForetellError(f"{path}: writing Parquet needs the package pyarrow; write a .jsonl instead") from None
    table = {
        "sequence": [row["sequence"] for row in rows for _ in row["times"]],
        "index": [index for row in rows for index in range(len(row["times"]))],
        "time": [time for row in rows for time in row["times"]],
        "event": [event for row in rows for event in row["events"]],
        "embedding": [vector for row in rows for vector in row["embeddings"]],
    }
    with replacing(path) as temporary:
        parquet.write_table(pyarrow.table(table), temporary)
