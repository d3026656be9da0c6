"""MEDS folders: splits, static rows, values as columns, and mistakes; the files made here are valid by the package `meds`."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from foretell.data import load
from foretell.errors import DataError

SCHEMA = pa.schema(
    [("subject_id", pa.int64()), ("time", pa.timestamp("us")), ("code", pa.string()), ("numeric_value", pa.float32())]
)
START = datetime(2020, 1, 1)


def rows(subject: int, *events: tuple[int | None, str, float | None]) -> list[dict[str, object]]:
    return [
        {
            "subject_id": subject,
            "time": None if hour is None else START + timedelta(hours=hour),
            "code": code,
            "numeric_value": value,
        }
        for hour, code, value in events
    ]


SUBJECTS = [
    rows(1, (None, "GENDER//F", None), (None, "HEIGHT", 171.0), (0, "ADMISSION", None), (3, "LAB//K (mmol)", 4.5)),
    rows(2, (0, "ADMISSION", None), (48, "DISCHARGE", None)),
    rows(3, (5, "ADMISSION", None), (6, "LAB//K (mmol)", 3.5)),
    rows(4, (5, "ADMISSION", None)),
]


def meds(folder: Path, splits: dict[int, str] | None = None, inside: str = "") -> Path:
    (folder / "data" / inside).mkdir(parents=True)
    (folder / "metadata").mkdir()
    for number, part in enumerate((SUBJECTS[:2], SUBJECTS[2:])):
        table = pa.Table.from_pylist([row for subject in part for row in subject], schema=SCHEMA)
        parquet.write_table(table, folder / "data" / inside / f"{number}.parquet")
    if splits is not None:
        table = pa.table({"subject_id": list(splits), "split": list(splits.values())})
        parquet.write_table(table, folder / "metadata" / "subject_splits.parquet")
    (folder / "metadata" / "dataset.json").write_text(json.dumps({"dataset_name": "Ward 7"}))
    return folder


ALL = {1: "train", 2: "tuning", 3: "held_out", 4: "secret"}


def test_the_files_made_here_are_valid(tmp_path: Path) -> None:
    schemas = pytest.importorskip("meds", reason="the package meds is not installed")
    folder = meds(tmp_path, ALL)
    for path in (folder / "data").iterdir():
        schemas.DataSchema.validate(parquet.read_table(path))
    schemas.SubjectSplitSchema.validate(parquet.read_table(folder / "metadata" / "subject_splits.parquet"))


def test_splits_are_those_of_the_subjects(tmp_path: Path, caplog) -> None:
    found = load(meds(tmp_path, ALL))
    assert {name: [one.id for one in data] for name, data in found.splits().items()} == {
        "train": ["1"],
        "dev": ["2"],
        "test": ["3"],
    }
    assert found.card.name == "Ward 7"
    assert found.vocabulary.names == ("ADMISSION", "DISCHARGE", "LAB//K (mmol)")
    assert "1 subject in the split 'secret' left out" in caplog.text


def test_subjects_whose_split_is_empty_or_a_number_are_left_out(tmp_path: Path, caplog) -> None:
    folder = meds(tmp_path, ALL)
    for other, said in ((pa.array([None, "train", "train"]), "in no split"), (pa.array([7, 8, 8]), "in the split '7'")):
        table = pa.table({"subject_id": [1, 2, 3], "split": other})
        parquet.write_table(table, folder / "metadata" / "subject_splits.parquet")
        if said == "in no split":
            train = load(folder).train
            assert train is not None and [one.id for one in train] == ["2", "3"]
        else:
            with pytest.raises(DataError, match="no split"):
                load(folder)
        assert said in caplog.text


def test_static_rows_are_kept_as_metadata_and_values_as_columns(tmp_path: Path) -> None:
    train = load(meds(tmp_path, ALL)).train
    assert train is not None
    assert train[0].metadata["static"] == [{"code": "GENDER//F"}, {"code": "HEIGHT", "numeric_value": 171.0}]
    assert (train[0].times * train.clock.seconds_per_unit).tolist() == [0.0, 3 * 3600.0]
    assert train.columns.attributes["numeric_value"].values[1] == 4.5


def test_without_a_file_of_splits_folders_say_them_or_all_subjects_are_train(tmp_path: Path, caplog) -> None:
    whole = load(meds(tmp_path / "a"))
    assert whole.train is not None and len(whole.train) == 4 and whole.dev is None
    by_folder = load(meds(tmp_path / "b", inside="tuning"))
    assert by_folder.dev is not None and len(by_folder.dev) == 4 and by_folder.train is None
    assert "splits are the folders tuning" in caplog.text


def test_mistakes_of_all_files_are_told_at_once(tmp_path: Path) -> None:
    folder = meds(tmp_path, {**ALL, 1: "train"})
    parquet.write_table(pa.table({"subject_id": ["x"], "time": [1], "cod": ["a"]}), folder / "data" / "2.parquet")
    (folder / "data" / "3.parquet").write_bytes(b"PAR1 but not for long")
    parquet.write_table(pa.Table.from_pylist(SUBJECTS[0], schema=SCHEMA), folder / "data" / "4.parquet")
    nameless = pa.Table.from_pylist([{"subject_id": 9, "time": START, "code": None}], schema=SCHEMA)
    parquet.write_table(nameless, folder / "data" / "5.parquet")
    with pytest.raises(DataError) as caught:
        load(folder)
    found = "\n".join(caught.value.problems)
    for said in (
        "2.parquet: column 'subject_id' has type string, expected an integer",
        "2.parquet: column 'time' has type int64, expected a timestamp",
        "2.parquet: expected one column 'code', found subject_id, time, cod",
        "3.parquet: not a Parquet file that can be read",
        "4.parquet: subject 1 has rows in 0.parquet, too",
        "5.parquet: column 'code' is empty in 1 row",
    ):
        assert said in found, (said, found)
