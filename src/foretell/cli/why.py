"""`foretell why P.ndtt DATA FACT --at T`: the proof of a fact, or what is missing for it."""

from __future__ import annotations

from typing import Annotated

import typer

from foretell.cli import flags


def why(
    program: flags.ProgramArgument,
    data: flags.DataArgument,
    fact: Annotated[str, typer.Argument(help="A fact or an event, as it is written in data: 'pass(purple1,purple2)'.")],
    at: Annotated[float | None, typer.Option("--at", help="When; default: after the last event.")] = None,
    sequence: flags.SequenceOption = None,
    split: flags.SplitOption = None,
    impossible: flags.ImpossibleOption = flags.Impossible.error,
    undeclared: flags.UndeclaredOption = flags.UndeclaredChoice.error,
    columns: flags.ColumnsOption = "",
    limit: flags.LimitOption = 1.0,
    as_json: flags.JsonOption = False,
) -> None:
    """Why a fact is true at a time: its proofs, down to additions and facts; or why not: what fails in each rule."""
    from foretell.cli.input_data import chosen_among, open_data
    from foretell.cli.replay import before, check_time, read_program, replayed, say_counts
    from foretell.cli.show import print_json
    from foretell.errors import ForetellError
    from foretell.ground.explain import why as explain

    check_time(at)
    checked = read_program(program, undeclared)
    parts = chosen_among(open_data(data, split, columns), sequence)
    chosen = next((part for part in parts if len(part)), None)
    if chosen is None:
        raise ForetellError(f"{data}: there is no sequence in it")
    if sequence is None and sum(len(part) for part in parts) > 1:
        typer.echo(f"several sequences: this is the first, {chosen[0].id}; --sequence asks for another", err=True)
    only = before(chosen.select([0]), at) if at is not None else chosen.select([0])
    done = replayed(checked, only, impossible, limit, 1, None, True)
    say_counts(done, impossible, chosen.name)
    timeline = done.timelines[0]
    state = timeline.states - 1
    explanation = explain(timeline, fact, state)
    if as_json:
        print_json([{**explanation.to_json(), "time": timeline.time_of(state) if at is None else at}])
        return
    typer.echo(
        f"sequence {timeline.sequence}, state {state}, after {timeline.after(state)} at {timeline.time_of(state):g}:"
    )
    for line in explanation.lines():
        typer.echo(line)
