"""Estimates the number of instances of a rule from the facts that hold, before they are searched for.

This is the usual estimate of database joins: the product of the sizes of all conditions, divided by the number of distinct values
at each place that must equal another place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

from foretell.ground.database import FREE, AtomPattern, CompiledRule, FactKey, Relation

SURELY = 1000  # a rule is refused without trying if its estimate exceeds the limit by this factor


@dataclass(frozen=True)
class RuleEstimate:
    """The estimated number of instances of a rule, with the number of facts of each condition."""

    count: float
    sizes: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        number = f"{self.count:,.0f}" if self.count < 1e9 else f"{self.count:.1e}"
        return (
            f"about {number} by the facts that there are ({', '.join(f'{size:,} {name}' for name, size in self.sizes)})"
        )


def is_hopeless(rule: CompiledRule, relations: Sequence[Relation], keys: Sequence[FactKey], steps: int) -> bool:
    """Whether a rule has far too many instances to try. Rules with filters are always tried, because filters may leave
    few."""
    if rule.negatives or rule.orders or rule.counts or rule.unequal:
        return False
    most = prod(len(relations[one.functor].facts.facts) for one in rule.positives)
    return most > SURELY * steps and _count(rule.positives, rule, relations, keys)[0] > SURELY * steps


def estimate(
    rule: CompiledRule, relations: Sequence[Relation], keys: Sequence[FactKey], functors: Sequence[str]
) -> RuleEstimate:
    """Estimate the instances of a rule. For `add` and `remove`, the event is one given fact."""
    conditions = rule.positives[rule.kind != "deduce" :]
    count, sizes = _count(conditions, rule, relations, keys)
    named = zip((functors[one.functor] for one in conditions), sizes, strict=True)
    return RuleEstimate(count, tuple(named))


def _count(
    conditions: Iterable[AtomPattern], rule: CompiledRule, relations: Sequence[Relation], keys: Sequence[FactKey]
) -> tuple[float, list[int]]:
    sizes: list[int] = []
    different: dict[int, list[int]] = {}  # variable → the number of distinct values in each condition
    for one in conditions:
        wanted = [
            (place, rule.template[slot]) for place, slot in enumerate(one.slots, 1) if slot >= 0 <= rule.template[slot]
        ]
        facts = [keys[fact] for fact in relations[one.functor].facts.facts]
        facts = [key for key in facts if all(key[place] == value for place, value in wanted)]
        sizes.append(len(facts))
        for place, slot in enumerate(one.slots, 1):
            if slot != FREE and rule.template[slot] < 0:
                different.setdefault(slot, []).append(len({key[place] for key in facts}))
    count = float(prod(sizes))
    for values in different.values():
        for number in sorted(values)[1:]:
            count /= max(number, 1)
    return count, sizes
