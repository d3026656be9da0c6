"""Foreign files become the same data, and a hostile pickle is an error, never code."""

from __future__ import annotations

import collections
import contextlib
import gzip
import io
import json
import os
import pickle
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foretell.data import load_foreign, pickles
from foretell.errors import DataError


def row(time: object, kind: object) -> dict[str, object]:
    return {"time_since_start": time, "type_event": kind, "time_since_last_event": 0.0}


GATECH = {"dim_process": 5, "train": [[row(0.5, 1), row(1.5, 0)], [row(0.25, 3)]], "dev": [], "test": []}
NDTT = [
    [
        {"name": "bos", "time": 0.0},
        {"name": "f(a, b)", "time": 1.0},
        {"name": "g", "time": 2.0},
        {"name": "eos", "time": 9.0},
    ],
    [{"name": "bos", "time": 0.0}, {"name": "eos", "time": 4.0}],
    [{"name": "g", "time": 3.0}],
]
EASYTPP = [
    {
        "time_since_start": [0.0, 1.5],
        "type_event": [1, 0],
        "time_since_last_event": [0, 1.5],
        "dim_process": 3,
        "seq_len": 2,
        "seq_idx": 7,
    },
    {
        "time_since_start": [2.0],
        "type_event": [2],
        "time_since_last_event": [0],
        "dim_process": 3,
        "seq_len": 1,
        "seq_idx": 8,
    },
]


def dump(path: Path, content: object, protocol: int = 2) -> Path:
    path.write_bytes(pickle.dumps(content, protocol=protocol))
    return path


@pytest.mark.parametrize("protocol", range(6))
def test_gatech_pickles_of_every_protocol_are_read(tmp_path, protocol: int) -> None:
    dataset = load_foreign(dump(tmp_path / "train.pkl", GATECH, protocol))
    assert [one.times.tolist() for one in dataset.train] == [[0.5, 1.5], [0.25]]
    assert [one.types.tolist() for one in dataset.train] == [[1, 0], [3]]
    assert len(dataset.vocabulary) == 5 and dataset.train.report.missing_ends == 2


@pytest.mark.parametrize("protocol", range(6))
def test_numpy_numbers_and_arrays_in_pickles_become_plain_numbers(tmp_path, protocol: int) -> None:
    content = {
        "scalars": [np.float64(1.5), np.float32(0.5), np.int64(-3), np.int32(4), np.bool_(True)],
        "arrays": [
            np.arange(3),
            np.array([[1.0, 2.0], [3.0, 4.0]]),
            np.array([[1, 2, 3], [4, 5, 6]], order="F"),
            np.array(5.0),
        ],
        "objects": np.array(["a", None], dtype=object),
        "text": np.array(["ab", "c"]),
        "big-endian": np.arange(3, dtype=">i4"),
        "rest": ({1, 2}, frozenset([3]), collections.OrderedDict(a=1), b"bytes", None, True, 10**30, "ü"),
    }
    read = pickles.load(dump(tmp_path / "x.pkl", content, protocol))
    assert read["scalars"] == [1.5, 0.5, -3, 4, True] and {type(value) for value in read["scalars"]} == {
        float,
        int,
        bool,
    }
    assert read["arrays"] == [[0, 1, 2], [[1.0, 2.0], [3.0, 4.0]], [[1, 2, 3], [4, 5, 6]], [5.0]]
    assert read["objects"] == ["a", None] and read["text"] == ["ab", "c"] and read["big-endian"] == [0, 1, 2]
    assert read["rest"] == ({1, 2}, frozenset([3]), collections.OrderedDict(a=1), b"bytes", None, True, 10**30, "ü")


def test_gatech_events_with_numpy_numbers_are_read(tmp_path) -> None:
    content = {"dim_process": np.int64(2), "train": [[row(np.float32(0.5), np.int64(1))]]}
    assert load_foreign(dump(tmp_path / "a.pkl", content)).train[0].types.tolist() == [1]


def test_python_2_pickles_are_read_as_latin1(tmp_path) -> None:
    # protocol 0 of Python 2: str is S'…', which Python 3 would refuse where it is not ASCII
    path = tmp_path / "train.pkl"
    path.write_bytes(b"(lp0\n(lp1\n(dp2\nS'name'\np3\nS'caf\\xe9'\np4\nsS'time'\np5\nF1.5\nsaa.")
    data = load_foreign(path).train
    assert data.names_of(data[0]) == ["café"] and data[0].times.tolist() == [1.5]


