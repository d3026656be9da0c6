"""Verdicts on findings: models whose scores are made up, with differences that are plain or none, and what each check says of them."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from foretell.errors import ForetellError
from foretell.evaluate.metrics import Metric
from foretell.reproduce import model_difference as differences
from foretell.reproduce.comparison import ModelComparison, SizeChoice, _scores, size_choice
from foretell.reproduce.findings import CHECKS, check_findings, comparands, find, named
from foretell.reproduce.model_difference import model_difference
from foretell.reproduce.rows import (
    ScoreRows,
    SeedRows,
    check_same_data,
    difference_between,
    pooled,
    read_rows,
    seed_rows,
    write_rows,
)

ROWS = 128
SEEDS = 3
NOISE = np.random.default_rng(0).normal(size=(4, ROWS))
LUCK = np.random.default_rng(1).normal(size=(8, SEEDS))


@pytest.fixture(scope="module", autouse=True)
def remembered():
    """Tests of the same rows are made once: 99,999 permutations take a while."""
    made: dict[tuple, tuple] = {}

    def difference(names, first, second, *others):
        key = (names, id(first), id(second), *others)
        if key not in made:
            made[key] = difference_between(names, first, second, *others), first, second
        return made[key][0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(differences, "difference_between", difference)
        yield


def rows_of(log_likelihood: np.ndarray, wrong: np.ndarray | None = None, sequences: int = 1) -> ScoreRows:
    counts = np.ones(ROWS, dtype=np.uint8)
    wrong = np.zeros(ROWS) if wrong is None else wrong
    metrics = (
        Metric("log_likelihood", "log-likelihood", "nats", log_likelihood, counts),
        Metric("error_rate", "error of the next type, given its time", "share", wrong, counts),
    )
    sequence = np.sort(np.arange(ROWS, dtype=np.int64) % sequences)
    return ScoreRows("d", sequences, sequence, np.zeros(ROWS, dtype=np.int32), ("a",), metrics)


def fits(log_likelihood: np.ndarray, wrong: np.ndarray | None = None, spread: float = 0.01, luck: int = 0) -> SeedRows:
    """Three seeds, whose log-likelihoods differ by `spread` from each other."""
    return SeedRows({seed: rows_of(log_likelihood + spread * LUCK[luck, seed], wrong) for seed in range(SEEDS)})


def comparison_of(**models: SeedRows) -> ModelComparison:
    scores = {(name, one.metric): one for name, rows in models.items() for one in _scores(name, rows)}
    sizes = {"good": {"dim": 32, "layers": 1}, "poor": {"dim": 4, "layers": 1}, "twin": {"dim": 64, "layers": 3}}
    records = {name: tuple({"dev": dev} for dev in (-1.0, -1.01, -0.99)) for name in models}
    grid = [{"model": name, "size": size, "dev": -1.0} for name, size in sizes.items()]
    grid += [{"model": name, "size": {"dim": 8, "layers": 2}, "dev": -3.0} for name in sizes]
    return ModelComparison(tuple(models), scores, records, sizes, grid, models)


def judged(found: ModelComparison, table: dict, also: tuple = ()) -> tuple[str, str]:
    """Verdict and detail of a finding whose comparisons, and `also` some others, are the whole family."""
    table = {"name": "n", "claim": "c", **table}
    asked = [one for one in comparands(table) if {one[0], one[1]} <= set(found.models)]
    made = find(table, found.measured([*asked, *also]))
    assert (made.name, made.claim) == ("n", "c")
    return made.verdict, made.detail


@pytest.fixture(scope="module")
def found() -> ModelComparison:
    """`twin` is as good as `good`, with other noise; `poor` is worse in both scores."""
    base = NOISE[0]
    return comparison_of(
        good=fits(base, (NOISE[1] > 0.5).astype(float)),
        twin=fits(base + 0.1 * NOISE[2], (np.roll(NOISE[1], 1) > 0.5).astype(float), luck=1),
        poor=fits(base - 1.0 + 0.1 * NOISE[3], np.ones(ROWS), luck=2),
    )


BOTH = ["log_likelihood", "error_rate"]
WHOLE = ["log_likelihood"]


@pytest.mark.parametrize(
    ("table", "verdict"),
    [
        ({"check": "beats", "better": "good", "than": "poor", "metrics": BOTH}, "holds"),
        ({"check": "beats", "better": "poor", "than": "good", "metrics": BOTH}, "does not hold"),
        ({"check": "beats", "better": "good", "than": "twin", "metrics": BOTH}, "not significant"),
        ({"check": "beats", "better": "good", "than": ["poor", "twin"], "metrics": BOTH}, "not significant"),
        ({"check": "beats", "better": ["poor", "good"], "than": ["twin"], "metrics": BOTH}, "does not hold"),
        ({"check": "beats", "pairs": [["good", "poor"], ["twin", "poor"]], "metrics": BOTH}, "holds"),
        ({"check": "beats", "pairs": [["good", "poor"], ["twin", "good"]], "metrics": BOTH}, "not significant"),
        ({"check": "alike", "first": "good", "second": "twin", "metrics": BOTH}, "holds"),
        ({"check": "alike", "first": "good", "second": "poor", "metrics": BOTH}, "does not hold"),
        ({"check": "co-wins", "model": "twin", "against": ["good", "poor"], "metrics": BOTH}, "holds"),
        ({"check": "co-wins", "model": "poor", "against": ["good"], "metrics": BOTH}, "does not hold"),
        ({"check": "wins", "model": "good", "against": ["poor"], "metrics": BOTH, "wins": 2}, "holds"),
        ({"check": "wins", "model": "good", "against": ["poor"], "metrics": BOTH}, "holds"),
        (
            {"check": "wins", "model": "good", "against": ["poor", "twin"], "metrics": BOTH, "wins": 1},
            "not significant",
        ),
        ({"check": "wins", "model": "poor", "against": ["good"], "metrics": BOTH, "wins": 0}, "does not hold"),
        ({"check": "no-help", "models": ["poor", "twin"], "than": "good", "metrics": WHOLE}, "holds"),
        ({"check": "no-help", "models": ["good"], "than": "poor", "metrics": WHOLE}, "does not hold"),
        ({"check": "no-help", "models": ["twin", "good"], "than": "poor", "metrics": WHOLE}, "does not hold"),
        ({"check": "best-size", "dim": [32, 64], "layers": [1, 2, 3]}, "holds"),
        ({"check": "best-size", "dim": [32, 64], "layers": [2, 3]}, "does not hold"),
        ({"check": "best-size", "dim": [128]}, "does not hold"),
        ({"check": "monte-carlo"}, "pending"),
        ({"check": "beats", "better": "absent", "than": "good", "metrics": BOTH}, "pending"),
    ],
)
def test_a_finding_is_judged_by_its_numbers(found, table, verdict):
    made = judged(found, table)
    assert made[0] == verdict, made


def test_one_score_is_enough_to_lose_or_to_differ():
    """`odd` is as likely as `good`, and errs always: every claim about both scores depends on the one that differs."""
    good, odd = fits(NOISE[0], np.zeros(ROWS)), fits(NOISE[0] + 0.1 * NOISE[2], np.ones(ROWS), luck=1)
    found = comparison_of(good=good, odd=odd)
    assert judged(found, {"check": "alike", "first": "good", "second": "odd", "metrics": BOTH})[0] == "does not hold"
    assert judged(found, {"check": "beats", "better": "odd", "than": "good", "metrics": BOTH})[0] == "does not hold"
    assert judged(found, {"check": "no-help", "models": ["good"], "than": "odd", "metrics": BOTH})[0] == "does not hold"
    verdict, detail = judged(found, {"check": "co-wins", "model": "odd", "against": ["good"], "metrics": BOTH})
    assert verdict == "does not hold" and detail.startswith(
        "no rival is significantly better on 1 of 2 scores; good is better in error"
    )
    for metrics in (BOTH, BOTH[::-1]):
        verdict, detail = judged(
            found, {"check": "wins", "model": "odd", "against": ["good"], "metrics": metrics, "wins": 0}
        )
        assert verdict == "does not hold" and "loses to good in error" in detail and "ties in log-likelihood" in detail
        verdict, _ = judged(
            found, {"check": "wins", "model": "good", "against": ["odd"], "metrics": metrics, "wins": 1}
        )
        assert verdict == "holds"


def test_every_check_is_judged_in_a_test():
    assert set(CHECKS) == {"co-wins", "wins", "beats", "alike", "no-help", "monte-carlo", "best-size"}


def test_what_a_finding_tells():
    good, poor = fits(NOISE[0], np.zeros(ROWS)), fits(NOISE[0] - 1.0, np.ones(ROWS), luck=1)
    found = comparison_of(good=good, poor=poor)
    _, detail = judged(found, {"check": "beats", "better": "good", "than": "poor", "metrics": BOTH})
    # 99,999 permutations and two comparisons: 0.00001 is the least that p can be, and 0.00002 corrected
    assert detail.startswith("good against poor, log-likelihood: +1.0")
    assert "error of the next type, given its time: -100.0 points (p = 1e-05, over seeds 0, corrected 2e-05)" in detail
    told = find({"check": "beats", "better": "good", "than": "poor", "metrics": BOTH}, found.measured([])).detail
    assert told == "not compared yet: good, poor, log_likelihood"
    assert (
        find({"check": "alike", "first": "x", "second": "good", "metrics": BOTH}, found).detail == "not fitted yet: x"
    )
    assert find({"check": "monte-carlo"}, comparison_of()).detail == "nothing is fitted yet"
    _, detail = judged(found, {"check": "wins", "model": "good", "against": ["poor"], "metrics": BOTH})
    assert detail == "wins in log-likelihood; wins in error of the next type, given its time"
    _, detail = judged(found, {"check": "wins", "model": "poor", "against": ["good"], "metrics": WHOLE})
    assert detail == "loses to good in log-likelihood"
    table = {"check": "co-wins", "model": "poor", "against": ["good"], "metrics": WHOLE}
    assert judged(found, table)[1].startswith(
        "no rival is significantly better on 0 of 1 scores; good is better in log-l"
    )
    assert find(table, found.measured(comparands(table))).value == 0.0
    table = {"check": "co-wins", "model": "good", "against": ["poor"], "metrics": BOTH}
    assert find(table, found.measured(comparands(table))).value == 2.0


# ---- luck of seeds, luck of many comparisons -----------------------------------------------------------------------------------------


def test_a_difference_that_the_spread_over_seeds_explains_is_no_finding():
    """Over events the lead is beyond doubt; but a model's own seeds are as far apart."""
    lucky = SeedRows({seed: rows_of(NOISE[0] + shift) for seed, shift in enumerate((0.9, 0.1, 0.2))})
    other = SeedRows(
        {seed: rows_of(NOISE[0] + 0.01 * NOISE[seed + 1] + shift) for seed, shift in enumerate((0.3, -0.2, 0.1))}
    )
    found = comparison_of(lucky=lucky, other=other)
    one = found.measured([("lucky", "other", "log_likelihood")]).test("lucky", "other", "log_likelihood")
    assert one.p < 1e-4 and one.p_seeds is not None and one.p_seeds > 0.05
    assert not one.significant and one.suspected and one.leader() is None and one.leader(significantly=False) == "lucky"
    about = {"metrics": WHOLE}
    assert judged(found, {"check": "beats", "better": "lucky", "than": "other", **about})[0] == "not significant"
    assert judged(found, {"check": "alike", "first": "lucky", "second": "other", **about})[0] == "not resolved"
    assert judged(found, {"check": "co-wins", "model": "other", "against": ["lucky"], **about})[0] == "not resolved"
    assert judged(found, {"check": "co-wins", "model": "lucky", "against": ["other"], **about})[0] == "holds"
    assert judged(found, {"check": "no-help", "models": ["lucky"], "than": "other", **about})[0] == "not resolved"
    assert judged(found, {"check": "no-help", "models": ["other"], "than": "lucky", **about})[0] == "holds"
    lost = {"check": "wins", "model": "other", "against": ["lucky"], "wins": 0, **about}
    verdict, detail = judged(found, lost)
    assert verdict == "not resolved" and detail.startswith(
        "ties in log-likelihood, lucky may be better (p = 1e-05, over"
    )


