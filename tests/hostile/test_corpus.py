"""Crash classes that were found once, each as the smallest input that showed it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from foretell.data import EventSequence, Vocabulary, load_file
from foretell.errors import ForetellError
from foretell.models.attention.anhp import ANHP
from foretell.models.base import IntensityModel
from foretell.models.build import load_model, save_model
from foretell.models.classical.hawkes import Hawkes
from foretell.models.classical.poisson import Poisson
from foretell.models.last_event.thp import THP
from foretell.models.recurrent.nhp import NHP

PAST = EventSequence([0.5, 1.0], [1, 0], 2.0)
WORDS = Vocabulary(("a", "b"))
SMALL = {
    "anhp": lambda: ANHP(WORDS, dim=4),
    "nhp": lambda: NHP(WORDS, dim=4),
    "thp": lambda: THP(WORDS, dim=4),
    "poisson": lambda: Poisson(WORDS),
}


def test_times_as_text_in_one_sequence_and_numbers_in_another_are_a_message(tmp_path: Path):
    rows = [{"times": [1.0, 2.0], "events": ["a", "b"]}, {"times": ["2021-01-01", "2021-01-02"], "events": ["a", "a"]}]
    for order in (rows, rows[::-1]):
        (tmp_path / "x.jsonl").write_text("".join(json.dumps(row) + "\n" for row in order))
        with pytest.raises(ForetellError, match="times"):
            load_file(tmp_path / "x.jsonl")


@pytest.mark.parametrize(("name", "value"), [("mu", -1.0), ("alpha", -1e300), ("beta", 0.0), ("beta", -1.0)])
def test_a_hawkes_process_with_rates_that_none_has_is_not_loaded(name: str, value: float, tmp_path: Path):
    model = Hawkes(WORDS)
    with torch.no_grad():
        getattr(model, name).fill_(value)
    save_model(model, tmp_path / "model.safetensors")
    with pytest.raises(ForetellError, match=f"not a foretell model.*{name}"):
        load_model(tmp_path / "model.safetensors")


def large(model: IntensityModel, value: float) -> IntensityModel:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(value * torch.sign(parameter + 1e-30))
    return model.eval()


@pytest.mark.parametrize("value", [1e30, 1e150, 1e300])
@pytest.mark.parametrize("kind", ["anhp", "nhp", "thp", "poisson"])
def test_drawing_from_parameters_that_overflow_ends_soon_in_draws_or_a_message(kind: str, value: float):
    model = large(SMALL[kind](), value)
    try:
        model.sample(PAST, horizon=0.5, n=2, seed=0, events=20)
    except ForetellError as error:
        assert "nothing can be drawn" in str(error)


def test_a_poisson_process_whose_rates_underflow_draws_nothing():
    model = Poisson(WORDS)
    with torch.no_grad():
        model.log_rate.fill_(-1e30)
    futures = model.sample(PAST, horizon=0.5, n=2, seed=0)
    assert all(len(one.times) == 0 for one in futures.futures)
