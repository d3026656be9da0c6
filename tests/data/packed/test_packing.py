"""What is packed is what `load` reads, whatever the format and however small the parts are in which it goes through memory."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from foretell.data import Dataset, EventData, ReadOptions, load, save, save_dataset
from foretell.data.clock import NS, readable_unit
from foretell.data.packed import buckets, parts, writer
from foretell.data.packed.opening import is_packed
from foretell.data.packed.packing import pack, shared_out
from foretell.data.packed.settling import MedianUnit, merged
from foretell.data.synthetic import HawkesProcess, simulate
from foretell.errors import DataError, ForetellError


@pytest.fixture(params=["whole", "in parts"])
def small_parts(request, monkeypatch):
    """Once as data this small are packed, once in many parts, buckets and shards."""
    if request.param == "in parts":
        monkeypatch.setattr(parts, "PART_EVENTS", 7)
        monkeypatch.setattr(parts, "BUCKET_BYTES", 60)
        monkeypatch.setattr(parts, "BUCKET_ROWS", 5)
        monkeypatch.setattr(parts, "CSV_BLOCK", 4096)
        monkeypatch.setattr(writer, "shard_cuts", lambda offsets: cuts_of(offsets, 5))
    return request.param == "in parts"


cuts_of = writer.shard_cuts


def assert_equal(packed: EventData, given: EventData) -> None:
    """The same sequences, in whatever order."""
    assert packed.origin == given.origin
    assert packed.clock == given.clock
    assert sorted(packed.columns.ids) == sorted(given.columns.ids)
    place = {name: number for number, name in enumerate(packed.columns.ids)}
    for other in given:
        one = packed[place[other.id]]
        assert np.array_equal(one.times, other.times), other.id
        assert packed.names_of(one) == given.names_of(other)
        assert (one.t_end, one.start, one.scored_from) == (other.t_end, other.start, other.scored_from)
        assert one.end_assumed == other.end_assumed
        assert dict(one.metadata) == dict(other.metadata)
        for name in given.columns.attributes:
            assert_equal_columns(one.attributes.of_events(name, len(one)), other.attributes.of_events(name, len(one)))
        for name in given.columns.sequence_attributes:
            assert_equal_columns(one.attributes.of_sequence(name), other.attributes.of_sequence(name))
    assert set(packed.columns.attributes) == set(given.columns.attributes)
    assert set(packed.columns.sequence_attributes) == set(given.columns.sequence_attributes)


def assert_equal_columns(one, other) -> None:
    assert (one.categories is None) == (other.categories is None)
    if one.categories is not None:
        assert one.texts() == other.texts()
    else:
        assert one.values.dtype == other.values.dtype
        assert np.array_equal(one.values, other.values, equal_nan=one.values.dtype.kind in "fM")


def assert_round_trip(source: Path | str, target: Path, options: ReadOptions | None = None) -> Dataset:
    pack(source, target, options)
    packed, given = load(target), load(source, options=options)
    assert packed.vocabulary == given.vocabulary
    assert packed.splits().keys() == given.splits().keys()
    for name, data in given.splits().items():
        assert_equal(packed.splits()[name], data)
        report, expected = packed.splits()[name].report, data.report
        assert (report.ties, report.grid_shares) == (expected.ties, expected.grid_shares)
        assert report.missing_ends == expected.missing_ends
        assert report.unused_columns == expected.unused_columns
        assert report.attributes == expected.attributes
    return packed


def text_of(rows: list[str], path: Path) -> Path:
    content = "\n".join(rows) + "\n"
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(content.encode()))
    else:
        path.write_text(content)
    return path


def table(count: int = 40, *, time: str = "number", named: bool = True, further: bool = True) -> list[str]:
    """The rows of a table whose sequences are mixed, with further columns of every kind."""
    rng = np.random.default_rng(5)
    clocks, rows = np.zeros(9), []
    for _ in range(count):
        one = int(rng.integers(9))
        clocks[one] += float(rng.exponential(1.0)) if rng.random() > 0.1 else 0.0
        when = {
            "number": f"{clocks[one]:.3f}",
            "iso": str(np.datetime64("2020-01-01T00:00:00") + np.timedelta64(int(clocks[one] * 4000), "s")),
            "unix": str(1_600_000_000 + int(clocks[one] * 4000)),
        }[time]
        kind = "abc"[int(rng.integers(3))] if named else str(int(rng.integers(3)))
        more = (
            f",{rng.integers(5)},{rng.choice(['x', '3', 'y'])},{rng.normal():.3f},{rng.integers(10**9)}"
            if further
            else ""
        )
        rows.append(f"s{one},{when},{kind}{more}")
    return [f"sequence,time,event{',whole,mixed,real,many' if further else ''}", *rows]


@pytest.mark.parametrize("time", ["number", "iso", "unix"])
@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".csv.gz", ".parquet"])
def test_a_packed_table_is_the_table(tmp_path, small_parts, time, suffix):
    rows = table(time=time)
    if suffix == ".parquet":
        import pyarrow.csv as arrow_csv
        import pyarrow.parquet as pq

        found = arrow_csv.read_csv(text_of(rows, tmp_path / "t.csv"))
        pq.write_table(found, tmp_path / "t.parquet", row_group_size=6)
    else:
        text_of([row.replace(",", "\t") for row in rows] if "tsv" in suffix else rows, tmp_path / f"t{suffix}")
    packed = assert_round_trip(tmp_path / f"t{suffix}", tmp_path / "packed")
    assert (packed.train.columns.shards.starts[-1] > 1) and is_packed(tmp_path / "packed")
    if small_parts:
        assert len(packed.train.columns.shards.starts) > 3


@pytest.mark.parametrize("change", ["quotes", "blank lines", "windows", "byte order mark"])
def test_a_csv_that_is_not_plain_is_packed_too(tmp_path, small_parts, change):
    rows = table()
    if change == "quotes":
        rows[5] = rows[5].replace(rows[5].split(",")[2], '"b,""quoted"""', 1)
    elif change == "blank lines":
        rows[3:3] = [""]
    elif change == "windows":
        rows = [f"{row}\r" for row in rows]
    else:
        rows[0] = "\ufeff" + rows[0]
    assert_round_trip(text_of(rows, tmp_path / "t.csv"), tmp_path / "packed")


