"""`EventSequence` and `Vocabulary` hold what they promise, or cannot be made."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError

import numpy as np
import pytest

from foretell.data import EventData, EventSequence, Vocabulary
from foretell.errors import DataError


def test_times_become_float64_and_types_int32_and_both_read_only() -> None:
    given = np.array([0.5, 1.5], dtype=np.float32)
    sequence = EventSequence(given, [1, 0], 2, "a")
    assert sequence.times.dtype == np.float64 and sequence.types.dtype == np.int32
    assert isinstance(sequence.t_end, float) and len(sequence) == 2
    given[0] = 9
    assert sequence.times[0] == 0.5
    with pytest.raises(ValueError, match="read-only"):
        sequence.times[0] = 1.0
    with pytest.raises(FrozenInstanceError):
        sequence.t_end = 3.0


def test_a_sequence_without_events_is_legal() -> None:
    assert len(EventSequence([], [], 4.0, "quiet")) == 0


def test_ties_and_an_event_at_t_end_are_legal() -> None:
    EventSequence([0.0, 1.0, 1.0, 2.0], [0, 0, 1, 1], 2.0, "a")


@pytest.mark.parametrize(
    ("times", "types", "t_end", "reason"),
    [
        ([np.nan], [0], 1.0, "NaN"),
        ([np.inf], [0], 1.0, "infinite"),
        ([-1.0], [0], 1.0, "negative"),
        ([2.0, 1.0], [0, 0], 3.0, "unsorted"),
        ([2.0], [0], 1.0, "after t_end"),
        ([1.0], [0, 1], 2.0, "1 times but 2 types"),
        (["1.0"], [0], 2.0, "numbers"),
        ([[1.0]], [0], 2.0, "numbers"),
        ([[1.0], [1.0, 2.0]], [0], 2.0, "numbers"),
        ([True], [0], 2.0, "numbers"),
        ([1.0], [0.0], 2.0, "integers"),
        ([1.0], [True], 2.0, "integers"),
        ([1.0], [-1], 2.0, "integers >= 0"),
        ([1.0], [2**40], 2.0, "32 bits"),
        ([1.0], [0], np.nan, "t_end"),
        ([1.0], [0], "2", "t_end"),
        ([], [], -1.0, "t_end"),
    ],
)
def test_a_sequence_with_a_mistake_cannot_be_made(times, types, t_end, reason: str) -> None:
    with pytest.raises(DataError, match=reason) as caught:
        EventSequence(times, types, t_end, "s7")
    assert "'s7'" in str(caught.value)


def test_all_mistakes_of_a_sequence_are_told_together() -> None:
    with pytest.raises(DataError) as caught:
        EventSequence([np.nan, -1.0, 5.0, 4.0], [0, 0, 0, 0], 3.0, "a")
    assert len(caught.value.problems) == 4


def test_a_vocabulary_finds_names_in_any_spelling_and_suggests_near_ones() -> None:
    words = Vocabulary(("join(eve, sales)", "leave(eve,sales)"))
    assert words.names[0] == "join(eve,sales)" and words.index("join( eve,sales )") == 0
    assert "leave(eve, sales)" in words and "nothing" not in words and 3 not in words
    with pytest.raises(DataError, match=r"did you mean `leave\(eve,sales\)`"):
        words.index("leav(eve,sales)")


def test_a_vocabulary_refuses_one_name_twice_and_takes_names_that_are_no_terms_as_text() -> None:
    with pytest.raises(DataError, match="same name"):
        Vocabulary(("f(a,b)", "f(a, b)"))
    assert Vocabulary(("f(g(a))", " Buy (online) ")).names == ("f(g(a))", "Buy (online)")
    with pytest.raises(DataError, match="expected text"):
        Vocabulary((3,))


def test_numbered_vocabularies_know_that_they_are() -> None:
    assert Vocabulary.of_size(12).names[11] == "11" and Vocabulary.of_size(12).numbered
    assert not Vocabulary(("1", "0")).numbered
    with pytest.raises(DataError, match="event types"):
        Vocabulary.of_size(10**9)


def test_event_data_gives_views_selects_and_counts() -> None:
    sequences = [
        EventSequence([1.0, 2.0], [0, 1], 3.0, "a"),
        EventSequence([], [], 1.0, "b"),
        EventSequence([4], [1], 5, "c"),
    ]
    data = EventData(sequences, Vocabulary.of_size(2), "window", "train")
    assert len(data) == 3 and data.event_count == 3 and [len(one) for one in data] == [2, 0, 1]
    assert np.shares_memory(data[0].times, data.columns.times)
    chosen = data.select([2, 0, 2])
    assert [one.id for one in chosen] == ["c", "a", "c"] and chosen.event_count == 4
    assert chosen[1].times.tolist() == [1.0, 2.0] and chosen[-1].types.tolist() == [1]
    assert data.gaps().tolist() == [1.0] and data.type_counts().tolist() == [1, 2]
    assert [one.id for one in data.sequences[1:]] == ["b", "c"]
    with pytest.raises(IndexError):
        data[3]


def test_event_data_refuses_types_outside_its_vocabulary() -> None:
    with pytest.raises(DataError, match="outside the vocabulary"):
        EventData([EventSequence([1.0], [5], 2.0)], Vocabulary.of_size(2))


def test_a_first_event_that_is_not_at_zero_contradicts_the_origin_first_event() -> None:
    fine = EventSequence([0.0, 1.0], [0, 0], 1.0, "fine")
    EventData([fine], Vocabulary.of_size(1), "first-event")
    for wrong in (EventSequence([0.5], [0], 1.0, "late"), EventSequence([], [], 1.0, "empty")):
        with pytest.raises(DataError, match=f"'{wrong.id}'.*first-event"):
            EventData([fine, wrong], Vocabulary.of_size(1), "first-event")


def test_event_data_can_be_sent_to_another_process() -> None:
    data = EventData(
        [EventSequence([1.0], [0], 2.0, "a"), EventSequence([], [], 1.0, "b", {"x": 1})], Vocabulary.of_size(1)
    )
    again = pickle.loads(pickle.dumps(data))
    assert again[0].times.tolist() == [1.0] and again[1].metadata == {"x": 1} and again.vocabulary == data.vocabulary
    assert pickle.loads(pickle.dumps(data[0])).id == "a"
