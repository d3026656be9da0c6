"""Labels of sequences and events from the keys of the data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from foretell.data.labels import NO_LABEL, Labels, find_labels, labelled
from foretell.errors import DataError, ForetellError
from tests.train.labelled import data_of, rows


def test_labels_of_sequences_and_of_events_are_told_apart_by_the_data(tmp_path: Path):
    data = data_of(tmp_path / "a.jsonl", rows(8, 0))
    kinds, moods = find_labels([data], "kind"), find_labels([data], "mood")
    assert (kinds.of, kinds.names) == ("sequences", ("busy", "calm"))
    assert (moods.of, moods.names) == ("events", ("down", "up"))
    assert [len(row) for row in kinds.targets(data)] == [1] * 8
    for sequence, row in zip(data, moods.targets(data), strict=True):
        names = data.names_of(sequence)
        assert [{"a": 1, "b": 0, "c": NO_LABEL}[name] for name in names] == row.tolist()


def test_numbers_and_truth_are_labels_too_and_numbers_are_in_order(tmp_path: Path):
    lines = rows(3, 0)
    for line, value in zip(lines, (10, 9, -1), strict=True):
        line["count"], line["old"] = value, value > 0
    data = data_of(tmp_path / "a.jsonl", lines)
    assert find_labels([data], "count").names == ("-1", "9", "10")
    assert find_labels([data], "old").names == ("false", "true")


def test_what_has_no_label_is_left_out(tmp_path: Path):
    lines = rows(4, 0)
    lines[1]["kind"] = None
    del lines[2]["kind"]
    lines[0]["kind"], lines[3]["kind"] = "x", "y"
    data = data_of(tmp_path / "a.jsonl", lines)
    labels = find_labels([data], "kind")
    targets = labels.targets(data)
    assert np.concatenate(targets).tolist() == [0, NO_LABEL, NO_LABEL, 1]
    assert labelled(data, targets).tolist() == [0, 3]


def test_every_label_that_cannot_be_used_is_named(tmp_path: Path):
    lines = rows(3, 0)
    lines[0]["kind"], lines[2]["kind"] = 0.5, ""
    with pytest.raises(DataError) as caught:
        find_labels([data_of(tmp_path / "a.jsonl", lines)], "kind")
    assert "sequence 's0': `kind` is 0.5: expected text, a whole number" in str(caught.value) and "'s2'" in str(
        caught.value
    )
    lines = rows(2, 0)
    lines[0]["mood"] = ["up"]
    with pytest.raises(DataError, match="has 1 values and there are"):
        find_labels([data_of(tmp_path / "b.jsonl", lines)], "mood")
    lines[0]["mood"] = "up"
    with pytest.raises(DataError, match="is a list in sequence 's1' and one value in sequence 's0'"):
        find_labels([data_of(tmp_path / "c.jsonl", lines)], "mood")


def test_a_key_that_is_not_there_is_refused_with_those_that_are(tmp_path: Path):
    data = data_of(tmp_path / "a.jsonl", rows(3, 0))
    with pytest.raises(ForetellError, match="there are doctor, kind, mood"):
        find_labels([data], "zzz")
    with pytest.raises(ForetellError, match="did you mean `doctor`"):
        find_labels([data], "docter")
    bare = data_of(tmp_path / "b.jsonl", [{"times": [1.0], "events": ["a"], "t_end": 2.0}])
    with pytest.raises(ForetellError, match="no keys of their own"):
        find_labels([bare], "kind")
    lines = [{**line, "kind": "same"} for line in rows(3, 0)]
    with pytest.raises(ForetellError, match="found 1 different values, expected two or more"):
        find_labels([data_of(tmp_path / "c.jsonl", lines)], "kind")


def test_a_label_that_training_did_not_know_is_refused(tmp_path: Path):
    data = data_of(tmp_path / "a.jsonl", rows(6, 0))
    with pytest.raises(DataError, match="none of the 2 known labels; did you mean `busyy`"):
        Labels("kind", "sequences", ("busyy", "calm")).targets(data)
    with pytest.raises(DataError, match="is a list, expected one value"):
        Labels("mood", "sequences", ("up", "down")).targets(data)


def test_attributes_of_a_table_are_labels_too() -> None:
    from dataclasses import replace

    from foretell.data import EventData
    from foretell.data.columns import Attribute

    data = EventData.from_names([["a", "b"], ["a"]], [[0.5, 2.0], [1.0]])
    of_events = {"who": Attribute(np.array([1, -1, 0], dtype=np.int8), ("ann", "bob"))}
    of_sequences = {"outcome": Attribute(np.array([3, 4]))}
    columns = replace(data.columns, attributes=of_events, sequence_attributes=of_sequences)
    data = replace(data, sequences=columns, report=None)
    outcome = find_labels([data], "outcome")
    assert outcome.of == "sequences" and outcome.names == ("3", "4")
    assert [row.tolist() for row in outcome.targets(data)] == [[0], [1]]
    who = find_labels([data], "who")
    assert who.of == "events" and [row.tolist() for row in who.targets(data)] == [[1, NO_LABEL], [0]]
    with pytest.raises(ForetellError, match="did you mean `outcome`"):
        find_labels([data], "outcom")
