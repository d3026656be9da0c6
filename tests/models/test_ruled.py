"""What models made of rules start from: the rates of functors while they are possible."""

from __future__ import annotations

import numpy as np
import pytest

from foretell.data import EventData, EventSequence, Vocabulary
from foretell.lang.program import Program
from foretell.models.andtt import ANDTT
from foretell.models.ndtt import NDTT

RULES = """
:- event(work, 0). :- event(rest, 0). :- exogenous(night, 0).
:- embed(dark, 0).
work.
dark <- night.
rest :- dark.
"""


@pytest.mark.parametrize("kind", [NDTT, ANDTT])
@pytest.mark.parametrize("unit", [1.0, 3600.0])
def test_a_functor_that_was_never_possible_in_training_starts_with_half_an_event_in_all_its_time(
    kind: type[NDTT] | type[ANDTT], unit: float
):
    vocabulary = Vocabulary(("work", "rest", "night"))
    data = EventData([EventSequence(np.array([1.0, 2.0]) * unit, np.array([0, 0]), 4.0 * unit)], vocabulary)
    model = kind(Program.from_text(RULES, dim=2), vocabulary, dim=2)
    model.prepare(data)
    later = EventSequence(np.array([1.0 * unit]), np.array([2]), 4.0 * unit)
    (found,) = model.possible_intensities(later, [2.0 * unit])
    assert found == pytest.approx({"work": 2.5 / 4.0 / unit, "rest": 0.5 / 4.0 / unit}, rel=1e-5)