def test_numbers_beside_names_are_names_in_every_part(tmp_path, small_parts):
    rows = ["sequence,time,event", *(f"s{n},{n}.5,{n}" for n in range(12)), "z,1.0,word", "z,2.0,7"]
    packed = assert_round_trip(text_of(rows, tmp_path / "t.csv"), tmp_path / "packed")
    assert "word" in packed.vocabulary.names


def test_a_table_without_sequences_is_one(tmp_path, small_parts):
    rows = ["time,event", *(f"{n}.5,e{n % 3}" for n in range(30))]
    assert len(assert_round_trip(text_of(rows, tmp_path / "t.csv"), tmp_path / "packed").train) == 1


def test_bounds_arguments_and_empty_sequences_are_packed(tmp_path, small_parts):
    rows = ["sequence,time,event,arg1,t_start,t_end,score_from"]
    rows += [f"s{n},{n + 2}.5,go,p{n % 2},1.0,{n + 20}.0,{n % 3 + 2}.0" for n in range(14)]
    rows += ["empty,,,,1.0,9.0,"]
    packed = assert_round_trip(text_of(rows, tmp_path / "t.csv"), tmp_path / "packed")
    assert sorted(packed.vocabulary.names) == ["go(p0)", "go(p1)"]


def test_covariates_are_packed(tmp_path, small_parts):
    rows = [
        "sequence,time,event,amount,channel,age",
        *(f"s{n % 8},{n // 8},e,{n}.5,c{n % 2},{n % 8}" for n in range(32)),
    ]
    options = ReadOptions(covariates=("amount", "channel"), static=("age",))
    packed = assert_round_trip(text_of(rows, tmp_path / "t.csv"), tmp_path / "packed", options)
    assert packed.train.covariates == load(tmp_path / "t.csv", options=options).train.covariates


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz"])
def test_packed_json_lines_are_in_their_order(tmp_path, small_parts, suffix):
    data = simulate(HawkesProcess([0.3, 0.2], [[0.3, 0.2], [0.1, 0.3]], [1.0]), 25, 8.0, 3)
    save(data, tmp_path / f"t{suffix}")
    packed = assert_round_trip(tmp_path / f"t{suffix}", tmp_path / "packed")
    assert list(packed.train.columns.ids) == list(data.columns.ids)
    assert np.array_equal(packed.train.columns.times, data.columns.times)


def test_covariates_of_json_lines_that_only_some_parts_have_are_missing_in_the_others(tmp_path, small_parts):
    lines = [
        {"times": [1.0, 2.0], "events": ["a", "b"], **({"x": [n, 1.5], "y": n} if n > 9 else {})} for n in range(15)
    ]
    text_of([json.dumps(one) for one in lines], tmp_path / "t.jsonl")
    options = ReadOptions(covariates=("x",), static=("y",))
    assert_round_trip(tmp_path / "t.jsonl", tmp_path / "packed", options)


def test_times_as_text_and_starts_are_packed(tmp_path, small_parts):
    lines = [
        {
            "id": f"s{n}",
            "times": [f"2020-03-0{d}T10:00:00" for d in (1, 2, 5)],
            "events": list("aba"),
            "t_start": "2020-03-01",
        }
        for n in range(9)
    ]
    packed = assert_round_trip(text_of(list(map(json.dumps, lines)), tmp_path / "t.jsonl"), tmp_path / "packed")
    assert packed.train.origin == "window" and packed.train.clock.unit == "days"


