"""Data frames in and out: every kind gives the same events as a file, mistakes come all at once."""

from __future__ import annotations

import builtins
from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

import numpy as np
import pytest

import foretell as ft
from foretell.data import Clock, Columns, EventData, EventSequence, Vocabulary

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")
duckdb = pytest.importorskip("duckdb")
pytest.importorskip("narwhals")

NAMES = {"sequence": "customer", "time": "when", "event": "product"}
TEXT = ["2024-03-01T10:00:00+01:00", "2024-03-03T10:00:00+01:00", "2024-03-02T09:00:00Z", "2024-03-07T09:00:00Z"]
INSTANTS = np.array(["2024-03-01T09", "2024-03-03T09", "2024-03-02T09", "2024-03-07T09"], dtype="datetime64[ns]")


def orders():
    when = pd.to_datetime(TEXT, utc=True, format="ISO8601").tz_convert("Europe/Berlin")
    products = pd.Categorical(["tea", "milk", "tea", "tea"], categories=["tea", "milk", "never"])
    return pd.DataFrame({"customer": [1, 1, 2, 2], "when": when, "product": products, "price": [1.5, None, 3.0, 4.0]})


class ArrowStream:
    """Nothing but the Arrow interface."""

    def __init__(self, table):
        self.table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


KINDS = {
    "pandas": lambda frame: frame,
    "polars": pl.from_pandas,
    "lazy polars": lambda frame: pl.from_pandas(frame).lazy(),
    "pyarrow": lambda frame: pa.Table.from_pandas(frame, preserve_index=False),
    "pyarrow stream": lambda frame: ArrowStream(pa.Table.from_pandas(frame, preserve_index=False)),
    "duckdb": lambda frame: duckdb.from_arrow(
        pa.Table.from_pandas(frame.astype({"product": str}), preserve_index=False)
    ),
}


def same(one: EventData, other: EventData) -> None:
    assert one.columns.ids == other.columns.ids and one.vocabulary == other.vocabulary
    assert one.clock.unit == other.clock.unit and one.origin == other.origin
    for name in ("times", "types", "offsets", "t_ends", "starts"):
        np.testing.assert_array_equal(getattr(one.columns, name), getattr(other.columns, name))


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_frame_has_the_events_of_the_same_table_in_a_file(kind, tmp_path):
    orders().to_csv(tmp_path / "orders.csv", index=False)
    file = ft.load(tmp_path / "orders.csv", columns=NAMES).train
    found = ft.from_frame(KINDS[kind](orders()), **NAMES)
    same(found.train, file)
    assert found.clock.unit == "days" and list(found.vocabulary) == ["milk", "tea"]
    price = found.train.columns.attributes["price"].values
    np.testing.assert_array_equal(price, [1.5, np.nan, 3.0, 4.0])


@pytest.mark.parametrize("kind", KINDS)
def test_events_go_back_into_the_kind_of_frame_that_they_came_in(kind):
    data = ft.from_frame(KINDS[kind](orders()), **NAMES)
    frame = data.to_frame()
    expected = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.Table, "duckdb": duckdb.DuckDBPyRelation}
    assert isinstance(frame, expected[kind.split()[-1] if kind != "pyarrow stream" else "pyarrow"])
    assert data.to_frame("pandas")["sequence"].tolist() == [1, 1, 2, 2], "integers stay integers"
    same(ft.from_frame(frame).train, data.train)


@pytest.mark.parametrize(
    "times",
    [
        INSTANTS,
        list(TEXT),
        pd.to_datetime(TEXT, utc=True, format="ISO8601").tz_localize(None),
        INSTANTS.astype(np.int64) // 10**9,
        INSTANTS.astype(np.int64) // 10**6,
        pd.Series([datetime.fromisoformat(text) for text in TEXT], dtype=object),
        pd.Series([datetime.fromisoformat(TEXT[0]), "2024-03-03T09:00Z", *pd.to_datetime(TEXT[2:])], dtype=object),
    ],
    ids=["datetime64", "text", "without zone", "unix seconds", "unix ms", "objects of two zones", "mixed objects"],
)
def test_times_in_every_form_are_the_same_times(times):
    data = ft.from_frame(orders().assign(when=times), **NAMES).train
    starts = data.columns.starts
    np.testing.assert_array_equal(starts, INSTANTS[[0, 2]].astype(np.int64))
    np.testing.assert_array_equal(data.columns.times, [0.0, 2.0, 0.0, 5.0])


def test_dates_alone_and_plain_numbers():
    days = pd.Series([date(2024, 3, 1), date(2024, 3, 3), date(2024, 3, 2), date(2024, 3, 7)], dtype=object)
    np.testing.assert_array_equal(ft.from_frame(orders().assign(when=days), **NAMES).train.columns.times, [0, 2, 0, 5])
    numbers = ft.from_frame(orders().assign(when=[0.5, 1.0, 0.0, 9.0]), **NAMES)
    assert not numbers.clock.absolute and numbers.train.origin == "window"
    assert numbers.to_frame()["time"].tolist() == [0.5, 1.0, 0.0, 9.0]


