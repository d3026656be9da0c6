"""No quantity depends on an event that is not before it: change the future, and nothing before moves."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from foretell.batches.batch import Batch, Queries
from foretell.models.attention.anhp import ANHP
from foretell.models.base import IntensityModel
from foretell.models.capabilities import Embeds
from foretell.models.last_event.last_event import LastEventModel
from foretell.models.recurrent.nhp import NHP
from foretell.models.recurrent.rmtpp import RMTPP
from foretell.models.rules.rule_model import RuleModel
from foretell.models.state_space.s2p2 import S2P2
from tests.asking import state_at
from tests.calendar_samples import dated
from tests.contract.members import Member
from tests.samples import event_data, random_rows

PAST, WHOLE = 5, 12  # events before the change, and in all; A-NHP folds below 8
Row = tuple[Sequence[float], Sequence[int]]


def original() -> tuple[list[float], list[int]]:
    (row,) = random_rows(21, [WHOLE])
    return row


def with_other_future(times: Sequence[float], types: Sequence[int]) -> Row:
    row_times, row_types = original()
    return [*row_times[:PAST], *times], [*row_types[:PAST], *types]


def changed() -> Row:
    times, types = original()
    last = times[PAST - 1]
    moved = [last + (t - last) * 0.37 for t in times[PAST:]]
    return with_other_future(moved, [(k + 1) % 3 for k in types[PAST:]])


FUTURES = {
    "changed": changed(),
    "deleted": with_other_future([], []),
    "shortened": with_other_future(original()[0][PAST : PAST + 2], original()[1][PAST : PAST + 2]),
    "extended": with_other_future([*original()[0][PAST:], 9.6, 9.6, 9.7, 9.9], [*original()[1][PAST:], 0, 1, 2, 0]),
    "at the same time as the last that is seen": with_other_future(
        [original()[0][PAST - 1]] * 7, [0, 1, 2, 0, 1, 2, 0]
    ),
}


def batch_of(model: IntensityModel, row: Row) -> Batch:
    return model.collator.batch(dated(event_data([row])), [0])


def before_the_change(model: IntensityModel, row: Row) -> dict[str, Tensor]:
    """All that may depend on the first PAST events alone."""
    batch = batch_of(model, row)
    history = model.encode(batch)
    gap_times = torch.linspace(0.1, 9.0, 3, dtype=torch.float64).expand(1, batch.times.shape[1] + 1, 3)
    by_gap = state_at(model, batch, Queries.by_gap(gap_times.contiguous()), history)[:, : 3 * (PAST + 1)]
    some = torch.linspace(0.0, 9.5, 2 * PAST, dtype=torch.float64)[None]
    seeing = state_at(model, batch, Queries.seeing(some, torch.arange(2 * PAST)[None] // 2), history)
    early = torch.linspace(0.0, original()[0][PAST - 1], 9, dtype=torch.float64)[None]
    at_times = state_at(model, batch, Queries.at_times(batch, early), history)
    events = state_at(model, batch, Queries.of_events(batch), history)[:, :PAST]
    found = {
        "states gap by gap": by_gap,
        "states of given prefixes": seeing,
        "states at times": at_times,
        "intensities at times": model.intensities(at_times),
        "log-intensities of the past events": model.log_intensity(events, batch.types[:, :PAST]),
    }
    if isinstance(model, Embeds):
        for layer, embedding in enumerate(model.embeddings(batch)):
            found[f"embeddings of the past events at layer {layer}"] = embedding[:, :PAST]
    return found


@pytest.mark.parametrize("future", FUTURES)
def test_another_future_moves_nothing_before_it(model: IntensityModel, future: str):
    expected = before_the_change(model, original())
    found = before_the_change(model, FUTURES[future])
    for what, value in expected.items():
        torch.testing.assert_close(
            found[what], value, rtol=1e-12, atol=1e-12, msg=lambda text, what=what: f"{what}: {text}"
        )


def test_a_changed_future_moves_nothing_by_a_single_bit(model: IntensityModel):
    # The rows of a model of rules are computed in batches that the future has a part in: a processor may round their last bit
    # in another way, but no more.
    rounding = 1e-14 if isinstance(model, RuleModel) else 0.0
    expected = before_the_change(model, original())
    for what, value in before_the_change(model, FUTURES["changed"]).items():
        assert torch.allclose(value, expected[what], rtol=rounding, atol=rounding), what


def vectors_of_types(model: IntensityModel) -> Tensor | None:
    if isinstance(model, LastEventModel):
        return model.encoder.base
    if isinstance(model, NHP | RMTPP | S2P2):
        return model.embedding
    return model.fine if isinstance(model, ANHP) else None


def test_no_gradient_reaches_the_embedding_of_a_type_that_only_the_future_has(model: IntensityModel):
    table = vectors_of_types(model)
    if table is None:
        pytest.skip("this model has no embeddings")
    if isinstance(model, ANHP) and any(group.base is not None for group in model.structure.groups):
        pytest.skip("here every type is embedded at every query, whether it happened or not")
    times, only_later = original()[0], 2
    batch = batch_of(model, (times, [0] * PAST + [only_later] * (WHOLE - PAST)))
    past = state_at(model, batch, Queries.of_events(batch))[:, : PAST + 1]
    (grad,) = torch.autograd.grad(past.square().sum(), table)
    assert not grad[only_later].any()
    assert grad[0].any()


def test_an_event_is_moved_by_the_events_before_it(member: Member):
    """The other side of causality: a test that nothing moves proves little where nothing ever moves."""
    if not member.remembers:
        pytest.skip("this model has no memory")
    model = member.build()
    times, types = original()
    other = batch_of(model, (times, [(types[0] + 1) % 3, *types[1:]]))
    here = batch_of(model, (times, types))
    moved = [model.intensities(state_at(model, b, Queries.of_events(b)))[0, 1:].detach() for b in (here, other)]
    assert not torch.allclose(*moved, rtol=1e-6)


def test_an_event_sees_an_earlier_one_at_the_same_time_and_a_query_there_does_not(member: Member):
    if not member.remembers:
        pytest.skip("this model has no memory")
    model = member.build()
    # with edges, every type sees at least one of a and b
    batch = batch_of(model, ([2.0, 2.0, 2.0], [0, 1, 2]))
    history = model.encode(batch)
    as_events = state_at(model, batch, Queries.of_events(batch), history)[0]
    assert not torch.allclose(as_events[0], as_events[2])
    at_time = state_at(model, batch, Queries.at_times(batch, torch.tensor([[2.0]], dtype=torch.float64)), history)[0, 0]
    torch.testing.assert_close(at_time, as_events[0], rtol=1e-12, atol=1e-12)
