"""Constants of programs, tables and data have one spelling, and the text behind it can be had back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell import terms
from tests.lang.reading import statements


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=8))
def test_the_text_of_a_constant_can_be_had_back(text: str):
    assert terms.plain(terms.constant(text)) == text


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"), max_size=8).map(terms.constant))
def test_a_program_reads_a_constant_as_it_is_spelled(spelled: str):
    (found,) = statements(f"a({spelled}).")
    assert str(found.head.args[0]) == spelled  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0", True), ("-12", True), ("007", True), ("٣", False), ("3a", False), ("", False), ("-", False)],
)
def test_integers_are_written_with_ascii_digits(text: str, expected: bool):
    assert terms.is_integer(text) is expected