def test_a_difference_counts_only_after_correction_for_the_number_of_comparisons():
    """p is about 0.02 in the test of two; among four like it, Holm's method makes it 0.08."""
    shift = 0.215
    a, b = fits(NOISE[0], spread=0.001), fits(NOISE[0] + NOISE[1] - NOISE[1].mean() + shift, spread=0.001, luck=1)
    found = comparison_of(a=a, b=b, **{f"m{n}": a for n in range(3)})
    table = {"check": "beats", "better": "b", "than": "a", "metrics": WHOLE}
    alone, _ = judged(found, table)
    among, detail = judged(found, table, tuple(("b", f"m{n}", "log_likelihood") for n in range(3)))
    one = found.measured(comparands(table)).test("b", "a", "log_likelihood")
    assert 0.005 < one.p < 0.05 and (alone, among) == ("holds", "not significant"), detail
    assert one.p_corrected == one.p_larger


def test_significance_is_at_one_in_twenty():
    """Between 0.05 and 0.1 nothing is significant."""
    shift = 0.165
    a, b = fits(NOISE[0], spread=0.0), fits(NOISE[0] + NOISE[1] - NOISE[1].mean() + shift, spread=0.0)
    found = comparison_of(a=a, b=b)
    one = found.measured([("a", "b", "log_likelihood")]).test("a", "b", "log_likelihood")
    assert 0.06 < one.p < 0.095 and one.p_seeds == 0.0
    assert judged(found, {"check": "alike", "first": "a", "second": "b", "metrics": WHOLE})[0] == "holds"
    assert judged(found, {"check": "beats", "better": "b", "than": "a", "metrics": WHOLE})[0] == "not significant"


