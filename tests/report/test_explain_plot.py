"""The picture of an explanation: rows, dots, the formats it is saved in, and what leaves nothing to draw."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretell.errors import ForetellError
from foretell.evaluate.explain import Explanation, explain
from foretell.report.explanation import LARGEST_DOT, SMALLEST_SHOWN, explain_plot, heads_by_effect
from foretell.report.plots import save_figure
from tests.evaluate.test_explain import DATA, MODEL, TEXT, asked

pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def found() -> Explanation:
    return explain(MODEL, DATA[0], 5.5, "talk(ann,bob)")


@pytest.mark.parametrize(("suffix", "head"), [(".png", b"\x89PNG\r\n"), (".svg", b"<?xml")])
def test_it_is_saved_in_the_format_that_its_name_says(suffix: str, head: bytes, found: Explanation, tmp_path: Path):
    save_figure(explain_plot(found, time_unit="minutes"), tmp_path / f"why{suffix}")
    assert (tmp_path / f"why{suffix}").read_bytes().startswith(head)


def test_every_head_has_a_row_and_every_addition_a_dot_as_large_as_its_weight(found: Explanation):
    from matplotlib.collections import PathCollection

    (axes,) = explain_plot(found).axes
    labels = [text.get_text() for text in axes.get_yticklabels()]
    assert len(labels) == 6 and labels[-1] == "all of these"
    assert {label.split("\n")[1] for label in labels[:-1]} == {"rule5[X=ann]", "rule5[X=bob]", "rule6", "rule7"}
    dots = [one for one in axes.collections if isinstance(one, PathCollection) and len(one.get_offsets())]  # pyright: ignore[reportArgumentType]
    sizes = sorted(float(size) for dot in dots for size in dot.get_sizes())
    weights = [
        past.weight for _, head in heads_by_effect(found) for layer in head.attention for past in layer.additions
    ]
    shown = sorted(LARGEST_DOT * weight for weight in weights if weight >= SMALLEST_SHOWN)
    assert sizes == pytest.approx(shown)


def test_what_was_last_is_on_the_right(found: Explanation):
    (axes,) = explain_plot(found, time_unit="minutes").axes
    left, right = axes.get_xlim()
    assert left > 4.5 and right < 0.5  # the oldest addition, and the latest
    assert axes.get_xlabel() == "how long before 5.5, in minutes"


def test_without_a_past_there_is_nothing_to_draw():
    model, data = asked(TEXT + "talk(ann,bob) :- room.\n")
    with pytest.raises(ForetellError, match="nothing to draw: no fact in the proofs of `talk"):
        explain_plot(explain(model, data[0], 0.0))
