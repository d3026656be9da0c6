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
    with pytest.raises(ForetellError, match="expected the events of one split"):
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


CALLS = {
    "fit": lambda model, wrong: ft.fit(model, wrong),
    "fit, dev": lambda model, wrong: ft.fit(model, one_split(), wrong),
    "pretrain": lambda model, wrong: ft.pretrain(model, wrong),
    "classify": lambda model, wrong: ft.classify(model, wrong, label="x"),
    "evaluate": lambda model, wrong: ft.evaluate(model, wrong),
    "predict_each": lambda model, wrong: ft.predict_each(model, wrong),
    "intensities_at": lambda model, wrong: ft.intensities_at(model, wrong, [1.0]),
    "embeddings_of": lambda model, wrong: ft.embeddings_of(model, wrong),
    "score_labels": lambda model, wrong: ft.score_labels(model, wrong),
    "score_masked": lambda model, wrong: ft.score_masked(model, wrong, mask=0.1, drop=0.1),
    "predict_labels": lambda model, wrong: ft.predict_labels(model, wrong),
    "sample_futures": lambda model, wrong: ft.sample_futures(model, wrong, horizon=1.0),
    "sample_next": lambda model, wrong: ft.sample_next(model, wrong, n=1),
    "predict": lambda model, wrong: ft.predict(model, wrong),
    "sample": lambda model, wrong: ft.sample(model, wrong, horizon=1.0),
    "explain": lambda model, wrong: ft.explain(model, wrong, 1.0),
}
WRONG = {"lists": [[1, 2, 3]], "a number": 3, "text": "data.csv", "a data set": ft.load("robocup")}


def one_split() -> ft.EventData:
    return ft.EventData.from_names([["visit", "test"]], [[0.5, 2.0]], t_ends=[10.0])


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("call", CALLS)
def test_what_is_no_split_or_no_history_is_said(call: str, wrong: str):
    with pytest.raises(ForetellError, match=r"expected (the events of one split|one sequence)"):
        CALLS[call](ft.ANHP(2, dim=4, layers=1), WRONG[wrong])


@pytest.mark.parametrize("call", sorted(set(CALLS) - {"fit", "fit, dev", "sample_futures", "sample_next", "sample"}))
def test_what_is_no_model_is_said(call: str):
    with pytest.raises(ForetellError, match="model: expected a model"):
        CALLS[call]("anhp", one_split())


def test_the_message_names_the_way():
    with pytest.raises(ForetellError, match="found Dataset; give one of its splits: train, dev, test"):
        ft.fit(ft.NHP(2), ft.load("robocup"))  # pyright: ignore[reportArgumentType]
    with pytest.raises(ForetellError, match=r"found None; the data set may have no such split"):
        ft.evaluate(ft.NHP(2), None)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ForetellError, match="from_frame reads a data frame"):
        ft.fit(ft.NHP(2), __import__("pandas").DataFrame({"a": [1]}))