def test_a_comparison_in_which_nothing_differs_is_not_counted():
    a, b = fits(NOISE[0], spread=0.001), fits(NOISE[0] + 1.0, spread=0.001)
    found = comparison_of(a=a, b=b).measured([("a", "b", metric) for metric in BOTH])
    likelihood, errors = (found.test("a", "b", metric) for metric in BOTH)
    assert errors.vacuous and errors.p_corrected == 1.0 and not likelihood.vacuous
    assert likelihood.p_corrected == pytest.approx(likelihood.p_larger)


def test_a_pair_is_compared_once_and_told_in_either_order(found):
    one = found.measured([("good", "poor", "log_likelihood"), ("poor", "good", "log_likelihood")])
    assert list(one.differences) == [("good", "poor", "log_likelihood")]
    there, back = one.test("good", "poor", "log_likelihood"), one.test("poor", "good", "log_likelihood")
    assert back.pooled.difference.value == -there.pooled.difference.value
    assert (back.pooled.difference.low, back.pooled.difference.high) == (
        -there.pooled.difference.high,
        -there.pooled.difference.low,
    )
    assert (back.pooled.first, back.pooled.second, back.leader()) == ("poor", "good", "good")
    assert back.seeds[1].value == -there.seeds[1].value and back.seeds[1].p == there.seeds[1].p
    assert back.seeds_ahead() == there.seeds_ahead() == "3 of 3, 3"


