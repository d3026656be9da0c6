"""Every mistake in a file is told with file, line and sequence; all of a file's mistakes at once; nothing else escapes."""

from __future__ import annotations

import gzip
import json
import re

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foretell.data import ColumnMap, ReadOptions, Vocabulary, load, load_file
from foretell.errors import DataError

GOOD = {"id": "good", "times": [0.5, 1.0], "types": [0, 1], "t_end": 2.0}


def record(**changes: object) -> dict[str, object]:
    return {**GOOD, "id": "bad", **changes}


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (record(times=[float("nan"), 1.0]), r"times\[0\] is nan.*NaN"),
        (record(times=[0.5, float("inf")]), "infinite"),
        (record(times=[-0.5, 1.0]), "negative"),
        (record(times=[1.5, 1.0]), r"times\[1\] = 1.0 comes after 1.5.*unsorted"),
        (record(t_end=0.75), "after t_end = 0.75"),
        (record(times=[0.5]), "1 times but 2 types.*ragged"),
        (record(types=[0]), "2 times but 1 types.*ragged"),
        (record(times=["0.5", 1.0]), r"times\[0\] is '0.5', of type str"),
        (record(times=[True, 1.0]), "of type bool"),
        (record(times=[None, 1.0]), "of type NoneType"),
        (record(times=[[0.5], 1.0]), "of type list"),
        (record(times=3.0), "times is 3.0, expected a list"),
        (record(times=[0.5, 10**400]), "too large"),
        (record(types=[0.0, 1]), "of type float"),
        (record(types=[0, True]), "of type bool"),
        (record(types=["a", "b"]), "of type str"),
        (record(types=[0, -1]), "is -1, expected an integer"),
        (record(types=[0, 2**31]), "expected an integer"),
        (record(types=None), "types is None, expected a list"),
        (record(t_end="2"), "t_end is '2', expected a number"),
        (record(t_end=True), "t_end is True"),
        (record(t_end=float("inf")), "t_end is inf"),
        (record(t_end=float("nan")), "t_end is nan"),
        (record(t_end=10**400), "t_end is"),
        (record(times=[], types=[], t_end=-1.0), "t_end is -1"),
        (record(times=[], types=[], t_end=None), "no events and no t_end"),
        ({"id": "bad", "types": [0]}, "no key 'times'"),
        ({"id": "bad", "times": [0.5]}, "no key 'events'"),
    ],
)
def test_a_mistake_in_json_lines_is_told_with_file_line_and_sequence(jsonl, wrong, reason: str) -> None:
    path = jsonl(GOOD, wrong)
    with pytest.raises(DataError, match=reason) as caught:
        load_file(path)
    assert len(caught.value.problems) == 1
    assert caught.value.problems[0].startswith(f"{path}:2: sequence 'bad': ")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"times": [1.0', "not JSON: .* column"),
        ("[1, 2]", "expected an object"),
        ("3", "expected an object"),
        ("[" * 100_000, "not JSON"),
        ('{"times": [' + "9" * 5000 + '], "types": [0]}', "not JSON that can be read"),
        ("{}", "no key 'times' and no key 'events'"),
        ('{"id": 1.5, "times": [1.0], "types": [0]}', "id is 1.5"),
        ('{"id": "", "times": [1.0], "types": [0]}', "id is ''"),
        ('{"id": "good", "times": [1.0], "types": [0]}', "used before, at line 1"),
    ],
)
def test_a_line_that_is_no_sequence_is_told_with_its_number(jsonl, line: str, reason: str) -> None:
    path = jsonl(GOOD, line)
    with pytest.raises(DataError, match=reason) as caught:
        load_file(path)
    assert str(caught.value).startswith(f"{path}:2: ")


def test_invalid_utf8_is_told_with_its_line(tmp_path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_bytes(json.dumps(GOOD).encode() + b'\n{"id": "\xff"}\n')
    with pytest.raises(DataError, match=r"data\.jsonl:2: not UTF-8: byte 0xff"):
        load_file(path)


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".csv", ".csv.gz", ".parquet"])
def test_an_empty_file_is_an_error_in_every_format(tmp_path, suffix: str) -> None:
    path = tmp_path / f"data{suffix}"
    path.write_bytes(b"")
    with pytest.raises(DataError, match=re.escape(str(path))):
        load_file(path)


