"""Which parameter groups of some data training never met, and which events' intensities depend on them."""

from __future__ import annotations

import numpy as np

from foretell.batches.timelines import Histories
from foretell.data import EventData
from foretell.ground.database import NO_GROUP
from foretell.lang.reachable import closure
from foretell.models.capabilities import UnseenGroups
from foretell.plan.parameters import ParameterBook


def unseen_groups(histories: Histories, book: ParameterBook, data: EventData) -> UnseenGroups:
    """Groups of the rules that fire on the data, and the scored events that are deduced or added through one of them."""
    if not book.unseen:
        return UnseenGroups((), 0)
    grounding = histories.grounding
    timelines = [histories.timeline(data.vocabulary, one)[1] for one in data]
    fired = [np.concatenate([one.proofs[:, 0], one.additions[:, 0]]) for one in timelines]
    used = np.unique(np.concatenate([grounding.always_proofs, *fired])).tolist()
    of_parts = [grounding.part_always_proofs, *(one.part_proofs[:, 0] for one in timelines)]
    groups = {grounding.group[one] for one in (*used, *np.unique(np.concatenate(of_parts)).tolist())} - {NO_GROUP}
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
    events = sum(int(np.isin(one.events[one.possible_events], list(touched)).sum()) for one in timelines)
    return UnseenGroups(tuple(sorted(set(unseen.values()))), events)
