"""Draws from products: unbiased, by enumeration of all draws."""

from __future__ import annotations

from math import lcm

import numpy as np
import pytest

from foretell.errors import ForetellError
from foretell.plan import product_draws
from foretell.plan.parameters import DimensionLayout
from foretell.plan.plan import LocalNumbering
from foretell.plan.product_counts import product_counts
from foretell.plan.slots import sequence_slots
from tests.ground.random_products import random_products
from tests.ground.test_products import sided


class EveryDraw:
    """In place of a generator: the draw of each number, in turn."""

    def __init__(self, number: int) -> None:
        self.number = number

    def integers(self, low: int, size: np.ndarray) -> np.ndarray:
        return low + self.number % size


def weights(slots, states: int) -> dict[tuple[str, int], float]:
    own = LocalNumbering(slots.grounded, [slots.local])
    keys = own.keys()
    found: dict[tuple[str, int], float] = {}
    for slot, query, weight in zip(slots.possible_slot, slots.possible_query, slots.possible_weight, strict=True):
        fact = int(own.facts(0, slots.slot_fact)[slot])
        name = slots.grounding.text_of(keys.get(fact) or slots.grounding.keys[fact])
        found[name, int(query)] = found.get((name, int(query)), 0.0) + float(weight)
    return found


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("keep", [1, 3, 5])
def test_every_possible_event_has_weight_one_on_average(seed, keep):
    """Over all draws of each stratum: the estimate of a sum over possible events is unbiased, whatever is summed."""
    program, events = random_products(seed)
    timeline, rows = sided(program, events)
    if not timeline.grounding.products:
        return
    layout = DimensionLayout(program, 2)
    states = np.arange(1, timeline.states)
    sizes = set()
    total = sequence_slots(timeline, layout, states).history.totals[states]
    for one in total[total > keep].tolist():
        sizes |= set(np.diff(np.arange(keep + 1) * one // keep).tolist())
    every = lcm(*sizes) if sizes else 1
    mean: dict[tuple[str, int], float] = {}
    for number in range(every):
        slots = sequence_slots(timeline, layout, states, keep, EveryDraw(number))  # type: ignore[arg-type]
        for key, weight in weights(slots, timeline.states).items():
            mean[key] = mean.get(key, 0.0) + weight / every
    expected = {
        (rows.grounding.text(fact), place): 1.0
        for place, state in enumerate(states.tolist())
        for fact in rows.facts_at(state)
        if rows.grounding.is_event(fact)
    }
    assert mean == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(30))
def test_counts_are_those_of_rows(seed, monkeypatch):
    program, events = random_products(seed)
    timeline, rows = sided(program, events)
    for name, count in product_counts(timeline).items():
        expected = [
            sum(rows.grounding.text(fact).startswith(f"{name}(") for fact in rows.facts_at(state))
            for state in range(rows.states)
        ]
        assert count.is_exact
        assert count.events.tolist() == expected
    monkeypatch.setattr("foretell.plan.product_counts.COUNTED", 0)
    for name, count in product_counts(timeline).items():
        exact = sum(name == rows.grounding.functors[rows.grounding.keys[fact][0]] for fact in rows.facts_at(1))
        assert count.events[1] == pytest.approx(exact, abs=max(1.0, 0.3 * exact))


def test_looking_at_too_many_says_what_to_do(monkeypatch):
    monkeypatch.setattr(product_draws, "LISTED", 3)
    program, events = next(one for one in map(random_products, range(9)) if sided(*one)[0].grounding.products)
    timeline, _ = sided(program, events)
    with pytest.raises(ForetellError, match="`downsample=`"):
        sequence_slots(timeline, DimensionLayout(program, 2), np.arange(1, timeline.states))