def test_a_truncated_archive_is_an_error(tmp_path) -> None:
    path = tmp_path / "data.jsonl.gz"
    lines = "".join(
        json.dumps({**GOOD, "id": f"s{n}", "times": [n / 7, n + 0.1], "t_end": 1e6}) + "\n" for n in range(500)
    )
    whole = gzip.compress(lines.encode())
    for cut in (1, 5, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(DataError, match=r"truncated|damaged"):
            load_file(path)
    path.write_bytes(whole[: len(whole) // 2] + b"xxxx" + whole[len(whole) // 2 + 4 :])
    with pytest.raises(DataError, match=r"damaged|truncated|not JSON|UTF-8"):
        load_file(path)
    path.write_bytes(b"not gzip at all")
    with pytest.raises(DataError, match="damaged"):
        load_file(path)


def test_an_archive_without_its_suffix_is_an_error_that_says_so(tmp_path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_bytes(gzip.compress(json.dumps(GOOD).encode()))
    with pytest.raises(DataError, match=r"rename it to end in \.gz"):
        load_file(path)


def test_all_mistakes_of_a_file_are_told_at_once_twenty_and_then_a_count(jsonl) -> None:
    path = jsonl(*(record(id=f"s{n}", t_end=0.1) for n in range(30)), "{", GOOD)
    with pytest.raises(DataError) as caught:
        load_file(path)
    assert len(caught.value.problems) == 31
    shown = str(caught.value).splitlines()
    assert len(shown) == 21 and shown[-1] == "… and 11 more"
    assert [line.split(": ")[0] for line in shown[:20]] == [f"{path}:{n}" for n in range(1, 21)]


def test_mistakes_of_all_splits_of_a_folder_are_told_together(jsonl, tmp_path) -> None:
    jsonl(record(t_end=0.1), name="set/train.jsonl")
    jsonl(record(times=[3.0, 1.0], t_end=None), name="set/dev.jsonl")
    with pytest.raises(DataError) as caught:
        load(tmp_path / "set")
    assert len(caught.value.problems) == 2


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ("sequence,when,event\na,1,x", "no column 'time'; found 'sequence', 'when', 'event'"),
        ("sequence;when;event\na;1;x", "no column 'time'"),
        ("sequence,time,event,time\na,1,x,1", "exists 2 times"),
        ("sequence,time,event\na,1", r":2: 2 cells, but the header has 3"),
        ("sequence,time,event\na,one,x", ":2: sequence 'a': time is 'one', expected a number"),
        ("sequence,time,event\na,1_000,x", "expected a number"),
        ("sequence,time,event\na,nan,x", ":2: sequence 'a': .*NaN"),
        ("sequence,time,event\na,inf,x", "infinite"),
        ("sequence,time,event\na,-1,x", "negative"),
        ("sequence,time,event\nb,1,x\na,2,x\na,1,x", ":4: sequence 'a': .*unsorted"),
        ("sequence,time,event,t_end\na,2,x,1", ":2: sequence 'a': .*after t_end"),
        ("sequence,time,event,t_end\na,1,x,3\na,2,x,4", ":3: sequence 'a': t_end is 4.0 here and 3.0 before"),
        ("sequence,time,event,t_end\na,1,x,soon", "t_end is 'soon'"),
        ("sequence,time,event\n,1,x", "'sequence' is empty"),
        ("sequence,time,event\na,,x", "'time' is empty"),
        ("sequence,time,event\na,1,", "'event' is empty"),
        ("sequence,time,event\na,,", "no events and no t_end"),
        ("sequence,time,event,t_end\na,,,3\na,1,x,3", "has other rows"),
        ("sequence,time,event\na,1,1.5\na,2,2.5", "types are integers"),
        ("sequence,time,event\na,1,-1\na,2,0", "types are integers from 0"),
        ("sequence,time,event\na,1,99999999999", "types are integers from 0"),
        ('sequence,time,event\na,1,"x', "not CSV"),
        ("sequence,time,event\n", "no sequences"),
        ("sequence,time,event,arg1,arg2\na,1,join,,sales", "argument 1 is empty"),
        ("sequence,time,event,arg1\na,1,join(eve),sales", "use one of both"),
        ("sequence,time,event,metadata\na,1,x,[1]", "metadata is not a JSON object"),
    ],
)
def test_a_mistake_in_a_table_is_told_with_its_line(tmp_path, rows: str, reason: str) -> None:
    path = tmp_path / "data.csv"
    path.write_text(rows + "\n")
    with pytest.raises(DataError, match=reason) as caught:
        load_file(path)
    assert str(caught.value).startswith(str(path))


def test_mistakes_of_a_table_are_collected_too(tmp_path) -> None:
    path = tmp_path / "data.csv"
    path.write_text("sequence,time,event\na,x,e\na,y,e\nb,2,e\nb,1,e\n")
    with pytest.raises(DataError) as caught:
        load_file(path)
    assert [problem.split(": ")[0] for problem in caught.value.problems] == [f"{path}:{n}" for n in (2, 3, 5)]


def test_parquet_columns_of_the_wrong_type_are_errors(tmp_path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    good = {"sequence": ["a"], "time": [1.0], "event": ["x"]}
    for column, values, reason in (
        ("time", ["one"], "time is 'one', expected a number or a time"),
        ("time", [True], "'time' has type bool"),
        ("event", [1.5], "'event' has type double"),
        ("event", [True], "'event' has type bool"),
        ("sequence", [[1]], "'sequence' has type list"),
        ("time", [None], "'time' is empty"),
        ("sequence", [None], "'sequence' is empty"),
        ("time", [float("nan")], "row 1: sequence 'a': .*NaN"),
    ):
        pq.write_table(pa.table({**good, column: values}), tmp_path / "data.parquet")
        with pytest.raises(DataError, match=reason):
            load_file(tmp_path / "data.parquet")
    pq.write_table(pa.table({"sequence": ["a"], "time": [1.0]}), tmp_path / "data.parquet")
    with pytest.raises(DataError, match="no column 'event'"):
        load_file(tmp_path / "data.parquet")
    (tmp_path / "data.parquet").write_bytes(b"PAR1 this is not one PAR1")
    with pytest.raises(DataError, match="not a Parquet file"):
        load_file(tmp_path / "data.parquet")


def test_an_event_outside_a_given_vocabulary_is_an_error_with_a_suggestion(jsonl) -> None:
    words = Vocabulary(("watch(u,p)", "stop(u)"))
    path = jsonl({"id": "a", "times": [1, 2], "events": ["watch(u, p)", "wacth(u,p)"], "t_end": 3})
    with pytest.raises(DataError, match=r":1: sequence 'a': event `wacth\(u,p\)`.*did you mean `watch\(u,p\)`"):
        load_file(path, words)
    path = jsonl({"id": "a", "times": [1, 2], "types": [0, 7], "t_end": 3})
    with pytest.raises(DataError, match=r":1: sequence 'a': type 7 is not one of the 2 known event types, 0 to 1"):
        load_file(path, words)


def test_a_malformed_name_in_a_table_is_placed_in_its_own_line_or_row(tmp_path) -> None:
    rows = ["a,1,in(x)", "a,2,out(x)", "b,1,in(x)", "a,3,in(x", "a,4,in((", "a,5,in(x"]
    path = tmp_path / "par.csv"
    path.write_text("\n".join(["sequence,time,event", *rows]))
    assert "in((" in load_file(path).vocabulary
    strict = ReadOptions(terms=True)
    with pytest.raises(DataError) as caught:
        load_file(path, options=strict)
    assert [one.partition(": event `")[0] for one in caught.value.problems] == [
        f"{path}:5: sequence 'a': events[2]",
        f"{path}:6: sequence 'a': events[3]",
    ]
    cells = [row.split(",") for row in rows]
    columns = {name: [row[place] for row in cells] for place, name in enumerate(("sequence", "time", "event"))}
    table = pa.table({**columns, "time": [float(time) for time in columns["time"]]})
    parquet.write_table(table, tmp_path / "par.parquet")
    with pytest.raises(DataError, match=r"row 4: sequence 'a': events\[2\]"):
        load_file(tmp_path / "par.parquet", options=strict)


def test_names_and_integers_do_not_mix(jsonl, tmp_path) -> None:
    named = {"id": "n", "times": [1.0], "events": ["a"], "t_end": 2.0}
    with pytest.raises(DataError, match=r":2: sequence 'n': the events are names, but at line 1 they are integers"):
        load_file(jsonl(GOOD, named))
    with pytest.raises(DataError, match=r"events\[0\] is 'a', of type str"):
        load_file(jsonl({"times": [1.0, 2.0], "events": ["a", 3]}))
    jsonl(GOOD, name="set/train.jsonl")
    jsonl(named, name="set/dev.jsonl")
    with pytest.raises(DataError, match=r"use one of both, or list the names in types\.json"):
        load(tmp_path / "set")


def test_types_that_disagree_with_events_are_errors(jsonl, tmp_path) -> None:
    both = {"id": "a", "times": [1, 2, 3], "events": ["x", "y", "x"], "types": [4, 7, 4], "t_end": 3}
    assert load_file(jsonl(both)).vocabulary.names == ("x", "y")
    for types, reason in (
        ([4, 4, 4], "a type has one name"),
        ([4, 7, 5], "a name has one type"),
        ([4, 7], "ragged"),
        ([4, 7, -1], "one type|integer >= 0"),
        ([4, 7, "x"], "of type str"),
    ):
        with pytest.raises(DataError, match=reason):
            load_file(jsonl({**both, "types": types}))
    with pytest.raises(DataError, match="events and types disagree"):
        load_file(jsonl({**both, "events": [1, 2, 3], "types": [1, 2, 4]}))
    (tmp_path / "set").mkdir()
    (tmp_path / "set/types.json").write_text('["y", "x"]')
    jsonl({**both, "types": [1, 0, 1]}, name="set/train.jsonl")
    assert load(tmp_path / "set").train[0].types.tolist() == [1, 0, 1]
    jsonl({**both, "types": [0, 1, 0]}, name="set/train.jsonl")
    with pytest.raises(DataError, match=r"event `x` has type 0 here, but types\.json has it at 1"):
        load(tmp_path / "set")
    (tmp_path / "set/types.json").unlink()
    jsonl({**both, "types": [5, 6, 5]}, name="set/dev.jsonl")
    with pytest.raises(DataError, match=r"but in .*train.jsonl it has 0"):
        load(tmp_path / "set")


def test_a_first_time_that_is_not_zero_contradicts_the_card(jsonl, tmp_path) -> None:
    jsonl({**GOOD, "times": [0.0, 1.0]}, record(), name="set/train.jsonl")
    (tmp_path / "set/dataset.toml").write_text('origin = "first-event"\n')
    with pytest.raises(DataError, match=r"train\.jsonl:2: sequence 'bad': the first time is 0\.5"):
        load(tmp_path / "set")


@pytest.mark.parametrize(
    ("card", "reason"),
    [
        ("origin = 'first_event'", "did you mean `first-event`"),
        ("types = 0", "types is 0"),
        ("types = true", "types is True"),
        ("types = 1", "type 1 is not one of the 1 known"),
        ("name = 3", "name is 3"),
        ("name = ", "not TOML"),
    ],
)
def test_a_card_with_a_mistake_is_refused(jsonl, tmp_path, card: str, reason: str) -> None:
    jsonl(GOOD, name="set/train.jsonl")
    (tmp_path / "set/dataset.toml").write_text(card)
    with pytest.raises(DataError, match=reason):
        load(tmp_path / "set")


@pytest.mark.parametrize(
    ("names", "reason"),
    [("{", "not JSON"), ('{"a": 1}', "expected a list"), ('["a", "a"]', "same name"), ("[1, 2]", "expected text")],
)
def test_a_list_of_names_with_a_mistake_is_refused(jsonl, tmp_path, names: str, reason: str) -> None:
    jsonl(GOOD, name="set/train.jsonl")
    (tmp_path / "set/types.json").write_text(names)
    with pytest.raises(DataError, match=rf"types\.json.*{reason}"):
        load(tmp_path / "set")


def test_the_number_of_names_must_be_the_cards(jsonl, tmp_path) -> None:
    jsonl(GOOD, name="set/train.jsonl")
    (tmp_path / "set/types.json").write_text('["a", "b", "c"]')
    (tmp_path / "set/dataset.toml").write_text("types = 2")
    with pytest.raises(DataError, match=r"3 names, but dataset.toml says types = 2"):
        load(tmp_path / "set")


def test_a_missing_file_is_an_error_that_names_near_ones(jsonl, tmp_path) -> None:
    jsonl(GOOD, name="train.jsonl")
    for read in (load, load_file):
        with pytest.raises(DataError, match=r"no such file.*did you mean train\.jsonl"):
            read(tmp_path / "tran.jsonl")
        with pytest.raises(DataError, match="does not exist"):
            read(tmp_path / "nowhere" / "train.jsonl")
    with pytest.raises(DataError, match=r"embedded data sets: robocup|did you mean"):
        load("no such thing")


def test_folders_and_suffixes_that_cannot_be_read_are_errors(jsonl, tmp_path) -> None:
    (tmp_path / "set").mkdir()
    with pytest.raises(DataError, match="no train, dev or test file; found nothing"):
        load(tmp_path / "set")
    with pytest.raises(DataError, match="this is a folder"):
        load_file(tmp_path / "set")
    jsonl(GOOD, name="set/train.jsonl")
    (tmp_path / "set/train.csv").write_text("sequence,time,event\na,1,x\n")
    with pytest.raises(DataError, match=r"train exists 2 times: train\.jsonl, train\.csv"):
        load(tmp_path / "set")
    (tmp_path / "x.pkl").write_bytes(b"")
    with pytest.raises(DataError, match="foretell data convert"):
        load_file(tmp_path / "x.pkl")


def test_a_type_too_large_to_count_up_to_is_an_error_not_a_huge_vocabulary(jsonl) -> None:
    with pytest.raises(DataError, match="too large"):
        load_file(jsonl(record(types=[0, 2_000_000_000])))


@pytest.mark.parametrize("text", ["time", "when=x", "tim=x", "arg2=x", "time=a,time=b", "time="])
def test_a_column_map_with_a_mistake_is_refused(text: str) -> None:
    with pytest.raises(DataError, match="columns: "):
        ColumnMap.parse(text)


def test_two_parts_cannot_be_one_column(tmp_path) -> None:
    path = tmp_path / "data.csv"
    path.write_text("a,time,event\nx,1,2\n")
    with pytest.raises(DataError, match="'time' is mapped to 2 parts"):
        load_file(path, columns=ColumnMap.parse("sequence=time"))


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=6,
)
_records = st.dictionaries(
    st.sampled_from(["id", "times", "events", "types", "t_end", "x"]), _json | st.lists(_json, max_size=3)
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(_records | _json, min_size=1, max_size=4))
def test_any_json_is_data_or_a_data_error(tmp_path, records: list[object]) -> None:
    path = tmp_path / "fuzz.jsonl"
    path.write_text("\n".join(map(json.dumps, records)))
    try:
        data = load_file(path)
    except DataError as error:
        assert all(problem.startswith(str(path)) for problem in error.problems)
    else:
        assert len(data) == len(records)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=80), st.sampled_from([".jsonl", ".jsonl.gz", ".csv", ".csv.gz", ".parquet"]))
def test_any_bytes_are_data_or_a_data_error(tmp_path, content: bytes, suffix: str) -> None:
    path = tmp_path / f"fuzz{suffix}"
    start = b"sequence,time,event\n" if suffix == ".csv" else b""
    path.write_bytes(start + content)
    try:
        load_file(path)
    except DataError as error:
        assert str(path) in str(error)
