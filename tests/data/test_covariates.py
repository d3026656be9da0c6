"""Named covariates: found among the columns of files, encoded by training, applied to other data."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import foretell as ft
from foretell.data import Attribute, ReadOptions, load, save
from foretell.data.clock import Clock
from foretell.data.covariates import CategoryColumn, CovariateEncoding, NumberColumn, column_from_json, fit_column
from foretell.errors import DataError, ForetellError

ROWS = [(s, t, "ab"[t % 2], t * 1.5 if t % 3 else "", ["web", "shop"][t % 2], 30 + s) for s in range(4) for t in range(1, 8)]  # fmt: skip
NAMED = ReadOptions(covariates=("amount", "channel"), static=("age",))


@pytest.fixture
def visits(tmp_path: Path) -> Path:
    lines = ["sequence,time,event,amount,channel,age", *(",".join(map(str, row)) for row in ROWS)]
    path = tmp_path / "visits.csv"
    path.write_text("\n".join(lines))
    return path


def test_numbers_are_standardised_and_missing_ones_stay_missing() -> None:
    column = fit_column("x", Attribute(np.array([1.0, np.nan, 3.0, 5.0])))
    assert column == NumberColumn("x", 3.0, float(np.std([1.0, 3.0, 5.0])))
    found = column.encode(Attribute(np.array([3, 5])))
    assert found.dtype == np.float32 and found[0] == 0.0 and found[1] == pytest.approx(np.sqrt(1.5))
    assert np.isnan(column.encode(Attribute(np.array([np.nan, np.inf])))).all()
    assert column.encode(Attribute(np.array([1e300])))[0] == 100.0


def test_a_constant_number_is_zero_not_endless() -> None:
    column = fit_column("x", Attribute(np.full(4, 7.0)))
    assert column.encode(Attribute(np.array([7.0, 8.0]))).tolist() == [0.0, 1.0]


def test_rare_and_unseen_categories_share_a_code() -> None:
    codes = np.array([0] * 6 + [1] * 5 + [2] * 4 + [-1])
    column = fit_column("x", Attribute(codes.astype(np.int32), ("b", "a", "rare")))
    assert column == CategoryColumn("x", ("a", "b")) and CategoryColumn("x", ("a", "b")).size == 4
    other = Attribute(np.array([0, 1, 2, 3, -1], dtype=np.int32), ("a", "b", "rare", "new"))
    assert column.encode(other).tolist() == [2, 3, 1, 1, 0]


def test_whole_numbers_may_be_categories() -> None:
    column = fit_column("x:category", Attribute(np.array([1, 2] * 5)))
    assert column == CategoryColumn("x", ("1", "2"))
    assert column.encode(Attribute(np.array([1.0, np.nan, 3.0]))).tolist() == [2, 0, 1]


@pytest.mark.parametrize(
    ("text", "attribute", "said"),
    [
        ("x", Attribute(np.full(3, np.nan)), "no value in the training data"),
        ("x", Attribute(np.array(["2024-01-01"], dtype="datetime64[ns]")), "its values are dates"),
        ("x:number", Attribute(np.array([0], dtype=np.int32), ("red",)), "'red' is not a number"),
    ],
)
def test_columns_that_cannot_be_encoded_are_refused(text: str, attribute: Attribute, said: str) -> None:
    with pytest.raises(DataError, match=said):
        fit_column(text, attribute)


WRONG = {"kind": "number", "mean": 0.0, "scale": 0.0}, {"kind": "category", "categories": [1]}


@pytest.mark.parametrize("wrong", [{}, 3, *({"name": "x", **one} for one in WRONG)])
def test_what_is_no_encoding_is_refused(wrong: object) -> None:
    with pytest.raises(ValueError, match="covariate"):
        column_from_json(wrong)


def test_columns_of_a_csv_go_where_they_are_named(visits: Path) -> None:
    train = load(visits, options=NAMED).train
    assert train is not None
    assert list(train.columns.attributes) == ["amount", "channel"]
    assert train.columns.sequence_attributes["age"].values.tolist() == [30.0, 31.0, 32.0, 33.0]
    encoding = train.encoding()
    assert encoding is not None and encoding.names == ("amount", "channel", "age")
    assert CovariateEncoding.from_json(json.loads(json.dumps(encoding.to_json()))) == encoding


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet", ".csv", ".xes"])
def test_formats_give_one_encoding(visits: Path, tmp_path: Path, suffix: str) -> None:
    train = load(visits, options=NAMED).train
    assert train is not None
    save(train, tmp_path / f"again{suffix}")
    again = load(tmp_path / f"again{suffix}", options=NAMED).train
    assert again is not None and again.encoding() == train.encoding()
    assert np.array_equal(again.columns.attributes["amount"].values, train.columns.attributes["amount"].values, True)


def test_sequences_carry_their_attributes(visits: Path) -> None:
    train = load(visits, options=NAMED).train
    assert train is not None
    again = ft.EventData([train[2].first(3), train[0]], train.vocabulary).columns
    assert again.attributes["amount"].values[:2].tolist() == [1.5, 3.0]
    assert np.isnan(again.attributes["amount"].values[2]) and len(again.attributes["amount"]) == 10
    assert again.attributes["channel"].texts()[:4] == ["shop", "web", "shop", "shop"]
    assert again.sequence_attributes["age"].values.tolist() == [32.0, 30.0]


def test_sequences_of_several_tables_join_theirs(visits: Path) -> None:
    train = load(visits, options=NAMED).train
    assert train is not None
    bare = ft.EventSequence(np.array([1.0]), np.array([0]), 2.0, "bare")
    other = ft.EventData([bare, train[3].first(1)], train.vocabulary)
    columns = ft.EventData([other[0], other[1], train[0].first(2)], train.vocabulary).columns
    assert columns.attributes["channel"].texts() == [None, "shop", "shop", "web"]
    assert np.array_equal(columns.sequence_attributes["age"].values, [np.nan, 33.0, 30.0], equal_nan=True)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"covariates": ("amont",)}, r'`covariates=\["amont"\]`: no such column; found .*did you mean `amount`'),
        ({"static": ("channel",)}, r"`static=\['channel'\]`: sequence '0' has several values .and 3 more"),
        ({"static": ("agee",)}, r'`static=\["agee"\]`: no such column'),
    ],
)
def test_names_that_are_not_there_are_mistakes(visits: Path, options: dict[str, tuple[str, ...]], said: str) -> None:
    with pytest.raises(DataError, match=said):
        load(visits, options=ReadOptions(**options))  # pyright: ignore[reportArgumentType]


def test_a_name_given_twice_is_refused() -> None:
    with pytest.raises(ForetellError, match="'age' is named twice"):
        ReadOptions(covariates=("age",), static=("age:number",))


def test_a_value_per_sequence_is_not_one_per_event(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"times": [1.0, 2.0], "events": ["a", "b"], "t_end": 3, "age": 4}')
    with pytest.raises(DataError, match=r'use `static=\["age"\]`'):
        load(path, options=ReadOptions(covariates=("age",)))


def test_lists_of_the_wrong_length_are_mistakes(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"times": [1.0, 2.0], "events": ["a", "b"], "t_end": 3, "dose": [4]}')
    with pytest.raises(DataError, match="`dose` has 1 values and there are 2 events"):
        load(path, options=ReadOptions(covariates=("dose",)))


def test_new_data_without_a_column_are_told_and_missing(visits: Path, caplog: pytest.LogCaptureFixture) -> None:
    bare = visits.with_name("bare.csv")
    bare.write_text("sequence,time,event,channel\n0,1,a,web\n0,2,b,shop\n")
    data = load(bare, options=replace(NAMED, clock=Clock())).train
    assert data is not None and "amount" not in data.columns.attributes
    assert "not here, and all values are taken as missing: amount, age" in caplog.text


def test_a_static_value_that_only_a_later_event_has_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "late.csv"
    path.write_text("sequence,time,event,age\n0,1,a,\n0,2,b,40\n1,1,a,50\n1,2,b,\n2,1,a,\n")
    data = load(path, options=ReadOptions(static=("age",))).train
    assert data is not None
    assert np.array_equal(data.columns.sequence_attributes["age"].values, [40.0, 50.0, np.nan], equal_nan=True)
    assert "age: in 1 sequence of 3 only a later event has it" in caplog.text


def test_a_card_names_covariates(visits: Path, tmp_path: Path) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    (folder / "train.csv").write_text(visits.read_text())
    (folder / "dataset.toml").write_text('covariates = ["amount"]\nstatic = ["age"]\n')
    data = load(folder)
    assert data.train is not None and data.train.covariates.columns == ("amount", "age")
    assert 'static = [\n    "age",\n]' in data.card.to_toml()
    (folder / "dataset.toml").write_text('covariates = "amount"\n')
    with pytest.raises(DataError, match="covariates is 'amount', expected a list of names"):
        load(folder)


def test_a_frame_names_covariates() -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(ROWS, columns=["sequence", "time", "event", "amount", "channel", "age"])
    frame["amount"] = pd.to_numeric(frame["amount"])
    data = ft.from_frame(frame, covariates=["amount", "channel"], static=["age"])
    assert data.train is not None and data.train.covariates.columns == ("amount", "channel", "age")
    with pytest.raises(ForetellError, match="covariates = 'amount': expected a list of columns"):
        ft.from_frame(frame, covariates="amount")
