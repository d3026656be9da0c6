"""What models made of rules start from: the rates of functors while they are possible, and their seed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from foretell.data import EventData, EventSequence, Vocabulary
from foretell.lang.program import Program
from foretell.models.build import load_model, save_model
from foretell.models.rules.andtt import ANDTT
from foretell.models.rules.ndtt import NDTT

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
    model = kind(Program.from_text(RULES, dim=2), vocabulary, dim=2, intensity_scales=0)
    model.prepare(data)
    later = EventSequence(np.array([1.0 * unit]), np.array([2]), 4.0 * unit)
    (found,) = model.possible_intensities(later, [2.0 * unit])
    assert found == pytest.approx({"work": 2.5 / 4.0 / unit, "rest": 0.5 / 4.0 / unit}, rel=1e-5)


@pytest.mark.parametrize("kind", [NDTT, ANDTT])
def test_names_that_training_never_met_start_alike_before_and_after_saving(
    kind: type[NDTT] | type[ANDTT], tmp_path: Path
):
    text = ":- event(go, 2). :- exogenous(come, 0). :- embed(here, 0).\nhere(X) <- come(X).\ngo(X) :- here(X) :: habit(X).\n"
    vocabulary = Vocabulary(("come(ann)", "come(bob)", "go(ann)"))
    data = EventData([EventSequence(np.array([0.5, 1.0]), np.array([0, 2]), 2.0)], vocabulary)
    model = kind(Program.from_text(text, dim=2), vocabulary, dim=2, seed=5)
    model.prepare(data)
    save_model(model, tmp_path / "model.safetensors")
    again = load_model(tmp_path / "model.safetensors")
    stranger = EventSequence(np.array([0.5]), np.array([1]), 2.0)
    assert model.possible_intensities(stranger, [1.0]) == again.possible_intensities(stranger, [1.0])
