"""Samplers of models with covariates: they tell what the model tells where later events have the covariates that were drawn."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

from foretell import sample
from foretell.data import EventData, EventSequence
from foretell.data.attributes import AttributeTable, SequenceAttributes
from foretell.data.covariate_columns import attribute_of
from foretell.errors import ForetellError
from foretell.models.base import IntensityModel
from foretell.models.covariates import CovariateEmbedding
from foretell.models.future_covariates import DrawnCovariates
from foretell.reference.events import Value
from foretell.sampling.core.sampler import FutureCovariates
from foretell.sampling.core.start import start_sampler
from tests.contract.members import MEMBERS, Member
from tests.covariate_samples import data_with_covariates, with_covariates
from tests.sampling.test_bounds import broken
from tests.sampling.test_samplers import LATER, check

ABLE = [member for member in MEMBERS if member.build().takes_covariates]
# One training event per type: amount, channel, size
KNOWN: dict[str, tuple[Value, ...]] = {"a": (1.5, "web", None), "b": (None, "fax", -2.0), "c": (0.25, None, 1.0)}
NOTHING: tuple[Value, ...] = (None, None, None)


def trained(member: Member) -> IntensityModel:
    """A model that keeps the covariates of one training event per type."""
    model = with_covariates(member.build())
    rows = list(KNOWN.values())
    table = AttributeTable(
        {name: attribute_of([row[place] for row in rows]) for place, name in enumerate(("amount", "channel", "size"))},
        {},
    )
    times, types = np.array([1.0, 2.0, 3.0]), np.array([0, 1, 2], dtype=np.int32)
    train = EventSequence(times, types, 4.0, "train", attributes=SequenceAttributes(table, 0, 0))
    assert model.covariates is not None
    model.covariates.keep(EventData([train], model.vocabulary))
    return model


def gone_on(past: EventSequence, time: float, kind: int, values: tuple[Value, ...]) -> EventSequence:
    """One more event, with these covariates."""
    own = past.attributes
    assert own is not None
    columns = {}
    for name, value in zip(("amount", "channel", "size"), values, strict=True):
        before = own.of_events(name, len(past))
        assert before is not None
        texts = before.categories
        known: list[object] = [
            (None if raw < 0 else texts[int(raw)]) if texts is not None else (None if np.isnan(raw) else float(raw))
            for raw in before.values.tolist()
        ]
        columns[name] = attribute_of([*known, value])
    table = AttributeTable(columns, own.table.of_sequences)
    return replace(
        past,
        times=np.append(past.times, time),
        types=np.append(past.types, kind).astype(np.int32),
        t_end=13.0,
        attributes=SequenceAttributes(table, 0, own.place),
    )


@pytest.mark.parametrize("how", ["drawn", "missing"])
@pytest.mark.parametrize("member", ABLE, ids=lambda member: member.name)
def test_samplers_go_on_with_the_covariates_of_a_training_event_of_the_type(member: Member, how: FutureCovariates):
    model, data = trained(member), data_with_covariates(3, (7, 0, 12))
    start = start_sampler(model, list(data), [7, 0, 12])
    start.draw_covariates(torch.Generator().manual_seed(1), how)
    for sequence, past in enumerate(data):
        check(start, model, sequence, past, [12.0, 12.7, 15.0])
    sampler, order, goes_on = start.select(torch.tensor([2, 0, 1, 1])), (2, 0, 1, 1), [True, False, True, True]
    histories = [data[place] for place in order]
    for time in LATER:
        chosen = sampler.intensities(torch.full((4, 1), time, dtype=torch.float64))[:, 0].argmax(1)
        for sequence in range(4):
            if goes_on[sequence]:
                name = sampler.name(sequence, int(chosen[sequence]))
                values = KNOWN[name] if how == "drawn" else NOTHING
                histories[sequence] = gone_on(histories[sequence], time, list(KNOWN).index(name), values)
        sampler.append(torch.full((4,), time, dtype=torch.float64), torch.where(torch.tensor(goes_on), chosen, -1))
    for sequence, past in enumerate(histories):
        check(sampler, model, sequence, past, [12.6, 12.9, 14.0])


@pytest.mark.parametrize("member", ABLE, ids=lambda member: member.name)
def test_bounds_hold(member: Member):
    histories = list(data_with_covariates(4, (9, 0, 5)))
    outside, looked = broken(trained(member), histories, windows=12, points=40, seed=5)
    assert looked > 0 and outside == 0


def test_covariates_are_drawn_evenly_from_the_training_events_of_the_type_and_seeded():
    model = with_covariates(ABLE[0].build())
    train = data_with_covariates(11, (40, 30))
    inputs = model.covariates
    assert inputs is not None
    inputs.keep(train)
    batch = model.collator.batch(train, [0])
    future = DrawnCovariates.start(inputs, batch)
    types = torch.zeros(20_000, dtype=torch.int64)
    numbers, codes = future._drawn(inputs, types)
    counts = Counter(map(tuple, torch.cat([numbers.nan_to_num(99.0), codes], 1).tolist()))
    mine = train.columns.types == 0
    encoded, _ = inputs.encoding.encode(train.columns.attribute_table or AttributeTable({}, {}), 70, 2)
    rows = np.concatenate([np.nan_to_num(encoded.numbers[mine], nan=99.0), encoded.codes[mine]], axis=1)
    expected = Counter(map(tuple, rows.tolist()))
    assert set(counts) == set(expected)
    for row, count in expected.items():
        share = count / mine.sum()
        assert abs(counts[row] / 20_000 - share) < 5.0 * np.sqrt(share / 20_000)
    again = DrawnCovariates.start(inputs, batch)._drawn(inputs, types)
    assert torch.equal(again[1], codes)


def test_a_type_without_training_events_has_missing_covariates():
    model = with_covariates(ABLE[0].build())
    train = data_with_covariates(11, (6,), types=1)
    inputs = model.covariates
    assert isinstance(inputs, CovariateEmbedding)
    inputs.keep(EventData(list(train), model.vocabulary))
    numbers, codes = DrawnCovariates.start(inputs, model.collator.batch(train, [0]))._drawn(
        inputs, torch.tensor([1, 2])
    )
    assert bool(numbers.isnan().all()) and not codes.any()


def test_futures_are_the_same_for_a_seed_and_others_for_another():
    model = trained(ABLE[0])
    train = data_with_covariates(11, (40, 30))
    assert model.covariates is not None
    model.covariates.keep(train)
    found = [sample(model, train[1], horizon=8.0, n=5, seed=seed) for seed in (1, 1, 2)]
    times = [[one.times.tolist() for one in futures.futures] for futures in found]
    assert times[0] == times[1] != times[2]
    without = sample(model, train[1], horizon=8.0, n=5, seed=1, covariates="missing")
    assert (found[0].covariates, without.covariates) == ("drawn", "missing")
    assert [one.times.tolist() for one in without.futures] != times[0]


def test_future_covariates_of_a_model_without_covariates_are_a_message():
    model, past = ABLE[0].build(), data_with_covariates(3, (4,))[0]
    with pytest.raises(ForetellError, match="without covariates"):
        sample(model, past, horizon=1.0, covariates="missing")
    with pytest.raises(ForetellError, match="drawn"):
        sample(model, past, horizon=1.0, covariates="none")  # pyright: ignore[reportArgumentType]
    assert sample(model, past, horizon=1.0).covariates is None
