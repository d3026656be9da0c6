"""The tool that looks for holes in the tests makes the mistakes that it says, and finds out which are seen."""

from __future__ import annotations

import ast
import json
import re
from dataclasses import astuple, replace

import pytest

from foretell.evaluate.compare import holm
from tests.mutation.__main__ import (
    DECIDING,
    ROOT,
    Trial,
    code_of,
    equivalents,
    functions_of,
    merged,
    raw_function,
    table_of,
    with_equivalents,
)
from tests.mutation.operators import mutants_of, statement_lines
from tests.mutation.running import apart

TEXT = '''
def chosen(values, least=3):
    """A text."""
    assert len(values) > 0, "none"
    if not values or values[0] < least:
        return -1.5
    return min(values) + 2 if all(values) else f"{values[0] + 1}"
'''


def test_every_operator_number_and_condition_is_changed_once():
    (function,) = ast.parse(TEXT).body
    before = ast.dump(function)
    found = list(mutants_of(function, "chosen"))
    assert sorted(mutant.what for mutant, _ in found) == sorted(
        [
            *("condition negated", "or → and", "not dropped", "0 → 1", "Lt → LtE", "- dropped", "1.5 → 3.0"),
            *("branches swapped", "min → max", "Add → Sub", "2 → 3", "all → any"),
        ]
    )  # neither texts, nor assertions, nor defaults, which a function's code does not hold
    assert len({ast.dump(tree) for _, tree in found}) == len(found) and ast.dump(function) == before
    assert {mutant.number for mutant, _ in found} == set(range(len(found)))


def test_the_tests_of_a_mutant_are_those_that_run_its_statement():
    (function,) = ast.parse("""def f(a):
    if (a >
            1):
        return [
            a + 1,
        ]
    for b in a: c = b
    else:
        c = 3
    return c
""").body
    heads = [list(statement_lines(function, line)) for line in range(2, 11)]
    assert heads == [[2, 3], [2, 3], [4, 5, 6], [4, 5, 6], [4, 5, 6], [7], [8], [9], [10]]


def test_whoever_has_imported_a_function_has_its_mutant():
    (tree,) = [node for name, node in functions_of("evaluate/compare") if name == "holm"]
    original = raw_function("evaluate/compare", "holm")
    assert original is holm
    code = holm.__code__
    try:
        for mutant, changed in mutants_of(tree, "holm"):
            if mutant.what == "Sub → Add":
                holm.__code__ = code_of(changed, "evaluate/compare", "holm", code)
                assert holm([0.01, 0.04]) != pytest.approx([0.02, 0.04])
    finally:
        holm.__code__ = code
    assert holm([0.01, 0.04]) == pytest.approx([0.02, 0.04])


def test_methods_and_properties_are_found_under_their_decorators():
    for file, name in (
        ("evaluate/bootstrap", "Ratio.value"),
        ("evaluate/bootstrap", "Resampling.weights"),
        ("reproduce/rows", "ScoreRows.of"),
    ):
        (tree,) = [node for found, node in functions_of(file) if found == name]
        function = raw_function(file, name)
        assert function is not None
        assert code_of(tree, file, name, function.__code__).co_name == function.__name__


def test_work_in_a_process_of_its_own_comes_back_or_is_ended():
    assert apart(lambda: ["a", 1], 20.0) == ["a", 1]

    def crash() -> None:
        raise ValueError

    def forever() -> None:
        while True:
            pass

    assert apart(crash, 20.0) is None and apart(forever, 0.2) is None


def test_survivors_that_are_listed_as_equivalent_do_not_count(monkeypatch):
    """The second of its kind in the function is listed, whether or not the first was tried."""
    (tree,) = [node for name, node in functions_of("evaluate/compare") if name == "holm"]
    first, second = [one for one, _ in mutants_of(tree, "holm") if one.what == "1.0 → 2.0"][:2]
    key = ("evaluate/compare", "holm", "1.0 → 2.0", 1)
    monkeypatch.setattr("tests.mutation.__main__.equivalents", lambda: {key: "why"})
    trials = [Trial("evaluate/compare", one, "survived") for one in (second, first)]
    assert [one.fate for one in with_equivalents(trials)] == ["equivalent", "survived"]
    killed = Trial("evaluate/compare", second, "killed", "a test")
    assert with_equivalents([killed]) == [killed]


def test_what_is_listed_as_equivalent_is_there():
    listed = equivalents()
    for (file, name, what, nth), why in listed.items():
        tree = dict(functions_of(file))[name]
        assert sum(mutant.what == what for mutant, _ in mutants_of(tree, name)) > nth, (file, name, what)
        assert len(why) > 10


def test_the_page_of_mutants_has_the_table_of_its_raw_numbers():
    page = (ROOT / "benchmarks" / "mutants.md").read_text(encoding="utf-8")
    (name,) = set(re.findall(r"results/mutants-[\d-]+\.json", page))
    assert table_of(json.loads((ROOT / "benchmarks" / name).read_text(encoding="utf-8"))) in page


def test_trials_of_several_files_are_counted_once_and_those_of_other_code_not_at_all(tmp_path):
    (tree,) = [node for name, node in functions_of("evaluate/compare") if name == "holm"]
    first, second = [one for one, _ in mutants_of(tree, "holm")][:2]
    gone, moved = replace(first, function="gone"), replace(first, line=first.line + 1000)
    for name, trials in (
        ("a", [(moved, "survived"), (gone, "killed")]),
        ("b", [(first, "killed"), (second, "not run")]),
    ):
        cells = [["evaluate/compare", *astuple(one), fate, ""] for one, fate in trials]
        (tmp_path / name).write_text(json.dumps({"trials": cells}))
    found = merged([tmp_path / "a", tmp_path / "b"])
    assert found["tried"] == 2 and found["share_killed"] == 0.5
    (row,) = [line for line in table_of(found).splitlines() if "evaluate/compare" in line]
    assert row.endswith("| 2 | 1 | 1 | 0 | 50.0% |")


def test_the_files_and_tests_that_decide_are_there():
    for file, tests in DECIDING.items():
        assert functions_of(file) and all((ROOT / test).is_file() for test in tests)