def test_a_time_that_does_not_exist_and_a_zone_of_ones_own(caplog):
    local = pd.to_datetime(["2024-03-31 02:30", "2024-03-31 04:30", "2024-06-01 00:00", "2024-06-02 00:00"])
    data = ft.from_frame(orders().assign(when=local), **NAMES, timezone="Europe/Berlin")
    assert data.clock.zone == "Europe/Berlin"
    assert "do not exist in Europe/Berlin" in caplog.text
    assert data.to_frame()["time"][1] == pd.Timestamp("2024-03-31 04:30", tz="Europe/Berlin")


def test_a_zone_of_the_column_is_kept_and_a_missing_one_is_told_once_in_words_of_python(caplog):
    assert ft.from_frame(orders(), **NAMES).to_frame()["time"].dt.tz == ZoneInfo("Europe/Berlin")
    assert "no zone" not in caplog.text
    ft.from_frame(orders().assign(when=INSTANTS), **NAMES)
    assert 'timezone="Europe/Berlin"' in caplog.text and "--" not in caplog.text


def test_all_mistakes_at_once_with_their_rows():
    frame = orders().astype({"customer": object, "product": object}).assign(when=list(TEXT))
    frame.loc[0, "customer"] = None
    frame.loc[1, "when"] = "yesterday"
    frame.loc[2, "product"] = None
    with pytest.raises(ft.DataError) as error:
        ft.from_frame(frame, **NAMES)
    told = error.value.problems
    assert len(told) == 3 and [text.split(":")[1].strip() for text in told] == ["row 1", "row 2", "row 3"]
    assert "'customer' is empty" in told[0] and "'yesterday'" in told[1] and "'product' is empty" in told[2]


def test_a_column_that_is_not_there_and_things_that_are_no_frames():
    with pytest.raises(ft.DataError, match=r"no column 'wen'.*did you mean `when`"):
        ft.from_frame(orders(), sequence="customer", time="wen", event="product")
    with pytest.raises(ft.DataError, match="this is a list"):
        ft.from_frame([1, 2])
    with pytest.raises(ft.DataError, match="column names must differ"):
        ft.from_frame(pd.DataFrame([[1, 2]], columns=["time", "time"]))
    with pytest.raises(ft.DataError, match="duration"):
        ft.from_frame(orders().assign(when=pd.to_timedelta([1, 2, 3, 4], unit="D")), **NAMES)
    with pytest.raises(ft.ForetellError, match=r"^`start='dya'`: expected first-event, day"):
        ft.from_frame(orders(), **NAMES, start="dya")
    with pytest.raises(ft.ForetellError, match="expected a list of columns"):
        ft.from_frame(orders(), **NAMES, args="price")


def test_without_narwhals_the_message_says_what_to_install(monkeypatch):
    known = builtins.__import__

    def refuse(name, *arguments, **keywords):
        if name == "narwhals":
            raise ImportError(name)
        return known(name, *arguments, **keywords)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ft.ForetellError, match=r"narwhals.*pip install 'foretell\[frames\]'"):
        ft.from_frame(orders(), **NAMES)


def test_arguments_bounds_index_and_one_stream(caplog):
    frame = orders().assign(shop=["a", None, "b", "b"], t_end=pd.Timestamp("2024-04-01", tz="UTC"))
    data = ft.from_frame(frame.set_index(["customer", "when"]), **NAMES, args=["shop"])
    assert list(data.vocabulary) == ["milk", "tea(a)", "tea(b)"]
    assert data.train.columns.ends_assumed is None
    stream = ft.from_frame(orders().drop(columns="customer"), time="when", event="product")
    assert len(stream.train) == 1 and "one sequence" in caplog.text


def test_splits_by_a_column_go_out_and_in_again():
    frame = orders().assign(part=["train", "train", "dev", "dev"])
    data = ft.from_frame(frame, **NAMES, split="part")
    assert (len(data.train), len(data.dev), data.test) == (1, 1, None)
    back = ft.from_frame(data.to_frame(), split="split")
    same(back.train, data.train)
    same(back.dev, data.dev)
    with pytest.raises(ft.DataError) as error:
        ft.from_frame(frame.assign(part=["train", "valid", "dev", None]), **NAMES, split="part")
    assert [text.split(":")[1] for text in error.value.problems] == [" row 2", " row 4"]


def test_rows_of_splits_keep_their_numbers_in_messages():
    frame = orders().assign(part=["train", "train", "dev", "dev"], when=[*TEXT[:3], "never"])
    with pytest.raises(ft.DataError, match=r"row 4: .*'never'"):
        ft.from_frame(frame, **NAMES, split="part")


