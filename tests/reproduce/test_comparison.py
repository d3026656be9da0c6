"""From the fits of an experiment to its comparison: which fits count, and which numbers are taken over from a published file."""

from __future__ import annotations

from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from foretell.evaluate.metrics import Metric
from foretell.reproduce.comparison import (
    ModelComparison,
    Score,
    _grid_table,
    _pairs,
    _scores,
    _test_table,
    compare_models,
    size_choice,
)
from foretell.reproduce.model_difference import correct, model_difference
from foretell.reproduce.rows import ScoreRows, SeedRows

ROWS = 16
RNG = np.random.default_rng(0)
KEY = "log_likelihood"


def rows_of(values: np.ndarray, key: str = KEY) -> ScoreRows:
    metric = Metric(key, key, "nats", values, np.ones(ROWS, dtype=np.uint8))
    return ScoreRows("d", 1, np.zeros(ROWS, dtype=np.int64), np.zeros(ROWS, dtype=np.int32), ("a",), (metric,))


def fits(shift: float, seeds: int, key: str = KEY) -> SeedRows:
    return SeedRows({seed: rows_of(RNG.normal(shift, 1.0, ROWS), key) for seed in range(seeds)})


A, B = fits(0.0, 3), fits(0.5, 2)


def comparison_of(rows: dict[str, SeedRows], **others: Any) -> ModelComparison:
    scores = {(name, one.metric): one for name, some in rows.items() for one in _scores(name, some)}
    return ModelComparison(tuple(rows), scores, {}, {}, rows=rows, **others)


def test_participants_stand_for_a_models_own_pattern():
    rows = {"all": fits(0.0, 1, "participants all"), "one": fits(0.0, 1, "participants pass(+P)"), "none": fits(0.0, 1)}
    found = comparison_of(rows)
    keys = [found.key(name, "participants") for name in rows]
    assert keys == ["participants all", "participants pass(+P)", "participants"]
    assert found.key("one", KEY) == KEY


@pytest.mark.parametrize("here", [(), ("a",), ("b",)])
def test_published_tests_stand_in_for_rows_that_are_not_all_here_whichever_model_comes_first(here):
    """Scores by seed and models without chance are given in the order of the table."""
    constant = [True, False]
    whole = model_difference(("a", "b"), A, B, KEY, constant)
    both = comparison_of({"a": A, "b": B})
    table = whole.to_json()
    found = ModelComparison(
        both.models,
        both.scores,
        {},
        {},
        rows={name: some for name, some in (("a", A), ("b", B)) if name in here},
        earlier={("a", "b", KEY): table},
        constant=frozenset({"a"}),
    )
    forward, back = found._difference("a", "b", KEY), found._difference("b", "a", KEY)
    assert forward is not None and back is not None
    assert forward.p_seeds == back.p_seeds == pytest.approx(whole.p_seeds)
    assert whole.p_seeds != pytest.approx(model_difference(("a", "b"), A, B, KEY, constant[::-1]).p_seeds)
    assert (forward.pooled.first, back.pooled.first) == ("a", "b")
    assert (
        forward.pooled.difference.value == -back.pooled.difference.value == pytest.approx(table["difference"]["value"])
    )


def final(model: str, seed: int) -> Any:
    settings = {"part": "final", "model": model, "seed": seed, "size": {"dim": 8} if model == "a" else None}
    return SimpleNamespace(name=f"{model}-final-{seed}", settings=settings)


