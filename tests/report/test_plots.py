"""Pictures: what they show, the formats they are saved in, and the cases that leave little to draw."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from foretell.errors import ForetellError
from foretell.models.classical.hawkes import Hawkes
from foretell.report.plots import SHOWN_TYPES, intensity_plot, learning_curve, save_figure
from foretell.train.fit import fit
from tests.samples import event_data, random_data, randomise

pytest.importorskip("matplotlib")
if TYPE_CHECKING:
    from matplotlib.figure import Figure

DATA = event_data([([1.0, 2.0, 2.0, 5.0], [0, 1, 0, 1]), ([], []), ([4.0], [2])])
RECORDS = [{"epoch": n, "train": -3.0 + 0.1 * n, "dev": -3.0 + 0.2 * n - 0.03 * n * n} for n in range(1, 8)]


def hawkes(data=DATA) -> Hawkes:
    model = randomise(Hawkes(data.vocabulary), seed=1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.abs_()
    return model


def drawn(figure: Figure) -> Any:
    """The two parts of an intensity plot; matplotlib's own annotations are too wide to follow."""
    return figure.axes


def labels(axes: Any) -> list[str]:
    return [text.get_text() for text in axes.get_legend().get_texts()]


@pytest.mark.parametrize(
    ("suffix", "head"), [(".png", b"\x89PNG\r\n"), (".svg", b"<?xml"), (".pdf", b"%PDF-")], ids=["png", "svg", "pdf"]
)
def test_pictures_are_saved_in_the_format_that_their_name_says(suffix: str, head: bytes, tmp_path: Path):
    for name, figure in (("curve", learning_curve(RECORDS)), ("intensity", intensity_plot(hawkes(), DATA))):
        path = tmp_path / "pictures" / f"{name}{suffix}"
        save_figure(figure, path)
        assert path.read_bytes().startswith(head) and path.stat().st_size > 3000
    assert [path.name for path in sorted((tmp_path / "pictures").iterdir())] == [f"curve{suffix}", f"intensity{suffix}"]


@pytest.mark.parametrize("name", ["picture.gif", "picture", "picture.PNG.txt"])
def test_another_format_is_refused_and_nothing_is_written(name: str, tmp_path: Path):
    with pytest.raises(ForetellError, match=r"expected a name that ends in \.png, \.svg, \.pdf"):
        save_figure(learning_curve(RECORDS), tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_a_learning_curve_shows_train_dev_the_best_epoch_and_the_floors():
    (axes,) = drawn(learning_curve(RECORDS, {"Poisson": -3.2, "Hawkes": -2.9}))
    assert labels(axes) == ["train", "dev", "Poisson on dev", "Hawkes on dev"]
    best = max(RECORDS, key=lambda record: record["dev"])
    marked = [line for line in axes.lines if line.get_marker() == "o"]
    assert marked[0].get_xydata().tolist() == [[best["epoch"], best["dev"]]]


def test_a_learning_curve_without_dev_scores_is_drawn():
    for records in (
        [{"epoch": 1, "train": -1.0, "dev": None}],
        [{"epoch": 1, "train": -1.0}, {"epoch": 2, "train": -0.5}],
    ):
        (axes,) = drawn(learning_curve(records))
        assert labels(axes) == ["train"]


def test_an_intensity_plot_shows_the_total_the_active_types_and_every_event():
    upper, lower = drawn(intensity_plot(hawkes(), DATA, 0, time_unit="hours"))
    assert labels(upper) == ["all types", "a", "b"]
    assert sum(len(lines.get_segments()) for lines in lower.collections) == 4
    assert "sequence 0" in upper.get_title("left") and lower.get_xlabel() == "time (hours)"
    assert upper.get_ylabel() == "events per hour"


def test_an_intensity_plot_shows_the_jump_at_an_event():
    upper, _ = drawn(intensity_plot(hawkes(), DATA, 2))
    line = upper.lines[0].get_xydata()
    before = line[line[:, 0] <= 4.0][-1, 1]
    after = line[line[:, 0] > 4.0][0, 1]
    assert after > before * 1.001 and line[line[:, 0] > 4.0][0, 0] - 4.0 < 1e-9


def test_a_sequence_without_events_is_drawn(tmp_path: Path):
    figure = intensity_plot(hawkes(), DATA, 1)
    save_figure(figure, tmp_path / "empty.png")
    upper, lower = drawn(figure)
    assert len(labels(upper)) == 2 and upper.get_xlim() == (0.0, 10.0)
    assert sum(len(lines.get_segments()) for lines in lower.collections) == 0


def test_bursty_intensities_have_a_logarithmic_axis():
    data = event_data([([5.0 + 1e-4 * n for n in range(40)], [0] * 40)])
    model = Hawkes(data.vocabulary)
    figure = intensity_plot(fit(model, data).model, data)
    assert drawn(figure)[0].get_yscale() == "log" and drawn(intensity_plot(hawkes(), DATA))[0].get_yscale() == "linear"


def test_a_part_of_a_sequence_may_be_drawn():
    upper, lower = drawn(intensity_plot(hawkes(), DATA, 0, start=1.5, end=3.0))
    assert upper.get_xlim() == lower.get_xlim() == (1.5, 3.0)
    assert sum(len(lines.get_segments()) for lines in lower.collections) == 2


def test_with_many_types_only_the_most_active_have_a_line_but_all_events_are_drawn():
    names = random_data(1, [200], types=6)
    wide = type(names)(
        [type(names[0])(names[0].times, np.arange(200, dtype=np.int32) % 9, 10.0, "s")],
        type(names.vocabulary)(tuple("abcdefghi")),
    )
    upper, lower = drawn(intensity_plot(hawkes(wide), wide))
    assert len(labels(upper)) == 1 + SHOWN_TYPES
    assert sum(len(lines.get_segments()) for lines in lower.collections) == 200


def test_nothing_to_draw_is_an_error():
    with pytest.raises(ForetellError, match="nothing to draw between 5 and 5"):
        intensity_plot(hawkes(), DATA, 0, start=5.0, end=5.0)


def test_without_matplotlib_drawing_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    importing = builtins.__import__

    def without(name: str, *args: object, **kwargs: object):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return importing(name, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ForetellError, match=r"pip install 'foretell\[report\]'"):
        learning_curve(RECORDS)


def test_drawing_leaves_the_global_state_of_matplotlib_alone():
    from matplotlib import pyplot, rcParams

    before = dict(rcParams)
    intensity_plot(hawkes(), DATA)
    assert pyplot.get_fignums() == [] and dict(rcParams) == before


def test_a_figure_shows_itself_in_a_notebook():
    assert getattr(learning_curve(RECORDS), "_repr_png_")().startswith(b"\x89PNG")  # noqa: B009
