"""`foretell data pack IN OUT`: convert data of any size to a folder that is memory-mapped instead of loaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from foretell.cli import flags
from foretell.errors import ForetellError


@flags.with_reading(but=("unknown",))
def pack(
    source: Annotated[str, typer.Argument(metavar="IN", help="A file, a folder, an embedded name or hf:NAME.")],
    target: Annotated[Path, typer.Argument(metavar="OUT", help="A folder that does not exist yet.")],
    shares: Annotated[
        str | None,
        typer.Option(
            help="Shares of train, dev and test, as 0.8,0.1,0.1, where IN has one split; default: it stays one."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of --shares.")] = 0,
    columns: flags.ColumnsOption = "",
    participants: flags.ParticipantsOption = "",
    as_json: flags.SummaryOption = False,
    quiet: flags.QuietOption = False,
    *,
    given: flags.Given,
) -> None:
    """Read and check IN in bounded memory, and write OUT; if IN has a mistake, nothing is written."""
    from dataclasses import replace

    from foretell.data.packed.packing import pack as write
    from foretell.train.config import DataOptions
    from foretell.train.progress_bar import bar

    reading = flags.reading(given, flags.with_participants(columns, participants))
    options = replace(DataOptions(), **reading).reading()
    with bar(quiet or as_json) as progress:
        counts = write(source, target, options, shares=_shares(shares), seed=seed, progress=progress.move)
    size = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
    if as_json:
        splits = {name: {"sequences": one[0], "events": one[1]} for name, one in counts.items()}
        typer.echo(json.dumps({"path": str(target), "splits": splits, "bytes": size}))
        return
    for name, (sequences, events) in counts.items():
        typer.echo(f"{name}: {sequences} sequences, {events} events")
    typer.echo(f"packed: {target} ({size / 1e6:,.1f} MB)")


def _shares(text: str | None) -> tuple[float, float, float] | None:
    if text is None:
        return None
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = []
    if len(found) != 3 or not all(0.0 <= one <= 1.0 for one in found) or abs(sum(found) - 1.0) > 1e-9 or not found[0]:
        raise ForetellError(
            f"--shares {text}: expected three shares that add up to 1, the first above 0, as 0.8,0.1,0.1"
        )
    return found[0], found[1], found[2]
