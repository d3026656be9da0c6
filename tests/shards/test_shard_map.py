"""Shards: the same rows wherever they are made, kept on disk, and done again only where they have to be."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from foretell.errors import DataError, ForetellError
from foretell.shards.place import WorkPlace, parse_place, with_jobs
from foretell.shards.pool import ShardTask, SharedInput
from foretell.shards.processes import ProcessPool
from foretell.shards.shard_map import SHARD_EVENTS, ShardItem, Shards, cuts_of, open_shards, tables_of
from foretell.shards.store import ShardStore, joined
from tests.shards.works import Orders, begun, items, squares, until_stopped

EXPECTED = [number**2 / 3.0 for number in range(6)]


HERE = "here"  # in this process, with results that are kept


def made(folder: Path, orders: Orders, on: str = HERE, origin: dict | None = None) -> tuple[list, list[str]]:
    said: list[str] = []
    to = folder / "shards", origin or {}, said.append
    with nullcontext(Shards(WorkPlace(), *to)) if on == HERE else open_shards(parse_place(on), *to) as shards:
        found = joined(tables_of("sums", squares, orders, items(), shards, None))
    assert found["name"] == [f"n{number}" for number in range(6)]
    return found["square"].tolist(), said


@pytest.fixture
def orders(tmp_path: Path) -> Orders:
    return Orders(tmp_path)


def shard_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("shards/sums-*/shard-*.parquet"))


def manifest(folder: Path) -> Path:
    (found,) = folder.glob("shards/sums-*/manifest.jsonl")
    return found


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("this", WorkPlace()),
        ("processes", WorkPlace("processes")),
        ("processes:3", WorkPlace("processes", 3)),
        ("ray", WorkPlace("ray")),
        ("ray:2", WorkPlace("ray", 2)),
        ("ray:auto", WorkPlace("ray", None, "auto")),
        ("ray:10.0.0.1:6379", WorkPlace("ray", None, "10.0.0.1:6379")),
        ("ray://head:10001", WorkPlace("ray", None, "ray://head:10001")),
    ],
)
def test_a_place_is_read_and_written(text: str, place: WorkPlace):
    assert parse_place(text) == place and str(place) == text


@pytest.mark.parametrize("text", ["slurm", "ray://head", "processes:0", "ray:x", "processes:many", "ray:head:port"])
def test_a_place_that_is_none_is_refused(text: str):
    with pytest.raises(ForetellError, match=f"`on={text}`"):
        parse_place(text)


def test_jobs_are_processes_unless_the_place_says_something_else():
    assert with_jobs(WorkPlace(), 1) == WorkPlace()
    assert with_jobs(WorkPlace(), 3) == WorkPlace("processes", 3)
    assert with_jobs(WorkPlace("ray"), 3) == WorkPlace("ray", 3)
    with pytest.raises(ForetellError, match="leave one of them out"):
        with_jobs(WorkPlace("ray", 2), 3)


def test_cuts_depend_on_the_items_alone_and_lose_none():
    sizes = [100, 5 * SHARD_EVENTS, SHARD_EVENTS - 1, 1, 7]
    cuts = cuts_of([ShardItem(0, size) for size in sizes])
    assert cuts == [(0, 2), (2, 4), (4, 5)]
    assert cuts_of([]) == []


def test_this_process_and_others_give_the_same_rows_in_order(tmp_path: Path, orders: Orders):
    assert made(tmp_path, orders, "this") == (EXPECTED, [])
    assert not (tmp_path / "shards").exists()  # nothing is kept where nothing was asked for
    assert made(tmp_path, orders, "processes:2") == (EXPECTED, [])
    assert len(shard_files(tmp_path)) == 6


def test_what_is_there_is_not_done_again(tmp_path: Path, orders: Orders):
    made(tmp_path, orders)
    found, said = made(tmp_path, orders)
    assert found == EXPECTED and begun(tmp_path) == list(range(6))
    assert said[0].startswith("sums: of 6 shards, 6 were done before, in ")
    made(tmp_path, orders, origin={"model": "another"})
    assert begun(tmp_path) == sorted([*range(6)] * 2)


def test_a_killed_worker_costs_its_own_shard(tmp_path: Path):
    found, said = made(tmp_path, Orders(tmp_path, kills=(2,)), "processes:2")
    assert found == EXPECTED and begun(tmp_path) == [0, 1, 2, 2, 3, 4, 5]
    assert len(said) == 1 and "shard 2 is done again: its process ended with exit code -9" in said[0]


def test_a_shard_that_kills_every_worker_is_given_up_and_the_others_are_kept(tmp_path: Path):
    with pytest.raises(ForetellError, match="shard 5 failed: 4 workers died"):
        made(tmp_path, Orders(tmp_path, kills=(5,), always=True), "processes:1")
    assert len(shard_files(tmp_path)) == 5
    assert made(tmp_path, Orders(tmp_path))[0] == EXPECTED


def test_a_mistake_in_a_worker_is_that_mistake_here(tmp_path: Path):
    with pytest.raises(DataError, match="item 3 is wrong") as raised:
        made(tmp_path, Orders(tmp_path, wrong=3), "processes:1")
    assert raised.value.problems == ("item 3 is wrong",)


def damage_manifest(folder: Path) -> str:
    path = manifest(folder)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:3], lines[3][:40], *lines[4:]]) + "\n")
    return "1 damaged line"


def tear_manifest(folder: Path) -> str:
    path = manifest(folder)
    path.write_bytes(path.read_bytes()[:-30])
    return "1 damaged line"


def replace_manifest(folder: Path) -> str:
    manifest(folder).write_text('{"format": 1, "work": "of another time"}\n')
    return "not a manifest of this work"


def damage_shard(folder: Path) -> str:
    path = shard_files(folder)[4]
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    return "damaged (its digest is not that of the manifest)"


def remove_shard(folder: Path) -> str:
    shard_files(folder)[1].unlink()
    return "it is gone"


@pytest.mark.parametrize(
    ("damage", "again"),
    [(damage_manifest, 1), (tear_manifest, 1), (replace_manifest, 6), (damage_shard, 1), (remove_shard, 1)],
)
def test_what_is_damaged_is_said_and_done_again(tmp_path: Path, orders: Orders, damage, again: int):
    made(tmp_path, orders)
    expected = damage(tmp_path)
    found, said = made(tmp_path, orders)
    assert found == EXPECTED and len(begun(tmp_path)) == 6 + again
    assert expected in said[0] and "done again" in said[0]
    found, said = made(tmp_path, orders)  # it is mended
    assert found == EXPECTED and len(begun(tmp_path)) == 6 + again and "6 were done before" in said[0]


def test_a_table_comes_back_from_disk_as_it_was(tmp_path: Path):
    table = {
        "whole": np.array([1, -(2**62)]),
        "small": np.array([1, 2], dtype=np.int32),
        "real": np.array([0.1, np.nan]),
        "word": ["a", "ü"],
        "list": [[0.1, 0.2], []],
    }
    ShardStore(tmp_path, "w", print).put(3, table)
    found = ShardStore(tmp_path, "w", print).get(3)
    assert found is not None and found.keys() == table.keys()
    for name in ("whole", "small", "real"):
        np.testing.assert_array_equal(found[name], table[name])
        assert found[name].dtype == table[name].dtype
    assert (found["word"], found["list"]) == (table["word"], table["list"])


def test_a_process_is_asked_to_stop_and_ends_with_whoever_asked(tmp_path: Path):
    pool = ProcessPool(1)
    pool.start(ShardTask("a", until_stopped, SharedInput(tmp_path), "a"))
    wait_for(tmp_path / "a.pid")
    pool.interrupt()
    (outcome,) = pool.wait(30.0)
    assert outcome.value == "stopped" and pool.busy() == []
    pool.close()


ORPHAN = """
import sys
from pathlib import Path
from foretell.shards.pool import SharedInput, ShardTask
from foretell.shards.processes import ProcessPool
from tests.shards.works import until_stopped
if __name__ == "__main__":
    pool = ProcessPool(1)
    pool.start(ShardTask("b", until_stopped, SharedInput(Path(sys.argv[1])), "b"))
    pool.wait(60.0)
