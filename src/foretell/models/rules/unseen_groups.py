"""The parameter groups that some data need and that were not trained, and the events whose intensities depend on them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from foretell.batches.timelines import Histories
from foretell.data import EventData
from foretell.ground.database import NO_GROUP
from foretell.ground.timeline import Timeline
from foretell.lang.reachable import closure
from foretell.models.capabilities import UnseenGroups
from foretell.plan.parameters import ParameterBook


def unseen_groups(histories: Histories, book: ParameterBook, data: EventData) -> UnseenGroups:
    """Return the untrained groups of rules that fire on the data, and the number of scored events that depend on them."""
    if not book.unseen:
        return UnseenGroups((), 0)
    grounding = histories.grounding
    fired, of_parts = set(grounding.always_proofs.tolist()), set(grounding.part_always_proofs.tolist())
    for one in timelines_of(histories, data):
        fired.update(np.unique(np.concatenate([one.proofs[:, 0], one.additions[:, 0]])).tolist())
        of_parts.update(np.unique(one.part_proofs[:, 0]).tolist())
    used = sorted(fired)
    groups = {grounding.group[one] for one in (*used, *of_parts)} - {NO_GROUP}
    unseen = {group: name for group in groups if (name := book.unseen_name(grounding, group)) is not None}
    if not unseen:
        return UnseenGroups((), 0)
    has_embedding, _ = book.layout.of_facts(grounding)
    readers: dict[int, list[int]] = {}
    for one in used:
        head = grounding.head[one]
        for fact in grounding.body[one]:
            if has_embedding[grounding.keys[fact][0]] and has_embedding[grounding.keys[head][0]]:
                readers.setdefault(fact, []).append(head)
    first = [grounding.head[one] for one in used if grounding.group[one] in unseen]
    touched = closure([one for one in first if has_embedding[grounding.keys[one][0]]], readers)
    events = sum(
        int(np.isin(one.events[one.possible_events], list(touched)).sum()) for one in timelines_of(histories, data)
    )
    return UnseenGroups(tuple(sorted(set(unseen.values()))), events)


def timelines_of(histories: Histories, data: EventData) -> Iterator[Timeline]:
    """Yield one timeline per sequence, since data may be larger than memory."""
    return (histories.timeline(data.vocabulary, one)[1] for one in data)
