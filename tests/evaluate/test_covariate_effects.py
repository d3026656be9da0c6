"""What covariates do: effects are those of changed data, and a column without vectors does nothing."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from foretell.data import EventData
from foretell.data.attributes import Attribute
from foretell.errors import ForetellError
from foretell.evaluate.covariate_effects import covariate_effects
from foretell.models.base import IntensityModel
from foretell.report.covariate_tables import covariate_table
from tests.contract.members import MEMBERS
from tests.covariate_samples import ENCODING, data_with_covariates, with_covariates

DATA = data_with_covariates(3, (9, 7, 12, 5, 8, 6))


def built() -> IntensityModel:
    return with_covariates(next(one for one in MEMBERS if one.name == "nhp").build())


def raised(data: EventData, name: str, by: float, static: bool) -> EventData:
    field = "sequence_attributes" if static else "attributes"
    table = dict(getattr(data.columns, field))
    table[name] = Attribute(table[name].values + by)
    return replace(data, sequences=replace(data.columns, **{field: table}))


@pytest.mark.parametrize(("name", "place", "static"), [("amount", 0, False), ("age", 0, True)])
def test_the_effect_of_a_number_is_the_mean_change_of_the_logarithm_of_the_total(name: str, place: int, static: bool):
    model = built()
    found = {one.column: one for one in covariate_effects(model, DATA)}
    column = (ENCODING.static if static else ENCODING.events)[place]
    other, changes = raised(DATA, name, column.scale, static), []  # pyright: ignore[reportAttributeAccessIssue]
    for one, changed in zip(DATA, other, strict=True):
        logs = [np.log(model.intensity(history, history.times).sum(1)) for history in (one, changed)]
        changes += (logs[1] - logs[0])[0 if static else 1 :].tolist()
    ((said, effect),) = found[name].effects
    assert said == "+1 sd"
    assert effect.value == pytest.approx(np.mean(changes), rel=1e-5)
    assert effect.low <= effect.value <= effect.high


def test_a_column_without_vectors_does_nothing_and_the_others_are_in_order():
    model = built()
    assert model.covariates is not None and model.covariates.event.numbers is not None
    with torch.no_grad():
        numbers = model.covariates.event.numbers
        numbers[1], numbers[3] = 0.0, 0.0  # of `size`: its slope, and what its absence adds
    found = covariate_effects(model, DATA)
    assert {one.column for one in found} == {"amount", "channel", "size", "age", "region"}
    size = next(one for one in found if one.column == "size")
    assert size.importance.value == pytest.approx(0.0, abs=1e-9)
    assert size.effects[0][1].value == pytest.approx(0.0, abs=1e-9)
    importances = [one.importance.value for one in found]
    assert importances == sorted(importances, reverse=True)
    assert any(abs(one) > 1e-3 for one in importances)
    region = next(one for one in found if one.column == "region")
    assert {name for name, _ in region.effects} == {"north", "south"}


def test_a_model_without_covariates_is_a_message():
    with pytest.raises(ForetellError, match="without covariates"):
        covariate_effects(next(one for one in MEMBERS if one.name == "nhp").build(), DATA)


def test_effects_are_a_table_and_json():
    found = covariate_effects(built(), DATA)
    table = covariate_table(found)
    assert table.row_count == sum(max(len(one.effects), 1) for one in found)
    plain = json.loads(json.dumps([one.to_json() for one in found]))
    assert plain[0].keys() == {"column", "static", "importance", "effects"}
    assert plain[0]["importance"].keys() == {"value", "low", "high"}