# ---- sizes, draws --------------------------------------------------------------------------------------------------------------------


def sized(
    *devs: float, dims: tuple[int, ...] = (16, 32, 128), seeds: tuple[float, ...] = (-1.0, -1.1, -0.9)
) -> ModelComparison:
    found = comparison_of(good=fits(NOISE[0]))
    grid = [
        {"model": "good", "size": {"dim": dim, "layers": 1}, "dev": dev} for dim, dev in zip(dims, devs, strict=True)
    ]
    best = max(grid, key=lambda one: one["dev"])["size"]
    return replace(found, sizes={"good": best}, grid=grid, records={"good": tuple({"dev": dev} for dev in seeds)})


def test_sizes_that_seeds_may_have_put_behind_the_best_are_not_resolved():
    """Three seeds, 0.1 apart: with 95 % two fits of one size differ by up to 4.303·√2·0.1 = 0.609."""
    table = {"check": "best-size", "dim": [32, 64]}
    choice = size_choice(sized(-2.0, -1.0, -1.6), "good")
    assert choice.noise == pytest.approx(0.6085, abs=1e-3)
    assert [one["dim"] for one in choice.unresolved] == [32, 128]
    assert judged(sized(-2.0, -1.0, -1.7), table)[0] == "holds"
    assert judged(sized(-2.0, -1.0, -1.6), table)[0] == "not resolved"
    assert judged(sized(-2.0, -1.7, -1.0), table)[0] == "does not hold"
    assert judged(sized(-2.0, -1.6, -1.0), table)[0] == "not resolved"
    verdict, detail = judged(sized(-1.5, -1.7, -1.0), table)  # two sizes, both of them outside
    assert verdict == "does not hold"
    assert detail == "0 of 1 models inside, 1 outside; good: dim 128, layers 1, as good as 1 others: outside"


