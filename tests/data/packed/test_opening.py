"""A packed folder is looked at before it is used: what is damaged or made up is a message, never a traceback or a wrong number."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from foretell.data import ReadOptions, load, load_file, save
from foretell.data.packed.layout import ALWAYS, MANIFEST, joined_checksum
from foretell.data.packed.opening import MappedSplit
from foretell.data.packed.packing import pack
from foretell.data.packed.writer import packing
from foretell.data.synthetic import HawkesProcess, simulate
from foretell.errors import DataError, ForetellError


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("packed")
    save(simulate(HawkesProcess([0.3, 0.2], [[0.3, 0.2], [0.1, 0.3]], [1.0]), 12, 9.0, 3), folder / "t.jsonl")
    pack(folder / "t.jsonl", folder / "packed")
    return folder / "packed"


@pytest.fixture
def folder(whole, tmp_path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "packed"))


def changed(folder: Path, change) -> None:
    manifest = json.loads((folder / MANIFEST).read_text())
    change(manifest)
    (folder / MANIFEST).write_text(json.dumps(manifest))


def rewritten(folder: Path, name: str, dtype: str, change) -> None:
    """Other values in a file, with a checksum that agrees with them."""
    path = folder / "train" / name
    values = np.fromfile(path, dtype=dtype)
    change(values)
    values.tofile(path)
    import zlib

    found = json.loads((folder / MANIFEST).read_text())["splits"]["train"]
    files = [one.name for one in ALWAYS] + list(found["optional"])
    sums = joined_checksum(zlib.crc32((folder / "train" / one).read_bytes()) for one in files)
    changed(folder, lambda manifest: manifest["splits"]["train"]["shards"][0].__setitem__(4, sums))


def test_a_bit_that_fell_over_is_found(folder):
    path = folder / "train" / "times.f64"
    content = bytearray(path.read_bytes())
    content[8] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(DataError, match="shard 1 of 1 is damaged: its checksum"):
        load(folder)


@pytest.mark.parametrize("name", [one.name for one in ALWAYS])
def test_a_file_that_is_cut_short_or_missing_is_a_message(folder, name):
    path = folder / "train" / name
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match=r"bytes, expected .* damaged; pack the data again"):
        load(folder)
    path.unlink()
    with pytest.raises(ForetellError, match="no such file"):
        load(folder)


@pytest.mark.parametrize(
    ("name", "dtype", "place", "value", "said"),
    [
        ("times.f64", "<f8", 0, np.nan, "no finite numbers"),
        ("times.f64", "<f8", 0, -1.0, "no finite numbers"),
        ("times.f64", "<f8", 1, 0.0, "not in order"),
        ("times.f64", "<f8", -1, 10.0, "not in order, or are after the end"),
        ("t_ends.f64", "<f8", 0, np.inf, "no finite numbers"),
        ("types.i32", "<i4", 0, 2, "types lie between"),
        ("types.i32", "<i4", 0, -1, "types lie between"),
        ("offsets.i64", "<i8", 1, 10**12, "begin is not in order"),
        ("offsets.i64", "<i8", 0, -5, "begin is not in order"),
        ("id_offsets.i64", "<i8", 1, -7, "ids are not Unicode"),
        ("id_offsets.i64", "<i8", -1, 10**9, "ids are not Unicode"),
        ("ids.utf8", "u1", 0, 0xFF, "ids are not Unicode"),
        ("metadata.utf8", "u1", 0, 0xFF, "metadata are not Unicode"),
    ],
)
def test_values_that_make_no_sense_are_a_message_though_the_checksum_is_right(folder, name, dtype, place, value, said):
    rewritten(folder, name, dtype, lambda values: values.__setitem__(place, value))
    with pytest.raises(DataError, match=said):
        load(folder)


def test_metadata_that_are_no_json_are_a_message_when_they_are_looked_at(folder):
    rewritten(folder, "metadata.utf8", "u1", lambda values: values.__setitem__(0, ord("[")))
    with pytest.raises(DataError, match="packed metadata are not JSON"):
        dict(load(folder).train[0].metadata)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda m: m.update(format="x"), "no manifest"),
        (lambda m: m.update(version=2), "its version is 2"),
        (lambda m: m.update(splits={"other": {}}), "expected some of train"),
        (lambda m: m.update(splits=[]), "expected some of train"),
        (lambda m: m.update(types=-1), "event types"),
        (lambda m: m.update(types=["a", "a"]), "same name"),
        (lambda m: m.update(types={}), "types is"),
        (lambda m: m.update(clock={"unit": 3}), "clock is"),
        (lambda m: m.update(clock=None), "clock is"),
        (lambda m: m["splits"].update(train=[]), "split 'train'"),
        (lambda m: m["splits"]["train"].update(shards=[[1, 2]]), "shards is"),
        (lambda m: m["splits"]["train"].update(shards=[[1, 2, 3, 4, -5]]), "shards is"),
        (lambda m: m["splits"]["train"].update(shards=[]), "bytes, expected"),
        (lambda m: m["splits"]["train"].update(optional=["../../etc/passwd"]), "optional is"),
        (lambda m: m["splits"]["train"].update(optional=["metadata.utf8"]), "optional is"),
        (lambda m: m["splits"]["train"].update(attributes=[{"name": "x"}]), "attributes is"),
        (lambda m: m["splits"]["train"].update(report=3), "report is"),
    ],
)
def test_a_manifest_that_is_made_up_is_a_message(folder, change, said):
    changed(folder, change)
    with pytest.raises(DataError, match=said):
        load(folder)


@pytest.mark.parametrize("text", ["", "{", "[1]", "[" * 100_000, "\0"])
def test_a_manifest_that_is_no_json_is_a_message(folder, text):
    (folder / MANIFEST).write_text(text)
    with pytest.raises(ForetellError):
        load(folder)


def test_random_damage_of_a_manifest_is_a_message_or_nothing(folder):
    content, rng = (folder / MANIFEST).read_bytes(), np.random.default_rng(1)
    for _ in range(150):
        damaged = bytearray(content)
        for place in rng.integers(len(content), size=3):
            damaged[place] = rng.integers(32, 127)
        (folder / MANIFEST).write_bytes(bytes(damaged))
        try:
            load(folder)
        except ForetellError:
            continue


def test_a_link_in_place_of_a_column_is_refused(folder, tmp_path):
    path = folder / "train" / "times.f64"
    path.rename(tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", path)
    with pytest.raises(DataError, match="this is a link"):
        load(folder)


def test_options_of_reading_that_come_too_late_are_refused(folder):
    with pytest.raises(DataError, match="leave out `start=`"):
        load(folder, options=ReadOptions(start="first-event"))
    with pytest.raises(DataError, match=r'`covariates=\["amount"\]`: no such column is packed'):
        load(folder, options=ReadOptions(covariates=("amount",)))


def test_a_packed_folder_is_not_taken_for_a_file(folder):
    with pytest.raises(DataError, match="this is a folder"):
        load_file(folder)


def test_splits_that_are_to_stay_unseen_are_not_opened(whole, tmp_path, monkeypatch):
    pack("robocup", tmp_path / "packed")
    opened = []
    init = MappedSplit.__init__
    monkeypatch.setattr(MappedSplit, "__init__", lambda self, *given: (opened.append(given[1]), init(self, *given))[1])
    assert load(tmp_path / "packed", unseen=("test",)).test is None
    assert opened == ["train", "dev"]


def test_columns_are_mapped_and_cannot_be_written(whole):
    columns = load(whole).train.columns
    assert columns.times.base is not None and not columns.times.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        columns.types[0] = 0
    before = columns.times.copy()
    columns.shards.release()
    assert np.array_equal(columns.times, before)


def test_selected_sequences_are_in_memory(whole):
    data = load(whole).train
    some = data.select([3, 1])
    assert some.columns.shards is None
    assert np.array_equal(some[0].times, data[3].times) and some[1].id == data[1].id


def test_an_error_while_packing_leaves_nothing(tmp_path):
    with pytest.raises(RuntimeError), packing(tmp_path / "packed") as writer:
        writer.split("train")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


KILLED = """
import os, signal, sys, threading
from foretell.data.packed.packing import pack
steps = [0]
def progress(words, done, of):
    steps[0] += 1
    if steps[0] == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
from foretell.data.packed import parts
parts.PART_EVENTS = 20
pack(sys.argv[1], sys.argv[2], progress=progress)
"""


@pytest.mark.parametrize("moment", [1, 4, 8])
def test_a_killed_packing_leaves_no_folder_and_the_next_one_clears_up(tmp_path, moment):
    save(simulate(HawkesProcess([0.3], [[0.3]], [1.0]), 40, 9.0, 3), tmp_path / "t.jsonl")
    done = subprocess.run(
        [sys.executable, "-c", KILLED, tmp_path / "t.jsonl", tmp_path / "packed", str(moment)], check=False
    )
    assert done.returncode == -9
    assert not (tmp_path / "packed").exists()
    assert any(path.name.endswith(".part") for path in tmp_path.iterdir())
    pack(tmp_path / "t.jsonl", tmp_path / "packed")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["packed", "t.jsonl"]
