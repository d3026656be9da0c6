"""The formatter: meaning, comments and their order stay, a second time changes nothing, and lines look as they should."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.lang.diagnostics import ProgramError
from foretell.lang.formatter import WIDTH, format_program
from foretell.lang.load import parse
from foretell.lang.source import Source
from foretell.lang.syntax import pretty
from foretell.lang.tokens import tokenize
from tests.lang.test_roundtrip import declaration, rules

ROOT = Path(__file__).parents[2]
PROGRAMS = sorted([*(ROOT / "programs").glob("*.ndtt"), *(ROOT / "src/foretell/programs").glob("*.ndtt")])


def laid_out(text: str) -> str:
    return format_program(Source("p.ndtt", text))


def comments(text: str) -> list[str]:
    """What stands between tokens and is no space."""
    source, last, found = Source("p.ndtt", text), 0, []
    for token in [*tokenize(source), None]:
        gap = text[last : token.start if token else len(text)]
        found += [one.strip() for one in re.findall("%[^\n]*", gap)]
        last = token.end if token else last
    return found


fillers = st.lists(
    st.sampled_from([" ", "\n", "\n\n", "\n\n\n", "\t", "  % a, (b). \n", "%x\n", "\n  %% y :- z\n", "\r\n"]),
    max_size=3,
)


@settings(max_examples=300, deadline=None)
@given(st.lists(rules() | declaration, max_size=4), st.data())
def test_however_a_text_is_laid_out_its_meaning_and_comments_stay(statements, data):
    text = pretty(statements)
    pieces, last = [], 0
    for token in tokenize(Source("p.ndtt", text)):
        gap = text[last : token.start]
        filler = "".join(data.draw(fillers))
        # a full stop may not come to stand inside a number or a path, and a quote not beside another
        pieces += [gap, filler if not gap or filler.strip(" \t") else gap, token.text]
        last = token.end
    made = "".join([*pieces, "".join(data.draw(fillers))])
    before = parse(Source("p.ndtt", made))
    if before.errors:  # layout has a say in one place: a declaration at the margin after a fact without its full stop
        return
    found = laid_out(made)
    assert parse(Source("p.ndtt", found)).file == before.file
    assert comments(found) == comments(made)
    assert laid_out(found) == found
    assert "\n\n\n" not in found and not re.search(r"[ \t]\n", found)


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_shipped_programs_are_laid_out(path: Path):
    text = path.read_text(encoding="utf-8")
    assert laid_out(text) == text


def test_short_statements_look_as_they_are_printed():
    text = "a(X,Y):-b(X),not c(Y),X!=Y::w(X) .\n!f(T)<-g(T).  :-embed( a,8 )."
    assert laid_out(text) == pretty(parse(Source("p.ndtt", text)).file)


def test_short_forms_counts_and_promises():
    text = "a( 1..3 ;-2 ).\nb(X) ,!c(X)<-d(X),count( e(X,_) )>=2,X< -1.\n:-never( a(X),X>3 )."
    assert laid_out(text) == (
        "a(1..3; -2).\nb(X), !c(X) <- d(X), count(e(X, _)) >= 2, X < -1.\n:- never(a(X), X > 3).\n"
    )


def test_a_duration_stands_behind_the_conditions_and_on_a_line_of_its_own_in_long_rules():
    assert laid_out("a( X )<-e(X)   for  1d12h::w.") == "a(X) <- e(X) for 1d12h :: w.\n"
    conditions = ", ".join(f"condition{number}(X)" for number in range(10))
    assert laid_out(f"a(X) <- e(X), {conditions} for 2.5 :: w.").splitlines()[-3:] == [
        "    condition9(X)",
        "    for 2.5",
        "    :: w.",
    ]


def test_long_rules_have_a_condition_per_line_and_long_declarations_an_argument():
    conditions = [f"condition{number}(Variable{number})" for number in range(6)]
    assert laid_out(f"head(Variable0) :- {', '.join(conditions)} :: name.") == (
        "head(Variable0) :-\n" + ",\n".join(f"    {one}" for one in conditions) + "\n    :: name.\n"
    )
    path = "x" * WIDTH
    assert laid_out(f':- table(a, "{path}").') == f':- table(\n    a,\n    "{path}"\n).\n'


def test_comments_beside_code_are_aligned_and_those_that_go_on_below_stay_there():
    text = "a. % one\nbb(x).% two\n      % goes on\n% apart\n\n\nc. % three\n"
    assert laid_out(text) == "a.      % one\nbb(x).  % two\n        % goes on\n% apart\n\nc.  % three\n"


def test_comments_inside_a_statement_put_its_conditions_on_lines():
    text = "a(X) :- % head\n  b(X),% first\n  % alone\n  c(X)."
    assert laid_out(text) == "a(X) :-    % head\n    b(X),  % first\n    % alone\n    c(X).\n"


def test_line_ends_of_the_file_are_kept():
    assert laid_out("a.\r\n\r\nb:-a.\r\n") == "a.\r\n\r\nb :- a.\r\n"


def test_an_empty_program_and_one_of_comments_alone():
    assert laid_out("") == ""
    assert laid_out("\n\n % only\n\n\n\n% this\n\n") == "% only\n\n% this\n"


def test_what_cannot_be_read_is_refused_with_every_mistake():
    with pytest.raises(ProgramError) as found:
        laid_out("a :- b,.\nc(.\n")
    assert len(found.value.diagnostics) == 2