def test_final_fits_count_and_a_model_with_a_file_missing_is_taken_as_published():
    """Of `b` one of two files is gone; `c` was published, but is done here anew; `d` is not done."""
    grid = SimpleNamespace(name="a-grid", settings={"part": "grid", "model": "a", "seed": 7, "size": {"dim": 4}})
    units = [*(final(name, seed) for name in "abc" for seed in (0, 1)), final("d", 0), grid]
    files = {one.name: rows_of(RNG.normal(size=ROWS)) for one in units if one.name not in ("b-final-1", "d-final-0")}
    record = {"part": "final", "dev": -1.0, "fit_seconds": 2.0, "size": {}, "seed": 0}
    records: dict[str, Any] = {
        one.name: {**record, "model": one.settings["model"]} for one in units if one.name != "d-final-0"
    }
    records["a-grid"]["part"] = "grid"
    old = {"value": 9.0, "low": 8.0, "high": 10.0}
    published = [
        asdict(Score(name, KEY, "nats", old, None, (9.0,)))
        for name in "bc"  # pyright: ignore[reportArgumentType]
    ]
    tests = [{"first": "b", "second": "c", "metric": KEY}]
    results: Any = SimpleNamespace(
        units=units, records=records, rows=files.get, earlier={"scores": published, "tests": tests}
    )
    entrants = [
        SimpleNamespace(name=n, sized_by=by, without_chance=n == "c") for n, by in zip("abcd", "aacd", strict=True)
    ]
    found = compare_models(SimpleNamespace(entrants=entrants), results)  # pyright: ignore[reportArgumentType]
    assert found.models == ("a", "b", "c")
    assert {name: sorted(some.by_seed) for name, some in found.rows.items()} == {"a": [0, 1], "c": [0, 1]}
    assert found.scores["b", KEY].values == (9.0,) and len(found.scores["c", KEY].values) == 2
    assert {name: len(some) for name, some in found.records.items()} == {"a": 2, "b": 2, "c": 2}
    assert found.sizes == {"a": {"dim": 8}}
    assert [one["model"] for one in found.grid] == ["a"]
    assert list(found.earlier) == [("b", "c", KEY)]
    assert (found.like, found.constant) == (frozenset({"b"}), frozenset({"c"}))


def test_pairs_are_all_or_one_with_the_others_or_those_that_are_listed():
    models = ("a", "b", "c")
    assert _pairs(None, models) == [("a", "b"), ("a", "c"), ("b", "c")]
    assert _pairs("b", models) == [("b", "a"), ("b", "c")]
    assert _pairs([["c", "a"]], models) == [("c", "a")]


def test_a_table_of_differences_names_all_and_says_how_many_were_corrected_for():
    same = SeedRows(dict(A.by_seed))
    one, other = correct([model_difference(("a", "b"), A, B, KEY), model_difference(("a", "same"), A, same, KEY)])
    (single,) = _test_table([one])
    assert "over events" in single.note and "for all 1 comparisons here." in single.note
    assert [row[:3] for row in single.rows] == [["a", "b", "log-likelihood"]]
    (both,) = _test_table([one, other])
    assert "for all 2 comparisons here, but for 1 in which nothing differs." in both.note
    assert _test_table([]) == []


def grid_of(*devs: float | None) -> list[dict[str, Any]]:
    return [{"model": "a", "size": {"dim": 2**place, "layers": 1}, "dev": dev} for place, dev in enumerate(devs)]


def test_without_two_seeds_only_the_best_size_is_unresolved():
    found = ModelComparison(("a",), {}, {"a": ({"dev": -1.0},)}, {}, grid=grid_of(-1.5, -1.0, None, -1.2))
    choice = size_choice(found, "a")
    assert choice.noise is None and [one["dim"] for one in choice.unresolved] == [2]
    (table,) = _grid_table(found)
    assert table.rows == [["a", "3", "D 2, L 1: −1.0000; D 8, L 1: −1.2000; D 1, L 1: −1.5000", "–", "−1.5000"]]
    assert _grid_table(ModelComparison(("a",), {}, {}, {}, grid=grid_of(None))) == []


def test_two_seeds_are_enough_for_a_noise():
    found = ModelComparison(("a",), {}, {"a": ({"dev": -1.0}, {"dev": -1.2})}, {}, grid=grid_of(-1.0))
    spread = np.std([-1.0, -1.2], ddof=1)
    assert size_choice(found, "a").noise == pytest.approx(12.7062047 * np.sqrt(2.0) * spread, rel=1e-6)
