"""Which candidate is chosen on dev, and what is said of it: variants have to be clearly better, and a floor that wins is named."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from foretell.evaluate.metrics import Metric
from foretell.reproduce.rows import ScoreRows
from foretell.search.leaderboard import METRIC, _choice, _floor_won, _Scored, _without_score

ROWS = 400


def scored(name: str, values: np.ndarray, *, variant: bool = False) -> _Scored:
    metric = Metric(METRIC, METRIC, "nats", values, np.ones(ROWS))
    rows = ScoreRows("x", ROWS, np.arange(ROWS), np.zeros(ROWS, dtype=np.int32), ("a",), (metric,))
    record = {"candidate": name, "title": name.upper(), "variant": variant, "dev": float(values.mean())}
    return _Scored(name, record, rows, Path(name))


def noise(seed: int, size: float = 1.0) -> np.ndarray:
    values = np.random.default_rng(seed).normal(size=ROWS)
    return size * (values - values.mean()) / values.std()


def chosen(*every: _Scored) -> tuple[str, str]:
    return _choice({one.record["candidate"]: one for one in every})


BASE = -2.0 + noise(0)


def test_the_best_on_dev_is_chosen_whatever_the_difference():
    found = chosen(scored("nhp", BASE), scored("anhp", BASE + 1e-4), scored("hawkes", BASE - 1.0))
    assert found == ("anhp", "ANHP has the highest log-likelihood on dev, 0.0001 nats per event more than NHP")
    assert chosen(scored("anhp", BASE))[0] == "anhp"


def test_a_variant_counts_only_beyond_the_standard_error_of_the_difference():
    error = 1.0 / np.sqrt(ROWS)  # of the mean of a difference with standard deviation 1
    anhp = scored("anhp", BASE)
    for factor, winner in ((0.5, "anhp"), (0.8, "anhp"), (1.25, "anhp-wide"), (3.0, "anhp-wide")):
        other = scored("anhp-wide", BASE + noise(1) + factor * error, variant=True)
        name, reason = chosen(anhp, other)
        assert name == winner, factor
        assert ("within the standard error" in reason) == (winner == "anhp")


def test_the_best_variant_that_is_clearly_better_is_taken_where_a_better_one_is_not():
    anhp = scored("anhp", BASE)
    lucky = scored("anhp-slow", BASE + noise(1, 10.0) + 0.03, variant=True)  # much noise
    steady = scored("anhp-wide", BASE + noise(2, 0.01) + 0.02, variant=True)
    assert chosen(anhp, lucky, steady)[0] == "anhp-wide"
    assert chosen(anhp, lucky)[0] == "anhp"


def test_a_floor_that_wins_is_said_with_the_best_network():
    best = {"hawkes": scored("hawkes", BASE), "nhp": scored("nhp", BASE - 2.0), "anhp": scored("anhp", BASE - 1.0)}
    told = _floor_won(best, "hawkes")
    assert "no network beats this floor" in told and "ANHP, has -3.0000 against -2.0000" in told
    assert "more minutes" in _floor_won({"hawkes": best["hawkes"]}, "hawkes")


def test_a_floor_without_a_score_is_not_taken_as_beaten():
    best = {"poisson": scored("poisson", BASE), "anhp": scored("anhp", BASE)}
    assert _without_score(best) == ["Hawkes has no score here, so whether it is beaten is not known"]
    assert _without_score(best | {"hawkes": scored("hawkes", BASE)}) == []
