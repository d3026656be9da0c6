"""`foretell plan P.ndtt DATA`: the size of the network that a program becomes for given data."""

from __future__ import annotations

from typing import Annotated

import typer

from foretell.cli.replay import (
    ColumnsOption,
    DataArgument,
    JsonOption,
    ProgramArgument,
    SequenceOption,
    SplitOption,
    Undeclared,
    UndeclaredOption,
    read_program,
)


def plan(
    program: ProgramArgument,
    data: DataArgument,
    dim: Annotated[int, typer.Option(help="Dimension of functors that the program does not declare.")] = 32,
    points: Annotated[int, typer.Option(help="Integration points a gap.", min=1)] = 1,
    sequence: SequenceOption = None,
    split: SplitOption = None,
    undeclared: UndeclaredOption = Undeclared.error,
    columns: ColumnsOption = "",
    as_json: JsonOption = False,
) -> None:
    """How many slots, proofs, additions and ranges of attention each sequence needs, and what they have in common."""
    import numpy as np
    import torch

    from foretell.cli.sequences import chosen_among, open_data
    from foretell.cli.show import print_json
    from foretell.ground.replay import replay
    from foretell.plan.book import ParameterBook
    from foretell.plan.layout import Layout
    from foretell.plan.plan import make_plan
    from foretell.plan.slots import sequence_slots

    checked = read_program(program, undeclared)
    layout = Layout(checked, dim)
    found = []
    for part in chosen_among(open_data(data, split, columns), sequence):
        for timeline in replay(checked, part).timelines:
            book = ParameterBook(layout, max(dim, 1))
            states = np.repeat(np.arange(1, timeline.states), points)
            made = make_plan([sequence_slots(timeline, layout, states)], layout, book, torch.device("cpu"))
            found.append({"sequence": timeline.sequence, "events": len(timeline.events), **made.sizes()})
    if as_json:
        print_json(found)
        return
    for one in found:
        name = one.pop("sequence")
        typer.echo(f"sequence {name}: " + ", ".join(f"{size:,} {what}" for what, size in one.items()))
