"""What is written reads back equal, in every format; what is read has the vocabulary and the report it should have."""

from __future__ import annotations

import gzip
import json
import logging
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foretell.data import (
    Card,
    ColumnMap,
    Dataset,
    EventData,
    EventSequence,
    Vocabulary,
    load,
    load_file,
    save,
    save_dataset,
)
from foretell.errors import DataError, ForetellError
from foretell.terms import NameProblem, normalise

SUFFIXES = [".jsonl", ".jsonl.gz", ".csv", ".csv.gz", ".parquet"]


def assert_equal(one: EventData, other: EventData) -> None:
    assert one.columns.ids == other.columns.ids
    for column in ("times", "types", "offsets", "t_ends"):
        np.testing.assert_array_equal(getattr(one.columns, column), getattr(other.columns, column))
    assert [dict(item) for item in one.columns.metadata] == [dict(item) for item in other.columns.metadata]
    assert one.vocabulary == other.vocabulary and one.origin == other.origin


def _is_name(text: str) -> bool:
    try:
        return normalise(text) == text
    except NameProblem:
        return False


_text = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)
_names = _text.filter(_is_name) | st.sampled_from(
    ["f(a,b)", "f('New York')", "3", "07", "-1", "1.5", 'a"b', "x,y", "nan"]
)
_json = (
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False)
    | _text
    | st.lists(st.integers(0, 9))
)
_metadata = st.dictionaries(
    _text.filter(lambda key: key not in ("id", "times", "events", "types", "t_end")), _json, max_size=2
)


@st.composite
def event_data(draw: st.DrawFn) -> EventData:
    words = (
        Vocabulary.of_size(draw(st.integers(1, 5)))
        if draw(st.booleans())
        else Vocabulary(tuple(draw(st.lists(_names, min_size=1, max_size=5, unique=True))))
    )
    sequences = []
    for name in draw(st.lists(_text, min_size=1, max_size=4, unique=True)):
        times = sorted(draw(st.lists(st.floats(0, 1e9), max_size=5)))
        types = draw(st.lists(st.integers(0, len(words) - 1), min_size=len(times), max_size=len(times)))
        t_end = (times[-1] if times else 0.0) + draw(st.floats(0, 10))
        sequences.append(EventSequence(times, types, t_end, name, draw(_metadata)))
    return EventData(sequences, words, "window", "train")


@pytest.mark.parametrize("suffix", SUFFIXES)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=event_data())
def test_a_data_set_reads_back_equal(tmp_path: Path, suffix: str, data: EventData) -> None:
    folder = tmp_path / suffix[1:]
    for old in folder.glob("*"):
        old.unlink()
    dataset = Dataset(data, None, None, data.vocabulary, Card("set", "window", "days", len(data.vocabulary)), "")
    save_dataset(dataset, folder, suffix)
    again = load(folder)
    assert_equal(again.train, data)
    assert again.card == dataset.card and again.dev is None


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_one_file_reads_back_the_same_names_and_times(tmp_path, suffix: str) -> None:
    words = Vocabulary(("b", "a", "unused"))
    data = EventData([EventSequence([0.1, 0.2], [0, 1], 1.0, "s")], words)
    save(data, tmp_path / f"x{suffix}")
    again = load_file(tmp_path / f"x{suffix}")
    assert again.vocabulary.names == ("a", "b") and again.names_of(again[0]) == ["b", "a"] and again.name == "x"
    assert_equal(load_file(tmp_path / f"x{suffix}", words), data)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("names", [("1",), ("1", "2"), ("2", "1", "0"), ("7", "a")])
def test_names_that_are_digits_stay_names(tmp_path, suffix: str, names: tuple[str, ...]) -> None:
    words = Vocabulary(names)
    data = EventData([EventSequence([0.5], [0], 1.0, "s")], words, "window", "train")
    save_dataset(Dataset(data, None, None, words, Card("set", "window", "", len(words)), ""), tmp_path / "set", suffix)
    assert_equal(load(tmp_path / "set").train, data)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_an_unknown_number_does_not_turn_names_into_types(tmp_path, suffix: str) -> None:
    data = EventData([EventSequence([0.5, 0.6], [0, 1], 1.0, "s")], Vocabulary(("1", "9")))
    save(data, tmp_path / f"x{suffix}")
    with pytest.raises(DataError, match="type 9 is not one of"):
        load_file(tmp_path / f"x{suffix}", Vocabulary(("1", "2")))


