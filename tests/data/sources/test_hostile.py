"""Damaged files of every format: an error that names the file, or events; never a traceback of ours, a hang, or a changed file."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foretell.data import load
from foretell.errors import ForetellError
from tests.data.sources.test_meds import ALL, meds
from tests.data.sources.test_ocel import as_json, as_sqlite
from tests.data.sources.test_xes import HEAD, LOG

MANY = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
DAMAGE = st.lists(st.tuples(st.floats(0, 1), st.binary(max_size=6), st.integers(0, 6)), min_size=1, max_size=4)


def damaged(content: bytes, damage: list[tuple[float, bytes, int]]) -> bytes:
    """Some bytes put in, others taken out, at places from 0 to 1."""
    for place, put, taken in damage:
        at = int(place * len(content))
        content = content[:at] + put + content[at + taken :]
    return content


def survives(path: Path) -> None:
    before = path.read_bytes()
    try:
        load(path)
    except ForetellError as error:
        assert str(path) in str(error)
    assert path.read_bytes() == before


@MANY
@given(damage=DAMAGE)
def test_damaged_xml_is_an_error_or_a_log(tmp_path: Path, damage) -> None:
    (tmp_path / "log.xes").write_bytes(damaged(f"{HEAD}{''.join(LOG)}</log>".encode(), damage))
    survives(tmp_path / "log.xes")


@MANY
@given(damage=DAMAGE)
def test_damaged_json_is_an_error_or_a_log(tmp_path: Path, damage) -> None:
    path = as_json(tmp_path)
    path.write_bytes(damaged(path.read_bytes(), damage))
    survives(path)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["id", "type", "time", "objectId", "name"]), inner)
    ),
    max_leaves=8,
)


@MANY
@given(events=VALUES, objects=VALUES, relations=VALUES, attributes=VALUES)
def test_values_of_any_kind_are_an_error_or_a_log(tmp_path: Path, events, objects, relations, attributes) -> None:
    one = {"id": "e", "type": "a", "time": "2020-01-01", "relationships": relations, "attributes": attributes}
    content = {
        "objectTypes": [],
        "objects": objects,
        "events": [one, *(events if isinstance(events, list) else [events])],
    }
    survives(as_json(tmp_path, content))


@MANY
@given(damage=DAMAGE)
def test_a_damaged_database_is_an_error_or_a_log(tmp_path_factory, damage) -> None:
    folder = tmp_path_factory.mktemp("base")
    path = as_sqlite(folder)
    path.write_bytes(damaged(path.read_bytes(), damage))
    survives(path)


def test_a_folder_of_damaged_parquet_is_an_error(tmp_path: Path) -> None:
    folder = meds(tmp_path, ALL)
    path = folder / "data" / "0.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ForetellError, match=r"0\.parquet: not a Parquet file"):
        load(folder)
    splits = folder / "metadata" / "subject_splits.parquet"
    path.write_bytes((folder / "data" / "1.parquet").read_bytes())
    (folder / "data" / "1.parquet").unlink()
    parquet.write_table(parquet.read_table(splits).rename_columns(["subject", "split"]), splits)
    with pytest.raises(ForetellError, match="expected the columns subject_id and split"):
        load(folder)
