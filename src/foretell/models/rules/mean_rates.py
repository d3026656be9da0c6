"""The rate of each functor's events in training data while they are possible: the initial intensities."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from foretell.data import EventData
from foretell.plan.product_counts import product_counts

if TYPE_CHECKING:
    from foretell.models.rules.rule_model import RuleModel

PSEUDO_EVENTS = 0.5  # added for every functor, so that one without events in training starts with a small rate


def mean_rates(model: RuleModel, data: EventData) -> np.ndarray:
    """Return the rates of all functors of events, per unit of the data's time: float64."""
    counts, exposure = np.full(len(model.functors), PSEUDO_EVENTS), np.zeros(len(model.functors))
    place = {name: number for number, name in enumerate(model.functors)}
    grounding = model.histories.grounding
    of_type = np.asarray(
        [place.get(model.program.split(name)[0], -1) for name in data.vocabulary.names], dtype=np.int64
    )
    of_fact = np.asarray([place.get(grounding.functors[key[0]], -1) for key in grounding.keys], dtype=np.int64)
    always = grounding.always
    for sequence in data:
        _, timeline = model.histories.timeline(model.vocabulary, sequence)
        ends = np.concatenate([[0.0, 0.0], timeline.times, [sequence.t_end]])  # of states 0, 1, …
        whole = np.column_stack([always, np.zeros_like(always), np.full_like(always, timeline.states)])
        rows = np.concatenate([whole, timeline.holds])
        rows = rows[of_fact[rows[:, 0]] >= 0]
        products = product_counts(timeline)
        rows = rows[
            ~np.isin(of_fact[rows[:, 0]], [place[name] for name in products])
        ]  # the counts of products include listed events
        np.add.at(exposure, of_fact[rows[:, 0]], ends[rows[:, 2]] - ends[rows[:, 1]])
        for name, possible in products.items():
            exposure[place[name]] += (possible.events * np.diff(ends)).sum()
        happened = of_type[sequence.types[timeline.possible_events[~timeline.is_expiry]]]
        counts += np.bincount(happened[happened >= 0], minlength=len(counts))
    # The rate of an event that was never possible is unknown: it counts as possible all the time.
    observed = sum(sequence.t_end for sequence in data) or 1.0
    exposure = np.where(exposure > 0.0, exposure, observed)
    return counts / exposure
