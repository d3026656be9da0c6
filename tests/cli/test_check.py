"""`foretell check`: messages and exit codes, the summary, the stages, the picture; and no torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.cli.invoking import fine, foretell

FORUM = """
:- event(message, 16). :- exogenous(create). :- embed(empl, 8).
empl(eve). content(joke).
message(P, T, C) :- empl(P), forum(T), content(C), not banned(P).
forum(T) <- create(T).
forum(T) <- message(_, T, C), content(C) :: post(C).
!forum(T) <- create(T).
banned(adam).
"""


@pytest.fixture
def forum(tmp_path: Path) -> Path:
    path = tmp_path / "forum.ndtt"
    path.write_text(FORUM)
    return path


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    path = tmp_path / "wrong.ndtt"
    path.write_text("a(X) :- b(Y).\nc :- d.\nb(x).\n")
    return path


def test_mistakes_go_to_stderr_as_they_are_with_exit_code_1(wrong: Path):
    outcome = foretell("check", wrong)
    assert (outcome.code, outcome.out) == (1, "")
    lines = outcome.err.splitlines()
    assert lines[0] == f"{wrong}:1:3: error[unbound-head]: head variable `X` is not bound by the body"
    assert lines[1:3] == ["  1 | a(X) :- b(Y).", "    |   ^"]
    assert any(line.startswith(f"{wrong}:2:6: error[never-true]") for line in lines)
    assert not any(line.startswith("error:") for line in lines)


def test_mistakes_as_json_are_one_object_on_stdout_with_exit_code_1(wrong: Path):
    outcome = foretell("check", wrong, "--json")
    assert outcome.code == 1 and outcome.err == ""
    assert outcome.json["ok"] is False
    first = outcome.json["errors"][0]
    assert (first["code"], first["line"], first["column"], first["end_column"]) == ("unbound-head", 1, 3, 4)
    assert first["file"] == str(wrong) and first["hint"]
    assert [one["code"] for one in outcome.json["warnings"]] == ["used-once"]


def test_a_missing_program_is_an_error_in_both_forms(tmp_path: Path):
    outcome = foretell("check", tmp_path / "no.ndtt")
    assert outcome.code == 1 and "error[missing-file]" in outcome.err
    outcome = foretell("check", tmp_path / "no.ndtt", "--json")
    assert outcome.code == 1 and outcome.json["errors"][0]["code"] == "missing-file"


def test_the_summary_says_what_the_program_is(forum: Path):
    text = fine("check", forum, "--dim", 4, "--layers", 1).out
    assert "forum.ndtt is fine: 3 facts, 4 rules (1 deduce, 2 add, 1 remove)" in text
    assert "exogenous event" in text and "stratum 1: message" in text and "for each C" in text
    # message: 16 × (1 + 8 + 4 + 4) and an exponent
    assert "273" in text


def test_the_summary_has_the_path_as_it_was_given_and_no_trailing_blanks(forum: Path):
    text = fine("check", forum).out
    assert text.startswith(f"{forum} is fine: ")
    assert [line for line in text.splitlines() if line != line.rstrip()] == []


def test_tables_are_listed_with_file_rows_and_header(tmp_path: Path):
    (tmp_path / "staff.csv").write_text("kim,ward1\nlee,ward2\nmo,ward3\n")
    (tmp_path / "p.ndtt").write_text(':- table(staff, "staff.csv").')
    lines = fine("check", tmp_path / "p.ndtt").out.splitlines()
    at = next(place for place, line in enumerate(lines) if line.startswith("table"))
    assert lines[at].split() == ["table", "file", "rows", "header"]
    assert lines[at + 1].split() == ["staff/2", "staff.csv", "2", "kim,", "ward1"]
    (table,) = fine("check", tmp_path / "p.ndtt", "--json").json["tables"]
    assert table == {"functor": "staff", "arity": 2, "file": "staff.csv", "rows": 2, "header": ["kim", "ward1"]}


def test_the_same_as_json(forum: Path):
    found = fine("check", forum, "--json", "--dim", 4, "--layers", 1, "--time-dim", 2).json
    assert found["ok"] is True and found["facts"] == 3 and found["rules"] == {"deduce": 1, "add": 2, "remove": 1}
    by_name = {one["functor"]: one for one in found["functors"]}
    assert (by_name["message"]["kind"], by_name["message"]["dim"], by_name["forum"]["dim"]) == ("event", 16, 4)
    assert by_name["create"]["kind"] == "exogenous"
    assert found["strata"][1] == ["message"]
    rules = {one["rule"]: one for one in found["parameters"]["rules"]}
    assert rules["rule1"]["matrices"] == {"W": [16, 17]} and rules["rule1"]["parameters"] == 273
    assert rules["rule2"]["matrices"] == {"V": [4, 7], "K": [4, 7], "Q": [4, 7]}
    assert rules["rule3"]["per_value_of"] == ["C"]
    assert found["parameters"]["total"] == 8 + 4 + 273 + 84 + (4 + 4) * (1 + 2 + 16 + 4) + 4 * 7 + 4 + 18
    assert [one["code"] for one in found["warnings"]] == []


def test_warnings_go_to_stderr_and_the_program_is_fine(tmp_path: Path):
    path = tmp_path / "p.ndtt"
    path.write_text("b(x, y). a(X) :- b(X, Y).")
    outcome = fine("check", path)
    assert "warning[used-once]" in outcome.err and "is fine" in outcome.out


def test_every_stage_can_be_shown(forum: Path):
    assert (
        "rule1  message(P, T, C) :- empl(P), forum(T), content(C), not banned(P)."
        in fine("check", forum, "--show", "rules").out
    )
    tree = fine("check", forum, "--show", "ast").out
    assert "EventDeclaration functor=message dim=16" in tree and "Not" in tree
    assert "  :-   empl, forum, content, not banned  [rule1]" in fine("check", forum, "--show", "graph").out
    assert fine("check", forum, "--show", "ast", "--json").json["ast"][0]["node"] == "EventDeclaration"
    assert fine("check", forum, "--show", "graph", "--json").json["graph"]["predicates"]
    listing = fine("check", forum, "--show", "rules", "--json").json["listing"]
    assert listing[3] == {"rule": "rule2", "text": "forum(T) <- create(T)."} and len(listing) == 7
    assert not {"ast", "graph", "listing"} & fine("check", forum, "--json").json.keys()


def test_the_picture_is_an_svg_file(forum: Path, tmp_path: Path):
    out = tmp_path / "new" / "forum.svg"
    assert str(out) in fine("check", forum, "--plot", out).out
    assert ElementTree.parse(out).getroot().tag.endswith("svg")
    outcome = foretell("check", forum, "--plot", tmp_path / "forum.png")
    assert outcome.code == 1 and "SVG" in outcome.err and not (tmp_path / "forum.png").exists()


def test_undeclared_events_can_be_exogenous(tmp_path: Path):
    path = tmp_path / "p.ndtt"
    path.write_text("a(X) <- e(X).")
    assert foretell("check", path).code == 1
    found = fine("check", path, "--undeclared", "exogenous", "--json").json
    assert {one["functor"]: one["kind"] for one in found["functors"]}["e"] == "exogenous"


def test_names_with_brackets_are_no_markup(tmp_path: Path):
    path = tmp_path / "p.ndtt"
    path.write_text("'[bold]x[/nope]'(a).")
    assert "'[bold]x[/nope]'/1" in fine("check", path).out


def test_checking_a_program_imports_neither_torch_nor_pyarrow(forum: Path):
    code = (
        "import sys; from foretell.cli.main import run; sys.argv = ['foretell', 'check', sys.argv[1], '--json']\n"
        "try: run()\n"
        "except SystemExit as stop: assert not stop.code\n"
        "heavy = {'torch', 'pyarrow'} & sys.modules.keys()\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(forum)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_sarif_names_every_mistake_with_its_place_in_utf16(tmp_path: Path):
    path = tmp_path / "wrong one.ndtt"
    path.write_text("a('\U0001f600', X) :- b(Y).\nb(x).\n", encoding="utf-8")
    outcome = foretell("check", path, "--sarif")
    assert outcome.code == 1 and outcome.err == ""
    log = outcome.json
    assert log["version"] == "2.1.0" and log["$schema"].endswith("sarif-schema-2.1.0.json")
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    first = run["results"][0]
    assert first["ruleId"] == rules[first["ruleIndex"]]["id"] == "unbound-head" and first["level"] == "error"
    place = first["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == path.as_uri()
    assert place["region"] == {"startLine": 1, "startColumn": 9, "endLine": 1, "endColumn": 10}
    assert [one["level"] for one in run["results"][1:]] == ["warning"]


def test_sarif_of_a_fine_and_of_a_missing_program(forum: Path, tmp_path: Path):
    assert fine("check", forum, "--sarif").json["runs"][0]["results"] == []
    missing = foretell("check", tmp_path / "no.ndtt", "--sarif")
    (result,) = missing.json["runs"][0]["results"]
    assert missing.code == 1 and "region" not in result["locations"][0]["physicalLocation"]
    assert foretell("check", forum, "--sarif", "--json").code == 2
