"""`foretell plan P.ndtt DATA`: the network of a program for given data: its parts, its sizes, its parameters."""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from foretell.cli import flags
from foretell.cli.replay import met_log, read_program, say_counts

if TYPE_CHECKING:
    from foretell.plan.plan import Plan


DRAWN = 50  # possible events that are sampled at each time, for products


@flags.with_reading()
def plan(
    program: flags.ProgramArgument,
    data: flags.DataArgument,
    dim: Annotated[int, typer.Option(help="Dimension of functors that the program does not declare.", min=0)] = 32,
    layers: Annotated[int, typer.Option(help="Layers of attention, for counting parameters.", min=1)] = 2,
    time_dim: Annotated[int | None, typer.Option(help="Dimension of times; default: as --dim.", min=1)] = None,
    points: Annotated[int, typer.Option(help="Integration points per gap.", min=1)] = 1,
    tiles: Annotated[bool, typer.Option(help="Also tiles of attention and their padding, on a CPU.")] = False,
    each: Annotated[bool, typer.Option("--each", help="A line per sequence instead of their summary.")] = False,
    sequence: flags.SequenceOption = None,
    split: flags.SplitOption = None,
    impossible: flags.ImpossibleOption = flags.Impossible.error,
    undeclared: flags.UndeclaredOption = flags.UndeclaredChoice.error,
    table: flags.TableOption = None,
    columns: flags.ColumnsOption = "",
    as_json: flags.JsonOption = False,
    *,
    given: flags.Given,
) -> None:
    """Show the network of a program, and how many slots, proofs, additions and ranges of attention the data need."""
    import numpy as np
    import torch

    from foretell.cli.input_data import chosen_among, open_data
    from foretell.cli.other_rows import program_with
    from foretell.cli.show import print_json
    from foretell.ground.replay import replay
    from foretell.plan.parameters import DimensionLayout, ParameterBook
    from foretell.plan.plan import make_plan
    from foretell.plan.show import network_json, network_lines, product_words, sizes_lines, sizes_of
    from foretell.plan.slots import sequence_slots

    opened = open_data(data, split, flags.reading(given, columns))
    checked = met_log(program_with(read_program(program, undeclared), table), opened)
    layout = DimensionLayout(checked, dim)
    book = ParameterBook(layout, max(dim, 1) if time_dim is None else time_dim)
    found, tiled = [], []
    for part in chosen_among(opened, sequence):
        done = replay(checked, part, impossible=impossible.value)
        say_counts(done, impossible, part.name)
        if done.timelines and done.timelines[0].grounding.products:
            sys.stderr.write(f"{product_words(done.timelines[0].grounding)}; planned as {DRAWN} drawn at each time\n")
        for timeline in done.timelines:
            book.read(timeline.grounding)
            drawn = (DRAWN, np.random.default_rng(0)) if timeline.grounding.products else (None, None)
            slots = sequence_slots(timeline, layout, np.repeat(np.arange(1, timeline.states), points), *drawn)
            found.append(sizes_of(timeline, slots, layout))
            if tiles:
                made = make_plan([slots], layout, book, torch.device("cpu"))
                tiled.append(_tiles(made))
    if as_json:
        network = network_json(layout, book, layers)
        shown = [{**dataclasses.asdict(one), "network": network} for one in found]
        print_json([{**one, **extra} for one, extra in zip(shown, tiled or [{}] * len(shown), strict=True)])
        return
    for line in [*network_lines(layout, book, layers), *sizes_lines(found, layout, each)]:
        typer.echo(line)
    if tiled:
        for line in _tile_lines([one.sequence for one in found], [one.pairs for one in found], tiled, each):
            typer.echo(line)


def _tile_lines(names: list[str], pairs: list[int], tiled: list[dict[str, int]], each: bool) -> list[str]:
    def line(name: str, tiles: int, padded: int, needed: int) -> str:
        return f"{name}: {tiles:,} tiles of attention, {padded / max(needed, 1):.1f} × the pairs with padding"

    if each or len(names) < 2:
        told = zip(names, tiled, pairs, strict=True)
        return [line(f"sequence {name}", one["tiles"], one["tile_pairs"], needed) for name, one, needed in told]
    summed = [sum(one[key] for one in tiled) for key in ("tiles", "tile_pairs")]
    return [line(f"all {len(names):,} sequences", summed[0], summed[1], sum(pairs))]


def _tiles(made: Plan) -> dict[str, int]:
    """Return the numbers of tiles of attention and of pairs in them, including padding; both depend on the device."""
    groups = [group for table in made.tables.values() for group in table.tiles.groups]
    cells = sum(group.rows.shape[0] * group.rows.shape[1] * group.window.shape[1] for group in groups)
    return {"tiles": sum(len(group.rows) for group in groups), "tile_pairs": cells}