def test_of_one_seed_no_size_is_resolved():
    found = sized(-2.0, -1.0, -1.7, seeds=(-1.0,))
    assert size_choice(found, "good").noise is None
    assert judged(found, {"check": "best-size", "dim": [32, 64]})[0] == "not resolved"
    assert SizeChoice(({"size": {"dim": 1}, "dev": -1.0}, {"size": {"dim": 2}, "dev": -1.0}), 0.0).unresolved == [
        {"dim": 1},
        {"dim": 2},
    ]


def test_a_size_of_which_the_fit_failed_is_not_tried():
    found = sized(-2.0, -1.0, -1.7)
    failed = [{"model": "good", "size": {"dim": 64}, "dev": None}, {"model": "other", "size": {"dim": 2}, "dev": 3.0}]
    assert len(size_choice(replace(found, grid=[*found.grid, *failed]), "good").tried) == 3


def test_layers_count_where_a_model_has_them(found):
    """Two of three models have one layer, so a range without it does not hold; a model without layers is judged by its dimension."""
    table = {"check": "best-size", "dim": [32, 64, 4], "layers": [2, 3]}
    assert judged(found, table)[0] == "does not hold"
    bare = replace(found, sizes={name: {"dim": size["dim"]} for name, size in found.sizes.items()})
    bare = replace(bare, grid=[{**one, "size": {"dim": one["size"]["dim"]}} for one in found.grid])
    assert judged(bare, table)[0] == "holds"


def test_half_of_the_models_are_not_most_of_them(found):
    made = replace(found, sizes={name: found.sizes[name] for name in ("good", "poor")})
    assert judged(made, {"check": "best-size", "dim": [32]})[0] == "does not hold"


def test_what_draws_add_is_read_from_the_records(found):
    def with_shares(*added: float) -> ModelComparison:
        records = {"good": tuple({"monte_carlo": {"of_the_width": 0.14, "wider_by": one}} for one in added)}
        return replace(found, records={**records, "poor": ({},), "twin": ()})

    table = {"check": "monte-carlo"}
    assert judged(with_shares(0.01), table)[0] == "holds"
    assert judged(with_shares(0.02), table)[0] == "holds"
    verdict, detail = judged(with_shares(0.03, 0.03, 0.5), table)
    assert verdict == "does not hold"  # the limit is 2 %
    assert detail == "it makes an interval 3 % wider (median of 3 fits); by itself it would span 14 % of it"
    assert judged(with_shares(0.01), {**table, "at_most": 0.005})[0] == "does not hold"
    assert judged(with_shares(0.03), {**table, "at_most": 0.03})[0] == "holds"


def test_a_size_that_another_model_chose_counts_once(found):
    made = replace(found, like=frozenset({"good", "twin"}))  # both have their sizes from a model that is not here
    verdict, detail = judged(made, {"check": "best-size", "dim": [32, 64]})
    assert verdict == "does not hold" and detail == "0 of 1 models inside, 1 outside; poor: dim 4, layers 1: outside"
    assert judged(replace(found, like=frozenset(found.sizes)), {"check": "best-size", "dim": [4]})[0] == "pending"


# ---- what is asked -------------------------------------------------------------------------------------------------------------------


def test_the_models_and_comparisons_of_a_finding():
    table = {"check": "wins", "model": "a", "against": ["b", "c"], "metrics": BOTH}
    assert named(table) == ["a", "b", "c"]
    assert comparands(table) == [(*pair, one) for pair in (("a", "b"), ("a", "c")) for one in BOTH]
    assert comparands({"models": ["b", "c"], "than": "a", "metrics": ["m"]}) == [("b", "a", "m"), ("c", "a", "m")]
    assert comparands({"first": "a", "second": "b", "metrics": ["m"]}) == [("a", "b", "m")]
    assert comparands({"pairs": [["a", "b"]], "metrics": ["m"]}) == [("a", "b", "m")]
    assert comparands({"check": "best-size", "dim": [4]}) == [] and named({"pairs": [["a", "b"], ["b", "c"]]}) == [
        "a",
        "b",
        "c",
    ]


def test_mistakes_in_findings_are_told_before_anything_is_fitted():
    check_findings([{"name": "n", "check": "alike", "first": "a", "second": "b"}], ["a", "b"], "x.toml")
    with pytest.raises(ForetellError) as raised:
        check_findings([{"name": "n", "check": "alyke", "first": "a", "second": "c"}], ["a", "b"], "x.toml")
    told = str(raised.value).splitlines()
    assert told[0].startswith("x.toml, [[finding]] n: check = 'alyke': expected one of co-wins, ")
    assert told[1] == "x.toml, [[finding]] n: there is no model 'c'; there are a, b"


