"""Checks the paper's findings: makes a number and a verdict from each `[[finding]]` of a definition.

The key `check` names a function of this file; the other keys are its parameters. A difference counts if neither the choice of test events
nor that of seeds explains it, after correction for all comparisons of the experiment (`model_difference.py`). If the paper claims that
there is no difference, and a difference is significant only before the corrections, the claim is "not resolved". A finding is pending if
one of its models is not fitted yet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

from foretell.errors import ForetellError
from foretell.reproduce.comparison import Comparand, ModelComparison, size_choice
from foretell.reproduce.experiment import Finding, Verdict, verdict_of
from foretell.reproduce.model_difference import ModelDifference

Table = Mapping[str, Any]
CheckResult = tuple[Verdict, float | None, str]
Tests = Sequence[ModelDifference]
PAIRED = (
    ("model", "against"),
    ("better", "than"),
    ("first", "second"),
    ("models", "than"),
)  # keys: first models, second models
COMMON = ("name", "claim", "check")


def check_findings(findings: Sequence[Table], models: Sequence[str], source: str) -> None:
    """Check, before anything is fitted, that all checks and models that findings name exist."""
    wrong = []
    for table in findings:
        where = f"{source}, [[finding]] {table.get('name')}"
        if table.get("check") not in CHECKS:
            wrong.append(f"{where}: check = {table.get('check')!r}: expected one of {', '.join(CHECKS)}")
        wrong += [
            f"{where}: there is no model {one!r}; there are {', '.join(models)}"
            for one in named(table)
            if one not in models
        ]
    if wrong:
        raise ForetellError("\n".join(wrong))


def named(table: Table) -> list[str]:
    """Return the models that a finding names."""
    keys = ("model", "against", "better", "than", "first", "second", "models")
    found = [model for key in keys for model in _list(table.get(key, ()))]
    return list(dict.fromkeys([*found, *(model for pair in table.get("pairs", ()) for model in pair)]))


def comparands(table: Table) -> list[Comparand]:
    """Return the comparisons that a finding needs, in the order of its metrics."""
    if "pairs" in table:
        pairs = [(str(one), str(other)) for one, other in table["pairs"]]
    else:
        keys = next((keys for keys in PAIRED if keys[0] in table and keys[1] in table), None)
        pairs = [(one, other) for one in _list(table[keys[0]]) for other in _list(table[keys[1]])] if keys else []
    return [(one, other, metric) for one, other in pairs for metric in table.get("metrics", ())]


def find(table: Table, found: ModelComparison) -> Finding:
    name, claim = str(table.get("name", "")), str(table.get("claim", ""))
    lacking = [model for model in named(table) if model not in found.models]
    if lacking or not found.models:
        told = f"not fitted yet: {', '.join(lacking)}" if lacking else "nothing is fitted yet"
        return Finding(name, claim, "pending", told)
    try:
        tests = [found.test(*one) for one in comparands(table)]
    except KeyError as error:
        return Finding(name, claim, "pending", f"not compared yet: {', '.join(map(str, error.args[0]))}")
    verdict, value, detail = CHECKS[table["check"]](table, found, tests)
    return Finding(name, claim, verdict, detail, value)


def absence_of(significant: bool, suspected: bool) -> Verdict:
    """Return the verdict on a claim that there is no difference."""
    return "does not hold" if significant else "not resolved" if suspected else "holds"


def co_wins(table: Table, found: ModelComparison, tests: Tests) -> CheckResult:
    """Check that no rival is significantly better in any metric."""
    beaten = [one for one in tests if one.leader() == one.pooled.second]
    doubted = [one for one in tests if one not in beaten and one.leader(significantly=False) == one.pooled.second]
    count = len(table["metrics"]) - len({one.pooled.metric for one in beaten})
    said = [f"no rival is significantly better on {count} of {len(table['metrics'])} scores"]
    said += [f"{one.pooled.second} is better in {one.pooled.title} ({one.p_words()})" for one in beaten]
    said += [f"{one.pooled.second} may be better in {one.pooled.title} ({one.p_words()})" for one in doubted]
    return absence_of(bool(beaten), bool(doubted)), float(count), "; ".join(said)


def wins(table: Table, found: ModelComparison, tests: Tests) -> CheckResult:
    """Check that a model is significantly better than every rival in a number of metrics, and significantly worse in none."""
    won, lost, doubted, told = 0, False, False, []
    for metric in table["metrics"]:
        some = [one for one in tests if one.pooled.metric == found.key(table["model"], metric)]
        won += (all_won := all(one.leader() == one.pooled.first for one in some))
        better = [one.pooled.second for one in some if one.leader() == one.pooled.second]
        maybe = [one for one in some if one.leader(significantly=False) == one.pooled.second and not one.significant]
        lost, doubted = lost or bool(better), doubted or bool(maybe)
        state = "wins" if all_won else f"loses to {', '.join(better)}" if better else "ties"
        doubt = "".join(f", {one.pooled.second} may be better ({one.p_words()})" for one in maybe)
        told.append(f"{state} in {some[0].pooled.title}{doubt}")
    wanted = int(table.get("wins", len(table["metrics"])))
    verdict = verdict_of(lost, won < wanted)
    return "not resolved" if verdict == "holds" and doubted else verdict, float(won), "; ".join(told)


def beats(table: Table, found: ModelComparison, tests: Tests) -> CheckResult:
    """Check that each model of one list is significantly better than each of another list, in every metric."""
    worse = [one for one in tests if one.leader() == one.pooled.second]
    weak = [one for one in tests if not one.significant]
    return verdict_of(bool(worse), bool(weak)), max(one.p_corrected for one in tests), _all_of(tests)


def alike(table: Table, found: ModelComparison, tests: Tests) -> CheckResult:
    """Check that no metric shows a significant difference."""
    verdict = absence_of(any(one.significant for one in tests), any(one.suspected for one in tests))
    return verdict, min(one.p_corrected for one in tests), _all_of(tests)


def no_help(table: Table, found: ModelComparison, tests: Tests) -> CheckResult:
    """Check that none of the models is significantly better than the plain one."""
    helps = any(one.leader() == one.pooled.first for one in tests)
    verdict = absence_of(helps, any(one.leader(significantly=False) == one.pooled.first for one in tests))
    return verdict, min(one.p_corrected for one in tests), _all_of(tests)


def monte_carlo(table: Table, found: ModelComparison, tests: Tests) -> CheckResult:
    """Check how much the draws of the integral widen an interval, as the median over all fits."""
    shares = [
        record["monte_carlo"]
        for records in found.records.values()
        for record in records
        if record.get("monte_carlo") is not None
    ]
    if not shares:
        return "pending", None, "no fit has it"
    added, alone = median(one["wider_by"] for one in shares), median(one["of_the_width"] for one in shares)
    limit = float(table.get("at_most", 0.02))
    of = f"median of {len(shares)} fits"
    detail = f"it makes an interval {100 * added:.2g} % wider ({of}); by itself it would span {100 * alone:.2g} % of it"
    return "holds" if added <= limit else "does not hold", added, detail


def best_size(table: Table, found: ModelComparison, tests: Tests) -> CheckResult:
    """Check that for most models the size chosen on dev is in the paper's range; a choice that seeds could explain is not resolved."""
    wanted = {key: table[key] for key in table if key not in COMMON}

    def inside(size: Mapping[str, Any]) -> bool:
        return all(size[key] in wanted[key] for key in wanted if key in size)

    yes, no, told = 0, 0, []
    for name in (one for one in found.sizes if one not in found.like):  # each choice counts once
        choice = size_choice(found, name)
        within = [inside(one) for one in choice.unresolved]
        resolved = choice.noise is not None and len(set(within)) == 1
        yes, no = yes + (resolved and within[0]), no + (resolved and not within[0])
        state = ("inside" if within[0] else "outside") if resolved else "not resolved"
        size = ", ".join(f"{key} {value}" for key, value in found.sizes[name].items())
        others = f", as good as {len(within) - 1} others" if len(within) > 1 else ""
        told.append(f"{name}: {size}{others}: {state}")
    if not told:
        return "pending", None, "no grid is finished yet"
    share = yes / len(told)
    verdict: Verdict = "holds" if share > 0.5 else "does not hold" if no >= len(told) / 2 else "not resolved"
    return verdict, share, f"{yes} of {len(told)} models inside, {no} outside; {'; '.join(told)}"


CHECKS: dict[str, Callable[[Table, ModelComparison, Tests], CheckResult]] = {
    "co-wins": co_wins,
    "wins": wins,
    "beats": beats,
    "alike": alike,
    "no-help": no_help,
    "monte-carlo": monte_carlo,
    "best-size": best_size,
}


def _all_of(tests: Tests) -> str:
    return "; ".join(
        f"{one.pooled.first} against {one.pooled.second}, {one.pooled.title}: {one.size()} ({one.p_words()})"
        for one in tests
    )


def _list(value: Any) -> Sequence[str]:
    return [value] if isinstance(value, str) else list(value)
