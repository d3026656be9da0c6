"""The facts that there are → about how many instantiations a rule has, before they are looked for.

As databases estimate joins: the sizes of all conditions multiplied, divided by the number of different values at each place that must
agree with another.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

from foretell.ground.database import FREE, AtomPattern, CompiledRule, FactKey, Relation

SURELY = 1000  # an estimate is only believed, and nothing tried, where it is so many times what is allowed


@dataclass(frozen=True)
class RuleEstimate:
    """About how many instantiations, and of how many facts for each condition."""

    count: float
    sizes: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        number = f"{self.count:,.0f}" if self.count < 1e9 else f"{self.count:.1e}"
        return (
            f"about {number} by the facts that there are ({', '.join(f'{size:,} {name}' for name, size in self.sizes)})"
        )


def is_hopeless(rule: CompiledRule, relations: Sequence[Relation], keys: Sequence[FactKey], steps: int) -> bool:
    """Whether a rule has far too many instantiations to try it. Rules with filters are always tried, because filters may leave
    few."""
    if rule.negatives or rule.orders or rule.counts or rule.unequal:
        return False
    most = prod(len(relations[one.functor].facts.facts) for one in rule.positives)
    return most > SURELY * steps and _count(rule.positives, rule, relations, keys)[0] > SURELY * steps


def estimate(
    rule: CompiledRule, relations: Sequence[Relation], keys: Sequence[FactKey], functors: Sequence[str]
) -> RuleEstimate:
    """The event that fires a rule is one."""
    conditions = rule.positives[rule.kind != "deduce" :]
    count, sizes = _count(conditions, rule, relations, keys)
    named = zip((functors[one.functor] for one in conditions), sizes, strict=True)
    return RuleEstimate(count, tuple(named))


def _count(
    conditions: Iterable[AtomPattern], rule: CompiledRule, relations: Sequence[Relation], keys: Sequence[FactKey]
) -> tuple[float, list[int]]:
    sizes: list[int] = []
    different: dict[int, list[int]] = {}  # of each variable: how many values it has in each condition
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
