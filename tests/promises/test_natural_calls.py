"""What people type first in Python works, or says what is wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import foretell as ft
from foretell.errors import ForetellError


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    lines = ["patient,when,code"]
    for patient in range(12):
        for when in np.sort(rng.uniform(0.0, 9.0, 6)):
            lines.append(f"p{patient},{when},{rng.choice(['Blood test', 'GP visit'])}")
    path = tmp_path / "visits.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


COLUMNS = {"sequence": "patient", "time": "when", "event": "code"}


def test_columns_may_be_a_dict_and_a_data_set_prints_on_one_line(csv: Path):
    data = ft.load(csv, columns=COLUMNS)
    assert "72 events" in repr(data) and "\n" not in repr(data)


def test_models_and_runs_are_opened_by_plain_strings(csv: Path, tmp_path: Path):
    data = ft.load(csv, columns=COLUMNS)
    model = ft.Poisson(data.vocabulary)
    ft.fit(model, data.train)
    ft.save_model(model, str(tmp_path / "m.safetensors"))
    again = ft.load_model(str(tmp_path / "m.safetensors"))
    assert again.longest == model.longest and again.unseen == model.unseen
    with pytest.raises(ForetellError, match="no such run folder"):
        ft.RunFolder.open(str(tmp_path / "nowhere"))


def test_wrong_words_and_times_are_refused(csv: Path):
    data = ft.load(csv, columns=COLUMNS)
    model = ft.Poisson(data.vocabulary)
    ft.fit(model, data.train)
    with pytest.raises(ForetellError, match="integral = 'quad'"):
        ft.evaluate(model, data.train, integral="quad")
    with pytest.raises(ForetellError, match="no data to score"):
        ft.evaluate(model, data.test)
    for times in ([float("nan")], [-3.0]):
        with pytest.raises(ForetellError, match="numbers from 0 on"):
            model.intensity(data.train[0], times)
    assert ft.intensities_at(model, data.train, 5.0)[0].intensities.shape == (1, 2)


def test_floors_are_fitted_to_everything_or_not_at_all(csv: Path):
    data = ft.load(csv, columns=COLUMNS)
    with pytest.raises(ForetellError, match='train with window = "all"'):
        ft.fit(ft.Poisson(data.vocabulary), data.train, window="events-2-to-I")


def test_hawkes_fits_in_float32_and_on_data_that_end_with_their_events():
    import torch

    one_each = [ft.EventSequence(np.array([1.0 + k]), np.array([0]), 1.0 + k, str(k)) for k in range(5)]
    data = ft.EventData(one_each, ft.Vocabulary(("visit",)))
    model = ft.Hawkes(data.vocabulary, dtype=torch.float32)
    assert np.isfinite(ft.fit(model, data).best) and model.dtype == torch.float32
