"""Columns that nearly determine the next gap or type are told; honest ones, and noise, are not."""

from __future__ import annotations

import json

import numpy as np
from typer.testing import CliRunner

from foretell.cli.data import app
from foretell.data import EventData, EventSequence, Vocabulary, save
from foretell.data.attributes import AttributeTable, SequenceAttributes
from foretell.data.covariate_columns import attribute_of
from foretell.data.leaks import find_leaks


def made(seed: int = 0, sequences: int = 60, events: int = 20) -> EventData:
    random = np.random.default_rng(seed)
    times = [np.cumsum(random.exponential(1.0, events)) for _ in range(sequences)]
    types = [random.integers(0, 4, events).astype(np.int32) for _ in range(sequences)]
    gaps = [np.append(np.diff(one), 1.0) for one in times]
    following = [np.append(one[1:], 0) for one in types]
    duration = np.concatenate(gaps) * 60.0 * np.exp(random.normal(0.0, 0.01, sequences * events))
    outcome = [f"to{kind}" if random.random() < 0.97 else "to0" for kind in np.concatenate(following)]
    speed = ["slow" if gap > 0.7 else "quick" for gap in np.concatenate(gaps)]
    table = AttributeTable(
        {
            "duration": attribute_of(duration.tolist()),
            "outcome": attribute_of(outcome),
            "speed": attribute_of(speed),
            "amount": attribute_of(random.normal(size=sequences * events).tolist()),
            "channel": attribute_of(random.choice(["web", "shop"], sequences * events).tolist()),
            "case": attribute_of([f"c{number}" for number in range(sequences * events)]),
        },
        {"age": attribute_of(random.integers(20, 80, sequences).tolist())},
    )
    rows = [
        EventSequence(
            when, kind, float(when[-1]), str(place), attributes=SequenceAttributes(table, place * events, place)
        )
        for place, (when, kind) in enumerate(zip(times, types, strict=True))
    ]
    return EventData(rows, Vocabulary(("a", "b", "c", "d")))


def test_durations_and_outcomes_are_told_and_nothing_else():
    found = {(one.column, one.what): one for one in find_leaks(made())}
    assert set(found) == {("duration", "next gap"), ("outcome", "next type")}
    assert found["duration", "next gap"].strength > 0.99
    assert "rank correlation" in found["duration", "next gap"].sentence()
    assert "mistakes" in found["outcome", "next type"].sentence()


def test_a_variant_of_the_whole_sequence_is_told_and_few_events_are_not_judged():
    random, rows = np.random.default_rng(1), []
    variants = [random.integers(0, 4, 8) for _ in range(5)]
    which = random.integers(0, 5, 80)
    table = AttributeTable({}, {"variant": attribute_of([f"v{one}" for one in which])})
    for place, one in enumerate(which.tolist()):
        times = np.cumsum(random.exponential(1.0, 8))
        own = SequenceAttributes(table, 0, place)
        rows.append(EventSequence(times, variants[one].astype(np.int32), 40.0, str(place), attributes=own))
    (leak,) = find_leaks(EventData(rows, Vocabulary(("a", "b", "c", "d"))))
    assert (leak.column, leak.what, leak.static) == ("variant", "next type", True)
    assert find_leaks(made(sequences=4, events=10)) == ()


def test_describe_warns(tmp_path):
    save(made(2), tmp_path / "train.csv")
    said, plain = (
        CliRunner().invoke(app, ["describe", str(tmp_path / "train.csv"), *more], catch_exceptions=False).stdout
        for more in ([], ["--json"])
    )
    assert "'duration' nearly determines the next gap" in " ".join(said.split())
    leaks = json.loads(plain)["leaks"]
    assert {one["column"] for one in leaks} == {"duration", "outcome"}
