"""`foretell why P.ndtt DATA FACT --at T`: the proof of a fact, or the conditions that it lacks."""

from __future__ import annotations

from typing import Annotated

import typer

from foretell.cli import flags


@flags.with_reading()
def why(
    program: flags.ProgramArgument,
    data: flags.DataArgument,
    fact: Annotated[str, typer.Argument(help="A fact or an event, as it is written in data: 'pass(purple1,purple2)'.")],
    at: Annotated[
        str | None, typer.Option("--at", help="When, a number or a date; default: after the last event.")
    ] = None,
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
    """Explain why a fact is true at a time: its proofs, down to additions and facts; or why not: what fails in each rule."""
    from foretell.cli.input_data import asked_times, chosen_among, open_data
    from foretell.cli.other_rows import program_with
    from foretell.cli.replay import before, met_log, read_program, replayed, say_counts
    from foretell.cli.show import print_json
    from foretell.errors import ForetellError
    from foretell.ground.explain import why as explain

    opened = open_data(data, split, flags.reading(given, columns))
    checked = met_log(program_with(read_program(program, undeclared), table), opened)
    parts = chosen_among(opened, sequence)
    chosen = next((part for part in parts if len(part)), None)
    if chosen is None:
        raise ForetellError(f"{data}: there is no sequence in it")
    if sequence is None and sum(len(part) for part in parts) > 1:
        typer.echo(f"several sequences: this is the first, {chosen[0].id}; --sequence asks for another", err=True)
    only, (asked,) = chosen.select([0]), [None]
    if at is not None:
        only, (asked,) = asked_times(only, at, "--at")
        only = before(only, [asked])
    done = replayed(checked, only, impossible, 1, None, True)
    say_counts(done, impossible, chosen.name)
    timeline, began = done.timelines[0], only[0].start
    state = timeline.states - 1 if asked is None else timeline.state_at(asked)
    explanation = explain(timeline, fact, state)
    if as_json:
        time = timeline.time_of(state) if asked is None else asked
        iso = {} if began is None else {"iso": only.clock.iso(time, began)}
        print_json([{**explanation.to_json(), "time": time, **iso}])
        return
    told = only.clock.short(timeline.time_of(state), began) or f"{timeline.time_of(state):g}"
    typer.echo(f"sequence {timeline.sequence}, state {state}, after {timeline.after(state)} at {told}:")
    for line in explanation.lines():
        typer.echo(line)
