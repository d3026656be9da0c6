"""Times as written in files → float64 since the start of each sequence, with one clock for all files of a data set.

Unix numbers are recognised, rows with timestamps are sorted, starts and ends are determined, and the unit is chosen. Each assumption
is a sentence in `said`. Differences of timestamps are computed in int64.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

import numpy as np

from foretell.data.clock import EPOCH, Clock, iso_text, readable_unit
from foretell.data.dataset import Origin
from foretell.data.raw import MOST_SHOWN, Problem, RawEvents
from foretell.data.read_options import START_RULES, ReadOptions
from foretell.data.timestamps import (
    NS,
    UNIX_FACTORS,
    UNIX_WORDS,
    find_zone,
    from_unix,
    localised,
    parse_time,
    unix_format,
)
from foretell.durations import seconds_in
from foretell.wording import counted

FAR = 20.0  # warn if a sequence's first time is more than this many times its duration
NAT = np.datetime64("NaT", "ns")


@dataclass(frozen=True, eq=False)
class PlacedEvents:
    """Files with float64 times, their clock, and the assumptions about them."""

    files: list[RawEvents]
    starts: list[np.ndarray | None]  # per file: int64 [sequences], nanoseconds since 1970, or None
    clock: Clock
    origin: Origin
    said: list[str]
    problems: list[str]  # messages with file and line


def placed(
    files: Sequence[RawEvents],
    options: ReadOptions,
    time_unit: str = "",
    given_origin: Origin = "window",
    given_first: bool | None = None,
) -> PlacedEvents:
    """Place the times of all files of a data set; `time_unit` and `given_origin` are from its card.

    `given_first`: for a part of a file, whether clocks start at first events in the whole file; None: this is the whole file.
    """
    made = PlacedEvents(list(files), [None] * len(files), Clock.of_unit(time_unit), given_origin, [], [])
    timed = [raw for raw in files if len(raw.times) or _given(raw.t_ends).any()]
    stamped = [raw for raw in timed if raw.stamped or raw.t_ends.dtype.kind == "M"]
    form = options.time_format or "auto"
    if stamped and len(stamped) < len(timed):
        other = next(raw for raw in timed if raw not in stamped)
        made.problems.append(
            f"{other.path}: its times are numbers, but those of {stamped[0].path} are dates; use one of both"
        )
        return made
    if timed and not stamped and (form in UNIX_FACTORS or (form == "auto" and not time_unit)):
        unix = form if form in UNIX_FACTORS else unix_format(part for raw in timed for part in _numbers(raw))
        if unix is not None:
            made.files[:] = stamped = [_as_timestamps(raw, unix) for raw in files]
            if form == "auto":
                how = '`time_format="number"` reads them as plain numbers'
                made.said.append(f"times are read as Unix {UNIX_WORDS[unix]}; {how}")
    if stamped:
        return _place_timestamps(made, options, time_unit, given_first)
    return _place_numbers(made, options)


def _given(bounds: np.ndarray) -> np.ndarray:
    return ~np.isnat(bounds) if bounds.dtype.kind == "M" else ~np.isnan(bounds)


def _numbers(raw: RawEvents) -> list[np.ndarray]:
    """Return all numbers of a file that are times, as arrays."""
    parts = [raw.times, *(one[_given(one)] for one in (raw.t_starts, raw.t_ends, raw.score_from))]
    return [part if part.dtype.kind == "i" or np.isfinite(part).all() else np.zeros(1) for part in parts]


def _as_timestamps(raw: RawEvents, form: str) -> RawEvents:
    def bounds(values: np.ndarray) -> np.ndarray:
        given = _given(values)
        found = np.full(len(values), NAT)
        found[given] = from_unix(values[given], form).astype("datetime64[ns]")
        return found

    times = from_unix(raw.times, form).astype("datetime64[ns]")
    found = {name: bounds(getattr(raw, name)) for name in ("t_starts", "t_ends", "score_from")}
    return replace(raw, times=times, **found)


def _place_numbers(made: PlacedEvents, options: ReadOptions) -> PlacedEvents:
    """Place plain numbers: unchanged, or relative to starts from a column or from the first events."""
    rule, origin = options.start, made.origin
    if rule and rule != "first-event":
        made.problems.append(
            f'`start="{rule}"`: the times are plain numbers, not dates; `start="first-event"` is understood'
        )
        return made
    clock = options.clock if options.clock is not None and not made.clock.unit else made.clock
    if options.clock is not None and options.clock.absolute:
        unit = options.clock.unit
        made.said.append(f"times are plain numbers: they are taken as {unit} since each sequence's start")
        clock = replace(options.clock, absolute=False)
    for place, raw in enumerate(made.files):
        times = raw.times.astype(np.float64)
        starts, ends, later = (one.astype(np.float64) for one in (raw.t_starts, raw.t_ends, raw.score_from))
        lengths = np.diff(raw.offsets)
        if options.until_number is not None:
            ends = np.where(np.isnan(ends), options.until_number, ends)
        elif options.observed_until:
            made.problems.append(
                f"{raw.path}: `observed_until={options.observed_until}`: times are numbers; expected a number"
            )
        if rule == "first-event":
            first = lengths > 0
            starts[first] = times[raw.offsets[:-1][first]]
            origin = "first-event"
        shift = np.nan_to_num(starts, nan=0.0)
        if shift.any():
            times, ends, later = times - np.repeat(shift, lengths), ends - shift, later - shift
        nothing = np.full(len(shift), np.nan)
        made.files[place] = replace(raw, times=times, t_starts=nothing, t_ends=ends, score_from=later)
        far = _far_from_zero(times, raw.offsets)
        if far is not None and origin == "window":
            made.said.append(far)
    return replace(made, clock=clock, origin=origin)


def _far_from_zero(times: np.ndarray, offsets: np.ndarray) -> str | None:
    """Return a warning if most sequences begin far from 0 relative to their duration, else None."""
    lengths = np.diff(offsets)
    several = lengths > 1
    if not several.any():
        return None
    first, last = times[offsets[:-1][several]], times[offsets[1:][several] - 1]
    with np.errstate(over="ignore", invalid="ignore"):
        far = (first > FAR * (last - first)) & (last > first)
    if far.mean() <= 0.5:
        return None
    return (
        f"{counted(int(far.sum()), 'sequence')} of {len(far)} begin far from 0 (at {float(np.median(first[far])):g}, and last "
        f'{float(np.median((last - first)[far])):g}): a model has to explain that wait; `start="first-event"` starts each clock with '
        "its first event, and `time_format=` says what the numbers are"
    )


def _place_timestamps(
    made: PlacedEvents, options: ReadOptions, time_unit: str, of_whole: bool | None = None
) -> PlacedEvents:
    arranged = [_arranged(raw, options, made) for raw in made.files]
    if made.problems:
        return made
    settled = [_bounds(raw, options, made, of_whole) for raw in arranged]
    if made.problems:
        return made
    unit = options.clock.unit if options.clock is not None else time_unit
    seconds = options.clock.seconds_per_unit if options.clock is not None else seconds_in(time_unit)
    if options.clock is not None and seconds is None:
        had = f"in {unit}" if unit else "plain numbers"
        made.problems.append(
            f"{made.files[0].path}: its times are dates, but the model was trained on times that are {had}"
        )
        return made
    if seconds is None:
        gaps = [np.diff(raw.times.astype(np.int64))[_inside(raw.offsets, len(raw.times))] for raw in arranged]
        unit = readable_unit(np.concatenate([np.zeros(0, np.int64), *gaps]))
        seconds = seconds_in(unit)
    clock = Clock(unit, seconds, options.zone, absolute=True)
    given_first = settled[0][2] if settled else True
    for place, (raw, (starts, ends, _)) in enumerate(zip(arranged, settled, strict=True)):
        lengths = np.diff(raw.offsets)
        until, later = (_since(starts, one.astype("datetime64[ns]"), clock) for one in (ends, raw.score_from))
        times = clock.numbers(raw.times.astype(np.int64), np.repeat(starts, lengths))
        nothing = np.full(len(starts), np.nan)
        made.files[place] = replace(raw, times=times, t_starts=nothing, t_ends=until, score_from=later)
        made.starts[place] = starts
    _say_clock(made, arranged, clock, given_first, options)
    return replace(made, clock=clock, origin="first-event" if given_first else "window")


def _since(starts: np.ndarray, instants: np.ndarray, clock: Clock) -> np.ndarray:
    """Return instants as numbers since the starts; NaN is missing."""
    found, known = np.full(len(instants), np.nan), _given(instants)
    found[known] = clock.numbers(instants[known].astype(np.int64), starts[known])
    return found


def _inside(offsets: np.ndarray, events: int) -> np.ndarray:
    """Return bool [events - 1]: True if two neighbouring events belong to one sequence."""
    inside = np.ones(max(events - 1, 0), dtype=bool)
    borders = offsets[1:-1] - 1
    inside[borders[(borders >= 0) & (borders < len(inside))]] = False
    return inside


def _arranged(raw: RawEvents, options: ReadOptions, made: PlacedEvents) -> RawEvents:
    """Sort the rows of each sequence by time; rows at equal times stay in the order of the file."""
    times = raw.times.astype("datetime64[ns]")
    falls = np.flatnonzero((np.diff(times.astype(np.int64)) < 0) & _inside(raw.offsets, len(times))) + 1
    if not len(falls):
        return replace(raw, times=times)
    sequences = np.repeat(np.arange(len(raw.ids)), np.diff(raw.offsets))
    if options.sorted:
        problems = []
        for event in falls[np.unique(sequences[falls], return_index=True)[1]].tolist():
            sequence = int(sequences[event])
            here, before = (iso_text(int(times[one].astype(np.int64)), options.zone) for one in (event, event - 1))
            said = f"{raw.where(sequence)}: {here} comes after {before}: unsorted, and `sorted=True` is given"
            problems.append(Problem(raw.place_of(sequence, event - int(raw.offsets[sequence])), said))
        made.problems.extend(raw.located(problems))
        return raw
    order = np.lexsort((times.astype(np.int64), sequences))
    moved = int((order != np.arange(len(order))).sum())
    said = f"{moved:,} of {len(times):,} rows were out of order in their sequence, and were sorted by time"
    return replace(
        raw,
        said=(*raw.said, said),
        times=times[order],
        codes=raw.codes[order],
        event_places=None if raw.event_places is None else raw.event_places[order],
        attributes={name: one.take(order) for name, one in raw.attributes.items()},
    )


def _bounds(
    raw: RawEvents, options: ReadOptions, made: PlacedEvents, of_whole: bool | None = None
) -> tuple[np.ndarray, np.ndarray, bool]:
    """Return starts (int64), ends (datetime64, NaT is missing), and whether clocks start at first events, which are then not scored."""
    lengths, problems = np.diff(raw.offsets), []
    some = lengths > 0
    first = np.full(len(lengths), NAT)
    first[some] = raw.times[raw.offsets[:-1][some]]
    last = np.full(len(lengths), NAT)
    last[some] = raw.times[raw.offsets[1:][some] - 1]
    ends, starts = raw.t_ends.astype("datetime64[ns]"), raw.t_starts.astype("datetime64[ns]")
    endless = np.isnat(ends)
    if options.observed_until:
        until = parse_time(options.observed_until, options.zone)
        if until is None:
            made.problems.append(f"`observed_until={options.observed_until}`: the times are dates; expected a date")
            return starts, ends, False
        ends[endless] = np.datetime64(until, "ns")
    missing = np.isnat(starts)
    given_first = bool(missing.all()) and options.start in ("", "first-event") and of_whole is not False
    if options.start and missing.any():
        starts[missing] = _ruled(first[missing], options)
    elif given_first:
        starts = first.copy()
    for sequence in np.flatnonzero(np.isnat(starts) & (not raw.problems)).tolist():
        said = (
            "no t_start, though others have one; fill it in, or give `start=`"
            if some[sequence]
            else "no events and no t_start"
        )
        problems.append(Problem(int(raw.places[sequence]), f"{raw.where(sequence)}: {said}"))
    late = last > ends
    for what, wrong, at, flag in (
        ("the first event is before the start", first < starts, (first, starts), missing & bool(options.start)),
        ("the last event is after the end", late, (last, ends), endless & bool(options.observed_until)),
        ("the end is before the start", (ends < starts) & ~late, (ends, starts), np.zeros_like(missing)),
    ):
        for sequence in np.flatnonzero(wrong)[:MOST_SHOWN].tolist():
            one, other = (iso_text(int(values[sequence].astype(np.int64)), options.zone) for values in at)
            by = f", by `{'observed_until' if wrong is late else 'start'}=`" if flag[sequence] else ""
            said = f"{raw.where(sequence)}: {what}: {one} and {other}{by}"
            problems.append(Problem(int(raw.places[sequence]), said))
    for sequence in np.flatnonzero(~some & np.isnat(ends)).tolist():
        said = "no events and no t_end; a sequence without events needs a t_end"
        problems.append(Problem(int(raw.places[sequence]), f"{raw.where(sequence)}: {said}"))
    made.problems.extend(raw.located(problems))
    return starts.astype(np.int64), ends, given_first


def _ruled(first: np.ndarray, options: ReadOptions) -> np.ndarray:
    """Return the starts by the option `start`: the first event, the start of its day, week or month, or one time for all."""
    if options.start == "first-event":
        return first
    if options.start not in START_RULES:
        at = parse_time(options.start, options.zone)
        assert at is not None, "checked by ReadOptions"
        return np.full(len(first), np.datetime64(at, "ns"))
    zone = find_zone(options.zone)
    found = np.full(len(first), NAT)
    for place, instant in enumerate(first.tolist()):
        if instant is None:
            continue
        day = (EPOCH + timedelta(seconds=instant // NS)).astimezone(zone).date()
        if options.start == "week":
            day -= timedelta(days=day.weekday())
        elif options.start == "month":
            day = day.replace(day=1)
        local = np.array([np.datetime64(day, "ns").astype(np.int64)])
        found[place] = np.datetime64(int(localised(local, options.zone).instants[0]), "ns")
    return found


def _say_clock(
    made: PlacedEvents, files: list[RawEvents], clock: Clock, given_first: bool, options: ReadOptions
) -> None:
    notes = [raw.time_notes for raw in files]
    zoneless, twice, never = (sum(getattr(one, name) for one in notes) for name in ("zoneless", "twice", "never"))
    if zoneless and not options.timezone:
        made.said.append(
            f'times without a zone ({zoneless:,}) are taken as UTC (`timezone="Europe/Berlin"` says otherwise)'
        )
    if twice:
        made.said.append(
            f"times that happen twice in {options.zone}, when clocks go back ({twice:,}): the first is taken"
        )
    if never:
        made.said.append(
            f"times that do not exist in {options.zone}, when clocks go forward ({never:,}), are taken an hour later"
        )
    if given_first and not options.start:
        how = 'a t_start column or `start="day"` says otherwise'
        made.said.append(
            f"times are in {clock.unit} since each sequence's first event, which is given and not scored; {how}"
        )
