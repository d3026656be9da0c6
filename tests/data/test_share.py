"""A share of the training data: reproducible, nested, and honest about where an observation ends."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from foretell.data import EventData, EventSequence, Vocabulary, load
from foretell.errors import ForetellError
from foretell.train.splits import ENOUGH_SEQUENCES, share_of


def sequences(count: int, events: int = 8) -> EventData:
    rng = np.random.default_rng(0)
    made = [
        EventSequence(np.sort(rng.uniform(0, 9, events)), rng.integers(0, 2, events), 10.0, f"s{number}")
        for number in range(count)
    ]
    return EventData(made, Vocabulary(("a", "b")))


def ids(data: EventData) -> list[str]:
    return [one.id for one in data]


def test_many_sequences_are_drawn_whole_and_always_the_same():
    data = sequences(40)
    quarter = share_of(data, 0.25, seed=3)
    assert len(quarter) == 10 and ids(quarter) == ids(share_of(data, 0.25, seed=3)) != ids(share_of(data, 0.25, seed=4))
    whole = {one.id: one for one in data}
    assert all(np.array_equal(one.times, whole[one.id].times) and one.t_end == 10.0 for one in quarter)


def test_a_smaller_share_is_part_of_a_larger_one():
    data = sequences(40)
    shares = [set(ids(share_of(data, share))) for share in (1 / 16, 1 / 8, 1 / 4, 1 / 2)]
    assert all(small < large for small, large in itertools.pairwise(shares))


def test_few_sequences_are_cut_where_that_share_of_their_events_has_happened():
    data = sequences(ENOUGH_SEQUENCES - 1)
    quarter = share_of(data, 0.25)
    assert len(quarter) == len(data)
    for short, long in zip(quarter, data, strict=True):
        assert len(short) == 2 and short.t_end == long.times[1] and np.array_equal(short.types, long.types[:2])


def test_events_at_the_time_of_the_cut_stay_together():
    data = EventData([EventSequence(np.array([1.0, 2.0, 2.0, 3.0]), np.zeros(4, dtype=int), 5.0)], Vocabulary(("a",)))
    (short,) = share_of(data, 0.5)
    assert short.times.tolist() == [1.0, 2.0, 2.0] and short.t_end == 2.0


def test_a_whole_share_is_the_data_itself_with_its_own_end():
    data = sequences(3)
    assert share_of(data, 1.0) is data
    assert [one.t_end for one in share_of(data, 0.99)] == [10.0] * 3  # no event is cut away, so no time is


def test_a_given_first_event_is_never_all_that_is_left():
    made = [EventSequence(np.array([0.0, 1.0, 4.0, 6.0]), np.zeros(4, dtype=int), 8.0)]
    (short,) = share_of(EventData(made, Vocabulary(("a",)), "first-event"), 0.01)
    assert short.times.tolist() == [0.0, 1.0]


def test_a_sequence_without_events_is_left_alone():
    data = EventData([EventSequence(np.zeros(0), np.zeros(0, dtype=int), 4.0)], Vocabulary(("a",)))
    assert share_of(data, 0.5)[0].t_end == 4.0


@pytest.mark.parametrize("share", [0.0, -0.5, 1.5, float("nan")])
def test_what_is_no_share_is_refused(share: float):
    with pytest.raises(ForetellError, match="above 0 and at most 1"):
        share_of(sequences(3), share)


def test_a_split_that_is_to_stay_unseen_is_not_opened(tmp_path):
    for split in ("train", "dev"):
        (tmp_path / f"{split}.jsonl").write_text('{"times": [1.0], "types": [0], "t_end": 2.0}\n')
    (tmp_path / "test.jsonl").write_text("nobody may read this")
    found = load(tmp_path, unseen=("test",))
    assert found.test is None and found.train is not None and found.dev is not None