def test_a_gatech_file_with_several_splits_gives_them_all(tmp_path) -> None:
    path = dump(tmp_path / "all.pkl", {**GATECH, "dev": [[row(1.0, 2)]], "test": [[row(1.0, 4)]]})
    assert list(load_foreign(path).splits()) == ["train", "dev", "test"]


def test_a_folder_of_gatech_files_gives_its_splits_over_one_vocabulary(tmp_path) -> None:
    for split in ("train", "dev", "test"):
        dump(tmp_path / f"{split}.pkl", {"dim_process": 5, "train": [], split: [[row(0.0, 1), row(1.0, 2)]]})
    dataset = load_foreign(tmp_path, origin="first-event")
    assert list(dataset.splits()) == ["train", "dev", "test"] and dataset.card.origin == "first-event"


def test_in_ndtt_pickles_bos_is_dropped_and_eos_ends_the_window(tmp_path) -> None:
    data = load_foreign(dump(tmp_path / "train.pkl", NDTT)).train
    assert data.vocabulary.names == ("f(a,b)", "g")
    assert [one.times.tolist() for one in data] == [[1.0, 2.0], [], [3.0]]
    assert [one.t_end for one in data] == [9.0, 4.0, 3.0] and data.report.missing_ends == 1


@pytest.mark.parametrize("lines", [True, False])
@pytest.mark.parametrize("packed", [True, False])
def test_easytpp_json_and_json_lines_are_read(tmp_path, lines: bool, packed: bool) -> None:
    text = "\n".join(map(json.dumps, EASYTPP)) if lines else json.dumps(EASYTPP, indent=1)
    path = tmp_path / ("dev.json" + (".gz" if packed else ""))
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    data = load_foreign(path).dev
    assert [one.id for one in data] == ["7", "8"] and data[0].types.tolist() == [1, 0] and len(data.vocabulary) == 3


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({"dim_process": 5}, "no split with sequences"),
        ({"dim_process": "5", "train": [[row(0.5, 1)]]}, "dim_process is '5'"),
        ({"dim_process": 1, "train": [[row(0.5, 1)]]}, "sequence 1: sequence '0': type 1 is not one"),
        ({"dim_process": 2, "train": [[{"time_since_start": 1.0}]]}, "event 0 has no 'type_event'"),
        ({"dim_process": 2, "train": [[row(2.0, 0), row(1.0, 0)]]}, "unsorted"),
        ({"dim_process": 2, "train": [[row("x", 0)]]}, "times\\[0\\] is 'x', expected a time"),
        ({"dim_process": 2, "train": [[row(1.0, 0.0)]]}, "of type float"),
        ({"dim_process": 2, "train": [3]}, "expected a list of events"),
        ({"train": []}, "neither Gatech nor NDTT"),
        ("text", "neither Gatech nor NDTT"),
        ([[{"name": "a"}]], "event 0 has no 'time'"),
        ([[{"name": "bos", "time": 1.0}]], "bos is at 1.0"),
        ([[{"name": "a", "time": 1.0}, {"name": "bos", "time": 2.0}]], "bos is event 1"),
        ([[{"name": "eos", "time": 1.0}, {"name": "a", "time": 2.0}]], "eos is event 0"),
        ([[{"name": "a", "time": 3.0}, {"name": "eos", "time": 2.0}]], "after t_end"),
        ([], "no sequences"),
    ],
)
def test_a_mistake_in_a_pickle_is_told_with_file_and_sequence(tmp_path, content, reason: str) -> None:
    path = dump(tmp_path / "train.pkl", content)
    with pytest.raises(DataError, match=reason) as caught:
        load_foreign(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"time_since_start": [1.0]}', "no key 'type_event'"),
        ('{"time_since_start": [1.0], "type_event": [0], "seq_len": 2}', "seq_len is 2"),
        ('{"time_since_start": [1.0], "type_event": [0], "dim_process": 0}', "dim_process is 0"),
        ('{"time_since_start": [1.0], "type_event": [0', "not JSON"),
        ('[{"time_since_start": [1.0], "type_event": [0]}, 3]', "expected an object"),
        ("", "no sequences"),
    ],
)
def test_a_mistake_in_easytpp_json_is_told(tmp_path, text: str, reason: str) -> None:
    path = tmp_path / "train.json"
    path.write_text(text)
    with pytest.raises(DataError, match=reason):
        load_foreign(path)


