"""Data as a run uses it: splits as they are, or made from the sequences; other files in the model's own vocabulary."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest

from foretell.data import EventData, EventSequence, Vocabulary, load, save
from foretell.errors import DataError, ForetellError
from foretell.train.config import DataOptions
from foretell.train.splits import in_vocabulary, load_splits, open_for
from tests.samples import event_data, random_data
from tests.train.small import exciting, folder_of


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Forty sequences in one CSV file."""
    save(exciting(40, 3), tmp_path / "all.csv")
    return tmp_path / "all.csv"


def ids(data: EventData | None) -> list[str]:
    return [] if data is None else [sequence.id for sequence in data]


def test_a_single_file_is_shared_out_by_sequences_and_each_is_in_one_split(table: Path, caplog):
    with caplog.at_level(logging.WARNING):
        dataset = load_splits(DataOptions(str(table)))
    parts = [ids(data) for data in (dataset.train, dataset.dev, dataset.test)]
    whole = ids(load(table).train)
    assert [len(part) for part in parts] == [round(0.8 * len(whole)), round(0.1 * len(whole)), round(0.1 * len(whole))]
    assert sorted(name for part in parts for name in part) == sorted(whole)
    assert list(dataset.splits()) == [data.name for data in dataset.splits().values()] == ["train", "dev", "test"]
    assert "its sequences were shared out" in caplog.text and f"{len(parts[0])} train" in caplog.text


def test_the_split_is_the_same_every_time_and_another_with_another_seed(table: Path):
    one, two = (load_splits(DataOptions(str(table))) for _ in range(2))
    assert ids(one.dev) == ids(two.dev) and ids(one.test) == ids(two.test)
    assert ids(load_splits(DataOptions(str(table), split_seed=1)).test) != ids(one.test)


def test_the_split_is_not_the_order_of_the_file(table: Path):
    whole = ids(load(table).train)
    assert ids(load_splits(DataOptions(str(table))).train) != whole[: round(0.8 * len(whole))]


def test_shares_may_be_chosen_and_a_share_of_zero_makes_no_split(table: Path):
    dataset = load_splits(DataOptions(str(table), split=(0.5, 0.5, 0.0)))
    assert list(dataset.splits()) == ["train", "dev"]
    assert abs(len(ids(dataset.train)) - len(ids(dataset.dev))) <= 1


def test_a_split_that_leaves_nothing_to_train_on_is_refused(tmp_path: Path):
    save(random_data(0, [3] * 10), tmp_path / "ten.jsonl")
    with pytest.raises(ForetellError, match="leaves none of 10 sequences for training"):
        load_splits(DataOptions(str(tmp_path / "ten.jsonl"), split=(0.01, 0.5, 0.49)))


def test_few_sequences_are_split_in_time_and_the_cuts_are_said(tmp_path: Path, caplog):
    save(random_data(0, [30] * 3, t_end=10.0), tmp_path / "three.jsonl")
    dataset = load_splits(DataOptions(str(tmp_path / "three.jsonl")))
    train, dev, test = dataset.splits().values()
    assert [one.t_end for one in train] == [8.0] * 3 and train.columns.scored_from is None
    assert [(one.scored_from, one.t_end) for one in dev] == [(8.0, 9.0)] * 3
    assert [(one.scored_from, one.t_end) for one in test] == [(9.0, 10.0)] * 3
    for whole, first, second in zip(test, train, dev, strict=True):
        np.testing.assert_array_equal(first.times, whole.times[whole.times <= 8.0])
        np.testing.assert_array_equal(second.times, whole.times[whole.times <= 9.0])
    assert "3 sequences: each is split in time" in caplog.text and "given all that came before it" in caplog.text


