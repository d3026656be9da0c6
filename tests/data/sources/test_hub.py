"""Data sets through the package `datasets`: local ones, in EasyTPP's layout, as sequences, and as a long table."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from foretell.data import load
from foretell.errors import DataError

pytest.importorskip("datasets", reason="the package datasets is not installed")


@pytest.fixture
def local(tmp_path: Path, monkeypatch):
    """Writes one JSON-lines file per split and gives the name of the data set."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    datasets.disable_progress_bars()

    def write(**splits: list[dict[str, object]]) -> str:
        (tmp_path / "set").mkdir()
        for name, records in splits.items():
            (tmp_path / "set" / f"{name}.json").write_text("".join(json.dumps(one) + "\n" for one in records))
        return f"hf:{tmp_path / 'set'}"

    return write


def easytpp(number: int, times: list[float], types: list[int], **more: object) -> dict[str, object]:
    since = [0.0, *(later - earlier for earlier, later in pairwise(times))]
    head = {"dim_process": 3, "seq_idx": number, "seq_len": len(times)}
    return {**head, "time_since_start": times, "time_since_last_event": since, "type_event": types, **more}


def test_easytpps_layout_gives_splits_types_and_times(local) -> None:
    one = [easytpp(0, [0.0, 1.5], [0, 1]), easytpp(1, [0.0, 0.25, 4.0], [1, 0, 1])]
    found = load(local(train=one, dev=one[:1], test=one[1:]))
    assert {name: len(data) for name, data in found.splits().items()} == {"train": 2, "dev": 1, "test": 1}
    assert len(found.vocabulary) == 3 and found.card.name == "set"
    assert found.test is not None and found.test[0].times.tolist() == [0.0, 0.25, 4.0]
    assert found.test[0].types.tolist() == [1, 0, 1] and found.test[0].id == "1"


def test_text_of_types_becomes_their_names(local) -> None:
    found = load(local(train=[easytpp(0, [0.0, 1.5], [1, 0], type_text=["pick up", "drop off"])]))
    assert found.train is not None and found.train.names_of(found.train[0]) == ["pick up", "drop off"]


def test_sequences_and_long_tables_are_read_too(local, tmp_path: Path) -> None:
    found = load(local(train=[{"id": "a", "times": [0.5, 2.0], "events": ["x", "y"], "t_end": 3.0}]))
    assert (
        found.train is not None and found.train.names_of(found.train[0]) == ["x", "y"] and found.train[0].t_end == 3.0
    )


def test_a_long_table_is_read_with_its_columns(local) -> None:
    rows = [{"user": "u", "at": f"2020-01-0{day}T00:00:00Z", "what": "x"} for day in (1, 2, 4)]
    found = load(local(train=rows), columns={"sequence": "user", "time": "at", "event": "what"})
    assert found.train is not None and (found.train[0].times * found.clock.seconds_per_unit / 86400).tolist() == [
        0,
        1,
        3,
    ]


def test_mistakes_are_told_with_split_and_row(local) -> None:
    wrong = [easytpp(0, [0.0, 1.5], [0, 1]), easytpp(1, [0.0, -1.0], [0, 1]), {**easytpp(2, [0.0], [0]), "seq_len": 4}]
    with pytest.raises(DataError) as caught:
        load(local(train=wrong))
    found = "\n".join(caught.value.problems)
    assert "[train]: row 2: sequence '1': times[1]" in found and "[train]: row 3: seq_len is 4" in found


@pytest.mark.parametrize("name", ["hf:", "hf:/no/such/folder"])
def test_a_data_set_that_is_not_there_is_told(name: str) -> None:
    with pytest.raises(DataError, match=r"expected hf:NAME|cannot be loaded"):
        load(name)
