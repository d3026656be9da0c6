"""Verdicts on findings: models whose scores are made up, with differences that are plain or none, and what each check says of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from foretell.errors import ForetellError
from foretell.evaluate.metrics import Metric
from foretell.reproduce.comparison import ModelComparison, _scores
from foretell.reproduce.experiment import Results
from foretell.reproduce.findings import CHECKS, find
from foretell.reproduce.rows import ScoreRows, SeedRows, pooled, read_rows, write_rows

ROWS = 200
NOISE = np.random.default_rng(0).normal(size=(4, ROWS))
NOTHING = Results(Path(), (), {})


def rows_of(log_likelihood: np.ndarray, wrong: np.ndarray | None = None) -> ScoreRows:
    counts = np.ones(ROWS, dtype=np.uint8)
    wrong = np.zeros(ROWS) if wrong is None else wrong
    metrics = (
        Metric("log_likelihood", "log-likelihood", "nats", log_likelihood, counts),
        Metric("error_rate", "error of the next type, given its time", "share", wrong, counts),
    )
    return ScoreRows("d", 1, np.zeros(ROWS, dtype=np.int64), np.zeros(ROWS, dtype=np.int32), ("a",), metrics)


def comparison_of(**models: ScoreRows) -> ModelComparison:
    scores = {(name, one.metric): one for name, rows in models.items() for one in _scores(name, SeedRows({0: rows}))}
    sizes = {"good": {"dim": 32, "layers": 1}, "poor": {"dim": 4, "layers": 1}, "twin": {"dim": 64, "layers": 3}}
    return ModelComparison(
        tuple(models), (), dict.fromkeys(models, (0,)), scores, models, dict.fromkeys(models, ()), sizes
    )


@pytest.fixture(scope="module")
def found() -> ModelComparison:
    """`twin` is as good as `good`, with other noise; `poor` is worse in both scores."""
    base = NOISE[0]
    return comparison_of(
        good=rows_of(base, (NOISE[1] > 0.5).astype(float)),
        twin=rows_of(base + 0.1 * NOISE[2], (np.roll(NOISE[1], 1) > 0.5).astype(float)),
        poor=rows_of(base - 1.0 + 0.1 * NOISE[3], np.ones(ROWS)),
    )


BOTH = ["log_likelihood", "error_rate"]


@pytest.mark.parametrize(
    ("table", "verdict"),
    [
        ({"check": "beats", "better": "good", "than": "poor", "metrics": BOTH}, "holds"),
        ({"check": "beats", "better": "poor", "than": "good", "metrics": BOTH}, "does not hold"),
        ({"check": "beats", "better": "good", "than": "twin", "metrics": BOTH}, "not significant"),
        ({"check": "beats", "better": "good", "than": ["poor", "twin"], "metrics": BOTH}, "not significant"),
        ({"check": "beats", "pairs": [["good", "poor"], ["twin", "poor"]], "metrics": BOTH}, "holds"),
        ({"check": "alike", "first": "good", "second": "twin", "metrics": BOTH}, "holds"),
        ({"check": "alike", "first": "good", "second": "poor", "metrics": BOTH}, "does not hold"),
        ({"check": "co-wins", "model": "twin", "against": ["good", "poor"], "metrics": BOTH}, "holds"),
        ({"check": "co-wins", "model": "poor", "against": ["good"], "metrics": BOTH}, "does not hold"),
        ({"check": "wins", "model": "good", "against": ["poor"], "metrics": BOTH, "wins": 2}, "holds"),
        (
            {"check": "wins", "model": "good", "against": ["poor", "twin"], "metrics": BOTH, "wins": 1},
            "not significant",
        ),
        ({"check": "wins", "model": "poor", "against": ["good"], "metrics": BOTH, "wins": 1}, "does not hold"),
        ({"check": "no-help", "models": ["poor", "twin"], "than": "good", "metrics": ["log_likelihood"]}, "holds"),
        ({"check": "no-help", "models": ["good"], "than": "poor", "metrics": ["log_likelihood"]}, "does not hold"),
        ({"check": "best-size", "dim": [32, 64], "layers": [1, 2, 3]}, "holds"),
        ({"check": "best-size", "dim": [128]}, "does not hold"),
        ({"check": "monte-carlo"}, "pending"),
        ({"check": "beats", "better": "absent", "than": "good", "metrics": BOTH}, "pending"),
    ],
)
def test_a_finding_is_judged_by_its_numbers(found, table, verdict):
    judged = find({"name": "n", "claim": "c", **table}, found, NOTHING)
    assert judged.verdict == verdict, judged


def test_every_check_is_judged_in_a_test():
    assert set(CHECKS) == {"co-wins", "wins", "beats", "alike", "no-help", "monte-carlo", "best-size"}


def test_what_draws_add_is_read_from_the_records(found):
    records = {"good": ({"monte_carlo": {"of_the_width": 0.14, "wider_by": 0.01}},), "poor": ({},), "twin": ()}
    made = ModelComparison(found.models, (), found.seeds, found.scores, found.rows, records, found.sizes)
    table = {"name": "n", "claim": "c", "check": "monte-carlo"}
    assert find(table, made, NOTHING).verdict == "holds"
    assert find({**table, "at_most": 0.005}, made, NOTHING).verdict == "does not hold"


def test_a_size_that_another_model_chose_counts_once(found):
    made = replace(found, like=frozenset({"good", "twin"}))  # both have their sizes from a model that is not here
    judged = find({"name": "n", "claim": "c", "check": "best-size", "dim": [32, 64]}, made, NOTHING)
    assert judged.verdict == "does not hold" and judged.detail.startswith("0 of 1 models; poor")


def test_scores_of_other_data_are_not_compared(found):
    other = replace(found.rows["poor"], data="e")
    made = replace(found, rows={**found.rows, "poor": other})
    with pytest.raises(ForetellError, match="scores of different test data"):
        made.test("good", "poor", "log_likelihood")


def test_each_seed_meets_its_like_and_a_single_fit_meets_all():
    good, better, other = (rows_of(NOISE[0] + shift) for shift in (0.5, 1.0, 0.0))
    scores = {}
    singles = {"many": {0: good, 1: better}, "one": {0: other}, "few": {1: other, 2: other}}
    made = ModelComparison(
        ("many", "one", "few"), (), {}, scores, {"many": good, "one": other, "few": other}, {}, {}, singles
    )
    met = made.seed_tests("many", "one", "log_likelihood")
    assert {seed: one.difference.value for seed, one in met.items()} == pytest.approx({0: 0.5, 1: 1.0})
    assert list(made.seed_tests("many", "few", "log_likelihood")) == [1]


def test_seeds_are_pooled_into_their_mean_where_a_row_counts_for_all():
    one, other = rows_of(NOISE[0]), rows_of(NOISE[1])
    counts = np.ones(ROWS, dtype=np.uint8)
    counts[:50] = 0
    off = Metric("rmse", "RMSE", "time", np.where(counts, 4.0, 0.0), counts, root=True)
    whole = Metric("rmse", "RMSE", "time", np.full(ROWS, 16.0), np.ones(ROWS, dtype=np.uint8), root=True)
    one, other = (
        ScoreRows(r.data, 1, r.sequence, r.type, r.names, (*r.metrics, m)) for r, m in ((one, off), (other, whole))
    )
    both = pooled([one, other])
    assert both.by_key["log_likelihood"].values == pytest.approx((NOISE[0] + NOISE[1]) / 2)
    assert both.by_key["rmse"].ratio(both.units).value == pytest.approx(np.sqrt(10.0))
    assert both.by_key["rmse"].counts.sum() == ROWS - 50


def test_rows_come_back_from_their_file(tmp_path):
    noisy = Metric("log_likelihood", "log-likelihood", "nats", NOISE[0], np.ones(ROWS), NOISE[1] ** 2)
    rows = ScoreRows("d", 3, np.repeat([0, 2], 100), np.arange(ROWS, dtype=np.int32), ("kick(a)", "b"), (noisy,))
    write_rows(tmp_path / "rows.npz", rows)
    back = read_rows(tmp_path / "rows.npz")
    assert (back.data, back.sequences, back.names) == ("d", 3, ("kick(a)", "b"))
    assert np.array_equal(back.sequence, rows.sequence) and np.array_equal(back.type, rows.type)
    assert back.metrics[0].values == pytest.approx(NOISE[0], abs=1e-6)
    assert back.metrics[0].variances == pytest.approx(NOISE[1] ** 2, abs=1e-6)