"""


def test_nobody_works_for_a_process_that_was_killed(tmp_path: Path):
    script = tmp_path / "orphan.py"
    script.write_text(ORPHAN)
    places = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    child = subprocess.Popen([sys.executable, str(script), str(tmp_path)], env=os.environ | {"PYTHONPATH": places})
    pid = int(wait_for(tmp_path / "b.pid"))
    child.send_signal(signal.SIGKILL)
    child.wait()
    wait_for(tmp_path / "b.stopped")
    until = time.monotonic() + 20.0
    while alive(pid) and time.monotonic() < until:
        time.sleep(0.05)
    assert not alive(pid)


def alive(pid: int) -> bool:
    """A process that has ended and that nobody has asked about is not."""
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


def wait_for(path: Path) -> str:
    until = time.monotonic() + 60.0
    while not path.exists() and time.monotonic() < until:
        time.sleep(0.02)
    time.sleep(0.05)  # until it is written
    return path.read_text()


def test_the_manifest_names_every_file_with_its_digest(tmp_path: Path, orders: Orders):
    made(tmp_path, orders)
    head, *entries = [json.loads(line) for line in manifest(tmp_path).read_text().splitlines()]
    assert head["format"] == 1 and sorted(one["shard"] for one in entries) == list(range(6))
    assert {one["file"] for one in entries} == {path.name for path in shard_files(tmp_path)}