@pytest.mark.parametrize("name", ["robocup", "stackoverflow", "iptv_small", "mimic2"])
@pytest.mark.parametrize("suffix", [".jsonl.gz", ".csv", ".parquet"])
def test_real_data_survive_every_format(shared, tmp_path, name: str, suffix: str) -> None:
    dataset = load(shared(name))
    smaller = {split: data.select(range(min(len(data), 100))) for split, data in dataset.splits().items()}
    dataset = Dataset(smaller["train"], smaller["dev"], smaller["test"], dataset.vocabulary, dataset.card, "")
    save_dataset(dataset, tmp_path / "out", suffix)
    again = load(tmp_path / "out")
    assert again.card == dataset.card
    for split, data in dataset.splits().items():
        assert_equal(again.splits()[split], data)


def test_equal_content_gives_equal_files(tmp_path) -> None:
    data = EventData([EventSequence([0.5], [0], 1.0)], Vocabulary.of_size(1))
    save(data, tmp_path / "one.jsonl.gz")
    save(data, tmp_path / "two.jsonl.gz")
    assert (tmp_path / "one.jsonl.gz").read_bytes() == (tmp_path / "two.jsonl.gz").read_bytes()


def test_a_write_that_fails_leaves_the_old_file_and_no_other(tmp_path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text("old")
    bad = EventData([EventSequence([0.5], [0], 1.0, "s", {"x": object()})], Vocabulary.of_size(1))
    with pytest.raises(TypeError):
        save(bad, path)
    assert path.read_text() == "old" and [entry.name for entry in tmp_path.iterdir()] == ["data.jsonl"]
    (tmp_path / "file").write_text("")
    with pytest.raises(ForetellError, match="cannot be written"):
        save(bad.select([]), tmp_path / "file" / "data.jsonl")


def test_keys_that_the_library_does_not_use_are_kept_as_metadata(jsonl) -> None:
    data = load_file(jsonl({"times": [1.0], "types": [0], "t_end": 2, "nll_true": 1.5, "tags": ["a"]}))
    assert dict(data[0].metadata) == {"nll_true": 1.5, "tags": ["a"]} and data[0].id == "0"


def test_ids_may_be_integers_and_missing_ones_do_not_collide(jsonl) -> None:
    data = load_file(
        jsonl({"id": 1, "times": [1.0], "types": [0]}, {"times": [1.0], "types": [0]}, {"times": [1], "types": [0]})
    )
    assert [one.id for one in data] == ["1", "2", "3"]


def test_blank_lines_and_a_byte_order_mark_are_ignored(tmp_path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"times": [1], "types": [0], "t_end": 1}\n\n  \n')
    assert len(load_file(path)) == 1
    path = tmp_path / "data.csv"
    path.write_bytes(b"\xef\xbb\xbfsequence,time,event\r\na,1,x\r\n\r\n")
    assert load_file(path)[0].times.tolist() == [1.0]


def test_events_may_be_integers_and_win_over_equal_types(jsonl) -> None:
    data = load_file(jsonl({"times": [1, 2], "events": [3, 0], "types": [3, 0], "t_end": 2}))
    assert data[0].types.tolist() == [3, 0] and data.vocabulary == Vocabulary.of_size(4)


def test_names_in_different_spellings_are_one_type(jsonl) -> None:
    data = load_file(jsonl({"times": [1, 2], "events": ["join(eve, sales)", "join(eve,sales)"], "t_end": 2}))
    assert data.vocabulary.names == ("join(eve,sales)",)


def test_a_sequence_without_events_needs_and_keeps_its_end(jsonl) -> None:
    data = load_file(jsonl({"times": [], "events": [], "t_end": 3}, {"times": [1], "events": ["a"]}))
    assert len(data[0]) == 0 and data[0].t_end == 3.0 and data[1].t_end == 1.0


def test_columns_can_be_mapped_and_arguments_make_terms(tmp_path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("patient,when,code,room,end\np1,1,enter,'x y',9\np2,1,enter,lab,5\np1,2,leave,,9\n")
    columns = ColumnMap.parse("sequence=patient, time=when, event=code, arg1=room, t_end=end")
    data = load_file(path, columns=columns)
    assert [one.id for one in data] == ["p1", "p2"] and data[0].t_end == 9.0
    assert data.names_of(data[0]) == [r"enter('\'x y\'')", "leave"] and data.names_of(data[1]) == ["enter(lab)"]
    assert load(path, columns=columns).train.event_count == 3


def test_arguments_named_arg1_and_on_are_found_and_quoted_where_needed(tmp_path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("sequence,time,event,arg1,arg2\na,1,join,eve,New York\na,2,join,3,\n")
    data = load_file(path)
    assert data.names_of(data[0]) == ["join(eve,'New York')", "join(3)"]
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    pq.write_table(
        pa.table(
            {"sequence": [1, 1], "time": [1, 2], "event": ["join", "join"], "arg1": ["eve", "bob"], "arg2": [None, "x"]}
        ),
        tmp_path / "log.parquet",
    )
    data = load_file(tmp_path / "log.parquet")
    assert data.names_of(data[0]) == ["join(eve)", "join(bob,x)"] and data[0].id == "1"


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_further_columns_are_kept_as_attributes_and_named(tmp_path, caplog, suffix: str) -> None:
    path = tmp_path / f"log{suffix}"
    rows = [("b", 1.0, "x", "red", 2.5), ("a", 1.0, "y", "", None), ("b", 2.0, "x", "blue", 3.0)]
    if suffix == ".csv":
        cells = [",".join("" if cell is None else str(cell) for cell in row) for row in rows]
        path.write_text("\n".join(["sequence,time,event,colour,price", *cells]))
    else:
        names = ("sequence", "time", "event", "colour", "price")
        columns = {name: [row[place] or None for row in rows] for place, name in enumerate(names)}
        pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        pq.write_table(pa.table(columns), path)
    with caplog.at_level(logging.WARNING, "foretell"):
        data = load_file(path)
    assert data.report.attributes == ("colour", "price")
    assert any(
        "columns kept as attributes, used only if named as covariates: colour, price" in line
        for line in caplog.messages
    )
    assert data.columns.attributes["colour"].texts() == ["red", "blue", None]
    np.testing.assert_array_equal(data.columns.attributes["price"].values, [2.5, 3.0, np.nan])
    assert data.select([1, 0]).columns.attributes["colour"].texts() == [None, "red", "blue"]


def test_a_column_of_free_text_is_not_kept_and_named(tmp_path, caplog) -> None:
    path = tmp_path / "log.csv"
    path.write_text("sequence,time,event,note\n" + "".join(f"a,{n},x,note number {n}\n" for n in range(1500)))
    with caplog.at_level(logging.WARNING, "foretell"):
        assert load_file(path).report.unused_columns == ("note",)
    assert any("columns not used (free text): note" in line for line in caplog.messages)


def test_a_folder_takes_its_types_from_the_list_then_the_card_then_the_data(jsonl, tmp_path) -> None:
    folder = tmp_path / "set"
    jsonl({"times": [1], "types": [2], "t_end": 1}, name="set/train.jsonl")
    jsonl({"times": [1], "types": [4], "t_end": 1}, name="set/test.jsonl")
    assert len(load(folder).vocabulary) == 5
    (folder / "dataset.toml").write_text('types = 9\nlicence = "ours"\n[more]\nx = 1\n')
    dataset = load(folder)
    assert len(dataset.vocabulary) == 9 and dataset.dev is None and dataset.card.name == "set"
    assert dataset.card.about == {"licence": "ours", "more": {"x": 1}}
    assert list(dataset.splits()) == ["train", "test"]
    (folder / "types.json").write_text(json.dumps([f"t{n}" for n in range(9)]))
    assert load(folder).train.names_of(load(folder).train[0]) == ["t2"]


def test_a_named_folder_has_the_sorted_names_of_all_splits(jsonl, tmp_path) -> None:
    jsonl({"times": [1], "events": ["b"], "t_end": 1}, name="set/train.jsonl")
    jsonl({"times": [1], "events": ["a"], "t_end": 1}, name="set/test.jsonl")
    dataset = load(tmp_path / "set")
    assert dataset.vocabulary.names == ("a", "b") and dataset.train.vocabulary is dataset.test.vocabulary


def test_a_card_keeps_every_kind_of_value(tmp_path) -> None:
    import datetime

    about = {
        "text": 'quote " and \\ and \n line and \x7f',
        "list": [1, 2.5, True, "x", [1], {"a": 1}],
        "day": datetime.date(2020, 1, 2),
        "odd key!": 3,
        "table": {"inner": {"deep": "x"}, "y": 1e300},
    }
    card = Card("n", "first-event", "s", 3, about)
    (tmp_path / "dataset.toml").write_text(card.to_toml(), encoding="utf-8")
    assert Card.read(tmp_path / "dataset.toml", "other") == card


def test_missing_ends_are_said_once_a_file(jsonl, caplog) -> None:
    path = jsonl(*({"times": [1.25 * n], "types": [0], "t_end": None if n else 8.0} for n in range(5)))
    with caplog.at_level(logging.WARNING, "foretell"):
        data = load_file(path)
    assert [message for message in caplog.messages if "t_end" in message] == [f"{path}: {data.report.warnings[0]}"]
    assert data.report.missing_ends == 4 and "4 of 5 sequences" in data.report.warnings[0]


@pytest.mark.parametrize(
    ("times", "grid", "share"),
    [
        ([1, 2, 3, 500], 1.0, 1.0),
        ([0.1, 0.2, 0.3, 1e6 + 0.7], 0.1, 1.0),
        ([1.25, 3.5], 0.01, 1.0),
        ([13.143889, 6000.339444], 1e-6, 1.0),
        ([np.pi, np.e + 1], None, 0.0),
        ([3e11 + 1.0, 3e11 + 2.0], 1.0, 1.0),
    ],
)
def test_times_on_a_grid_are_found(times, grid, share) -> None:
    report = EventData([EventSequence(times, [0] * len(times), max(times))], Vocabulary.of_size(1)).report
    assert report.grid == grid and report.grid_share == share


def test_ties_are_counted_inside_sequences_only() -> None:
    data = EventData(
        [EventSequence([1, 1, 2], [0, 0, 0], 2, "a"), EventSequence([2, 3, 3], [0, 0, 0], 3, "b")],
        Vocabulary.of_size(1),
    )
    assert data.report.ties == 0.5 and any("50 %" in line for line in data.report.lines())


def test_a_million_events_load_in_seconds(tmp_path) -> None:
    rng = np.random.default_rng(0)
    path = tmp_path / "big.jsonl"
    with open(path, "w") as file:
        for name in range(5000):
            times = np.sort(rng.uniform(0, 100, 200)).round(6)
            kinds = rng.integers(0, 30, 200)
            events = [f"watch(u{kind},p{kind})" for kind in kinds.tolist()]
            file.write(json.dumps({"id": f"s{name}", "times": times.tolist(), "events": events, "t_end": 100}) + "\n")
    started = time.perf_counter()
    data = load_file(path)
    assert data.event_count == 1_000_000
    assert time.perf_counter() - started < 10  # about 1 s on a quiet machine


def test_an_event_holds_less_than_100_bytes(tmp_path) -> None:
    path = tmp_path / "some.jsonl"
    record = {"times": list(range(40)), "events": [f"watch(u{n},p)" for n in range(40)], "t_end": 50, "user": "someone"}
    path.write_text("".join(json.dumps({"id": f"s{n}", **record}) + "\n" for n in range(5000)))
    load_file(path)
    tracemalloc.start()
    data = load_file(path)
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert data.event_count == 200_000 and held / data.event_count < 100


def test_loading_json_lines_imports_neither_torch_nor_pyarrow_nor_matplotlib() -> None:
    code = (
        "import sys, foretell.data as d; d.load('robocup'); "
        "print([m for m in ('torch', 'pyarrow', 'matplotlib', 'pandas') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=_environment())
    assert done.stdout.strip() == "[]"


def _environment() -> dict[str, str]:
    import os

    return {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}


def test_the_embedded_finals_have_their_events_types_and_card() -> None:
    dataset = load("robocup")
    assert [data.event_count for data in dataset.splits().values()] == [2192, 816, 778]
    assert [len(data) for data in dataset.splits().values()] == [2, 1, 1] and len(dataset.vocabulary) == 528
    assert "Chen" in dataset.card.about["citation"] and "ICML 2008" in dataset.card.about["citation"]
    assert {"source", "licence", "derivation"} <= set(dataset.card.about)
    assert dataset.train.report.grid == 1.0 and dataset.train.report.missing_ends == 0
    assert "pass(purple1, purple2)" in dataset.vocabulary and dataset.train[0].id == "2001-final"


def test_the_embedded_archives_carry_no_date() -> None:
    from foretell.data.loading import embedded_folder, embedded_names

    assert embedded_names() == ("robocup",)
    for path in embedded_folder("robocup").glob("*.gz"):
        assert path.read_bytes()[4:8] == b"\0\0\0\0"
        assert gzip.decompress(path.read_bytes())


def test_the_embedded_finals_are_the_shared_ones(shared) -> None:
    ours, theirs = load("robocup"), load(shared("robocup"))
    for split, data in theirs.splits().items():
        np.testing.assert_array_equal(ours.splits()[split].columns.times, data.columns.times)
        np.testing.assert_array_equal(ours.splits()[split].columns.types, data.columns.types)
    assert ours.vocabulary == theirs.vocabulary


def test_a_table_without_a_column_of_sequences_is_one_sequence_and_that_is_said(tmp_path, caplog) -> None:
    path = tmp_path / "log.csv"
    path.write_text("time,event\n1,x\n2,y\n")
    with caplog.at_level(logging.WARNING, "foretell"):
        data = load_file(path)
    assert [one.id for one in data] == ["stream"] and data.event_count == 2
    assert any("no column 'sequence': all rows are one sequence" in line for line in caplog.messages)


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_separators_are_found_in_the_header(tmp_path, separator: str) -> None:
    path = tmp_path / ("log.tsv" if separator == "\t" else "log.csv")
    path.write_text(f'sequence{separator}time{separator}event\na{separator}1{separator}"x{separator}y"\n')
    data = load_file(path)
    assert data.vocabulary.names == (f"x{separator}y",) or separator == "\t"
    save(data, tmp_path / "again.tsv")
    assert load_file(tmp_path / "again.tsv").vocabulary == data.vocabulary