def test_events_outside_a_vocabulary_are_mistakes_or_left_out():
    known = Vocabulary(("milk",))
    with pytest.raises(ft.DataError, match="`tea` is not one of the 1 known"):
        ft.from_frame(orders(), **NAMES, vocabulary=known)
    data = ft.from_frame(orders(), **NAMES, vocabulary=known, unknown="skip").train
    assert data.columns.times.tolist() == [2.0] and data.columns.unscored.tolist() == [False]
    other = orders().assign(product=["milk", "tea", "tea", "milk"])
    data = ft.from_frame(other, **NAMES, vocabulary=known, unknown="skip").train
    assert data.columns.times.tolist() == [0.0, 5.0] and data.columns.unscored.tolist() == [True, False]


def test_a_frame_of_data_that_came_in_no_frame_is_pandas_and_kinds_are_checked():
    data = EventData([EventSequence(np.array([1.0, 2.0]), np.array([0, 0]), 3.0)], Vocabulary(("a",)))
    assert data.to_frame().to_dict("list") == {
        "sequence": ["0", "0"], "time": [1.0, 2.0], "event": ["a", "a"], "t_end": [3.0, 3.0],
    }  # fmt: skip
    assert isinstance(data.to_frame("polars"), pl.DataFrame)
    with pytest.raises(ft.ForetellError, match="did you mean `polars`"):
        data.to_frame("polar")


def test_what_a_notebook_shows_is_escaped_and_short():
    times = np.arange(30.0)
    data = EventData([EventSequence(times, np.zeros(30, np.int32), 30.0)], Vocabulary(("<script>",)))
    shown = data._repr_html_()
    assert "<script>" not in shown and "&lt;script&gt;" in shown
    assert shown.count("<tr>") == 11 and "30 rows, the first 10" in shown


def test_a_sequence_without_events_goes_out_and_in_again():
    columns = Columns.of([EventSequence(np.array([1.0]), np.array([0]), 3.0, "a"), EventSequence([], [], 5.0, "b")])
    data = EventData(columns, Vocabulary(("x",)))
    for kind in ("pandas", "polars", "pyarrow"):
        same(ft.from_frame(data.to_frame(kind)).train, data)


def test_utc_in_python_objects():
    frame = orders().assign(when=pd.Series([datetime(2024, 3, day, tzinfo=UTC) for day in (1, 3, 2, 7)], dtype=object))
    np.testing.assert_array_equal(ft.from_frame(frame, **NAMES).train.columns.times, [0.0, 2.0, 0.0, 5.0])


def test_text_of_every_kind_whole_floats_and_columns_that_are_called_by_numbers():
    text = pl.from_pandas(orders().assign(when=TEXT, product=["tea", "milk", "tea", "tea"]))
    stream = ArrowStream(text)  # polars has text as views
    assert "string_view" in str(pa.table(stream).schema)
    expected = ft.from_frame(orders(), **NAMES).train
    same(ft.from_frame(stream, **NAMES, timezone="Europe/Berlin").train, expected)
    floats = ft.from_frame(orders().astype({"customer": float}).rename(columns={"price": 7}), **NAMES)
    same(floats.train, expected)
    assert list(floats.train.columns.attributes) == ["7"] and floats.to_frame()["sequence"].dtype == np.int64
    with pytest.raises(ft.DataError, match="row 2: column 'customer' is empty"):
        ft.from_frame(orders().assign(customer=[1, None, 2, 2]), **NAMES)
    with pytest.raises(ft.DataError, match="'customer' has type double"):
        ft.from_frame(orders().assign(customer=[1.5, 1.5, 2.0, 2.0]), **NAMES)


def test_what_is_no_table_is_named_and_missing_columns_are_named_as_keywords():
    with pytest.raises(ft.DataError, match="this is a Series, one column; expected a frame"):
        ft.from_frame(orders()["price"])
    with pytest.raises(ft.DataError, match=r"`sequence=…, time=…, event=…`"):
        ft.from_frame(orders().drop(columns="product").rename(columns={"when": "time"}))


def test_a_sequence_alone_knows_the_clock_and_the_frame_of_its_data():
    data = ft.from_frame(pl.from_pandas(orders()), **NAMES).train
    model = ft.fit(ft.Poisson(data.vocabulary), data).model
    found = ft.predict(model, data[0]).to_frame()
    each = ft.predict_each(model, data).to_frame().head(len(found))
    assert isinstance(found, pl.DataFrame) and found.equals(each)
    futures = ft.sample(model, data[1], horizon=30.0, n=3).to_frame()
    assert isinstance(futures, pl.DataFrame) and str(futures["time"].dtype.time_zone) == "Europe/Berlin"
    again = EventData([data[1]], data.vocabulary, data.origin)
    assert again.clock == data.clock and again.frame == data.frame
    assert EventData([data[1]], data.vocabulary, clock=Clock("days")).clock == Clock("days")
    explained = ft.explain(model, data[0], 1.0)
    assert explained.to_json()["past"][0]["iso"] == "2024-03-01T10:00:00+01:00"
    assert isinstance(explained.to_frame(), pl.DataFrame)
