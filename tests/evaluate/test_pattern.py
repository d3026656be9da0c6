"""Patterns of events: which places are free, what matches, and what is said of a pattern that never can."""

from __future__ import annotations

import pytest

from foretell.errors import ForetellError
from foretell.evaluate.patterns import PossibleNames, never_matches, parse_event_pattern

NAMES = (
    "kick(purple7)",
    "pass(purple7,pink1)",
    "pass(purple7,purple7)",
    "pass(pink1,'New York')",
    "goal",
    "Nice Question",
)


@pytest.mark.parametrize(
    ("text", "matching"),
    [
        ("pass(purple7,Q)", [1, 2]),
        ("pass( purple7 , _ )", [1, 2]),
        ("pass(P,Q)", [1, 2, 3]),
        ("pass(_,_)", [1, 2, 3]),
        ("pass(P,P)", [2]),
        ("pass(_x,Y2)", [1, 2, 3]),
        ("pass(pink1,'New York')", [3]),
        ('pass(P,"New York")', [3]),
        ("kick(P)", [0]),
        ("goal", [4]),
        ("Nice Question", [5]),
        ("pass(Ärzte,Q)", [1, 2, 3]),
    ],
)
def test_places_in_upper_case_are_free_and_the_others_are_given(text: str, matching: list[int]):
    pattern = parse_event_pattern(text)
    assert [place for place, name in enumerate(NAMES) if pattern.matches(name)] == matching
    assert never_matches(pattern, NAMES) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "pass(",
        "pass()",
        "pass(a,)",
        "pass(a b,C)",
        "pass(f(a),Q)",
        "P(a)",
        "_(a)",
        "pass(a,Q",
        "(a)",
        "pass(,a)",
    ],
)
def test_what_is_no_pattern_is_refused(text: str):
    with pytest.raises(
        ForetellError, match=r"expected an event with free places in upper case, as in 'pass\(purple7,Q\)'"
    ):
        parse_event_pattern(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pas(P,Q)", "no event of the model is called `pas`; did you mean `pass`?"),
        ("shout(P)", "no event of the model is called `shout`; there are `'Nice Question'`, `goal`, `kick` and `pass`"),
        ("pass(P)", "`pass` has 2 places, found 1"),
        ("pass(purple77,Q)", "no `pass` has `purple77` at place 1; did you mean `purple7`?"),
        ("pass(P,x)", "no `pass` has `x` at place 2; there are `'New York'`, `pink1` and `purple7`"),
        ("pass(pink1,pink1)", "no event of the model has these places together; leave one of them free"),
    ],
)
def test_a_pattern_that_can_never_match_is_told_with_what_may_have_been_meant(text: str, message: str):
    assert never_matches(parse_event_pattern(text), NAMES) == f"pattern {text!r} can never match: {message}"


def test_where_names_may_still_come_it_is_enough_that_constants_are_known():
    pattern = parse_event_pattern("pass(zoe,Q)")
    assert never_matches(pattern, NAMES, PossibleNames({}, {"zoe"})) is None
    assert "did you mean `zoey`?" in (never_matches(pattern, NAMES, PossibleNames({}, {"zoey"})) or "")


def test_an_event_that_is_declared_and_was_never_met_may_come():
    declared = PossibleNames({"foul": (1,)}, {"purple7"})
    assert never_matches(parse_event_pattern("foul(P)"), NAMES, declared) is None
    assert never_matches(parse_event_pattern("foul(purple7)"), NAMES, declared) is None
    assert "`foul` has 1 places, found 2" in (never_matches(parse_event_pattern("foul(P,Q)"), NAMES, declared) or "")
    assert "did you mean `purple7`?" in (never_matches(parse_event_pattern("foul(purple8)"), NAMES, declared) or "")
