"""`score_from`: the time up to which a sequence is history only, in every format, and from the masks of NDTT's pickles."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest

from foretell.data import EventData, load_file, save
from foretell.data.foreign import load_foreign
from foretell.data.frames import from_frame
from foretell.errors import DataError
from tests.cli.invoking import fine

NUMBERS = """\
sequence,time,event,t_end,score_from
x,1.0,a,10.0,4.5
x,5.0,b,,
y,2.0,a,10.0,
"""
DATES = """\
sequence,time,event,t_start,t_end,score_from
x,2024-03-01T10:00:00Z,a,2024-03-01T00:00:00Z,2024-03-02T00:00:00Z,2024-03-01T12:00:00Z
x,2024-03-01T13:00:00Z,b,2024-03-01T00:00:00Z,,
y,2024-03-05T02:00:00Z,a,2024-03-05T00:00:00Z,2024-03-06T00:00:00Z,
"""


def read(folder: Path, text: str) -> EventData:
    (folder / "data.csv").write_text(text)
    return load_file(folder / "data.csv")


def from_when(data: EventData) -> list[float]:
    return [one.scored_from for one in data]


@pytest.mark.parametrize(
    ("text", "suffix"),
    [(text, suffix) for text in (NUMBERS, DATES) for suffix in ("csv", "tsv", "jsonl", "jsonl.gz", "parquet")]
    + [(DATES, "xes")],  # which has no numbers as times
)
def test_every_format_keeps_it(tmp_path: Path, text: str, suffix: str):
    data = read(tmp_path, text)
    assert from_when(data) == ([4.5, 0.0] if text is NUMBERS else [12.0, 0.0])
    save(data, tmp_path / f"again.{suffix}")
    again = load_file(tmp_path / f"again.{suffix}")
    assert from_when(again) == from_when(data)
    assert [one.t_end for one in again] == [one.t_end for one in data]
    assert not again.report.attributes


def test_unix_times_and_starts_move_it_along(tmp_path: Path):
    unix = "sequence,time,event,score_from\nx,1700000000,a,1700007200\nx,1700010800,b,1700007200\nx,1700018000,b,\n"
    assert from_when(read(tmp_path, unix)) == pytest.approx([2.0])
    shifted = "sequence,time,event,t_start,t_end,score_from\nx,101,a,100,110,104\nx,105,b,100,110,104\n"
    (one,) = read(tmp_path, shifted)
    assert (one.times.tolist(), one.t_end, one.scored_from) == ([1.0, 5.0], 10.0, 4.0)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames_have_it(tmp_path: Path, library: str):
    frames = pytest.importorskip(library)
    columns = {"time": [1.0, 5.0], "event": ["a", "b"], "t_end": [9.0, 9.0], "cut": [4.0, 4.0]}
    data = from_frame(frames.DataFrame(columns), score_from="cut").train
    assert from_when(data) == [4.0]
    assert data.to_frame()["score_from"].to_list() == [4.0, 4.0]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (-1.0, "score_from is -1, expected a time from 0 to t_end = 9"),
        (9.5, "score_from is 9.5, expected a time from 0 to t_end = 9"),
        ("2024-01-01", "expected a number as for other times"),
        ([1], "score_from is \\[1\\], expected a finite number"),
    ],
)
def test_what_is_no_time_of_the_sequence_is_a_mistake(tmp_path: Path, value: object, reason: str):
    record = {"id": "x", "times": [1.0], "types": [0], "t_end": 9.0, "score_from": value}
    (tmp_path / "data.jsonl").write_text(json.dumps(record))
    with pytest.raises(DataError, match=reason):
        load_file(tmp_path / "data.jsonl")


def test_rows_of_a_sequence_agree_on_it(tmp_path: Path):
    with pytest.raises(DataError, match=r"data.csv:3: sequence 'x': score_from is 3.0 here and 4.5 before"):
        read(tmp_path, NUMBERS.replace("x,5.0,b,,", "x,5.0,b,,3.0"))


def test_describe_counts_the_sequences(tmp_path: Path):
    read(tmp_path, NUMBERS)
    assert "scored from later" in fine("data", "describe", tmp_path / "data.csv").out
    told = fine("data", "describe", tmp_path / "data.csv", "--json").json
    assert told["splits"]["train"]["history_before"] == 1


# --- pickles ---


def ndtt(*times: float) -> list[dict[str, object]]:
    names = ["bos", *["a"] * (len(times) - 1), "eos"]
    return [{"name": name, "time": time} for name, time in zip(names, (0.0, *times), strict=True)]


def dump(path: Path, content: object) -> Path:
    path.write_bytes(pickle.dumps(content))
    return path


def test_masks_of_ndtt_are_honoured_and_an_event_at_the_very_time_is_scored(tmp_path: Path):
    for split in ("train", "dev"):
        dump(tmp_path / f"{split}.pkl", [ndtt(1.0, 5.0, 9.0), ndtt(2.0, 6.0, 9.0)])
    dump(tmp_path / "dev_mask.pkl", [4.5, np.float64(6.0)])
    dataset = load_foreign(tmp_path)
    assert list(dataset.splits()) == ["train", "dev"]
    assert from_when(dataset.train) == [0.0, 0.0]
    first, second = from_when(dataset.dev)
    assert first == 4.5 and second == np.nextafter(6.0, 0.0)
    assert [(one.times > one.scored_from).tolist() for one in dataset.dev] == [[False, True], [False, True]]


@pytest.mark.parametrize(
    ("mask", "reason"),
    [
        ([1.0], "one time for each of the 2 sequences, found a list of 1"),
        ({"a": 1}, "found a dict"),
        (["x", 1.0], "score_from is 'x'"),
        ([20.0, 1.0], "score_from is 20, expected a time from 0 to t_end = 9"),
    ],
)
def test_masks_that_are_none_are_refused(tmp_path: Path, mask: object, reason: str):
    dump(tmp_path / "dev.pkl", [ndtt(1.0, 5.0, 9.0), ndtt(2.0, 6.0, 9.0)])
    dump(tmp_path / "dev_mask.pkl", mask)
    with pytest.raises(DataError, match=reason):
        load_foreign(tmp_path / "dev.pkl")


def test_pickles_of_the_papers_repository_are_read(tmp_path: Path):
    rows = [{"time_since_start": time, "type_event": 1, "log_intensity": -3.9} for time in (0.5, 1.5)]
    content = {"dim_process": 3, "dev": [rows, rows[:1]], "log_lik": [(-24.5, 2), (-3.0, 1)]}
    data = load_foreign(dump(tmp_path / "some.pkl", content)).dev
    assert [len(one) for one in data] == [2, 1]
    assert [one.metadata["log_lik"] for one in data] == [[-24.5, 2], [-3.0, 1]]
    with pytest.raises(DataError, match="log_lik has 1 entries, but there are 2 sequences"):
        load_foreign(dump(tmp_path / "wrong.pkl", {**content, "log_lik": [(-24.5, 2)]}))


def test_evaluation_counts_what_comes_after_it(tmp_path: Path):
    rng = np.random.default_rng(1)
    records = []
    for number in range(12):
        times = np.sort(rng.uniform(0.0, 20.0, 15)).tolist()
        records.append({"id": str(number), "times": times, "types": [0] * 15, "t_end": 20.0, "score_from": 8.0})
    for split, part in (("train", records[:8]), ("test", records[8:])):
        (tmp_path / f"{split}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in part))
    fine("train", "--data", tmp_path, "--model", "poisson", "--out", tmp_path / "run", "--quiet")
    scored = fine("evaluate", tmp_path / "run", "--json").json
    expected = sum(time > 8.0 for one in records[8:] for time in one["times"])
    assert scored["events"] == expected
    rate = sum(time > 8.0 for one in records[:8] for time in one["times"]) + 0.5
    rate /= 8 * 12.0
    nats = np.log(rate) - rate * 4 * 12.0 / expected
    assert scored["log_likelihood"]["value"] == pytest.approx(nats, abs=0.01)
