"""`:- never(…).`: checked on a log, with the first place where it is broken."""

from __future__ import annotations

import json
from pathlib import Path

from foretell.lang.program import Program
from tests.cli.invoking import foretell
from tests.ground.timelines import replay_of

TEXT = """
:- exogenous(take). :- exogenous(drop).
has(P, B) <- take(P, B).
!has(P, B) <- drop(P, B).
:- never(has(P, B), has(Q, B), P != Q).
:- never(count(has(_, _)) > 2).
"""


def test_the_first_place_where_a_promise_is_broken_is_explained() -> None:
    fine = ["take(eve,ball)", "drop(eve,ball)", "take(adam,ball)"]
    done = replay_of(TEXT, fine, [*fine, "take(eve,ball)"], ["take(eve,ball)", "take(adam,ball)"])
    (broken,) = done.broken
    assert (broken.sequence, broken.state, broken.time, broken.sequences) == ("s1", 5, 4.0, 2)
    assert set(broken.facts) == {"has(eve,ball)", "has(adam,ball)"}
    text = "\n".join(broken.lines())
    assert "never(has(P, B), has(Q, B), P != Q)" in text and "added by event 4 at 4: take(eve,ball)" in text


def test_promises_are_kept_or_not_and_change_no_timeline() -> None:
    without = TEXT.split(":- never")[0]
    events = ["take(eve,ball)", "take(eve,hat)", "take(adam,shoe)"]
    with_promises, plain = replay_of(TEXT, events), replay_of(without, events)
    assert [one.promise for one in with_promises.broken] == [":- never(count(has(_, _)) > 2)."]
    assert not plain.broken
    one, other = with_promises.timelines[0], plain.timelines[0]
    assert one.holds.tolist() == other.holds.tolist() and one.grounding.functors == other.grounding.functors
    assert len(Program.from_text(TEXT).rules) == 2


def test_replay_fails_with_the_violation(tmp_path: Path) -> None:
    program, data = tmp_path / "p.ndtt", tmp_path / "d.jsonl"
    program.write_text(TEXT)
    events = ["take(eve,ball)", "take(adam,ball)"]
    data.write_text(json.dumps({"id": "x", "times": [1.0, 2.0], "events": events, "t_end": 3.0}) + "\n")
    done = foretell("replay", program, data, "--no-cache", "--json")
    assert done.code == 1 and len(done.json) == 1
    assert "broken promise" in done.err and "Traceback" not in done.err