def test_scores_of_other_data_are_not_compared(found):
    good, poor = found.rows["good"], found.rows["poor"]
    other = SeedRows({seed: replace(rows, data="e") for seed, rows in poor.by_seed.items()})
    with pytest.raises(ForetellError, match="scores of different test data"):
        model_difference(("good", "poor"), good, other, "log_likelihood")
    short = replace(poor.pooled, sequence=poor.pooled.sequence[1:])
    with pytest.raises(ForetellError, match="scores of different test data"):
        check_same_data([good.pooled, short])
    check_same_data([good.pooled, poor.pooled])


def test_each_seed_meets_its_like_and_a_single_fit_meets_all():
    good, better, other = (rows_of(NOISE[0] + shift) for shift in (0.5, 1.0, 0.0))
    many, one, few = SeedRows({0: good, 1: better}), SeedRows({0: other}), SeedRows({1: other, 2: other})
    met = model_difference(("many", "one"), many, one, "log_likelihood").seeds
    assert {seed: one.value for seed, one in met.items()} == pytest.approx({0: 0.5, 1: 1.0})
    assert all(one.p == pytest.approx(1e-4) for one in met.values())  # 9,999 permutations, none as far from 0
    assert list(model_difference(("many", "few"), many, few, "log_likelihood").seeds) == [1]


def test_seeds_ahead_are_those_of_the_better_model():
    """Of three seeds two are ahead; of these one significantly."""
    base = rows_of(NOISE[0], np.zeros(ROWS))
    shifts = (1.0, 0.0, -0.1)
    many = SeedRows(
        {n: rows_of(NOISE[0] + shift + (0.3 * NOISE[1] if n == 1 else 0.0)) for n, shift in enumerate(shifts)}
    )
    one = model_difference(("many", "base"), many, SeedRows({0: base}), "log_likelihood")
    assert one.pooled.better == "many" and one.seeds_ahead() in ("2 of 3, 1", "1 of 3, 1")
    errors = [np.zeros(ROWS), np.zeros(ROWS), np.r_[np.zeros(ROWS - 40), np.ones(40)]]
    worse = SeedRows({seed: rows_of(NOISE[0], wrong) for seed, wrong in enumerate(errors)})
    found = model_difference(("worse", "base"), worse, SeedRows({0: base}), "error_rate")
    assert found.pooled.better == "base" and found.seeds_ahead() == "1 of 3, 1"


# ---- rows ----------------------------------------------------------------------------------------------------------------------------


def test_differences_are_tested_over_sequences_where_there_are_enough():
    """Two long runs of luck are two units and not a hundred: over events p is tiny, over sequences it is not."""
    lucky = np.repeat([3.0, -0.2], [20, ROWS - 20])
    for sequences, over in ((19, "events"), (20, "sequences")):
        one, other = (SeedRows({0: rows_of(values, sequences=sequences)}) for values in (lucky, np.zeros(ROWS)))
        test = model_difference(("a", "b"), one, other, "log_likelihood").pooled.tests[0]
        assert (test.over, test.test.units) == (over, ROWS if over == "events" else sequences)


def test_the_variance_of_pooled_draws_is_that_of_a_mean():
    """Three seeds with variances 9, 18 and 27 in a row: their mean has (9 + 18 + 27) / 3²."""
    noisy = [
        replace(rows, metrics=(replace(rows.metrics[0], variances=np.full(ROWS, 9.0 * (seed + 1))),))
        for seed, rows in enumerate([rows_of(NOISE[0])] * 3)
    ]
    assert pooled(noisy).metrics[0].variances == pytest.approx(np.full(ROWS, 6.0))
    two = pooled([*noisy[:2], replace(noisy[2], metrics=(replace(noisy[2].metrics[0], variances=None),))])
    assert two.metrics[0].variances == pytest.approx(np.full(ROWS, 3.0))  # one of them was not drawn
    assert pooled([rows_of(NOISE[0])] * 2).metrics[0].variances is None