class Reduces:
    """Pickles as a call of anything with any arguments."""

    def __init__(self, function: object, *arguments: object) -> None:
        self.call = function, arguments

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return self.call


@pytest.mark.parametrize("protocol", range(6))
def test_a_pickle_that_calls_something_is_refused_and_nothing_is_called(tmp_path, protocol: int) -> None:
    mark = tmp_path / "called"
    for attack in (
        Reduces(os.system, f"touch {mark}"),
        Reduces(subprocess.check_output, ["touch", str(mark)]),
        Reduces(eval, f"open({str(mark)!r}, 'w')"),
        Reduces(exec, f"open({str(mark)!r}, 'w')"),
        Reduces(open, str(mark), "w"),
        Reduces(getattr, os, "system") if protocol > 9 else Reduces(__import__, "os"),
        Reduces(Path.touch, mark),
        Reduces(np.load, str(mark)),
        Reduces(np.fromfile, str(mark)),
        Reduces(bytearray, 10**12),
        Reduces(io.open, str(mark), "w"),
        Reduces(pickle.loads, pickle.dumps(Reduces(os.system, f"touch {mark}"))),
    ):
        for content in (attack, {"dim_process": 1, "train": [[attack]]}, [attack]):
            path = dump(tmp_path / "train.pkl", content, protocol)
            with pytest.raises(DataError, match="refused"):
                load_foreign(path)
    assert not mark.exists()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x80",
        b"garbage",
        b"cos\nsystem\n(S'true'\ntR.",
        b"cposix\nsystem\n(S'true'\ntR.",
        b"c__builtin__\neval\n(S'1'\ntR.",
        b"cnumpy\nndarray\n(I100000000000\ntR.",
        b"cnumpy\ndtype\n(S'O8'\ntR.",
        b"cnumpy.core.multiarray\nscalar\n(cnumpy\ndtype\n(S'O8'\ntRS'x'\ntR.",
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I1000000000000\ntS'b'\ntR.",
        b"cforetell.data.foreign.pickles\nload\n.",
        b"cnumpy\ndtype.__class__\n.",
        b"\x80\x04\x8c\x08builtins\x8c\x10set.__init_subclass__\x93.",
        b"Pid\n.",
        b"\x80\x02]r\xff\xff\xff\x7f.",
        b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7f.",
        b"\x80\x05\x96\xff\xff\xff\xff\x00\x00\x00\x00.",
        b"\x82\x01.",
        b"(" * 1000,
    ],
)
def test_hostile_bytes_are_a_data_error(tmp_path, content: bytes) -> None:
    path = tmp_path / "train.pkl"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"train\.pkl"):
        load_foreign(path)


def test_a_value_that_contains_itself_many_times_is_reported_in_a_few_words(tmp_path) -> None:
    laughs: list[object] = ["ha"]
    for _ in range(60):
        laughs = [laughs] * 10
    loop: list[object] = []
    loop.append(loop)
    for value in (laughs, loop):
        path = dump(tmp_path / "train.pkl", [[{"name": "a", "time": value}]])
        with pytest.raises(DataError) as caught:
            load_foreign(path)
        assert len(str(caught.value)) < 500


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damaged_pickles_are_data_or_a_data_error(tmp_path, data: st.DataObject) -> None:
    whole = bytearray(pickle.dumps([GATECH, np.arange(3), np.float64(2.0)], protocol=data.draw(st.integers(0, 5))))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path / "train.pkl"
    path.write_bytes(bytes(whole))
    with contextlib.suppress(DataError):
        load_foreign(path)


def test_the_reader_can_be_named_and_must_fit_the_file(tmp_path) -> None:
    path = dump(tmp_path / "train.pkl", NDTT)
    assert load_foreign(path, "ndtt").train.event_count == 3
    with pytest.raises(DataError, match="expected a dict with `dim_process`"):
        load_foreign(path, "gatech")
    other = tmp_path / "train.json"
    other.write_text(json.dumps(EASYTPP))
    with pytest.raises(DataError, match="takes pickles"):
        load_foreign(other, "ndtt")


def test_a_folder_without_foreign_files_is_an_error(tmp_path) -> None:
    with pytest.raises(DataError, match="no train, dev or test file in a foreign format"):
        load_foreign(tmp_path)
    dump(tmp_path / "dev.pkl", NDTT)
    dump(tmp_path / "valid.pkl", NDTT)
    with pytest.raises(DataError, match="two files for dev"):
        load_foreign(tmp_path)
