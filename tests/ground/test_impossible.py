"""Events that the rules forbid: left out or marked, counted, and nothing else about the data changed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from foretell.data import EventData, EventSequence
from foretell.errors import DataError
from foretell.ground.chunk import grounding_of, walk
from foretell.ground.engine import Engine
from foretell.ground.impossible import naming_impossible, settle_impossible
from foretell.ground.replay import replay
from foretell.lang.program import Program
from tests.ground.timelines import event_data

# A switch: `off` is possible while it is on, `on` while it is not; `hum` may happen at any time and is not predicted.
SWITCH = Program.from_text(
    ":- event(on). :- event(off). :- exogenous(hum).\non :- not lit. off :- lit. lit <- on. !lit <- off. heard <- hum.\n"
)
EVENTS = ["on", "on", "hum", "off", "off", "hum"], ["on", "off"], ["off"]


def test_skipped_events_are_gone_and_fire_nothing():
    data = event_data(*EVENTS)
    found = settle_impossible(SWITCH, data, "skip")
    assert found.impossible == 3 and data.event_count == 9
    assert [found.data.names_of(one) for one in found.data] == [["on", "hum", "off", "hum"], ["on", "off"], []]
    assert found.data[0].times.tolist() == [1.0, 3.0, 4.0, 6.0]
    for before, after in zip(data, found.data, strict=True):
        assert (after.id, after.t_end, after.unscored) == (before.id, before.t_end, None)
    assert replay(SWITCH, found.data).impossible == 0


def test_events_kept_as_history_are_marked_and_what_is_exogenous_anyway_is_not():
    found = settle_impossible(SWITCH, event_data(*EVENTS), "exogenous")
    assert found.impossible == 3 and found.data.event_count == 9
    marks = [[] if one.unscored is None else np.flatnonzero(one.unscored).tolist() for one in found.data]
    assert marks == [[1, 4], [], [0]]


def test_data_without_impossible_events_stay_the_same_object():
    data = event_data(["on", "off", "hum"])
    for way in ("error", "skip", "exogenous"):
        assert settle_impossible(SWITCH, data, way) == type(settle_impossible(SWITCH, data, way))(data, 0)


def test_asked_for_errors_every_sequence_with_an_impossible_event_is_named():
    with pytest.raises(DataError) as caught:
        settle_impossible(SWITCH, event_data(*EVENTS), "error")
    assert "sequence s0, event 2" in str(caught.value) and "sequence s2, event 1" in str(caught.value)


def test_what_is_marked_may_be_impossible_and_is_neither_counted_nor_left_out(tmp_path: Path):
    plain, marked = event_data(*EVENTS), settle_impossible(SWITCH, event_data(*EVENTS), "exogenous").data
    expected = replay(SWITCH, plain, impossible="exogenous", cache=tmp_path).timelines
    for way in ("error", "skip", "exogenous"):
        assert settle_impossible(SWITCH, marked, way).data is marked
        found = replay(SWITCH, marked, impossible=way, cache=tmp_path)
        assert found.impossible == 0
        for one, other in zip(found.timelines, expected, strict=True):
            assert one.possible_events.tolist() == other.possible_events.tolist()
            assert one.holds.tolist() == other.holds.tolist()
        with pytest.raises(DataError, match="makes it impossible"):  # marks are part of what a replay is kept under
            replay(SWITCH, plain, cache=tmp_path)


def test_other_mistakes_keep_their_words_and_impossible_events_get_the_names_of_their_sequences():
    with pytest.raises(DataError, match=r"^of another kind$"), naming_impossible(SWITCH, event_data(["on"])):
        raise DataError("of another kind")
    with pytest.raises(DataError, match="sequence s2, event 1"), naming_impossible(SWITCH, event_data(*EVENTS)):
        raise DataError("somewhere")
    with pytest.raises(DataError, match=r"^somewhere$"), naming_impossible(None, event_data(*EVENTS)):
        raise DataError("somewhere")


def test_marks_travel_with_their_events():
    marked = settle_impossible(SWITCH, event_data(*EVENTS), "exogenous").data
    turned = marked.select([2, 0])
    assert [np.flatnonzero(one.unscored).tolist() for one in turned if one.unscored is not None] == [[0], [1, 4]]
    again = EventData(list(turned), turned.vocabulary)
    assert again.columns.unscored is not None and again.columns.unscored.sum() == 3
    plain = EventSequence([1.0], [0], 2.0)
    assert EventData([plain, marked[2]], marked.vocabulary).columns.unscored.tolist() == [False, True]  # pyright: ignore


def test_marks_of_a_wrong_shape_are_refused():
    for marks in ([True], [1, 0], [[True, False]]):
        with pytest.raises(DataError, match=r"unscored has type .* expected a bool per event"):
            EventSequence([1.0, 2.0], [0, 1], 3.0, unscored=np.asarray(marks))


def test_a_walk_takes_an_impossible_event_only_where_it_is_marked():
    engine = Engine(SWITCH)
    names, times = ["on", "on", "off"], np.asarray([1.0, 2.0, 3.0])
    marks = np.asarray([False, True, False])
    found = walk(engine, grounding_of(engine), names, times, "s", marks)
    assert found.possible_events.tolist() == [True, False, True]
    expected = replay(SWITCH, event_data(names), impossible="exogenous").timelines[0]
    assert [found.after(state) for state in range(5)] == [expected.after(state) for state in range(5)]
    with pytest.raises(DataError, match=r"event 2 at time 2: `on` happens, but the program makes it impossible"):
        walk(engine, grounding_of(engine), names, times, "s", ~marks)
