"""What is noticed in several files of a data set is said once, with the numbers of each."""

from __future__ import annotations

import logging

from foretell.data import load
from foretell.data.remarks import once_per_kind


def test_a_remark_is_said_once_with_the_files_and_numbers_of_the_others() -> None:
    said = [
        ("d/train.csv", "3 of 1,000 rows were sorted"),
        ("d/train.csv", "columns kept: a, b2"),
        ("d/dev.csv", "3 of 20 rows were sorted"),
        ("d/dev.csv", "columns kept: a, b2"),
        ("d/test.csv", "1 of 5 rows were sorted"),
        ("d/test.csv", "columns kept: a"),
    ]
    assert once_per_kind(said) == [
        ("d/train.csv", "3 of 1,000 rows were sorted; likewise dev.csv (20), test.csv (1 of 5)"),
        ("d/train.csv", "columns kept: a, b2; likewise dev.csv"),
        ("d/test.csv", "columns kept: a"),
    ]
    assert once_per_kind(said[:2]) == said[:2] and once_per_kind([]) == []


def test_loading_three_files_says_what_was_assumed_once(tmp_path, caplog) -> None:
    for place, split in enumerate(("train", "dev", "test"), 1):
        rows = "".join(f"s{n},2024-03-01T12:00Z,a,1\ns{n},2024-03-01T11:00Z,b,2\n" for n in range(place))
        (tmp_path / f"{split}.csv").write_text(f"sequence,time,event,room\n{rows}")
    with caplog.at_level(logging.WARNING, "foretell"):
        load(tmp_path)
    said = [text.removeprefix(f"{tmp_path}/") for text in caplog.messages]
    assert len(said) == 4
    assert said[0].startswith("train.csv: 2 of 2 rows were out of order")
    assert said[0].endswith("; likewise dev.csv (4 of 4), test.csv (6 of 6)")
    assert said[1].startswith("train.csv: 1 of 1 sequences have no t_end")
    assert said[1].endswith("; likewise dev.csv (2 of 2), test.csv (3 of 3)")
    assert said[2].endswith("covariates: room; likewise dev.csv, test.csv")
    assert said[3].endswith('a t_start column or `start="day"` says otherwise')
