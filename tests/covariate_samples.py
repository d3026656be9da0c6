"""Small data with covariates of every kind, from a seed, and models that use them with random parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from foretell.data import EventData
from foretell.data.attributes import AttributeTable, SequenceAttributes
from foretell.data.covariate_columns import attribute_of
from foretell.data.covariates import CategoryColumn, CovariateEncoding, CovariateNames, NumberColumn
from foretell.models.covariates import CovariateEmbedding, add_covariates
from foretell.reference.events import Event, History, Value
from tests.samples import Model, random_data, randomise

# Numbers are multiples of 1/4 and deviations powers of 2, so that standardised ones are exact in float32.
ENCODING = CovariateEncoding(
    (NumberColumn("amount", 0.5, 2.0), CategoryColumn("channel", ("shop", "web")), NumberColumn("size", -1.0, 0.5)),
    (NumberColumn("age", 1.0, 4.0), CategoryColumn("region", ("north", "south"))),
)
EVENTS_ALONE = CovariateEncoding(ENCODING.events, ())
STATIC_ALONE = CovariateEncoding((), ENCODING.static)


def _numbers(random: np.random.Generator, count: int) -> list[Value]:
    return [None if random.random() < 0.3 else float(random.integers(-8, 9)) / 4.0 for _ in range(count)]


def _texts(random: np.random.Generator, count: int, names: Sequence[str]) -> list[Value]:
    return [None if random.random() < 0.3 else str(random.choice(names)) for _ in range(count)]


def data_with_covariates(seed: int, lengths: Sequence[int], *, types: int = 3, ties: bool = False) -> EventData:
    """As `random_data`, with columns that have missing values, and categories that no encoding knows (`fax`, `east`)."""
    plain = random_data(seed, lengths, types=types, ties=ties)
    random = np.random.default_rng(seed + 1)
    events, sequences = sum(lengths), len(lengths)
    channels, regions = ("web", "shop", "fax"), ("north", "south", "east")
    table = AttributeTable(
        {
            "amount": attribute_of(_numbers(random, events)),
            "channel": attribute_of(_texts(random, events, channels)),
            "size": attribute_of(_numbers(random, events)),
        },
        {"age": attribute_of(_numbers(random, sequences)), "region": attribute_of(_texts(random, sequences, regions))},
    )
    starts = np.cumsum([0, *lengths]).tolist()
    known = [
        replace(one, attributes=SequenceAttributes(table, start, place))
        for place, (one, start) in enumerate(zip(plain, starts, strict=False))
    ]
    names = CovariateNames(("amount", "channel", "size"), ("age", "region"))
    return EventData(known, plain.vocabulary, name="sample", covariates=names)


def with_covariates(model: Model, encoding: CovariateEncoding = ENCODING, seed: int = 7) -> Model:
    """The model with these columns, whose vectors are drawn at random."""
    add_covariates(model, encoding)
    inputs = model.covariates
    assert isinstance(inputs, CovariateEmbedding)
    before = {name: one.detach().clone() for name, one in model.named_parameters()}
    randomise(model, seed)
    for name, parameter in model.named_parameters():
        if not name.startswith("covariates."):
            parameter.data.copy_(before[name])
    return model


def value_of(column: NumberColumn | CategoryColumn, raw: object) -> Value:
    """A value of a table as the slow twin reads it."""
    if raw is None or (isinstance(raw, float) and np.isnan(raw)):
        return None
    return float(str(raw)) if isinstance(column, NumberColumn) else str(raw)


def known_history(data: EventData, index: int, encoding: CovariateEncoding = ENCODING) -> History:
    """A sequence as the slow twin reads it, with the covariates of its events."""
    sequence = data[index]
    own = sequence.attributes
    assert own is not None
    columns = {one.name: own.of_events(one.name, len(sequence)) for one in encoding.events}
    rows = []
    for place, (name, time) in enumerate(zip(data.names_of(sequence), sequence.times.tolist(), strict=True)):
        values = [(one.name, _value(one, columns[one.name], place)) for one in encoding.events]
        rows.append(Event(name, time, tuple(values)))
    return tuple(rows)


def static_values(data: EventData, index: int, encoding: CovariateEncoding = ENCODING) -> dict[str, Value]:
    own = data[index].attributes
    assert own is not None
    return {one.name: _value(one, own.of_sequence(one.name), 0) for one in encoding.static}


def _value(column: NumberColumn | CategoryColumn, attribute: object, place: int) -> Value:
    values, categories = attribute.values, attribute.categories  # pyright: ignore[reportAttributeAccessIssue]
    if categories is None:
        return value_of(column, float(values[place]))
    return None if values[place] < 0 else value_of(column, categories[int(values[place])])
