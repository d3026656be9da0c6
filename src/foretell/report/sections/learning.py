"""How training went: log-likelihood an event, epoch by epoch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from foretell.report.entry import Entry
from foretell.report.markup import PageSection, chart, figure, joined, remark


def learning_section(entries: Sequence[Entry]) -> PageSection:
    curves = [_curve(entry) for entry in entries if len(entry.records) > 1]
    if not curves:
        body = remark("No run has a record of several epochs: models with a closed form are fitted at once.")
        return PageSection("learning", "Learning curves", joined(body))
    caption = (
        "Log-likelihood an event after each epoch (a pass over the training data); higher is better. Strong lines: "
        "held-out dev data, which decide when training stops; thin lines: training data. A dot marks the epoch whose "
        "parameters were kept. Where the thin line climbs on while the strong one falls, the model learns the "
        "training data by heart."
    )
    label = "Lines: log-likelihood an event against epochs, for each run, on dev and on training data."
    return PageSection(
        "learning",
        "Learning curves",
        joined(figure(chart("learning", label), caption=caption)),
        {"learning": {"runs": curves}},
    )


def _curve(entry: Entry) -> dict[str, Any]:
    records = [
        one for one in entry.records if isinstance(one.get("train"), int | float) and math.isfinite(one["train"])
    ]
    dev = [[one["epoch"], one["dev"]] for one in records if isinstance(one.get("dev"), int | float)]
    best = max((pair for pair in dev if math.isfinite(pair[1])), key=lambda pair: pair[1], default=None)
    return {"name": entry.name, "train": [[one["epoch"], one["train"]] for one in records], "dev": dev, "best": best}