def test_one_stream_of_dates_says_until_when_each_part_goes(tmp_path: Path, caplog):
    path = tmp_path / "stream.csv"
    rows = [f"2024-01-{1 + day:02d}T12:00,x" for day in range(11)]
    path.write_text("\n".join(["time,event", *rows]))
    dataset = load_splits(DataOptions(str(path)))
    train, dev, test = dataset.splits().values()
    assert train.clock.unit == "days" and [len(one) for one in (train[0], dev[0], test[0])] == [9, 10, 11]
    assert (train[0].t_end, dev[0].scored_from, test[0].scored_from, test[0].t_end) == (8.0, 8.0, 9.0, 10.0)
    assert (
        "train until 2024-01-09 12:00:00 UTC (8 events), then dev until 2024-01-10 12:00:00 UTC (1 event)"
        in caplog.text
    )
    assert len({one.start for data in (train, dev, test) for one in data}) == 1


def test_a_part_in_which_nothing_happens_is_left_out_and_that_is_said(tmp_path: Path, caplog):
    save(EventData([EventSequence([1.0, 2.0, 9.5], [0, 0, 0], 10.0)], Vocabulary.of_size(1)), tmp_path / "one.jsonl")
    dataset = load_splits(DataOptions(str(tmp_path / "one.jsonl")))
    assert list(dataset.splits()) == ["train", "test"] and dataset.test[0].scored_from == 8.0
    assert "nothing to score in dev" in caplog.text


def test_tasks_that_are_no_forecasts_do_not_split_few_sequences_in_time(tmp_path: Path, caplog):
    save(random_data(0, [3] * 9), tmp_path / "nine.jsonl")
    dataset = load_splits(DataOptions(str(tmp_path / "nine.jsonl")), in_time=False)
    assert list(dataset.splits()) == ["train"] and len(ids(dataset.train)) == 9
    assert "scores will be on training data" in caplog.text


def test_a_folder_without_train_says_what_to_do(tmp_path: Path):
    (tmp_path / "set").mkdir()
    save(random_data(0, [3] * 9), tmp_path / "set" / "test.jsonl")
    with pytest.raises(ForetellError, match="there is no train split, but test; name the file to train on `train`"):
        load_splits(DataOptions(str(tmp_path / "set")))


def test_splits_that_exist_are_left_as_they_are(tmp_path: Path):
    folder = folder_of(tmp_path / "bursts")
    assert [len(data) for data in load_splits(DataOptions(str(folder))).splits().values()] == [24, 8, 8]


def test_columns_of_a_table_may_have_other_names(tmp_path: Path):
    path = tmp_path / "log.csv"
    path.write_text("patient,when,code\n" + "".join(f"p{n},{n % 3 + 1}.5,x\n" for n in range(12)))
    columns = {"sequence": "patient", "time": "when", "event": "code"}
    dataset = load_splits(DataOptions(str(path), columns=columns))
    assert dataset.vocabulary.names == ("x",) and list(dataset.splits()) == ["train", "dev", "test"]
    with pytest.raises(ForetellError, match="wen"):
        load_splits(DataOptions(str(path), columns={**columns, "time": "wen"}))


def test_no_data_no_file_and_no_train_split_are_refused(tmp_path: Path):
    with pytest.raises(ForetellError, match="no data: give a folder"):
        load_splits(DataOptions())
    with pytest.raises(ForetellError, match="no such file"):
        load_splits(DataOptions(str(tmp_path / "gone.csv")))
    save(random_data(0, [3]), tmp_path / "only" / "test.jsonl")
    with pytest.raises(ForetellError, match="there is no train split"):
        load_splits(DataOptions(str(tmp_path / "only")))


def test_events_keep_their_names_in_another_vocabulary():
    data = event_data([([1.0, 2.0, 3.0], [0, 2, 0])])
    moved = in_vocabulary(data, Vocabulary(("c", "z", "a")))
    assert moved[0].types.tolist() == [2, 0, 2]
    assert moved.names_of(moved[0]) == data.names_of(data[0]) == ["a", "c", "a"]
    assert np.array_equal(moved[0].times, data[0].times) and moved[0].t_end == data[0].t_end


