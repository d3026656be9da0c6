"""Every model is explained: by rules, or by what its intensities would be without each past event."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from foretell.data import EventSequence
from foretell.evaluate.explain import Explanation, explain
from foretell.evaluate.leave_out import PastExplanation
from foretell.models.base import IntensityModel
from foretell.models.rules.rule_model import RuleModel
from tests.calendar_samples import dated
from tests.samples import event_data, random_rows

HISTORY = dated(event_data(random_rows(43, [9]), t_end=10.0))[0]
AT = float(HISTORY.times[-2:].mean())  # the last event is yet to come


def without(history: EventSequence, *places: int) -> EventSequence:
    """The slow twin: a history in which some events never happened."""
    return replace(history, times=np.delete(history.times, places), types=np.delete(history.types, places))


def test_what_is_explained_is_the_models_own_intensity(model: IntensityModel):
    found = explain(model, HISTORY, AT)
    assert isinstance(found, Explanation if isinstance(model, RuleModel) else PastExplanation)
    rates = dict(zip(model.vocabulary.names, model.intensity(HISTORY, [AT])[0].tolist(), strict=True))
    possible = {name: rate for name, rate in rates.items() if rate > 0.0}
    assert found.intensities == pytest.approx(possible, rel=1e-10)
    assert found.event == max(possible, key=lambda name: possible[name])


def test_effects_are_what_intensities_lose_without_each_event(model: IntensityModel):
    if isinstance(model, RuleModel):
        return  # taken apart by rules; tests/models have those
    name = model.vocabulary.names[1]
    found = explain(model, HISTORY, AT, name)
    assert isinstance(found, PastExplanation)
    seen = int((HISTORY.times < AT).sum())
    assert 0 < seen < len(HISTORY) and len(found.past) == found.seen == seen and found.older == 0
    whole = model.intensity(HISTORY, [AT])[0]
    for one in found.past:
        place = one.event_index - 1
        rest = model.intensity(without(HISTORY, place), [AT])[0]
        assert one.effect == pytest.approx(math.log(whole[1] / rest[1]), rel=1e-9, abs=1e-12)
        assert one.total_effect == pytest.approx(math.log(whole.sum() / rest.sum()), rel=1e-9, abs=1e-12)
        assert (one.event, one.time) == (model.vocabulary.names[HISTORY.types[place]], HISTORY.times[place])
    sizes = [abs(one.effect) for one in found.past]
    assert sizes == sorted(sizes, reverse=True)


def test_older_events_are_left_out_together(model: IntensityModel):
    if isinstance(model, RuleModel):
        return
    done: list[tuple[int, int]] = []
    found = explain(model, HISTORY, AT, most=3, progress=lambda *step: done.append(step))
    assert isinstance(found, PastExplanation)
    assert sorted(one.event_index for one in found.past) == list(range(found.seen - 2, found.seen + 1))
    assert found.older == found.seen - 3 and done[-1] == (5, 5)
    kind = model.vocabulary.names.index(found.event)
    rest = model.intensity(without(HISTORY, *range(found.older)), [AT])[0, kind]
    assert found.older_effect == pytest.approx(math.log(found.intensity / rest), rel=1e-9, abs=1e-12)
