"""Windows of long sequences: every event and every moment is scored once, with the history before it, and no other."""

from __future__ import annotations

import numpy as np
import pytest

from foretell.batches.batch import make_batch
from foretell.data import Clock, EventData, EventSequence, Vocabulary
from foretell.data.columns import Columns
from foretell.data.dataset import Card, Dataset
from foretell.data.synthetic import HawkesProcess, simulate
from foretell.data.windows import in_windows
from foretell.errors import ForetellError
from foretell.evaluate.likelihood import score_events
from foretell.models.classical.hawkes import Hawkes
from foretell.train.config import make_config
from foretell.train.splits import LONG, with_splits

WORDS = Vocabulary(("a", "b"))


def long_data(count: int = 200, seed: int = 0, ties: bool = False, **more) -> EventData:
    rng = np.random.default_rng(seed)
    times = np.cumsum(rng.exponential(1.0, count))
    if ties:
        times = np.round(times)
    if more.get("origin") == "first-event":
        times = times - times[0]
    given = {name: more.pop(name) for name in ("scored_from", "start") if name in more}
    one = EventSequence(times, rng.integers(0, 2, count), float(times[-1]) + 3.0, "long", **given)
    short = EventSequence([0.0, 2.5], [0, 1], 4.0, "short", **({"start": 5} if "start" in given else {}))
    return EventData([one, short], WORDS, **more)


def scored_of(data: EventData) -> tuple[int, float]:
    """Scored events, and the length of time that is scored."""
    batches = [make_batch(data, [place]) for place in range(len(data))]
    return sum(int(one.event_counts.sum()) for one in batches), sum(float(one.gap_length.sum()) for one in batches)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("origin", ["window", "first-event"])
@pytest.mark.parametrize("scored_from", [0.0, 55.0])
@pytest.mark.parametrize(("events", "history"), [(1, 0), (7, 3), (30, 0), (30, 50), (199, 1), (200, 5), (10_000, 5)])
def test_every_event_and_every_moment_is_scored_once(ties, origin, scored_from, events, history):
    data = long_data(ties=ties, origin=origin, scored_from=scored_from)
    found = in_windows(data, events, history)
    (count, length), (expected_count, expected_length) = scored_of(found), scored_of(data)
    assert count == expected_count
    assert length == pytest.approx(expected_length, abs=1e-9)


def test_windows_score_the_events_of_the_sequence_in_order():
    data = long_data()
    found = in_windows(data, 30, 10)
    own = [one for one in found if one.id.startswith("long")]
    gaps = np.concatenate([np.diff(one.times, prepend=0.0)[0 if n == 0 else 10 :] for n, one in enumerate(own)])
    assert np.allclose(gaps, np.diff(data[0].times, prepend=0.0), atol=1e-12)
    assert [one.id for one in own][:2] == ["long[0:30]", "long[30:60]"]
    assert np.array_equal(own[1].types[:10], data[0].types[20:30])
    assert own[-1].t_end - own[-1].times[-1] == pytest.approx(3.0)


def test_short_sequences_stay_as_they_are():
    data = long_data()
    assert in_windows(data, 200, 5) is data
    assert in_windows(data, 50, 5)[-1].id == "short"


def test_events_at_one_time_stay_in_one_window():
    data = long_data(ties=True)
    times = data[0].times
    for one in in_windows(data, 10, 4):
        if one.id.startswith("long"):
            first, last = map(int, one.id[5:-1].split(":"))
            assert first == 0 or times[first] > times[first - 1]
            assert last == 200 or times[last] > times[last - 1]


def test_absolute_starts_move_with_the_clock_of_the_window():
    data = long_data(start=10**18, clock=Clock.of_unit("seconds", absolute=True))
    found = in_windows(data, 40, 8)
    for one in found:
        if one.id.startswith("long["):
            last = int(one.id[5:-1].split(":")[1]) - 1
            expected = data.clock.iso(float(data[0].times[last]), data[0].start)
            assert found.clock.iso(float(one.times[-1]), one.start) == expected


def test_a_process_without_a_past_scores_windows_as_it_scores_the_whole():
    from foretell.models.classical.poisson import Poisson

    data = long_data()
    model = Poisson(WORDS)
    model.fit_closed_form(data)
    one, other = score_events(model, data), score_events(model, in_windows(data, 13, 5))
    assert float(one.log_likelihoods.sum()) == pytest.approx(float(other.log_likelihoods.sum()), abs=1e-8)


def test_what_is_not_seen_matters_as_little_as_the_process_remembers_it():
    """What a Hawkes process remembers of an event falls exponentially: with enough history, windows agree with the whole."""
    data = simulate(HawkesProcess([0.6], [[0.5]], [1.0]), 1, 300.0, 2)
    model = Hawkes(data.vocabulary).double()
    model.fit_directly(data, None, lambda number, value: None)
    whole = float(score_events(model, data).log_likelihoods.sum())
    errors = []
    for history in (0, 5, 100):
        found = float(score_events(model, in_windows(data, 20, history)).log_likelihoods.sum())
        errors.append(abs(found - whole))
    assert errors[2] < 1e-4 < errors[0] and errors[2] < errors[1] < errors[0]


def test_attributes_go_with_their_events():
    from foretell.data.attributes import Attribute

    data = long_data()
    table = {"x": Attribute(np.arange(len(data.columns.times), dtype=np.float64))}
    given = {name: getattr(data.columns, name) for name in ("times", "types", "offsets", "t_ends", "ids", "metadata")}
    marked = EventData(Columns(**given, attributes=table), WORDS)
    found = in_windows(marked, 30, 10)
    assert found[1].attributes.of_events("x", len(found[1])).values.tolist() == list(range(20, 60))


def test_training_says_and_does_what_is_asked(caplog):
    data = long_data(300)
    dataset = Dataset(data, None, None, WORDS, Card("x"))
    options = make_config({"data": {"path": "x", "window_events": 50, "history_events": 20}}).data
    found = with_splits(dataset, options, False).train
    assert len(found) == 7 and "7 windows of up to 50 events, which see up to 20 before them" in caplog.text


def test_a_long_sequence_that_stays_whole_is_told(caplog):
    times = np.arange(LONG + 1, dtype=np.float64)
    data = EventData([EventSequence(times, np.zeros(len(times), np.int32), float(LONG))], Vocabulary(("a",)))
    with_splits(Dataset(data, None, None, data.vocabulary, Card("x")), make_config({}).data, False)
    assert "`window_events=1024`" in caplog.text


def test_models_with_rules_refuse_windows():
    with pytest.raises(ForetellError, match="a model with rules needs its facts"):
        make_config({"data": {"window_events": 5}, "model": {"kind": "andtt", "program": "robocup"}})


def test_rules_choose_windows_for_long_sequences_alone():
    from foretell.train.auto_settings import DataTraits, choose_settings

    long = choose_settings(DataTraits(1_000_000, 5, 1, 1_000_000, 0.0, False), "cpu")
    keys = {one.key: one.value for one in long}
    assert keys["data.window_events"] == 1024 and keys["train.epochs"] == 8
    assert "data.window_events" not in {
        one.key for one in choose_settings(DataTraits(10**6, 5, 1000, 1000, 0.0, True), "cpu")
    }
