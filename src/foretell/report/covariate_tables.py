"""The effects of covariates as a table for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from foretell.evaluate.bootstrap import Estimate
from foretell.evaluate.covariate_effects import CovariateEffect
from foretell.wording import escape

CAPTION = (
    "importance: log-likelihood per event that is lost where the column is shuffled; effect: mean change of log total intensity; "
    "[95 % over sequences]"
)


def covariate_table(found: Sequence[CovariateEffect]) -> Table:
    """Return a table with one row per effect; the most important columns come first."""
    table = Table(title="Covariates", caption=CAPTION, title_justify="left", caption_justify="left")
    for head in ("column", "of"):
        table.add_column(head)
    table.add_column("importance", justify="right")
    table.add_column("change")
    table.add_column("effect", justify="right")
    for one in found:
        about = [escape(one.column), "sequences" if one.static else "events", _cell(one.importance)]
        for change, effect in one.effects or (("–", None),):
            table.add_row(*about, escape(change), "–" if effect is None else _cell(effect))
            about = ["", "", ""]
    return table


def _cell(one: Estimate) -> str:
    return f"{one.value:+.4f} [{one.low:+.4f}, {one.high:+.4f}]"
