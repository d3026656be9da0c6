"""Training with covariates: effects are found, runs resume and load, and what is not used is said."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from foretell.data import EventData, EventSequence, Vocabulary
from foretell.data.attributes import AttributeTable, SequenceAttributes
from foretell.data.covariate_columns import attribute_of
from foretell.data.covariates import CovariateNames
from foretell.errors import ForetellError
from foretell.models.base import IntensityModel
from foretell.models.build import load_model, save_model
from foretell.models.classical.poisson import Poisson
from foretell.models.covariates import KEPT_PER_TYPE
from foretell.models.recurrent.nhp import NHP
from foretell.models.recurrent.rmtpp import RMTPP
from foretell.models.state_space.s2p2 import S2P2
from foretell.train.config import make_config
from foretell.train.fit import TrainingInterrupt, fit, initialised
from foretell.train.label_tasks import classify, pretrain
from foretell.train.likelihood_task import mean_log_likelihood
from foretell.train.run import RunFolder
from tests.train.small import small_model
from tests.train.test_resume import same_run

NAMES = CovariateNames(("amount",), ("age",))
VOCABULARY = Vocabulary(("a", "b"))


def made_up(sequences: int, seed: int, names: CovariateNames = NAMES) -> EventData:
    """Gaps are exponential with the rate exp(amount of the last event + age); one in ten amounts is missing, and counts as 0."""
    random = np.random.default_rng(seed)
    amounts: list[object] = []
    ages: list[object] = []
    rows: list[tuple[np.ndarray, np.ndarray, float]] = []
    for _ in range(sequences):
        age, last, time, times = float(random.normal()), 0.0, 0.0, []
        ages.append(age)
        for _ in range(10):
            time += float(random.exponential(np.exp(-last - age)))
            times.append(time)
            missing = random.random() < 0.1
            last = 0.0 if missing else float(random.normal())
            amounts.append(None if missing else last)
        rows.append((np.array(times), random.integers(0, 2, 10).astype(np.int32), time))
    table = AttributeTable({"amount": attribute_of(amounts)}, {"age": attribute_of(ages)})
    made = [
        EventSequence(*row, str(place), attributes=SequenceAttributes(table, 10 * place, place))
        for place, row in enumerate(rows)
    ]
    return EventData(made, VOCABULARY, name="made up", covariates=names)


def truth(data: EventData) -> float:
    """The log-likelihood per event of the process itself."""
    found = 0.0
    for one in data:
        own = one.attributes
        assert own is not None
        amounts, age = own.of_events("amount", 10), own.of_sequence("age")
        assert amounts is not None and age is not None
        before = np.append(0.0, np.nan_to_num(amounts.values[:-1])) + age.values[0]
        gaps = np.diff(one.times, prepend=0.0)
        found += float((before - np.log(2.0) - np.exp(before) * gaps).sum())
    return found / data.event_count


TRAIN, TEST = made_up(300, 0), made_up(100, 1)


def test_the_effects_of_a_made_up_log_are_found():
    names = [NAMES, CovariateNames(("amount",)), CovariateNames((), ("age",)), CovariateNames()]
    found = []
    for one in names:
        model = RMTPP(VOCABULARY, dim=8, seed=1)
        fit(model, replace(TRAIN, covariates=one), epochs=25, lr=1e-2, batch=30)
        found.append(mean_log_likelihood(model, TEST, 1, "all"))
    best, amount, age, nothing = found
    assert best > max(amount, age) + 0.1 and min(amount, age) > nothing + 0.1
    assert best > truth(TEST) - 0.1


CASES = [(NHP, "mle"), (NHP, "nce"), (S2P2, "mle"), (RMTPP, "mle"), (small_model, "mle"), (small_model, "nce")]


@pytest.mark.parametrize(("make", "objective"), CASES)
def test_a_saved_model_says_the_same(make: Any, objective: str, tmp_path: Path):
    model: IntensityModel = make(TRAIN if make is small_model else VOCABULARY, dim=4)
    fit(model, TRAIN, epochs=1, batch=100, objective=objective)
    assert model.covariates is not None and model.covariates.event.numbers is not None
    assert bool((model.covariates.event.numbers != 0).all())
    save_model(model, tmp_path / "model.safetensors")
    again = load_model(tmp_path / "model.safetensors")
    assert again.covariates is not None and again.covariates.encoding == model.covariates.encoding
    times = [0.1, 2.0]
    assert (again.intensity(TEST[0], times) == model.intensity(TEST[0], times)).all()
    futures = [one.sample(TEST[0], horizon=2.0, n=3, seed=4) for one in (model, again)]
    assert futures[0].to_json() == futures[1].to_json()
    assert len(again.covariates.kept_numbers) == 2 * KEPT_PER_TYPE


def test_a_stopped_run_goes_on_as_if_nothing_had_happened(tmp_path: Path):
    def trained(name: str, stop: bool = False, resume: bool = False) -> None:
        path = tmp_path / name
        run = RunFolder.open(path) if resume else RunFolder.create(path, make_config({}))
        asked = iter([False] * 4 + [True] + [False] * 100)
        fit(
            NHP(VOCABULARY, dim=4), TRAIN, TEST, run=run, resume=resume, epochs=3, batch=100,
            stop=(lambda: next(asked)) if stop else None,
        )  # fmt: skip

    trained("whole")
    with pytest.raises(TrainingInterrupt):
        trained("cut", stop=True)
    trained("cut", resume=True)
    assert same_run(tmp_path / "whole", tmp_path / "cut")


def test_columns_that_are_not_used_are_said(caplog: pytest.LogCaptureFixture):
    fit(Poisson(VOCABULARY), TRAIN)
    assert "Poisson cannot use covariates, and does without `amount` and `age`" in caplog.text
    caplog.clear()
    model = NHP(VOCABULARY, dim=4)
    fit(model, replace(TRAIN, covariates=CovariateNames(("amount",))), epochs=1)
    assert not caplog.text
    fit(model, TRAIN, epochs=1)
    assert "NHP was begun with others, and does without `age`" in caplog.text


def test_data_without_the_columns_have_missing_values_and_that_is_said_once(caplog: pytest.LogCaptureFixture):
    model = NHP(VOCABULARY, dim=4)
    fit(model, TRAIN, epochs=1)
    bare = EventData([replace(one, attributes=None) for one in TEST], VOCABULARY)
    found = model.intensity(bare[0], [1.0])
    model.intensity(bare[1], [1.0])
    assert caplog.text.count("taken as missing: amount, age") == 1
    empty = AttributeTable({"amount": attribute_of([None] * 1000)}, {"age": attribute_of([None] * 100)})
    same = replace(TEST[0], attributes=SequenceAttributes(empty, 0, 0))
    assert (found == model.intensity(same, [1.0])).all()


def test_a_model_starts_from_another_with_its_covariates():
    source = small_model(TRAIN)
    fit(source, TRAIN, epochs=1)
    for changes in ({}, {"coarse": "none"}):  # all of it, or the encoder
        config = make_config({"train": {"init": "source"}, "model": {"kind": "anhp"}})
        made, _ = initialised(config, small_model(TRAIN, **changes), source, TRAIN)
        assert made.covariates is not None and source.covariates is not None
        torch.testing.assert_close(made.covariates.state_dict(), source.covariates.state_dict(), rtol=0.0, atol=0.0)


def test_other_tasks_do_without(caplog: pytest.LogCaptureFixture):
    pretrain(small_model(TRAIN), TRAIN, epochs=1)
    assert "pretrain cannot use covariates, and does without `amount` and `age`" in caplog.text
    source = small_model(TRAIN)
    fit(source, TRAIN, epochs=1)
    with pytest.raises(ForetellError, match="has covariates, which this task cannot use"):
        classify(source, TRAIN, label="kind")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kept": -1}, "keeps the covariates of -1 events"),
        ({"kept": 3}, "size mismatch"),
        ({"covariates": {"events": 3, "static": []}}, "its covariates are"),
        ({"covariates": {"events": [{"name": "amount", "kind": "number", "mean": 0, "scale": 0}], "static": []}}, "scale"),
    ],
)  # fmt: skip
def test_a_file_with_other_covariates_is_a_message(change: dict[str, Any], message: str, tmp_path: Path):
    model, path = NHP(VOCABULARY, dim=4), tmp_path / "model.safetensors"
    fit(model, TRAIN, epochs=1)
    save_model(model, path)
    with safe_open(path, "pt") as file:
        said = json.loads(file.metadata()["foretell"])
    save_file(load_file(path), path, {"foretell": json.dumps(said | change)})
    with pytest.raises(ForetellError, match=message):
        load_model(path)


def test_rows_that_do_not_fit_the_types_are_a_message(tmp_path: Path):
    model, path = NHP(VOCABULARY, dim=4), tmp_path / "model.safetensors"
    fit(model, TRAIN, epochs=1)
    assert model.covariates is not None
    model.covariates.kept_offsets[1] += 10_000
    save_model(model, path)
    with pytest.raises(ForetellError, match="do not fit its types"):
        load_model(path)
