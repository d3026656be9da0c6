"""The paper's figures: one panel a score, one dot a model, with its 95 % interval; small dots are single seeds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from foretell.evaluate.metrics import score_of
from foretell.report.canvas import COLOURS, FAINT, INK, blank_figure, save_figure
from foretell.reproduce.comparison import Comparison, title_of


def draw_scores(found: Comparison, columns: Sequence[str], title: str, path: Path) -> None:
    figure, axes = blank_figure(1, (3.1 * len(columns), 1.2 + 0.42 * len(found.models)), columns=len(columns))
    for axis, column in zip(axes, columns, strict=True):
        axis.grid(visible=False)
        axis.grid(axis="x", color="#eeeeee", linewidth=0.8)
        for place, name in enumerate(found.models):
            score = found.scores.get((name, found.key(name, column)))
            if score is None:
                continue
            scale = 100.0 if score.kind == "share" else 1.0
            colour = COLOURS[place % len(COLOURS)]
            low, high = scale * score.estimate.low, scale * score.estimate.high
            axis.plot([low, high], [place, place], color=colour, linewidth=2.0, solid_capstyle="round")
            axis.plot([scale * score.estimate.value], [place], "o", color=colour, markersize=7)
            if len(score.values) > 1:
                seeds = [scale * value for value in score.values]
                axis.plot(seeds, [place + 0.22] * len(seeds), "o", color=FAINT, markersize=2.5)
        axis.set_yticks(range(len(found.models)), found.models if axis is axes[0] else [])
        axis.set_ylim(len(found.models) - 0.5, -0.5)
        known = score_of(column)
        better = "higher" if known is not None and known.higher_is_better else "lower"
        axis.set_xlabel(f"{title_of(column)} ({better} is better)", fontsize=9, color=INK)
    figure.suptitle(title, fontsize=10, color=INK)
    save_figure(figure, path)
