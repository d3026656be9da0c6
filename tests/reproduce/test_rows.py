"""Scores row by row on disk: what is kept, in how many bytes, and what is not read."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from foretell.data import EventData
from foretell.errors import ForetellError
from foretell.evaluate.metrics import SCORES, Metric
from foretell.reproduce.rows import ScoreRows, SeedRows, participants_key, read_rows, write_rows

ROWS = 4
ONES = np.ones(ROWS, dtype=np.uint8)


def metric(key: str, values: list[float], kind: Any = "nats", variances: list[float] | None = None) -> Metric:
    noise = None if variances is None else np.asarray(variances)
    return Metric(key, key, kind, np.asarray(values, dtype=np.float64), ONES, noise)


def rows_with(*metrics: Metric) -> ScoreRows:
    return ScoreRows("d", 1, np.zeros(ROWS, dtype=np.int64), np.zeros(ROWS, dtype=np.int32), ("a",), metrics)


def test_errors_of_nought_and_one_are_bytes_and_all_else_is_kept_as_it_is(tmp_path):
    whole, parts = metric("error_rate", [0, 1, 1, 0], "share"), metric("participants all", [0.5, 1, 1, 0], "share")
    nats = metric("log_likelihood", [-1, -2, -3, -4])
    write_rows(tmp_path / "rows.npz", rows_with(whole, parts, nats))
    with np.load(tmp_path / "rows.npz") as file:
        assert [file[f"values {place}"].dtype for place in range(3)] == [np.uint8, np.float32, np.float32]
    back = read_rows(tmp_path / "rows.npz")
    for one in (whole, parts, nats):
        assert back.by_key[one.key].values.tolist() == one.values.tolist()


def test_variances_that_are_all_nought_are_none(tmp_path):
    noises = ([0.0, 0.0, 0.0, 0.5], [0.0] * ROWS, None)
    write_rows(
        tmp_path / "rows.npz", rows_with(*(metric(f"m{i}", [1.5] * ROWS, "nats", n) for i, n in enumerate(noises)))
    )
    first, second, third = read_rows(tmp_path / "rows.npz").metrics
    assert first.variances is not None and first.variances.tolist() == noises[0]
    assert second.variances is None and third.variances is None


def test_objects_in_a_file_are_not_loaded(tmp_path):
    """Loading a pickle runs whatever is in it."""
    loaded: list[str] = []
    Trap.loaded = loaded
    about = json.dumps({"data": "d", "sequences": 1, "names": ["a"], "metrics": []})
    objects = np.array([Trap()], dtype=object)
    np.savez(tmp_path / "rows.npz", about=np.asarray(about), sequence=objects, type=np.zeros(1, dtype=np.int32))
    with pytest.raises(ForetellError, match="not a file of scores"):
        read_rows(tmp_path / "rows.npz")
    assert not loaded


class Trap:
    loaded: list[str]

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return spring, ("sprung",)


def spring(word: str) -> int:
    Trap.loaded.append(word)
    return 0


def test_scores_that_are_not_compared_are_not_kept():
    data = EventData.from_names([["a", "a", "a"]], [[1.0, 2.0, 3.0]])
    untested = next(key for key, one in SCORES.items() if not one.tested)
    metrics = [metric("log_likelihood", [0.0] * ROWS), metric(untested, [0.0] * ROWS), metric("unknown", [0.0] * ROWS)]
    events = SimpleNamespace(sequence=np.zeros(ROWS, dtype=np.int64), type=np.zeros(ROWS, dtype=np.int32))
    scored: Any = SimpleNamespace(events=events, metrics=lambda: metrics)
    rows = ScoreRows.of(scored, data)
    assert list(rows.by_key) == ["log_likelihood", "unknown"]
    assert (rows.sequences, rows.names) == (1, ("a",))


def test_two_seeds_have_a_spread_and_one_has_none():
    fits = {seed: rows_with(metric("log_likelihood", [value] * ROWS)) for seed, value in enumerate((1.0, 3.0))}
    assert SeedRows(fits).spread("log_likelihood") == pytest.approx(np.sqrt(2.0))
    assert SeedRows({0: fits[0]}).spread("log_likelihood") is None


def test_participants_stand_for_all_patterns_or_for_the_only_one():
    one, every = metric("participants pass(+P,-Q)", [0.0] * ROWS), metric("participants all", [0.0] * ROWS)
    assert participants_key(rows_with(one, every)) == participants_key(rows_with(every, one)) == "participants all"
    assert participants_key(rows_with(metric("rmse", [0.0] * ROWS), one)) == one.key
    assert participants_key(rows_with(metric("rmse", [0.0] * ROWS))) == "participants"
