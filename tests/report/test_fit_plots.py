"""`ft.plot.qq`, `calibration`, `confusion` and `intensity`: what they show, of models and of scores."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import foretell as ft
from foretell.errors import ForetellError
from foretell.evaluate.likelihood import score_events
from foretell.report.sections.fit import confusion_of
from tests.report.test_plots import hawkes
from tests.samples import event_data, random_data

pytest.importorskip("matplotlib")
if TYPE_CHECKING:
    from matplotlib.figure import Figure

DATA = random_data(0, [30, 20])
EMPTY = event_data([([], [])])


def axes(figure: Figure) -> list[Any]:
    return list(figure.axes)


@pytest.mark.parametrize("name", ["qq", "calibration", "confusion", "intensity"])
def test_pictures_are_saved_as_png_and_svg(name: str, tmp_path: Path):
    figure = getattr(ft.plot, name)(hawkes(DATA), DATA)
    for suffix, head in ((".png", b"\x89PNG\r\n"), (".svg", b"<?xml")):
        ft.plot.save_figure(figure, tmp_path / f"{name}{suffix}")
        assert (tmp_path / f"{name}{suffix}").read_bytes().startswith(head)


def test_a_qq_plot_has_a_dot_for_each_quantile_of_each_model_and_says_how_far_off_it_is():
    model = hawkes(DATA)
    left, right = axes(ft.plot.qq({"one": model, "two": score_events(model, DATA)}, DATA))
    dots = [line.get_xydata() for line in left.lines if line.get_marker() == "o"]
    assert [len(one) for one in dots] == [50, 50] and np.array_equal(*dots)
    words = [text.get_text() for text in left.get_legend().get_texts()]
    assert words[1].startswith("one: KS 0.") and "band 0.192" in words[1] and len(right.lines) == 3


def test_a_calibration_plot_has_all_levels_and_the_guesses():
    model = hawkes(DATA)
    left, right = axes(ft.plot.calibration(model, DATA))
    levels = max((line.get_xdata() for line in left.lines), key=len)
    assert levels == pytest.approx(np.arange(1, 20) / 20.0)
    assert left.get_legend().get_texts()[0].get_text() == model.title and right.get_title("left").startswith(
        "Next type"
    )


def test_a_confusion_plot_shows_the_percentages_of_each_row():
    scores = score_events(hawkes(DATA), DATA)
    (one,) = axes(ft.plot.confusion(scores, DATA))
    found = confusion_of(scores, DATA.vocabulary)
    shown = sorted(text.get_text() for text in one.texts)
    assert shown == sorted(f"{100 * share:.0f}" for share in found.shares[found.counts > 0])


def test_a_name_with_dollar_signs_is_drawn_as_it_is(tmp_path: Path):
    data = ft.EventData.from_names([["$\\frac{", "b", "$x$"]], [[1.0, 2.0, 3.0]], t_ends=[4.0])
    model = ft.Poisson(data.vocabulary)
    ft.fit(model, data)
    ft.plot.save_figure(ft.plot.confusion(model, data), tmp_path / "money.png")


def test_intensities_stand_above_the_predicted_waits_and_every_wait_has_a_dot():
    upper, lower, waits = axes(ft.plot.intensity(hawkes(DATA), DATA, 0, start=2.0, end=8.0, time_unit="hours"))
    inside = int(((DATA[0].times >= 2.0) & (DATA[0].times <= 8.0)).sum())
    assert sum(len(line.get_xdata()) for line in waits.lines) == inside
    assert upper.get_xlim() == lower.get_xlim() == waits.get_xlim() == (2.0, 8.0)
    assert waits.get_xlabel() == "time (hours)"


@pytest.mark.parametrize("name", ["qq", "calibration", "confusion"])
def test_without_scored_events_there_is_nothing_to_draw(name: str):
    with pytest.raises(ForetellError, match="no event was scored"):
        getattr(ft.plot, name)(hawkes(EMPTY), EMPTY)


def test_models_of_other_events_and_no_models_at_all_are_refused():
    with pytest.raises(ForetellError, match="its event types are not those of the model"):
        ft.plot.qq(hawkes(DATA), event_data([([1.0], [0])], types=2))
    with pytest.raises(ForetellError, match="no model to draw"):
        ft.plot.qq({}, DATA)
