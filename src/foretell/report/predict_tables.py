"""Predictions as text for a terminal: a sentence and a table of events for one sequence, one row per sequence for many."""

from __future__ import annotations

from rich.table import Table

from foretell.evaluate.next_time import UNDEFINED_ABOVE
from foretell.evaluate.prediction import Interval, LikelyEvent, NextEventDistribution, Prediction
from foretell.wording import counted, escape


def sentence(prediction: Prediction, time_unit: str = "") -> str:
    """Return a sentence that says when the next event is expected."""
    outlook = prediction.outlook
    unit = f" ({time_unit})" if time_unit and len(time_unit) < 20 and prediction.began is None else ""
    when = "no mean can be given"
    if outlook.mean is not None:
        when = f"the next event is expected at {_time(outlook.mean, prediction)}{unit}"
    median = "" if outlook.median is None else f", as likely before as after {_time(outlook.median, prediction)}"
    likeliest = outlook.events[:1] if outlook.drawn is None else ()
    best = "".join(f"; most probably it is {one.event} ({percent(one.probability)})" for one in likeliest)
    begin = _time(prediction.start, prediction, "g")
    after = f"sequence {prediction.sequence}, after {counted(prediction.seen, 'event')}, from {begin} on"
    return f"{after}: {when}{median}{best}"


def remarks(prediction: Prediction) -> list[str]:
    """Return the notes below a table of predictions."""
    outlook, found = prediction.outlook, []
    if outlook.mean is None:
        found.append(
            f"no mean: with probability {percent(outlook.no_event)} nothing happens up to {_time(outlook.horizon, prediction)}; "
            f"above {UNDEFINED_ABOVE:g} the mean is undefined"
        )
    if outlook.drawn is not None and outlook.total_error is not None:
        found.append(
            f"the total intensity is estimated from {outlook.drawn:,} of {counted(outlook.possible, 'possible event')}, "
            f"with a standard error of {percent(outlook.total_error)}: so exact are times and probabilities"
        )
    who = outlook.who
    if who is not None:
        given = f", most probably {who.events[0].event}" if who.events else ": no such event is possible now"
        found.append(f"the next event is a {who.pattern} with probability {percent(who.probability)}{given}")
    return found


def when_table(predictions: list[Prediction], time_unit: str = "", what: bool = True) -> Table:
    """Return a table of predicted times, one row per sequence and method; `what` adds the most probable event."""
    dated = any(prediction.began is not None for prediction in predictions)
    unit = f", in {time_unit}" if time_unit and len(time_unit) < 20 and not dated else ""
    short = what and dated  # dates are wide: this keeps each row on one line
    table = Table(title=escape(f"the next event{unit}"), title_justify="left")
    named = ["sequence", *([] if short else ["by"])]
    patterns = what and any(prediction.who is not None for prediction in predictions)
    best = [*(["most probable"] if what else []), *(["who"] if patterns else [])]
    times = ["from", *([] if short else ["mean"]), "median", *([] if short else ["50 %"]), "90 %", "no event"]
    for name in (*named, *times, *best):
        table.add_column(name, justify="right" if name in times else "left")
    for prediction in predictions:
        for outlook in _outlooks(prediction):
            likeliest = outlook.events[:1] if outlook.drawn is None else ()
            cells = {
                "sequence": escape(prediction.sequence),
                "by": outlook.by,
                "from": _time(prediction.start, prediction, "g"),
                "mean": _time(outlook.mean, prediction),
                "median": _time(outlook.median, prediction),
                "50 %": _span(outlook.interval_50, prediction),
                "90 %": _span(outlook.interval_90, prediction),
                "no event": percent(outlook.no_event),
                "most probable": escape(_named(likeliest)),
                "who": escape(_who(outlook)),
            }
            table.add_row(*(cells[name] for name in (*named, *times, *best)))
    return table


def event_tables(prediction: Prediction) -> list[Table]:
    """Return tables of the most probable events of one sequence, and of those that match the pattern."""
    outlooks = _outlooks(prediction)
    possible = counted(prediction.outlook.possible, "possible event")
    found = []
    if prediction.outlook.drawn is None:
        found.append(_events("what is next", f"of {possible}", [(one, one.events) for one in outlooks], shares=False))
    who = prediction.who
    if who is not None and who.events:
        rows = [(one, one.who.events) for one in outlooks if one.who is not None]
        caption = f"of {counted(who.matching, 'event')} that match; share: given that the next event does"
        found.append(_events(f"which {escape(who.pattern)}", caption, rows, shares=True))
    return found


def _events(
    title: str, caption: str, columns: list[tuple[NextEventDistribution, tuple[LikelyEvent, ...]]], shares: bool
) -> Table:
    table = Table(title=title, caption=caption, title_justify="left", caption_justify="left")
    table.add_column("event")
    for outlook, _ in columns:
        by = f" by {outlook.by}" if len(columns) > 1 else ""
        table.add_column(f"probability{by}", justify="right")
        if shares:
            table.add_column(f"share{by}", justify="right")
    by_name = [{one.event: one for one in likely} for _, likely in columns]
    for name in dict.fromkeys(one.event for _, likely in columns for one in likely):
        cells = []
        for known in by_name:
            one = known.get(name)
            cells.append("–" if one is None else percent(one.probability))
            if shares:
                cells.append("–" if one is None or one.share is None else percent(one.share))
        table.add_row(escape(name), *cells)
    return table


def _outlooks(prediction: Prediction) -> list[NextEventDistribution]:
    return [prediction.outlook, *([prediction.samples] if prediction.samples is not None else [])]


def percent(share: float) -> str:
    if 0.0 < share < 5e-5:
        return "< 0.01 %"
    return f"{100 * share:.2f} %" if 0.0 < share < 0.1 else f"{100 * share:.1f} %"


def _named(likely: tuple[LikelyEvent, ...]) -> str:
    return "  ".join(f"{one.event} {percent(one.probability)}" for one in likely) or "–"


def _who(outlook: NextEventDistribution) -> str:
    who = outlook.who
    if who is None or not who.events:
        return "–"
    return f"{percent(who.probability)}: {who.events[0].event}"


def _time(value: float | None, prediction: Prediction, form: str = ".5g") -> str:
    """Return a time as a number or, if the clock has dates, as a date to the second: `2012-03-01 12:00:05`."""
    if value is None:
        return "–"
    return prediction.clock.short(value, prediction.began) or f"{value:{form}}"


def _span(interval: Interval, prediction: Prediction) -> str:
    """Return an interval as text, `2.1 … 3.5`; without an upper limit, the end is left open."""
    low, high = interval
    if low is None:
        return "–"
    begin, end = _time(low, prediction), "" if high is None else _time(high, prediction)
    if prediction.began is not None and end[:10] == begin[:10]:
        end = end[11:]  # the same day
    return f"{begin} … {end}".strip()
