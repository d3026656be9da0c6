"""Scores, predictions and futures that are computed in shards are those of one process, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import foretell as ft
from foretell.data import EventData
from foretell.evaluate.predict import predict_each
from foretell.evaluate.scores import ScoringOptions, score
from foretell.models.base import IntensityModel
from foretell.models.classical.hawkes import Hawkes
from foretell.reproduce.unit import cut
from foretell.sampling.core.futures import sample_futures
from foretell.shards import shard_map
from foretell.shards.place import WorkPlace
from foretell.shards.pool import ShardPool, ThisProcess
from foretell.shards.processes import ProcessPool
from foretell.shards.shard_map import Shards
from tests.samples import random_data, randomise, randomise_rules

LENGTHS = [3, 9, 14, 22, 35, 8, 12, 50, 7, 13, 5, 28]
PROGRAM = (
    ":- event(a). :- event(b). :- event(c). mood <- a. !mood <- c. a :- mood. b :- base. c :- base. a :- base. base."
)


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(shard_map, "SHARD_EVENTS", 40)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def data() -> EventData:
    return random_data(5, LENGTHS)


@pytest.fixture(scope="module")
def pools() -> Iterator[dict[str, ShardPool]]:
    made: dict[str, ShardPool] = {"here": ThisProcess(), "processes": ProcessPool(1)}
    yield made
    for pool in made.values():
        pool.close()


def model_of(kind: str, data: EventData) -> IntensityModel:
    if kind == "anhp":
        return randomise(ft.ANHP(data.vocabulary, dim=4, layers=1, seed=1), 2)
    if kind == "nhp":
        return randomise(ft.NHP(data.vocabulary, dim=4, seed=1), 2)
    if kind == "hawkes":
        model = Hawkes(data.vocabulary)
        ft.fit(model, data)
        return model
    program = ft.Program.from_text(PROGRAM)
    return randomise_rules(ft.ANDTT(program, data.vocabulary, dim=3, layers=1, seed=1), 2)


def shards_of(folder: Path, pool: ShardPool) -> Shards:
    return Shards(WorkPlace(), folder, {}, pool=pool)


def same(one: Any, two: Any) -> None:
    for field in fields(one):
        first, second = getattr(one, field.name), getattr(two, field.name)
        if isinstance(first, np.ndarray):
            assert first.dtype == second.dtype
            np.testing.assert_array_equal(first, second, field.name)
        else:
            assert first == second, field.name


@pytest.mark.parametrize(
    ("kind", "options", "place"),
    [
        ("anhp", ScoringOptions(points=2), "processes"),
        ("anhp", ScoringOptions("uniform", 3, "events-2-to-I", times=False, seed=4), "processes"),
        ("nhp", ScoringOptions("stratified", 5, times=False, seed=1), "here"),
        ("nhp", ScoringOptions(times=False), "here"),
        ("hawkes", ScoringOptions(), "here"),
        ("andtt", ScoringOptions(times=False), "processes"),
    ],
)
def test_scores(kind: str, options: ScoringOptions, place: str, data: EventData, pools, tmp_path: Path):
    model = model_of(kind, data)
    alone = score(model, data, options)
    apart = score(model, data, options, shards=shards_of(tmp_path, pools[place]))
    assert len(list(tmp_path.glob("scores-*/shard-*.parquet"))) >= 3
    same(apart.events, alone.events)
    assert (apart.times is None) == (alone.times is None)
    if alone.times is not None:
        same(apart.times, alone.times)
    assert apart.evaluation.to_json() == alone.evaluation.to_json()
    again = score(model, data, options, shards=shards_of(tmp_path, pools["here"]))  # from the files
    same(again.events, alone.events)


def test_participants_that_are_guessed(pools, tmp_path: Path):
    dataset = ft.load("robocup")
    assert dataset.train is not None
    data = cut(dataset.train.select([0]), events=120)
    model = randomise(ft.ANHP(data.vocabulary, dim=4, layers=1, seed=1), 2)
    options = ScoringOptions(times=False, predict=("pass(+P,-Q)", "kick(-P)"))
    alone, apart = score(model, data, options), score(model, data, options, shards=shards_of(tmp_path, pools["here"]))
    assert len(alone.record.guesses) == 2 and len(alone.record.guesses[0].event) > 3
    for one, two in zip(apart.record.guesses, alone.record.guesses, strict=True):
        same(one, two)


@pytest.mark.parametrize(("kind", "place"), [("anhp", "processes"), ("andtt", "here")])
def test_predictions(kind: str, place: str, data: EventData, pools, tmp_path: Path):
    model = model_of(kind, data)
    data = data.select(range(4))
    asked: dict[str, Any] = {"by": "both", "n": 8, "seed": 3, "pattern": "a", "start": 8.0}
    alone = predict_each(model, data, **asked)
    apart = predict_each(model, data, **asked, shards=shards_of(tmp_path, pools[place]))
    assert [one.to_json() for one in apart] == [one.to_json() for one in alone]
    assert [one.outlook for one in apart] == [one.outlook for one in alone]


@pytest.mark.parametrize(("kind", "place"), [("anhp", "here"), ("andtt", "processes")])
def test_futures(kind: str, place: str, data: EventData, pools, tmp_path: Path):
    model = model_of(kind, data)
    data = data.select(range(4))
    asked: dict[str, Any] = {"horizon": 1.0, "n": 16, "seed": 3, "events": 2, "start": 8.0}
    alone = sample_futures(model, data, **asked)
    apart = sample_futures(model, data, **asked, shards=shards_of(tmp_path, pools[place]))
    assert len(list(tmp_path.glob("futures-*/shard-*.parquet"))) >= 3
    assert [one.to_json() for one in apart] == [one.to_json() for one in alone]
    assert sample_futures(model, [], **asked, shards=shards_of(tmp_path, pools[place])) == []
