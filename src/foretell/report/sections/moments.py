"""The time slider of a model of rules: its database, what is possible, and the attention behind each possible event, if there is any."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from foretell.models.rules.andtt import ANDTT
from foretell.models.rules.rule_model import RuleModel
from foretell.report.entry import Entry
from foretell.report.markup import element, joined
from foretell.report.moments import MOST_EVENTS, moments_of
from foretell.report.section import Section, chart, figure, remark

TITLE = "Inside the rules, moment by moment"
POSSIBLE = (
    "Move the slider (or use the arrow keys, or Play) to a moment just before an event. Possible events: bars "
    "are their intensities, the percentage is how probable each would be if something happened right now; the "
    f"{MOST_EVENTS} highest are listed, and what did happen is marked."
)
ATTENDED = (
    "Choose one of them to see which past "
    "events the model looks back at for it. Each row is one head of attention: a rule that added a fact in the "
    "event's proofs. Its effect is what it multiplies the intensity by, compared with leaving it out; a dot is a "
    "past event, as large as its weight, and the rest of the weight is kept by the extra 1 of the attention "
    "(looking at nothing)."
)
TRUE = (
    "What is true: the facts of the database at that moment; + is new since the last "
    "moment, and a fact struck through has just been removed."
)


def moments_section(
    entries: Sequence[Entry], places: Sequence[int], start: float, progress: Callable[[str, int, int], None]
) -> Section | None:
    """Of the first entry that has rules; None: none has."""
    with_rules = [
        (entry, place) for entry, place in zip(entries, places, strict=True) if isinstance(entry.model, RuleModel)
    ]
    if not with_rules:
        return None
    entry, place = with_rules[0]
    model, history = entry.model, entry.data[place]
    assert isinstance(model, RuleModel)
    numbers = moments_of(
        model, history, start=start, progress=lambda done, of: progress(f"{entry.name}: moments", done, of)
    )
    if numbers is None:
        return Section("moments", TITLE, remark(f"Nothing happens in sequence {history.id} from {start:g} on."))
    shown = len(numbers["frames"])
    some = (
        ""
        if shown == numbers["of"]
        else f" Shown are {shown:,} of {numbers['of']:,} times, from {numbers['frames'][0]['t']:g} on."
    )
    others = "" if len(with_rules) == 1 else " Other runs with rules have their own: make a report of each."
    intro = remark(f"{entry.title}, sequence {history.id}, just before each event.{some}{others}")
    body = joined(
        intro,
        figure(
            chart("moments", "A time slider with the database and the possible events."),
            caption=" ".join([POSSIBLE, *([ATTENDED] if isinstance(model, ANDTT) else []), TRUE]),
        ),
    )
    return Section(
        "moments", TITLE, joined(body, element("noscript", "The slider needs JavaScript.")), {"moments": numbers}
    )