def test_a_folder_keeps_its_splits_card_and_names(tmp_path, small_parts):
    save_dataset(load("robocup"), tmp_path / "data")
    packed = assert_round_trip(tmp_path / "data", tmp_path / "packed")
    given = load("robocup").card
    assert (packed.card.name, packed.card.time_unit, packed.card.types) == (given.name, given.time_unit, given.types)


def test_a_format_without_a_reader_in_parts_is_read_whole_and_that_is_said(tmp_path, caplog):
    pack("robocup", tmp_path / "one")
    assert "read whole" not in caplog.text
    pack(tmp_path / "one", tmp_path / "two")
    assert "read whole" in caplog.text
    for path in (tmp_path / "one" / "train").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / "train" / path.name).read_bytes()


def test_shares_are_those_of_training(tmp_path, small_parts):
    from foretell.train.config import DataOptions
    from foretell.train.splits import load_splits

    data = simulate(HawkesProcess([0.3], [[0.3]], [1.0]), 30, 8.0, 3)
    save(data, tmp_path / "t.jsonl")
    pack(tmp_path / "t.jsonl", tmp_path / "packed", shares=(0.8, 0.1, 0.1), seed=4)
    given = load_splits(DataOptions(path=str(tmp_path / "t.jsonl"), split_seed=4))
    for name, split in load(tmp_path / "packed").splits().items():
        assert list(split.columns.ids) == list(given.splits()[name].columns.ids)
        assert_equal(split, given.splits()[name])


def test_shares_that_leave_nothing_to_train_on_are_refused():
    with pytest.raises(DataError, match="none of 3"):
        shared_out(3, (0.0, 0.5, 0.5), 0)


def test_mistakes_of_all_parts_are_told_with_their_places_and_nothing_is_written(tmp_path, small_parts):
    rows = [f"s{n % 9},{n}.0,e" for n in range(30)]
    rows[7], rows[20] = "s7,-3.0,e", "s2,,e"
    text_of(["sequence,time,event", *rows], tmp_path / "t.csv")
    with pytest.raises(DataError) as found:
        pack(tmp_path / "t.csv", tmp_path / "packed")
    with pytest.raises(DataError) as expected:
        load(tmp_path / "t.csv")
    assert sorted(found.value.problems) == sorted(expected.value.problems)
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


def test_an_id_that_comes_again_in_another_part_is_a_mistake(tmp_path, small_parts):
    lines = [{"id": f"s{n % 11}", "times": [1.0], "events": ["a"]} for n in range(12)]
    text_of(list(map(json.dumps, lines)), tmp_path / "t.jsonl")
    with pytest.raises(DataError, match="'s0': this id was used before"):
        pack(tmp_path / "t.jsonl", tmp_path / "packed")


def test_a_target_that_is_there_is_not_touched(tmp_path):
    (tmp_path / "packed").mkdir()
    (tmp_path / "packed" / "mine.txt").write_text("mine")
    with pytest.raises(ForetellError, match="there is something already"):
        pack("robocup", tmp_path / "packed")
    assert (tmp_path / "packed" / "mine.txt").read_text() == "mine"


def test_what_a_dead_process_left_is_removed(tmp_path):
    (tmp_path / ".packed.4194999.part").mkdir()
    (tmp_path / ".other.4194999.part").mkdir()
    pack("robocup", tmp_path / "packed")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".other.4194999.part", "packed"]


@pytest.mark.parametrize("seed", range(40))
def test_the_unit_of_parts_is_that_of_the_whole(seed):
    rng = np.random.default_rng(seed)
    middle = rng.choice([60, 3600, 86400, 1]) * NS
    gaps = middle + rng.integers(-3, 4, size=rng.integers(0, 9))
    gaps = gaps[gaps > 0]
    found = MedianUnit()
    for part in np.array_split(gaps, 3):
        found.add(part)
    assert found.unit() == readable_unit(gaps)


def test_sentences_of_parts_are_said_once_with_their_counts_summed():
    said = [("f", "3 of 10 rows were sorted"), ("f", "1,000 of 2,000 rows were sorted"), ("f", "no numbers")]
    assert merged(said, 3) == [("f", "1,003 of 2,010 rows were sorted"), ("f", "no numbers")]


def test_bytes_are_the_same_every_time(tmp_path):
    pack("robocup", tmp_path / "one")
    pack("robocup", tmp_path / "two")
    for path in sorted((tmp_path / "one").rglob("*")):
        if path.is_file():
            assert path.read_bytes() == (tmp_path / "two" / path.relative_to(tmp_path / "one")).read_bytes()


def test_columns_of_text_are_judged_as_a_whole():
    kind = buckets.TextKind()
    kind.add(["1", "2"], 5)
    assert kind.are_numbers
    kind.add(["x"], 1)
    assert not kind.are_numbers and not kind.is_free
