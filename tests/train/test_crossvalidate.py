"""The search for settings: what it may see, how it shares sequences out, and that it goes on where it was stopped."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from foretell.errors import ForetellError

HERE = Path(__file__).resolve()
SCRIPT = next(
    folder / "experiments" / "crossvalidate.py" for folder in HERE.parents if (folder / "pyproject.toml").exists()
)


@pytest.fixture(scope="module")
def search():
    spec = importlib.util.spec_from_file_location("crossvalidate", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["crossvalidate"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["crossvalidate"]


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    made = tmp_path / "data"
    made.mkdir()
    for split, count in (("train", 16), ("dev", 4)):
        rows = [
            {"times": np.sort(rng.uniform(0, 9, 6)).tolist(), "types": rng.integers(0, 2, 6).tolist(), "t_end": 10.0}
            for _ in range(count)
        ]
        (made / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (made / "test.jsonl").write_text("nobody may read this")
    (made / "dataset.toml").write_text('name = "toy"\ntypes = 2\n')
    return made


def bench_of(search, folder, log, **options):
    made = search.Search(folds=4, draws=2, rungs=(1, 2), keep=(1, 1), **options)
    return search.Bench(search.without_test(str(folder)), made, search.Log(log, {"count": 4}))


def test_the_file_of_test_is_not_opened(search, folder):
    assert len(search.without_test(str(folder))) == 20


def test_folds_score_every_sequence_once_and_never_one_that_was_fitted(search):
    options = search.Search(folds=4)
    scored = []
    for number in range(4):
        fitted, stopping, held = search.partition(21, number, options)
        assert sorted([*fitted, *stopping, *held]) == list(range(21))
        scored += held.tolist()
    assert sorted(scored) == list(range(21))
    assert not np.array_equal(search.partition(21, 0, options)[2], search.partition(21, 4, options)[2])


def test_a_neighbour_differs_in_one_or_two_keys_and_stays_in_the_space(search):
    table = {"model": {"kind": "anhp", "dim": [4, 8], "layers": [1, 2, 3]}, "train": {"lr": [0.1, 0.2], "epochs": 3}}
    space = search.Space.read(table, "space")
    rng = np.random.default_rng(0)
    start = space.draw(1, rng)[0]
    for _ in range(50):
        near = space.near(start, rng)
        changed = [k for k in space.choices if near[k[0]][k[1]] != start[k[0]][k[1]]]
        assert len(changed) in (1, 2)
        assert all(near[s][k] in values for (s, k), values in space.choices.items())


def test_a_search_that_was_stopped_repeats_no_fit_and_ends_the_same(search, folder, tmp_path, monkeypatch):
    space = search.Space.read({"model": {"kind": "hawkes", "decays": [1, 2]}}, "space")
    whole = search.run(bench_of(search, folder, tmp_path / "whole.json"), space)
    fits = []
    original = search.Bench.fold

    def counted(self, setting, number):
        if len(fits) == 2:
            raise KeyboardInterrupt
        fits.append((search.name_of(setting), number))
        return original(self, setting, number)

    monkeypatch.setattr(search.Bench, "fold", counted)
    with pytest.raises(KeyboardInterrupt):
        search.run(bench_of(search, folder, tmp_path / "log.json"), space)
    before, fits = fits, []
    assert search.run(bench_of(search, folder, tmp_path / "log.json"), space) == whole
    assert fits and not set(before) & set(fits)


def test_a_log_of_other_folds_is_refused(search, tmp_path):
    log = search.Log(tmp_path / "log.json", {"count": 5})
    log.write()
    with pytest.raises(ForetellError, match="made with folds"):
        search.Log(tmp_path / "log.json", {"count": 4})
