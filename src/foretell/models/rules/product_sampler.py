"""Samplers of models of rules with products of possible events: bounds, proposals, and the products of a state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from foretell.errors import ForetellError
from foretell.models.rules.product_blocks import ProductWindows, SequenceProducts, StateProducts
from foretell.models.rules.product_proposals import DrawnItems, ProductProposals, SequenceEvents
from foretell.models.rules.product_rows import FactTables, moving_facts
from foretell.models.rules.sampled_sequences import RuleContext, SampledSequence
from foretell.models.rules.slot_tables import make_tables
from foretell.plan.int_arrays import Ints
from foretell.sampling.bounds.chebyshev import DEGREE, unless_known
from foretell.sampling.core.sampler import Bounds

if TYPE_CHECKING:
    from foretell.models.rules.rule_sampler import EventChoices

LISTED = 2_000_000  # limit on the candidates of products whose intensities are listed


def product_bounds(known: Sequence[EventChoices], start: Tensor, end: Tensor) -> Bounds:
    """Return bounds on windows [W, P], with the proposals under them."""
    upper, middle = torch.zeros_like(start), torch.zeros_like(start)
    kind, number = (torch.zeros(len(start), dtype=torch.int64, device=start.device) for _ in range(2))
    kinds = []
    for events in known:
        assert events.products is not None
        low, high = start[events.sequences], end[events.sequences]
        low, high = events.copies.spread(low), events.copies.spread(high)
        each, centre = events.products.bounds((low + high) / 2.0, (high - low) / 2.0, DEGREE).chunk(2)
        drawn = DrawnItems.of(events.products, unless_known(each))
        kind[events.sequences], number[events.sequences] = len(kinds), events.copies.number
        kinds.append(drawn)
        pairs = (upper, drawn.total), (middle, (centre @ events.products.sizes))
        for whole, one in pairs:
            whole[events.sequences] = events.copies.back(one[None].unsqueeze(-1)).squeeze(-1)
    return Bounds(upper, middle, proposals=ProductProposals(tuple(kinds), kind, number, start.shape[1]))


def product_intensities(known: Sequence[EventChoices], times: Tensor) -> Tensor:
    """Return intensities of listed events and of all candidates, [W, Q, C]; raise an error if there are too many."""
    found = []
    for events in known:
        assert events.products is not None
        count = events.products.count + events.products.candidates
        if count * times[0].numel() > LISTED:
            raise ForetellError(f"{count:,} possible events: their intensities are not listed")
        when = times[events.sequences].flatten()
        number = torch.arange(count, device=times.device).repeat(len(when))
        rates = events.products.rates(number, when.repeat_interleave(count))
        found.append((events, rates.view(*times[events.sequences].shape, count)))
    out = times.new_zeros(*times.shape, max((one.shape[-1] for _, one in found), default=0))
    for events, rates in found:
        out[events.sequences, :, : rates.shape[-1]] = rates
    return out


def state_products(context: RuleContext, one: SampledSequence, no_past: Any) -> StateProducts:
    """Return the products of a sequence's state; `no_past` is a past without any additions."""
    states, parameters = context.states, context.parameters
    plan = states.plan(one.state, None)
    found = context.products.get(plan)
    if found is None:
        history = states.history(one.state).products
        assert history is not None
        tables = make_tables([plan], parameters)
        prepared = context.query.prepare(tables, [(plan, 0)], [replace(one, past=no_past)])
        zero = torch.zeros(1, 1, dtype=torch.float64, device=parameters.device)
        made = [
            FactTables(plan, tables, context.query.embeddings(prepared, zero, zero, degree), degree)
            for degree in (0, DEGREE)
        ]
        found = context.products[plan] = StateProducts.of(history, states.grounded, parameters, *made)
    return found


def moving_parts(
    context: RuleContext, one: SampledSequence, remembered: Iterable[int], products: StateProducts
) -> tuple[tuple[Ints, ...], Ints]:
    """Return the facts of each part that change with time, and all facts whose embeddings they need."""
    plan = context.states.plan(one.state, None)
    return products.moving(plan.slots.slot_fact[moving_facts(plan, remembered)])


def with_products(
    context: RuleContext, events: EventChoices, listed: int, products: StateProducts, moving: tuple[Ints, ...]
) -> EventChoices:
    """Return the events of a single sequence with its products."""
    group = events.group

    def tables(middle: Tensor, half: Tensor, degree: int) -> FactTables:
        layers = context.query.embeddings(group.prepared, middle, half, degree)
        return FactTables(group.plans[0], group.tables, layers, degree)

    scored, now = events.scored, events.scored.last[None]
    at = ProductWindows(now, torch.zeros_like(now), scored.last, scored.starts)
    cut = SequenceProducts.of(products, moving, tables(at.middle, at.half, 0), context.query, context.parameters, at)
    made = SequenceEvents(scored, listed, cut, tables, context.query, context.parameters)
    return replace(events, products=made)
