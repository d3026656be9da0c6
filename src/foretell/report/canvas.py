"""The style of all pictures: empty axes, colours, and how a figure becomes a file. Matplotlib is imported only here, when it is needed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretell.errors import ForetellError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".svg", ".pdf")
COLOURS = ("#3b6fb6", "#c8553d", "#4f9d69", "#8a5aa8", "#d39a2c", "#4aa3a2")
INK, FAINT = "#222222", "#9a9a9a"


def blank_figure(
    rows: int, size: tuple[float, float], heights: tuple[float, ...] | None = None, columns: int = 1
) -> tuple[Figure, list[Any]]:
    """Empty axes, one above the other (or row by row), in the style of all pictures."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ForetellError("drawing needs matplotlib: pip install 'foretell[report]'") from None
    figure = Figure(figsize=size, layout="constrained")
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
    from foretell.data.files import replacing

    path = Path(path)
    check_suffix(path)
    with replacing(path) as temporary:
        figure.savefig(temporary, format=path.suffix[1:], dpi=150)


def per_unit(time_unit: str) -> str:
    """What an intensity is per: `hour` of `hours`."""
    if not time_unit or time_unit == "none":
        return "unit of time"
    return time_unit.split(" (")[0].removesuffix("s") if len(time_unit) < 30 else "unit of time"


def time_label(time_unit: str) -> str:
    return f"time ({time_unit})" if time_unit and time_unit != "none" else "time"
