"""What a collator reuses: plans of the same rows laid out alike, whatever the times; never those of other rows or of drawn events."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from foretell.batches import rule_collator
from foretell.batches.batch import Batch, Queries, Sample
from foretell.models.rules.andtt import ANDTT
from foretell.models.rules.ndtt import NDTT
from foretell.objective.loglik import stratified, training_loss
from tests.models.test_andtt_remembered import letters

SEQUENCES = (["say(a)", "say(b)", "say(a)"], ["say(b)"], ["say(c)", "say(c)"])


def by_gap(batch: Batch, points: int = 2) -> Queries:
    times = torch.rand(*batch.gap_start.shape, points, dtype=torch.float64)
    return Queries.by_gap(batch.gap_start.unsqueeze(-1) + times * batch.gap_length.unsqueeze(-1))


def test_rows_of_the_same_events_share_a_plan_and_others_do_not():
    model, data = letters(*SEQUENCES)
    collator = model.collator
    batch, again = collator.batch(data, [0, 1]), collator.batch(data, [0, 1])
    first = collator.plan_queries(batch, by_gap(batch)).plan
    assert collator.plan_queries(again, by_gap(again)).plan is first, "other times, the same plan"
    for other in (collator.batch(data, [1, 0]), collator.batch(data, [0, 2]), collator.batch(data, [0, 1], width=5)):
        assert collator.plan_queries(other, by_gap(other)).plan is not first
    assert collator.plan_queries(batch, by_gap(batch, 3)).plan is not first
    cut = collator.batch(data, [2, 0, 1]).rows(1, 3)
    assert collator.plan_queries(cut, by_gap(cut)).plan is first, "rows that were cut out are known, too"
    taken = collator.batch(data, [2, 0, 1]).take(torch.tensor([1, 2]))
    assert collator.plan_queries(taken, by_gap(taken)).plan is first


def test_explicit_sampled_and_chosen_queries_are_planned_anew():
    model, data = letters(*SEQUENCES)
    collator = model.collator
    batch = collator.batch(data, [0, 1])
    queries = by_gap(batch)
    seeing = Queries.seeing(queries.times, queries.seen().expand_as(queries.times))
    known = len(collator.plans)
    plans = [collator.plan_queries(batch, seeing).plan for _ in range(2)]
    assert plans[0] is not plans[1]
    sample = Sample(1, np.random.default_rng(0))
    plans = [collator.plan_queries(batch, queries, sample).plan for _ in range(2)]
    assert plans[0] is not plans[1]
    chosen = torch.full(queries.times.shape, -1)
    plans = [collator.plan_queries(batch, queries, chosen=chosen).plan for _ in range(2)]
    assert plans[0] is not plans[1]
    assert len(collator.plans) == known


def test_what_is_kept_for_a_graph_is_found_again_though_it_was_dropped(monkeypatch: pytest.MonkeyPatch):
    model, data = letters(*SEQUENCES)
    collator = model.collator
    batch = collator.batch(data, [0, 1])
    with collator.keeping() as kept:
        first = collator.plan_queries(batch, by_gap(batch)).plan
        monkeypatch.setattr(rule_collator, "KEPT_SLOTS", 0)
        other = collator.batch(data, [2])
        collator.plan_queries(other, by_gap(other))
        assert not len(collator.plans)
        monkeypatch.setattr(rule_collator, "make_plan", None)  # nothing is planned within a capture
        assert collator.plan_queries(batch, by_gap(batch)).plan is first
    assert first in kept.values()  # pyright: ignore[reportAttributeAccessIssue]


def test_batches_of_equal_events_are_captured_as_one():
    model, data = letters(*SEQUENCES)
    collator = model.collator
    key = collator.capture_key(collator.batch(data, [0, 1]))
    assert key == collator.capture_key(collator.batch(data, [0, 1]))
    assert key != collator.capture_key(collator.batch(data, [0, 2]))
    assert key != collator.capture_key(collator.batch(data, [0, 1], width=4))


@pytest.mark.parametrize("kind", [ANDTT, NDTT])
def test_a_forward_pass_looks_nothing_up(kind: type[ANDTT] | type[NDTT], monkeypatch: pytest.MonkeyPatch):
    """Once planned, no timeline, plan or array of the host is asked for: tensors go in and come out."""
    made, data = letters(*SEQUENCES)
    model = kind(made.program, data.vocabulary, dim=2, dtype=torch.float64)
    model.ground(data)
    batch = model.collator.batch(data, range(3))
    points = stratified(batch, 2, torch.Generator().manual_seed(0))
    queries = model.collator.plan_queries(batch, points.queries)
    expected = training_loss(model, batch, points).objective

    def refused(*_: object, **__: object) -> None:
        raise AssertionError("looked up in a forward pass")

    monkeypatch.setattr(torch.Tensor, "numpy", refused)
    monkeypatch.setattr(torch.Tensor, "data_ptr", refused)
    monkeypatch.setattr(model.histories, "timeline", refused)
    monkeypatch.setattr(model.histories, "slots", refused)
    monkeypatch.setattr(model.collator.plans, "get", refused)
    found = model.ends_and_inside(model.encode(batch), batch, queries, False)
    weights = points.weights.view_as(found.total_inside)
    loss = (found.total_inside * weights).sum() - (found.log_at_end * batch.event_counts).sum()
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=1e-12)


def test_a_batch_of_another_models_collator_is_refused():
    (one, data), (other, _) = letters(*SEQUENCES), letters(*SEQUENCES)
    batch = one.collator.batch(data, [0])
    with pytest.raises(AssertionError, match="another model's batch"):
        other.collator.plan_queries(batch, by_gap(batch))
