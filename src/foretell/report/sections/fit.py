"""Are the predicted times right? Rescaled gaps against the unit exponential."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from foretell.report.entry import Entry
from foretell.report.markup import joined
from foretell.report.residual_curves import Fit, fit_of
from foretell.report.section import Section, chart, figure, remark, table


def fit_section(entries: Sequence[Entry]) -> Section:
    found = {entry.name: fit for entry in entries if (fit := fit_of(entry.events)) is not None}
    if not found:
        return Section(
            "fit", "Are the times right?", joined(remark("No event was scored, so there is no gap to look at."))
        )
    rows = [
        (
            name,
            f"{fit.test.residuals:,}",
            f"{fit.test.mean:.3f}",
            f"{fit.test.ks:.4f}",
            f"{fit.band:.4f}",
            _p(fit.test.p_value),
            _verdict(fit),
        )
        for name, fit in found.items()
    ]
    columns = ("run", "gaps", "mean (1 is right)", "KS distance", "95 % band", "p", "verdict")
    caption = (
        "Each gap between events is measured by the events that the model expected in it. If the model is right, "
        "these numbers are draws from the unit exponential distribution. QQ plot: their quantiles against its "
        "quantiles; on the diagonal they agree, and in the shaded Kolmogorov-Smirnov band the difference may be "
        "chance (95 %). Points below the diagonal: gaps were shorter than expected. Distance: the same, "
        "straightened. Above zero: more gaps were over by then than the model expected. The largest distance from "
        "zero is the KS distance."
    )
    charts = (
        chart(
            "qq",
            "QQ plot: quantiles of rescaled gaps against those of the unit exponential, with a band.",
            "QQ plot of rescaled gaps",
        ),
        chart(
            "surplus",
            "Lines: observed less expected share of gaps, with a band around zero.",
            "Distance from the diagonal",
        ),
    )
    runs = [{"name": name, **_curves(fit)} for name, fit in found.items()]
    body = joined(
        figure(*charts, caption=caption),
        table(columns, rows, label="Kolmogorov-Smirnov statistics", words=(0, 6)),
        remark(
            "The test takes times to be exact and residuals to be independent; with many events it finds the "
            "smallest misfit, so look at the size of the distance too." + _rounded(entries[0])
        ),
    )
    return Section("fit", "Are the times right?", body, {"qq": {"runs": runs}, "surplus": {"runs": runs}})


def _rounded(entry: Entry) -> str:
    """What the residuals look like where the clock is coarse."""
    report = entry.data.report
    if report is None or report.grid is None or report.grid_share < 0.9:
        return ""
    return (
        f" These times are on a grid of {report.grid:g} ({100 * report.grid_share:.0f} % of them): they are known no "
        "more precisely than that, and the shortest gaps cannot be told apart, which alone bends the curves at their "
        "left end."
    )


def _curves(fit: Fit) -> dict[str, Any]:
    return {
        "expected": fit.expected,
        "observed": fit.observed,
        "low": fit.lowest,
        "high": fit.highest,
        "share": fit.share,
        "surplus": fit.surplus,
        "band": fit.band,
    }


def _verdict(fit: Fit) -> str:
    return "inside the band" if fit.holds else "outside: times are off"


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.3f}"