def test_types_that_do_not_occur_may_be_missing_from_the_other_vocabulary():
    assert in_vocabulary(event_data([([1.0], [1])]), Vocabulary(("b",)))[0].types.tolist() == [0]


def test_every_event_type_that_a_model_does_not_know_is_reported():
    with pytest.raises(DataError) as caught:
        in_vocabulary(event_data([([1.0, 2.0, 3.0], [0, 1, 2])]), Vocabulary(("b", "x")))
    assert [problem.split("`")[1] for problem in caught.value.problems] == ["a", "c"]


def test_metadata_and_origin_survive_the_change_of_vocabulary():
    sequence = EventSequence(np.array([0.0, 1.0]), np.array([0, 1], dtype=np.int32), 2.0, "s", {"ward": 3})
    moved = in_vocabulary(EventData([sequence], Vocabulary(("a", "b")), "first-event"), Vocabulary(("b", "a")))
    assert moved.origin == "first-event" and moved[0].metadata["ward"] == 3 and moved[0].id == "s"


def test_a_split_is_chosen_by_name_and_test_is_the_default(tmp_path: Path):
    folder = str(folder_of(tmp_path / "bursts"))
    vocabulary = load(folder).vocabulary
    assert open_for(vocabulary, folder, None).name == "test"
    assert open_for(vocabulary, folder, "dev").name == "dev"
    with pytest.raises(ForetellError, match=r"there is no split 'valid'; there are train, dev, test"):
        open_for(vocabulary, folder, "valid")
    with pytest.raises(ForetellError, match="this is one file and has no split"):
        open_for(vocabulary, f"{folder}/dev.jsonl.gz", "dev")


def test_a_file_is_read_with_the_origin_of_the_training_data(tmp_path: Path):
    save(event_data([([0.0, 1.0], [0, 1])]), tmp_path / "f.jsonl")
    found = open_for(Vocabulary(("a", "b", "c")), str(tmp_path / "f.jsonl"), None, origin="first-event")
    assert found.origin == "first-event"


def test_rare_types_become_other_where_that_is_asked_for(tmp_path: Path, caplog):
    rows = [f"s{n},{k},{'rare' + str(n) if k == n == 3 else 'ab'[k % 2]}" for n in range(12) for k in range(1, 7)]
    (tmp_path / "log.csv").write_text("\n".join(["sequence,time,event", *rows, "s0,9,once"]) + "\n")
    with caplog.at_level(logging.WARNING):
        found = load_splits(DataOptions(str(tmp_path / "log.csv"), unknown="other"))
    assert list(found.vocabulary) == ["a", "b", "other"] and found.card.types == 3
    counts = sum(data.type_counts() for data in found.splits().values())
    assert counts[2] == 2 and "with fewer than 5 training events" in caplog.text
    assert found.train is not None and found.train.vocabulary is found.vocabulary
    new = "sequence,time,event\nz,1,a\nz,2,never\n"
    (tmp_path / "new.csv").write_text(new)
    options = DataOptions(unknown="other").reading()
    assert open_for(found.vocabulary, str(tmp_path / "new.csv"), None, options=options)[0].types.tolist() == [0, 2]
    assert list(load_splits(DataOptions(str(tmp_path / "log.csv"))).vocabulary)[2:] == ["once", "rare3"]


def test_integer_types_keep_their_places_and_other_comes_after_them(tmp_path: Path, caplog):
    (tmp_path / "log.csv").write_text("time,event\n" + "".join(f"{n},{n % 3}\n" for n in range(30)))
    with caplog.at_level(logging.WARNING):
        found = load_splits(DataOptions(str(tmp_path / "log.csv"), unknown="other"))
    assert list(found.vocabulary) == ["0", "1", "2", "other"] and "nothing to learn about `other`" in caplog.text
