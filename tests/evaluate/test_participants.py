"""Who takes part: guesses among the events that match, for models with rules and without."""

from __future__ import annotations

import pytest

import foretell as ft
from foretell.errors import ForetellError
from foretell.evaluate.patterns import guess_participants, parse_pattern

PROGRAM = "robocup"


@pytest.mark.parametrize("text", ["pass", "pass(P,Q)", "pass(+P,-Q", "pass(+P,+Q)", "pass()", "(+P)", "pass(+P,-Q(R))"])
def test_patterns_that_say_nothing_are_refused(text: str) -> None:
    with pytest.raises(ForetellError, match="pattern"):
        parse_pattern(text)


def test_given_places_are_those_of_the_event_and_guesses_are_the_most_intense_of_the_rest() -> None:
    data = ft.EventData.from_names(
        [["pass(a,b)", "pass(a,b)", "pass(b,a)", "kick(a)"]], [[1.0, 2.0, 3.0, 4.0]], t_ends=[5.0]
    )
    model = ft.Poisson(data.vocabulary)
    ft.fit(model, data)
    (to_whom,) = guess_participants(model, data, [parse_pattern("pass(+P, -Q)")])
    assert to_whom.event.tolist() == [0, 1, 2] and not to_whom.wrong.any() and to_whom.candidates.tolist() == [1, 1, 1]
    (both,) = guess_participants(model, data, [parse_pattern("pass(-P,-Q)")])
    assert both.wrong.tolist() == [False, False, True] and both.candidates.tolist() == [2, 2, 2]


def test_events_that_no_functor_matches_are_refused() -> None:
    data = ft.EventData.from_names([["pass(a,b)"]], [[1.0]], t_ends=[2.0])
    with pytest.raises(ForetellError, match="no event of the model"):
        guess_participants(ft.Poisson(data.vocabulary), data, [parse_pattern("pas(+P,-Q)")])


def test_rules_leave_only_the_possessor_to_kick_and_score() -> None:
    data = ft.load("robocup")
    assert data.train is not None and data.test is not None
    model = ft.ANDTT(PROGRAM, data.vocabulary, dim=2, layers=1)
    model.prepare(data.train)
    found = ft.evaluate(model, data.test, times=False, points=2, predict=["kick(-P)", "goal(-P)", "pass(+P,-Q)"])
    kick, goal, to_whom, together = found.participants
    assert kick.error_rate.value == goal.error_rate.value == 0.0 and kick.candidates == goal.candidates == 1.0
    assert to_whom.candidates == 10.0 and 0.0 < to_whom.error_rate.value < 1.0
    assert together.pattern == "all" and together.events == kick.events + goal.events + to_whom.events
