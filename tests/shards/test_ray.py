"""The same shards as tasks of Ray, on this machine and on a cluster of two nodes."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from foretell.errors import DataError, ForetellError
from foretell.shards.place import parse_place
from foretell.shards.pool import ShardTask, SharedInput
from foretell.shards.ray_pool import RayPool
from foretell.shards.shard_map import Shards, tables_of
from foretell.shards.store import joined
from tests.shards.works import Orders, begun, items, niceness, squares, until_stopped

ray = pytest.importorskip("ray", reason="Ray is not installed (the extra cluster)")
EXPECTED = [number**2 / 3.0 for number in range(6)]


@pytest.fixture(scope="module")
def joined_ray() -> Iterator[None]:
    """Two cores of this machine, started once: each pool finds Ray joined and leaves it so."""
    before = signal.getsignal(signal.SIGTERM)
    pool = RayPool(parse_place("ray:2"))
    assert signal.getsignal(signal.SIGTERM) == before  # Ray would take it for itself
    yield
    pool.close()
    assert not ray.is_initialized()


def made(folder: Path, orders: Orders) -> tuple[list, list[str]]:
    said: list[str] = []
    shards = Shards(parse_place("ray:2"), folder / "shards", {}, said.append)
    found = joined(tables_of("sums", squares, orders, items(), shards, None))
    shards.close()
    return found["square"].tolist(), said


def test_what_ray_says_of_its_nodes_is_not_on_stdout(joined_ray: None, capsys: pytest.CaptureFixture[str]):
    from ray._private.worker import print_to_stdstream

    print_to_stdstream({"lines": ["a node is gone"], "pid": "raylet", "is_err": False}, ignore_prefix=False)
    assert capsys.readouterr().out == ""


def test_workers_have_the_priority_of_the_command(joined_ray: None):
    """Ray's own, 15 lower, gives them next to nothing beside other programs."""
    pool = RayPool(parse_place("ray:2"))
    pool.start(ShardTask("nice", niceness, SharedInput(None), 0))
    outcomes: list = []
    while not outcomes:
        outcomes = pool.wait()
    assert [one.value for one in outcomes] == [os.nice(0)]
    pool.close()


@pytest.mark.parametrize("address", ["ray://127.0.0.1:1", "ray:127.0.0.1:1"])
def test_a_cluster_that_is_not_there_is_a_message_at_once(address: str):
    with pytest.raises(ForetellError, match=f"`on={address}`: nothing answers there"):
        RayPool(parse_place(address))


def test_another_cluster_than_the_one_that_was_joined_is_refused(joined_ray: None):
    with pytest.raises(ForetellError, match=r"`on=ray:127\.0\.0\.1:1`: nothing answers there"):
        RayPool(parse_place("ray:127.0.0.1:1"))
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(ForetellError, match=f"`on=ray:{address}`: this process has joined the Ray cluster at "):
            RayPool(parse_place(f"ray:{address}"))


def test_a_killed_worker_costs_its_own_shard_and_a_second_call_nothing(tmp_path: Path, joined_ray: None):
    found, said = made(tmp_path, Orders(tmp_path, kills=(2,)))
    assert found == EXPECTED and begun(tmp_path) == [0, 1, 2, 2, 3, 4, 5]
    assert len(said) == 1 and "shard 2 is done again: WorkerCrashedError" in said[0]
    found, said = made(tmp_path, Orders(tmp_path, kills=(2,)))
    assert found == EXPECTED and len(begun(tmp_path)) == 7 and "6 were done before" in said[0]


def test_a_mistake_in_a_task_is_that_mistake_here(tmp_path: Path, joined_ray: None):
    with pytest.raises(DataError, match="item 3 is wrong"):
        made(tmp_path, Orders(tmp_path, wrong=3))


def test_a_task_is_asked_to_stop_and_its_result_still_comes(tmp_path: Path, joined_ray: None):
    pool = RayPool(parse_place("ray:2"))
    shared = SharedInput(tmp_path)
    for name in ("a", "b", "c"):  # the third has no core to begin on
        pool.start(ShardTask(name, until_stopped, shared, name))
    while not ((tmp_path / "a.pid").exists() and (tmp_path / "b.pid").exists()):
        pass
    pool.interrupt()
    ended = []
    while pool.busy():
        ended += pool.wait()
    assert {one.name: (one.value, one.cancelled) for one in ended} == {
        "a": ("stopped", False),
        "b": ("stopped", False),
        "c": (None, True),
    }
    pool.close()
