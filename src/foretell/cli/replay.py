"""`foretell replay P.ndtt DATA`: the facts and possible events that the rules deduce for a sequence, state by state."""

from __future__ import annotations

import json
import sys
from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foretell.cli import flags
from foretell.errors import ForetellError
from foretell.wording import counted

if TYPE_CHECKING:
    import numpy as np

    from foretell.data import Clock, EventData
    from foretell.ground.promises import BrokenPromise
    from foretell.ground.replay import Replay
    from foretell.ground.timeline import Timeline
    from foretell.lang.program import Program

SHOWN_CHANGES = 12


@flags.with_reading()
def replay(
    program: flags.ProgramArgument,
    data: flags.DataArgument,
    at: Annotated[
        str | None,
        typer.Option("--at", help="Only the state at this time, a number or a date; default: after each event."),
    ] = None,
    sequence: flags.SequenceOption = None,
    split: flags.SplitOption = None,
    impossible: flags.ImpossibleOption = flags.Impossible.error,
    undeclared: flags.UndeclaredOption = flags.UndeclaredChoice.error,
    table: flags.TableOption = None,
    columns: flags.ColumnsOption = "",
    jobs: Annotated[int, typer.Option("--jobs", help="Processes; 0: one a core where it pays.", min=0)] = 0,
    on: flags.OnOption = "this",
    cache: Annotated[
        Path | None, typer.Option("--cache", help="Where replays are kept; default: FORETELL_CACHE.")
    ] = None,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Keep nothing, use nothing kept.")] = False,
    everything: Annotated[
        bool,
        typer.Option("--all", help="Name every possible event, also where there are so many that they are counted."),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress, no counts.")] = False,
    as_json: flags.JsonOption = False,
    *,
    given: flags.Given,
) -> None:
    """List the facts and the possible events after each event, or at one time; the promises of the program are checked."""
    from foretell.cli.input_data import asked_times, chosen_among, open_data
    from foretell.cli.other_rows import program_with
    from foretell.ground.product_rows import listed
    from foretell.ground.replay import default_folder

    if cache is not None and no_cache:
        raise typer.BadParameter("--cache and --no-cache exclude one another")
    opened = open_data(data, split, flags.reading(given, columns))
    checked = met_log(program_with(read_program(program, undeclared), table), opened)
    parts = chosen_among(opened, sequence)
    times: list[float | None] = [None for part in parts for _ in part]
    if at is not None:
        asked = [asked_times(part, at, "--at") for part in parts if len(part)]
        parts = [before(part, numbers) for part, numbers in asked]
        times = [one for _, numbers in asked for one in numbers]
    folder = None if no_cache else (cache or default_folder())
    timelines: list[Timeline] = []
    broken: list[BrokenPromise] = []
    for part in parts:
        done = replayed(checked, part, impossible, jobs, folder, quiet, on)
        timelines.extend(map(listed, done.timelines) if everything else done.timelines)
        broken.extend(done.broken)
        say_counts(done, impossible, part.name, quiet)
    clocks = [(part.clock, one.start) for part in parts for one in part]
    if as_json:
        _print_json(timelines, times, clocks)
    else:
        for timeline, time, (clock, began) in zip(timelines, times, clocks, strict=True):
            _print(timeline, time, lambda number, clock=clock, began=began: clock.short(number, began) or f"{number:g}")
    if broken:
        raise ForetellError("\n".join(line for one in broken for line in one.lines()))


def before(data: EventData, times: Sequence[float]) -> EventData:
    """Return each sequence up to a time, exclusive: later events have no effect, and impossible ones among them must not stop a replay."""
    from dataclasses import replace

    import numpy as np

    cut = []
    for one, time in zip(data, times, strict=True):
        count = int(np.searchsorted(one.times, time, side="left"))
        if time > one.t_end:
            until = data.clock.short(one.t_end, one.start) or f"{one.t_end:g}"
            sys.stderr.write(f"sequence {one.id} was observed until {until}: after that, nothing is known to happen\n")
        cut.append(one.first(count, time))  # includes expiries until then
    return replace(data, sequences=cut, origin="window", report=None)


def read_program(path: Path, undeclared: flags.UndeclaredChoice) -> Program:
    """Return the checked program; the number of warnings is printed on stderr."""
    from foretell.lang.program import Program

    program = Program.from_file(path, undeclared=undeclared.value)
    if program.warnings:
        sys.stderr.write(f"{path}: {counted(len(program.warnings), 'warning')}; see foretell check {path}\n")
    return program


def met_log(program: Program, parts: Sequence[EventData]) -> Program:
    """Return a program whose `from_log` tables have the values of the first part, which for a whole data set is train."""
    from foretell.ground.given import with_log

    if not parts or not program.waits_for_log:
        return program
    found = with_log(program, parts[0])
    for before, one in zip(program.tables, found.tables, strict=True):
        if before.waits:
            sys.stderr.write(f"{one.functor}: {counted(len(one.rows), 'row')}, {one.log} of {parts[0].name}\n")
    return found


def replayed(
    program: Program,
    data: EventData,
    impossible: flags.Impossible,
    jobs: int,
    cache: Path | None,
    quiet: bool,
    on: str = "this",
) -> Replay:
    from foretell.ground.replay import replay as run
    from foretell.train.progress_bar import bar

    with bar(quiet) as shown:
        return run(
            program,
            data,
            impossible=impossible.value,
            workers=jobs,
            cache=cache,
            on=on,
            progress=lambda done, of: shown.move(f"replaying {data.name}", done, of),
        )


def say_counts(done: Replay, impossible: flags.Impossible, name: str, quiet: bool = False) -> None:
    say_impossible(done.impossible, impossible, name, quiet)
    if done.undeclared and not quiet:
        sys.stderr.write(f"{name}: {counted(done.undeclared, 'event')} that nothing declares, taken to be exogenous\n")


def say_impossible(count: int, impossible: flags.Impossible, name: str, quiet: bool = False) -> None:
    if count and not quiet:
        fate = "left out" if impossible is flags.Impossible.skip else "kept as unscored history"
        sys.stderr.write(f"{name}: {counted(count, 'impossible event')} {fate}\n")


class _States:
    """The facts of each state as sorted names, updated from one state to the next."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        text, is_event, keys = timeline.grounding.text, timeline.grounding.is_event, timeline.grounding.keys
        self.begins: dict[int, list[tuple[str, bool]]] = {}
        self.ends: dict[int, list[tuple[str, bool]]] = {}
        # Sort by functor and constants: the numbers of facts only reflect the order in which they were found.
        for fact, start, stop in sorted(timeline.shown_holds.tolist(), key=lambda row: (keys[row[0]], row[1])):
            self.begins.setdefault(start, []).append((text(fact), is_event(fact)))
            self.ends.setdefault(stop, []).append((text(fact), is_event(fact)))
        always = timeline.grounding.always.tolist()
        self.counts = _counts_of_products(timeline)
        self.facts = sorted(text(fact) for fact in always)
        self.possible = sorted(text(fact) for fact in always if is_event(fact))

    def enter(self, state: int) -> None:
        for name, event in self.ends.get(state, ()):
            del self.facts[bisect_left(self.facts, name)]
            if event:
                del self.possible[bisect_left(self.possible, name)]
        for name, event in self.begins.get(state, ()):
            insort(self.facts, name)
            if event:
                insort(self.possible, name)

    def record(self, state: int, clock: Clock, began: int | None) -> dict[str, Any]:
        time = self.timeline.time_of(state)
        return {
            "index": state,
            "after": self.timeline.after(state),
            "time": time,
            **({} if began is None else {"iso": clock.iso(time, began)}),
            "facts": self.facts,
            "possible": self.possible,
            **({"possible_counts": self.counted(state)} if self.counts else {}),
        }

    def counted(self, state: int) -> dict[str, int]:
        """Return the number of possible events by functor, for functors whose events are counted but not named."""
        return {name: int(events[state]) for name, events in self.counts.items()}

    def possible_count(self, state: int) -> str:
        named = [one for one in self.possible if one.partition("(")[0] not in self.counts]
        return counted(len(named) + sum(self.counted(state).values()), "possible event")

    def possible_words(self, state: int) -> str:
        counts = [f"{number:,} of {name}" for name, number in self.counted(state).items()]
        return ", ".join([*counts, *self.possible]) or "nothing"


def _counts_of_products(timeline: Timeline) -> dict[str, np.ndarray]:
    """Return the number of possible events per state, by functor, for functors whose events are kept as products."""
    if not timeline.grounding.products:
        return {}
    from foretell.plan.product_counts import product_counts

    found = product_counts(timeline)
    estimated = [name for name, one in found.items() if not one.is_exact]
    if estimated:
        sys.stderr.write(
            f"sequence {timeline.sequence}: possible {', '.join(estimated)} are too many to be counted: estimated\n"
        )
    return {name: one.events.round() for name, one in found.items()}


def _print_json(timelines: list[Timeline], times: list[float | None], clocks: list[tuple[Clock, int | None]]) -> None:
    """Print each state as soon as it is made: all states together can be far larger than the timeline."""
    write = sys.stdout.write
    write("[")
    for place, (timeline, at, clock) in enumerate(zip(timelines, times, clocks, strict=True)):
        write(
            ("," if place else "") + f'{{"sequence": {json.dumps(timeline.sequence, ensure_ascii=False)}, "states": ['
        )
        wanted = range(timeline.states) if at is None else [timeline.state_at(at)]
        states, first = _States(timeline), True
        for state in range(max(wanted) + 1):
            states.enter(state)
            if state in wanted:
                write(("" if first else ", ") + json.dumps(states.record(state, *clock), ensure_ascii=False))
                first = False
        write("]}")
    write("]\n")


def _print(timeline: Timeline, at: float | None, told: Callable[[float], str]) -> None:
    states = _States(timeline)
    if at is not None:
        state = timeline.state_at(at)
        for one in range(state + 1):
            states.enter(one)
        typer.echo(f"sequence {timeline.sequence}, state {state}, {_after(timeline, state, told)}:")
        typer.echo("  possible: " + states.possible_words(state))
        events = set(states.possible)
        typer.echo("  facts: " + (", ".join(name for name in states.facts if name not in events) or "none"))
        return
    typer.echo(
        f"sequence {timeline.sequence}: {counted(int((~timeline.is_expiry).sum()), 'event')}, {counted(timeline.states, 'state')}, "
        f"{counted(len(states.facts), 'fact')} that always hold, {counted(len(timeline.additions), 'addition')}"
    )
    for state in range(timeline.states):
        states.enter(state)
        began = [f"+{name}" for name, _ in states.begins.get(state, ())]
        ended = [f"-{name}" for name, _ in states.ends.get(state, ())]
        if state == 0:
            typer.echo(
                f"  {state:5d}  before bos: {counted(len(states.facts), 'fact')}, {states.possible_count(state)}"
            )
            continue
        changes = began + ended
        more = f" … and {len(changes) - SHOWN_CHANGES} more" if len(changes) > SHOWN_CHANGES else ""
        typer.echo(
            f"  {state:5d}  {_after(timeline, state, told)}: {counted(len(states.facts), 'fact')}, "
            f"{states.possible_count(state)}" + ("  " + " ".join(changes[:SHOWN_CHANGES]) + more if changes else "")
        )


def _after(timeline: Timeline, state: int, told: Callable[[float], str]) -> str:
    return f"after {timeline.after(state)} at {told(timeline.time_of(state))}"
