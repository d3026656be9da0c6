"""Adds events of products to a timeline as listed facts: given events, or all possible ones.

It works one event at a time, so it is slow. The engine never does it by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod

import numpy as np

from foretell.errors import ForetellError
from foretell.ground.database import FactKey
from foretell.ground.products import EventProduct, PartPattern
from foretell.ground.timeline import Timeline

LISTED = 200_000  # the largest number of events of products that are listed

Interval = tuple[int, int]  # [from, to) in states


class ListingError(ForetellError):
    """Raised when products have more events than can be listed."""


def listed(timeline: Timeline, events: Sequence[FactKey] | None = None, most: int = LISTED) -> Timeline:
    """Return a timeline that also lists these events of products (None: all that are ever possible), with their proofs."""
    if not timeline.grounding.products:
        return timeline
    parts = _PartRows(timeline)
    if events is None:
        parts.check_size(most)
    rows = _Listing(timeline)
    for one in timeline.grounding.products:
        for event, facts in parts.combinations(one, events):
            for proofs, during in parts.proofs(one, facts, event):
                rows.add(one, event, proofs, during)
    return rows.timeline()


def product_names(timeline: Timeline, most: int = LISTED) -> dict[str, None]:
    """Return the names of all events that products make possible in some state. The result may include other events."""
    found: dict[str, None] = {}
    if timeline.grounding.products:
        parts = _PartRows(timeline)
        parts.check_size(most)
        for one in timeline.grounding.products:
            found |= {timeline.grounding.text_of(event): None for event, _ in parts.combinations(one, None)}
    return found


@dataclass(frozen=True)
class _PartProof:
    instance: int
    during: Interval
    is_permanent: bool


class _PartRows:
    """The facts of parts, by functor and by fact."""

    def __init__(self, timeline: Timeline) -> None:
        self.grounding, self.whole, self.sequence = timeline.grounding, (0, timeline.states), timeline.sequence
        keys, head = self.grounding.keys, self.grounding.head
        self.by_functor: dict[int, dict[FactKey, int]] = {}
        self.proofs_of: dict[int, list[_PartProof]] = {}
        self.during: dict[int, list[Interval]] = {}
        always = self.grounding.part_always.tolist()
        for fact, start, stop in [*((fact, *self.whole) for fact in always), *timeline.part_holds.tolist()]:
            self.by_functor.setdefault(keys[fact][0], {})[keys[fact]] = fact
            self.during.setdefault(fact, []).append((start, stop))
        for one in self.grounding.part_always_proofs.tolist():
            self.proofs_of.setdefault(head[one], []).append(_PartProof(one, self.whole, True))
        for one, start, stop in timeline.part_proofs.tolist():
            self.proofs_of.setdefault(head[one], []).append(_PartProof(one, (start, stop), False))

    def check_size(self, most: int) -> None:
        size = sum(prod(len(self.facts_of(part)) for part in one.parts) for one in self.grounding.products)
        if size > most:
            raise ListingError(
                f"sequence {self.sequence}: {size:,} possible events are kept as products and would be listed, expected {most:,} at most; "
                f"draw some of them (`downsample=`), or ask about one event, or for counts"
            )

    def facts_of(self, part: PartPattern) -> dict[FactKey, int]:
        return self.by_functor.get(part.functor, {})

    def combinations(self, one: EventProduct, events: Sequence[FactKey] | None) -> Iterator[tuple[FactKey, list[int]]]:
        """Yield the events that match the head, each with one fact per part."""
        if events is None:
            for chosen in product(*(self.facts_of(part).items() for part in one.parts)):
                event = self._event(one, [key for key, _ in chosen])
                if one.fits(event):
                    yield event, [fact for _, fact in chosen]
            return
        for event in dict.fromkeys(events):
            if event[0] == one.functor and len(event) == 1 + one.arity and one.fits(event):
                facts = [self.facts_of(part).get(part.key(event)) for part in one.parts]
                if all(fact is not None for fact in facts):
                    yield event, [fact for fact in facts if fact is not None]

    def _event(self, one: EventProduct, keys: Sequence[FactKey]) -> FactKey:
        event = [one.functor] * (1 + one.arity)
        for part, key in zip(one.parts, keys, strict=True):
            for place, value in zip(part.places, key[1:], strict=True):
                event[place] = value
        for place, constant in one.fixed:
            event[place] = constant
        for first, again in one.repeats:
            event[again] = event[first]
        return tuple(event)

    def proofs(
        self, one: EventProduct, facts: Sequence[int], event: FactKey
    ) -> Iterator[tuple[list[_PartProof], list[Interval]]]:
        """Yield one proof per part, with the intervals in which they all hold and nothing blocks the event."""
        blocking = [self.facts_of(part).get(part.key(event)) for part in one.blockers]
        taken = [during for fact in blocking if fact is not None for during in self.during[fact]]
        for chosen in product(*(self.proofs_of.get(fact, ()) for fact in facts)):
            start, stop = max(proof.during[0] for proof in chosen), min(proof.during[1] for proof in chosen)
            left = _less((start, stop), taken)
            if left:
                yield list(chosen), left


def _less(interval: Interval, taken: Iterable[Interval]) -> list[Interval]:
    left = [interval] if interval[0] < interval[1] else []
    for start, stop in taken:
        cut = [(low, min(high, start)) for low, high in left] + [(max(low, stop), high) for low, high in left]
        left = [(low, high) for low, high in cut if low < high]
    return left


def _joined(intervals: Iterable[Interval]) -> list[Interval]:
    found: list[Interval] = []
    for start, stop in sorted(intervals):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(stop, found[-1][1])
        else:
            found.append((start, stop))
    return found


@dataclass
class _Listing:
    """The rows that are added to a timeline. Existing numbers stay the same."""

    old: Timeline
    keys: list[FactKey] = field(default_factory=list)
    instances: list[tuple[int, int, int, tuple[int, ...]]] = field(default_factory=list)  # (rule, group, head, body)
    proofs: list[tuple[int, int, int]] = field(default_factory=list)
    permanent: list[int] = field(default_factory=list)
    during: dict[int, list[Interval]] = field(default_factory=dict)
    numbers: dict[FactKey, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.keys = list(self.old.grounding.keys)
        self.numbers = {key: number for number, key in enumerate(self.keys)}

    def add(self, one: EventProduct, event: FactKey, chosen: list[_PartProof], during: list[Interval]) -> None:
        grounding = self.old.grounding
        fact = self.numbers.setdefault(event, len(self.keys))
        if fact == len(self.keys):
            self.keys.append(event)
        body = [-1] * sum(len(part.atoms) for part in one.parts)
        for part, proof in zip(one.parts, chosen, strict=True):
            for place, condition in zip(part.atoms, grounding.body[proof.instance], strict=True):
                body[place] = condition
        number = len(grounding.rule) + len(self.instances)
        group = grounding.group[chosen[one.carrier].instance]
        self.instances.append((one.rule, group, fact, tuple(body)))
        if all(proof.is_permanent for proof in chosen) and not one.blockers:
            self.permanent.append(number)
        else:
            self.proofs += [(number, *states) for states in during]
        self.during.setdefault(fact, []).extend(during)

    def timeline(self) -> Timeline:
        old, grounding = self.old, self.old.grounding
        head = [one[2] for one in self.instances]
        first = len(grounding.rule)
        always = {head[one - first] for one in self.permanent} - set(grounding.always.tolist())
        known = set(grounding.always.tolist()) | always
        kept = [row for row in old.holds.tolist() if row[0] not in self.during and row[0] not in always]
        before: dict[int, list[Interval]] = {}
        for fact, start, stop in old.holds.tolist():
            before.setdefault(fact, []).append((start, stop))
        for fact, during in self.during.items():
            if fact not in known:
                kept += [(fact, *states) for states in _joined([*during, *before.get(fact, ())])]
        made = replace(
            grounding,
            keys=self.keys,
            rule=[*grounding.rule, *(one[0] for one in self.instances)],
            group=[*grounding.group, *(one[1] for one in self.instances)],
            head=[*grounding.head, *head],
            body=[*grounding.body, *(one[3] for one in self.instances)],
            always=np.asarray([*grounding.always.tolist(), *sorted(always)], dtype=np.int32),
            always_proofs=np.asarray([*grounding.always_proofs.tolist(), *self.permanent], dtype=np.int32),
            products=(),
        )
        proofs = np.asarray([*old.proofs.tolist(), *self.proofs], dtype=np.int32).reshape(-1, 3)
        return replace(old, grounding=made, holds=np.asarray(kept, dtype=np.int32).reshape(-1, 3), proofs=proofs)
