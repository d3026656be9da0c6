"""The paper's findings as checks: each `[[finding]]` of a definition in, a number and a verdict out.

`check` names what is asked; the other keys are its own. A difference counts if p < 0.05 in the paired permutation test of
`comparison.py`, uncorrected, as in the paper. A finding that needs a model which is not fitted yet is pending.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

from foretell.errors import ForetellError
from foretell.evaluate.compare import Difference
from foretell.reproduce.comparison import ModelComparison
from foretell.reproduce.experiment import Finding, Results, Verdict, verdict_of
from foretell.reproduce.rows import is_significant, p_value

Table = Mapping[str, Any]
CheckResult = tuple[Verdict, float | None, str]
COMMON = ("name", "claim", "check")


def check_findings(findings: Sequence[Table], models: Sequence[str], source: str) -> None:
    """Before anything is fitted: that every check exists, and every model that it names."""
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
    """The models that a finding is about."""
    keys = ("model", "against", "better", "than", "first", "second", "models")
    found = [model for key in keys for model in _list(table.get(key, ()))]
    return list(dict.fromkeys([*found, *(model for pair in table.get("pairs", ()) for model in pair)]))


def find(table: Table, found: ModelComparison, results: Results) -> Finding:
    name, check = str(table.get("name", "")), CHECKS[table["check"]]
    lacking = [model for model in named(table) if model not in found.models]
    if lacking or not found.models:
        told = f"not fitted yet: {', '.join(lacking)}" if lacking else "nothing is fitted yet"
        return Finding(name, str(table.get("claim", "")), "pending", told)
    verdict, value, detail = check(table, found, results)
    return Finding(name, str(table.get("claim", "")), verdict, detail, value)


def co_wins(table: Table, found: ModelComparison, results: Results) -> CheckResult:
    """On every metric no rival is significantly better."""
    beaten = []
    for metric in table["metrics"]:
        for rival in table["against"]:
            test = found.test(table["model"], rival, metric)
            if test.better == rival and is_significant(test):
                beaten.append(f"{rival} is better in {test.title} ({_p(test)})")
    count = len(table["metrics"]) - len({text.split(" is better in ")[1].split(" (")[0] for text in beaten})
    detail = f"no rival is significantly better on {count} of {len(table['metrics'])} scores"
    return "holds" if not beaten else "does not hold", float(count), "; ".join([detail, *beaten])


def wins(table: Table, found: ModelComparison, results: Results) -> CheckResult:
    """On so many metrics significantly better than every rival, and on the others not significantly worse than any."""
    won, lost, told = 0, 0, []
    for metric in table["metrics"]:
        tests = [found.test(table["model"], rival, metric) for rival in table["against"]]
        won += (all_won := all(one.better == table["model"] and is_significant(one) for one in tests))
        better = [one.second for one in tests if one.better == one.second and is_significant(one)]
        lost += bool(better)
        state = "wins" if all_won else f"loses to {', '.join(better)}" if better else "ties"
        told.append(f"{state} in {tests[0].title}")
    wanted = int(table.get("wins", len(table["metrics"])))
    return verdict_of(lost, won < wanted), float(won), "; ".join(told)


def beats(table: Table, found: ModelComparison, results: Results) -> CheckResult:
    """Each of the better ones is significantly better than each of the others, on every metric."""
    pairs = table.get("pairs") or [(one, other) for one in _list(table["better"]) for other in _list(table["than"])]
    tests = [found.test(one, other, metric) for one, other in pairs for metric in table["metrics"]]
    worse = [one for one in tests if one.better == one.second and is_significant(one)]
    weak = [one for one in tests if not is_significant(one)]
    told = "; ".join(f"{one.first} against {one.second}, {one.title}: {_size(one)} ({_p(one)})" for one in tests)
    return verdict_of(bool(worse), bool(weak)), max(p_value(one) for one in tests), told


def alike(table: Table, found: ModelComparison, results: Results) -> CheckResult:
    """No metric shows a significant difference."""
    tests = [found.test(table["first"], table["second"], metric) for metric in table["metrics"]]
    told = "; ".join(f"{one.title}: {_size(one)} ({_p(one)})" for one in tests)
    different = any(is_significant(one) for one in tests)
    return "does not hold" if different else "holds", min(p_value(one) for one in tests), told


def no_help(table: Table, found: ModelComparison, results: Results) -> CheckResult:
    """None of the models is significantly better than the plain one."""
    tests = [found.test(one, table["than"], metric) for one in _list(table["models"]) for metric in table["metrics"]]
    told = "; ".join(f"{one.first}, {one.title}: {_size(one)} ({_p(one)})" for one in tests)
    helps = any(one.better == one.first and is_significant(one) for one in tests)
    return "does not hold" if helps else "holds", min(p_value(one) for one in tests), told


def monte_carlo(table: Table, found: ModelComparison, results: Results) -> CheckResult:
    """How much of an interval's width is due to the draws of the integral, in the middle of all fits."""
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


def best_size(table: Table, found: ModelComparison, results: Results) -> CheckResult:
    """The size that dev chose lies in the paper's range, for most models."""
    sizes = {name: size for name, size in found.sizes.items() if name not in found.like}  # each choice counts once
    if not sizes:
        return "pending", None, "no grid is finished yet"
    wanted = {key: table[key] for key in table if key not in COMMON}
    inside = [all(size[key] in wanted[key] for key in wanted if key in size) for size in sizes.values()]
    told = "; ".join(f"{name}: {', '.join(f'{k} {v}' for k, v in size.items())}" for name, size in sizes.items())
    share = sum(inside) / len(inside)
    return "holds" if share > 0.5 else "does not hold", share, f"{sum(inside)} of {len(inside)} models; {told}"


CHECKS: dict[str, Callable[[Table, ModelComparison, Results], CheckResult]] = {
    "co-wins": co_wins,
    "wins": wins,
    "beats": beats,
    "alike": alike,
    "no-help": no_help,
    "monte-carlo": monte_carlo,
    "best-size": best_size,
}


def _p(one: Difference) -> str:
    return f"p = {p_value(one):.2g}"


def _size(one: Difference) -> str:
    value = one.difference.value
    return f"{100 * value:+.1f} points" if one.kind == "share" else f"{value:+.3f}"


def _list(value: Any) -> Sequence[str]:
    return [value] if isinstance(value, str) else list(value)
