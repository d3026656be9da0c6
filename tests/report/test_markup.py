"""Elements and numbers of a page: nothing that is text can become anything else."""

from __future__ import annotations

import json

import numpy as np
import pytest

from foretell.report.markup import Markup, element, embedded_json, joined, plain, precise, shown_text

NASTY = "</script><script>alert(1)</script> & \" ' <!-- \u2028"


def test_text_is_escaped_in_children_and_attributes_and_elements_are_not_escaped_twice():
    inner = element("b", NASTY, title=NASTY)
    assert "<script" not in inner and inner.count('"') == 2
    assert element("p", inner, "a < b") == f"<p>{inner}a &lt; b</p>"


def test_what_was_an_element_is_text_again_once_it_was_changed():
    changed = element("i", "x").replace("x", "<b>")
    assert not isinstance(changed, Markup) and joined(changed) == "&lt;i&gt;&lt;b&gt;&lt;/i&gt;"


def test_attributes_are_spelled_as_html_has_them():
    assert element("input", type="range", aria_label="x", hidden=True, disabled=False, id=None) == (
        '<input type="range" aria-label="x" hidden>'
    )
    assert element("p", class_="n") == '<p class="n"></p>'


def test_embedded_json_cannot_end_its_element_and_reads_back_the_same_but_for_what_is_not_shown():
    value = {NASTY: [NASTY, {"a": None}], "n": [1, 2.5, True]}
    text = embedded_json(value)
    assert not any(sign in text for sign in "<>&\u2028")
    assert json.loads(text) == json.loads(json.dumps(value).replace("\\u2028", "\N{REPLACEMENT CHARACTER}"))


def test_text_keeps_its_lines_and_letters_and_shows_signs_for_what_a_page_would_not():
    assert shown_text("naïve Ωμέγα 日本語 🙂\n\tx") == "naïve Ωμέγα 日本語 🙂\n\tx"
    assert shown_text("\x1b[0m\u202ea\u2066\x85") == "␛[0m�a��"
    assert shown_text(f"a {'b' * 300} c") == f"a {'b' * 199}… c"


def test_numbers_are_short_but_times_are_not_and_what_is_no_number_is_null():
    found = plain({"a": np.array([1.23456789, np.nan, np.inf]), "b": (2.0, np.int64(3)), "c": precise([1234567.25])})
    assert found == {"a": [1.2346, None, None], "b": [2, 3], "c": [1234567.25]}


@pytest.mark.parametrize("value", [True, "text", None, 7])
def test_other_values_stay_as_they_are(value: object):
    assert plain(value) is value
