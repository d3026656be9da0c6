"""The common style of all plots: empty axes, colours, and writing a figure to a file. Matplotlib is imported here, when needed."""

from __future__ import annotations

from datetime import datetime
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from foretell.data import Clock
from foretell.data.timestamps import find_zone
from foretell.errors import ForetellError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".svg", ".pdf")
COLOURS = ("#3b6fb6", "#c8553d", "#4f9d69", "#8a5aa8", "#d39a2c", "#4aa3a2")
INK, FAINT = "#222222", "#9a9a9a"
NOTEBOOK_DPI = 80


def blank_figure(
    rows: int, size: tuple[float, float], heights: tuple[float, ...] | None = None, columns: int = 1
) -> tuple[Figure, list[Any]]:
    """Return a figure with empty axes, one above the other (or row by row), in the style of all plots."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ForetellError("drawing needs matplotlib: pip install 'foretell[report]'") from None

    class ShownPicture(Figure):
        """A figure that displays itself in a notebook, even if pyplot was never imported."""

        def _repr_png_(self) -> bytes:
            found = BytesIO()
            self.savefig(found, format="png", dpi=NOTEBOOK_DPI)
            return found.getvalue()

    figure = ShownPicture(figsize=size, layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, height_ratios=heights).ravel()
    for one in axes:
        one.spines[["top", "right"]].set_visible(False)
        one.tick_params(colors=INK, labelsize=9)
        one.grid(axis="y", color="#eeeeee", linewidth=0.8)
        one.set_axisbelow(True)
    return figure, list(axes)


def check_suffix(path: Path) -> None:
    if path.suffix not in SUFFIXES:
        raise ForetellError(f"{path}: expected a name that ends in {', '.join(SUFFIXES)}")


def save_figure(figure: Figure, path: Path | str) -> None:
    """Write a figure to a file, which appears only when it is complete.

    Args:
        figure: the figure.
        path: the file; its suffix gives the format: `.png`, `.svg` or `.pdf`.

    Raises:
        ForetellError: the suffix is a different one.

    Example:
        >>> records = [{"epoch": 1, "train": -2.0, "dev": -2.1}, {"epoch": 2, "train": -1.8, "dev": -2.0}]
        >>> ft.plot.save_figure(ft.plot.learning_curve(records), "curve.png")
    """
    from foretell.data.files import replacing

    path = Path(path)
    check_suffix(path)
    with replacing(path) as temporary:
        figure.savefig(temporary, format=path.suffix[1:], dpi=150)


def per_unit(time_unit: str) -> str:
    """Return the singular of a unit of time: `hour` for `hours`."""
    if not time_unit or time_unit == "none":
        return "unit of time"
    return time_unit.split(" (")[0].removesuffix("s") if len(time_unit) < 30 else "unit of time"


def date_axis(axes: Any, clock: Clock, began: int | None, start: float, end: float, zone_shown: bool = True) -> bool:
    """Set ticks at round dates on an axis with the times of a sequence that `began` then. Returns False if it has no dates."""
    dates = [clock.iso(one, began) for one in (start, end)]
    if began is None or clock.seconds_per_unit is None or None in dates:
        return False
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num

    zone = find_zone(clock.zone)
    first, last = (datetime.fromisoformat(one or "").astimezone(zone) for one in dates)
    locator = AutoDateLocator(tz=zone, minticks=4, maxticks=9)
    ticks = [float(tick) for tick in locator.tick_values(first, last)]  # pyright: ignore[reportArgumentType]
    labels = ConciseDateFormatter(locator, tz=zone).format_ticks(ticks)
    days = clock.seconds_per_unit / 86400.0
    places = [start + (tick - float(date2num(first))) / days for tick in ticks]
    inside = [(place, text) for place, text in zip(places, labels, strict=True) if start <= place <= end]
    axes.set_xticks([place for place, _ in inside], [text for _, text in inside])
    if zone_shown:
        axes.set_xlabel(f"{first:%Y-%m-%d} to {last:%Y-%m-%d}, {clock.zone}")
    return True


BURSTY = 30.0  # the axis is logarithmic if the highest intensities are this many times the median


def is_bursty(total: np.ndarray) -> bool:
    """Whether an intensity varies over so many orders of magnitude that a linear axis would only show its peaks."""
    positive = total[total > 0.0]
    return bool(len(positive)) and float(np.quantile(positive, 0.99)) > BURSTY * float(np.median(positive))


def set_scale(axes: Any, total: np.ndarray) -> None:
    """Set the scale of the y axis: linear from 0, or logarithmic if the intensity is bursty."""
    if not is_bursty(total):
        axes.set_ylim(bottom=0.0)
        return
    axes.set_yscale("log")
    axes.set_ylim(bottom=max(float(np.quantile(total[total > 0.0], 0.02)) / 1.5, float(total.max()) * 1e-8))


def time_label(time_unit: str) -> str:
    return f"time ({time_unit})" if time_unit and time_unit != "none" else "time"
