"""Where histories leave the cells of their facts: histories in, all events of many at once by the model's own network, cells out."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from foretell.data import EventData, EventSequence
from foretell.ground.timeline import Timeline
from foretell.models.rules.ndtt_cells import Cells, Parameters, Table

if TYPE_CHECKING:
    from foretell.models.rules.ndtt import NDTT

EVENTS_AT_A_TIME = 50_000  # of histories that are read together


@dataclass(frozen=True, eq=False)
class Recalled:
    """One history, and its cells after as many events as asked for."""

    timeline: Timeline
    cells: dict[int, Cells]


@torch.inference_mode()
def recall(
    model: NDTT, parameters: Parameters, histories: Sequence[tuple[EventSequence, Sequence[int]]]
) -> list[Recalled]:
    """Histories, each with the numbers of events after which it is left. The model stays as it is."""
    found: list[Recalled] = []
    some: list[tuple[EventSequence, Sequence[int]]] = []
    events = 0
    for place, (history, seen) in enumerate(histories):
        n = max(seen)
        unscored = None if history.unscored is None else history.unscored[:n]
        cut = EventSequence(history.times[:n], history.types[:n], history.t_end, str(place), unscored=unscored)
        some.append((cut, seen))
        events += n
        if events > EVENTS_AT_A_TIME or place + 1 == len(histories):
            found += _recall(model, parameters, some)
            some, events = [], 0
    return found


def _recall(
    model: NDTT, parameters: Parameters, histories: Sequence[tuple[EventSequence, Sequence[int]]]
) -> list[Recalled]:
    data = EventData([one for one, _ in histories], model.vocabulary)
    own = copy.deepcopy(model)
    own.ground(data)  # names that training never met start in the model's own precision
    own.double().eval()
    cells = own.encode(own.collator.batch(data, range(len(data)), device=model.device)).cells
    found = []
    for row, (one, seen) in enumerate(histories):
        key, timeline = model.histories.timeline(model.vocabulary, one.types, one.times, one.unscored)
        versions = model.histories.history(key, timeline).versions
        facts = np.unique(versions.fact[1:])
        when = np.concatenate([[0.0], one.times])
        left: dict[int, Cells] = {}
        for n in seen:
            which = versions.at(facts, np.full(len(facts), n + 1))
            there = np.flatnonzero(which)
            chosen = torch.from_numpy(which[there]).to(model.device)
            c, target, decay = cells[row, chosen].unbind(1)
            since = torch.from_numpy(when[versions.event[which[there]]]).to(model.device)
            table = Table(c, target, decay / parameters.time_scale, since)
            left[n] = Cells({fact: place for place, fact in enumerate(facts[there].tolist())}, table)
        found.append(Recalled(timeline, left))
    return found
