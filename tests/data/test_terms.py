"""Event names have one spelling."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.terms import NameProblem, build, normalise


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("join(eve, sales)", "join(eve,sales)"),
        ("  join ( eve ,sales ) ", "join(eve,sales)"),
        ("pass(purple1,purple2)", "pass(purple1,purple2)"),
        ("watch(3, -4)", "watch(3,-4)"),
        ("city('New York')", "city('New York')"),
        ('city("New York")', "city('New York')"),
        ("city('paris')", "city(paris)"),
        ("city('3')", "city('3')"),
        (r"says('it\'s')", r"says('it\'s')"),
        ("says('it''s')", r"says('it\'s')"),
        ("'Aspirin (oral)'", "'Aspirin (oral)'"),
        ("Nice Question", "Nice Question"),
        ("  Nice Question ", "Nice Question"),
        ("raining", "raining"),
        ("größe(über)", "größe(über)"),
    ],
)
def test_spaces_and_needless_quotes_mean_nothing_in_a_term(written: str, canonical: str) -> None:
    assert normalise(written) == canonical
    assert normalise(canonical) == canonical


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ("", "empty"),
        ("   ", "empty"),
        ("f(g(x))", "nested"),
        ("f(a,g(x))", "nested"),
        ("f(a", "closing"),
        ("f a)", "after the functor"),
        ("f()", "not a term"),
        ("f(a,)", "not a term"),
        ("f(a)(b)", "not a term"),
        ("f(a) b", "not a term"),
        ("f(a b)", "not a term"),
        ("(a)", "start with a functor"),
        (")", "start with a functor"),
        ("f(X)", "lower-case"),
        ("Aspirin (oral)", "lower-case"),
        ("f(1.5)", "unexpected"),
        ("f('a)", "unexpected"),
        ("f(\ud800)", "Unicode"),
        ("\udfff", "Unicode"),
    ],
)
def test_a_name_with_parentheses_that_is_no_flat_term_is_refused_with_the_reason(written: str, reason: str) -> None:
    with pytest.raises(NameProblem, match=reason):
        normalise(written)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=12))
def test_normalising_twice_changes_nothing_more(text: str) -> None:
    try:
        once = normalise(text)
    except NameProblem:
        return
    assert normalise(once) == once


@given(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8),
    st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), min_size=1, max_size=3),
)
def test_any_cells_of_a_table_make_a_term_that_reads_back_as_itself(functor: str, arguments: list[str]) -> None:
    term = build(functor, arguments)
    assert normalise(term) == term