def test_only_scores_that_all_seeds_have_are_pooled():
    whole = rows_of(NOISE[0])
    part = replace(whole, metrics=whole.metrics[:1])
    assert [one.key for one in pooled([whole, part]).metrics] == ["log_likelihood"]
    assert [one.key for one in pooled([whole, whole]).metrics] == BOTH


def test_an_estimate_is_that_of_the_table():
    rows = fits(NOISE[0])
    one, other = rows.estimate("log_likelihood"), _scores("m", rows)[0].estimate
    assert (one.value, one.low, one.high) == pytest.approx((other.value, other.low, other.high), rel=1e-12)


def test_rows_are_gathered_by_what_units_are_of_and_by_seed():
    """Units that are not wanted, not done, or that kept no rows are left out."""
    rows = {name: rows_of(NOISE[0] + place) for place, name in enumerate(("a0", "a1", "b0", "other", "pending"))}
    settings = {
        "a0": ("a", 0),
        "a1": ("a", 1),
        "b0": ("b", 0),
        "bare": ("b", 1),
        "other": (None, 0),
        "pending": ("a", 2),
    }
    units = [SimpleNamespace(name=name, settings={"of": of, "seed": seed}) for name, (of, seed) in settings.items()]
    results: Any = SimpleNamespace(
        units=units, records=dict.fromkeys(["a0", "a1", "b0", "bare", "other"]), rows=rows.get
    )
    found = seed_rows(results, lambda one: one["of"])
    assert {name: list(some.by_seed) for name, some in found.items()} == {"a": [0, 1], "b": [0]}
    assert found["a"].by_seed[1] is rows["a1"]


def test_the_spread_is_the_standard_deviation_over_seeds():
    rows = SeedRows({seed: rows_of(np.full(ROWS, value)) for seed, value in enumerate((1.0, 2.0, 4.0))})
    assert rows.values("log_likelihood") == pytest.approx((1.0, 2.0, 4.0))
    assert rows.spread("log_likelihood") == pytest.approx(np.std([1.0, 2.0, 4.0], ddof=1))
    assert SeedRows({0: rows.by_seed[0]}).spread("log_likelihood") is None
    assert rows.estimate("log_likelihood").value == pytest.approx(7.0 / 3.0)


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
    rows = ScoreRows("d", 3, np.repeat([0, 2], ROWS // 2), np.arange(ROWS, dtype=np.int32), ("kick(a)", "b"), (noisy,))
    write_rows(tmp_path / "rows.npz", rows)
    back = read_rows(tmp_path / "rows.npz")
    assert (back.data, back.sequences, back.names) == ("d", 3, ("kick(a)", "b"))
    assert np.array_equal(back.sequence, rows.sequence) and np.array_equal(back.type, rows.type)
    assert back.metrics[0].values == pytest.approx(NOISE[0], abs=1e-6)
    assert back.metrics[0].variances == pytest.approx(NOISE[1] ** 2, abs=1e-6)


def test_one_model_that_helps_is_enough_for_help():
    base = NOISE[0]
    found = comparison_of(good=fits(base), poor=fits(base - 1.0, luck=1), worst=fits(base - 2.0, luck=2))
    table = {"check": "no-help", "than": "poor", "metrics": WHOLE}
    assert judged(found, {**table, "models": ["worst", "good"]})[0] == "does not hold"
    assert judged(found, {**table, "models": ["worst"]})[0] == "holds"
    lucky = SeedRows({seed: rows_of(base + shift) for seed, shift in enumerate((0.9, 0.1, 0.2))})
    other = SeedRows(
        {seed: rows_of(base + 0.01 * NOISE[seed + 1] + shift) for seed, shift in enumerate((0.3, -0.2, 0.1))}
    )
    found = comparison_of(lucky=lucky, other=other, worst=fits(base - 2.0, luck=2))
    assert judged(found, {**table, "than": "other", "models": ["worst", "lucky"]})[0] == "not resolved"


def test_a_third_of_the_models_outside_decide_nothing_while_the_others_are_not_resolved(found):
    near = [{"model": name, "size": {"dim": 8, "layers": 2}, "dev": -1.001} for name in ("good", "twin")]
    grid = [one for one in found.grid if one["model"] == "poor" or one["dev"] == -1.0]
    made = replace(found, grid=[*grid, *near])
    verdict, detail = judged(made, {"check": "best-size", "dim": [32, 64]})
    assert verdict == "not resolved" and detail.startswith("0 of 3 models inside, 1 outside; ")
