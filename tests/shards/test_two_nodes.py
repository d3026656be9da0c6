"""A Ray cluster of two nodes on one machine scores as one process does, also when a node dies in the middle; and a search on Ray."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import foretell as ft
from foretell.data import EventData
from foretell.evaluate.scores import ScoringOptions, score
from foretell.shards import shard_map
from foretell.shards.place import WorkPlace
from foretell.shards.shard_map import Shards, tables_of
from foretell.shards.store import joined
from tests.cli.invoking import fine
from tests.samples import randomise
from tests.shards.works import Orders, begun, items, squares
from tests.train.small import folder_of

ray = pytest.importorskip("ray", reason="Ray is not installed (the extra cluster)")
pytestmark = pytest.mark.slow
OPTIONS = ScoringOptions(points=5)


@pytest.fixture
def cluster() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    memory = 200 * 2**20
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": memory})
    made.second = made.add_node(num_cpus=1, object_store_memory=memory)
    yield made
    ray.shutdown()
    made.shutdown()


@pytest.fixture
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def games() -> EventData:
    """Windows of the embedded games."""
    found = ft.load("robocup").train
    assert found is not None
    sequences = []
    for one in found:
        first = 0
        for length in (3, 5, 8, 12, 18, 27, 40, 60, 90):  # so different that each makes batches of its own
            part = slice(first, first + length)
            times = one.times[part] - (one.times[first - 1] if first else 0.0)
            sequences.append(ft.EventSequence(times, one.types[part], float(times[-1]), f"{one.id}-{first}"))
            first += length
    return ft.EventData(sequences, found.vocabulary, name="games")


@pytest.mark.parametrize("killed", [False, True], ids=["whole", "a node is killed"])
def test_two_nodes_score_as_one_process(
    killed: bool, cluster: Any, one_thread: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(shard_map, "SHARD_EVENTS", 1)  # a shard for each batch
    data = games()
    model = randomise(ft.ANHP(data.vocabulary, dim=8, layers=1, seed=1), 2)
    alone = score(model, data, OPTIONS)
    said: list[str] = []
    shards = Shards(WorkPlace("ray", None, cluster.address), tmp_path, {}, said.append)

    def kill() -> None:
        until = time.monotonic() + 120.0
        while not list(tmp_path.glob("next-times-*/shard-*.parquet")) and time.monotonic() < until:
            time.sleep(0.01)
        cluster.remove_node(cluster.second, allow_graceful=False)

    killer = threading.Thread(target=kill, daemon=True)
    if killed:
        killer.start()
    apart = score(model, data, OPTIONS, shards=shards)
    if killed:
        killer.join(60.0)
        assert not killer.is_alive()
        assert not cluster.second.any_processes_alive()
    shards.close()
    assert len(list(tmp_path.glob("*/shard-*.parquet"))) > 6
    for name in ("log_intensity", "integral", "tail", "predicted_type"):
        np.testing.assert_array_equal(getattr(apart.events, name), getattr(alone.events, name))
    assert apart.times is not None and alone.times is not None
    np.testing.assert_array_equal(apart.times.predicted, alone.times.predicted)
    assert apart.evaluation.to_json() == alone.evaluation.to_json()


def test_a_killed_node_costs_the_shards_that_it_was_at(cluster: Any, tmp_path: Path, capsys: Any):
    said: list[str] = []
    shards = Shards(WorkPlace("ray", None, cluster.address), tmp_path / "shards", {}, said.append)

    def kill() -> None:
        while len(list(tmp_path.glob("begun-*"))) < 2:  # both nodes are at work
            time.sleep(0.01)
        cluster.remove_node(cluster.second, allow_graceful=False)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    found = joined(tables_of("sums", squares, Orders(tmp_path, wait=3.0), items(4), shards, None))
    killer.join(60.0)
    shards.close()
    assert found["square"].tolist() == [number**2 / 3.0 for number in range(4)]
    assert any("is done again" in line for line in said) and len(begun(tmp_path)) > 4
    assert capsys.readouterr().out == ""


SPACE = (
    '[data]\npath = "{}"\n[model]\nkind = "anhp"\ndim = [2, 4]\nlayers = 1\n[train]\nepochs = 2\nlr = [1e-2, 1e-3]\n'
)


def test_a_search_on_ray_tries_every_setting_once(tmp_path: Path):
    config = tmp_path / "space.toml"
    config.write_text(SPACE.format(folder_of(tmp_path / "bursts")))
    found = fine("tune", config, "--out", tmp_path / "out", "--on", "ray:2", "--json", "--quiet").json
    tried = [json.loads(line) for line in (tmp_path / "out" / "trials.jsonl").read_text().splitlines()]
    assert found["complete"] == 4 and len({json.dumps(one["setting"]) for one in tried}) == 4
    assert not ray.is_initialized()
    here = fine("tune", config, "--out", tmp_path / "here", "--json", "--quiet").json
    scores = [
        {json.dumps(row["setting"]): row["score"] for row in map(json.loads, path.read_text().splitlines())}
        for path in (tmp_path / "out" / "trials.jsonl", tmp_path / "here" / "trials.jsonl")
    ]
    assert scores[0] == pytest.approx(scores[1], rel=1e-6) and here["complete"] == 4
