"""OCEL 2.0 in JSON and SQLite: terms by qualifier, sequences by object type, and what a hostile file gets."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from foretell.data import ColumnMap, load
from foretell.errors import DataError

OBJECTS = [("o1", "Order"), ("o2", "Order"), ("i1", "Item"), ("i2", "Item"), ("anna", "Person")]
EVENTS: list[tuple[str, str, str, list[tuple[str, str]], dict[str, object]]] = [
    (
        "e1",
        "place order",
        "2023-04-03T12:08:18Z",
        [("order", "o1"), ("item", "i1"), ("item", "i2"), ("by", "anna")],
        {"price": 5.5},
    ),
    ("e2", "pay order", "2023-04-04T12:00:00Z", [("order", "o1")], {}),
    ("e3", "place order", "2023-04-05T00:00:00+02:00", [("order", "o2"), ("item", "i1")], {"price": 1.25}),
    ("e4", "close shop", "2023-04-06T00:00:00Z", [], {}),
]


def content(**changes: Any) -> dict[str, Any]:
    return {
        "objectTypes": [{"name": name, "attributes": []} for name in ("Order", "Item", "Person")],
        "eventTypes": [],
        "objects": [{"id": name, "type": kind} for name, kind in OBJECTS],
        "events": [
            {
                "id": name,
                "type": kind,
                "time": time,
                "attributes": [{"name": key, "value": value} for key, value in more.items()],
                "relationships": [{"objectId": target, "qualifier": qualifier} for qualifier, target in related],
            }
            for name, kind, time, related, more in EVENTS
        ],
        **changes,
    }


def as_json(folder: Path, log: object = None, name: str = "log.jsonocel") -> Path:
    path = folder / name
    path.write_text(json.dumps(content() if log is None else log), encoding="utf-8")
    return path


def as_sqlite(folder: Path) -> Path:
    path = folder / "log.sqlite"
    with sqlite3.connect(path) as base:
        base.executescript(
            """CREATE TABLE event (ocel_id TEXT PRIMARY KEY, ocel_type TEXT);
            CREATE TABLE object (ocel_id TEXT PRIMARY KEY, ocel_type TEXT);
            CREATE TABLE event_object (ocel_event_id TEXT, ocel_object_id TEXT, ocel_qualifier TEXT);
            CREATE TABLE event_map_type (ocel_type TEXT PRIMARY KEY, ocel_type_map TEXT);"""
        )
        base.executemany("INSERT INTO object VALUES (?, ?)", OBJECTS)
        for kind in dict.fromkeys(kind for _, kind, *_ in EVENTS):
            base.execute("INSERT INTO event_map_type VALUES (?, ?)", (kind, kind.replace(" ", "")))
            price = ", price REAL" if kind == "place order" else ""
            base.execute(f'CREATE TABLE "event_{kind.replace(" ", "")}" (ocel_id TEXT, ocel_time TIMESTAMP{price})')
        for name, kind, time, related, more in EVENTS:
            base.execute("INSERT INTO event VALUES (?, ?)", (name, kind))
            cells = (name, time, *more.values())
            base.execute(f'INSERT INTO "event_{kind.replace(" ", "")}" VALUES ({", ".join("?" * len(cells))})', cells)
            base.executemany(
                "INSERT INTO event_object VALUES (?, ?, ?)", [(name, target, how) for how, target in related]
            )
    return path


@pytest.mark.parametrize("write", [as_json, as_sqlite, lambda folder: as_json(folder, name="log.json")])
def test_an_event_is_a_term_over_its_objects_in_the_order_of_their_qualifiers(tmp_path: Path, write, caplog) -> None:
    found = load(write(tmp_path))
    assert found.train is not None and len(found.train) == 1
    assert found.train.names_of(found.train[0]) == [
        "'place order'(anna,i1,i2,o1)",
        "'pay order'(o1)",
        "'place order'(none,i1,o2)",
        "close shop",
    ]
    seconds = found.train[0].times * found.clock.seconds_per_unit
    assert seconds[1] == 86400 - 498 and len(seconds) == 4
    assert found.train.columns.attributes["price"].values.tolist()[::2] == [5.5, 1.25]


def test_one_sequence_per_object_of_a_type_with_the_other_objects_as_arguments(tmp_path: Path, caplog) -> None:
    found = load(as_json(tmp_path), columns=ColumnMap(sequence="Order"))
    assert found.train is not None
    assert {one.id: found.train.names_of(one) for one in found.train} == {
        "o1": ["'place order'(anna,i1,i2)", "pay order"],
        "o2": ["'place order'(none,i1)"],
    }
    assert "1 events are related to no object of the type 'Order' and are left out" in caplog.text
    by_item = load(as_json(tmp_path), columns=ColumnMap(sequence="Item", args=("none",)))
    assert by_item.train is not None
    assert {one.id: by_item.train.names_of(one) for one in by_item.train} == {
        "i1": ["place order", "place order"],
        "i2": ["place order"],
    }
    assert "1 events are related to several objects of the type 'Item'" in caplog.text


def test_participants_are_chosen_by_qualifier_or_by_type(tmp_path: Path) -> None:
    found = load(as_json(tmp_path), columns=ColumnMap(args=("Order", "by")))
    assert found.vocabulary.names == (
        "'pay order'(o1)",
        "'place order'(o1,anna)",
        "'place order'(o2,none)",
        "close shop",
    )
    assert load(as_json(tmp_path), columns=ColumnMap(args=("none",))).vocabulary.names == (
        "close shop",
        "pay order",
        "place order",
    )


def test_a_type_of_objects_that_does_not_exist_is_told_with_a_near_one(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no object type 'Ordr'; did you mean `Order`"):
        load(as_json(tmp_path), columns=ColumnMap(sequence="Ordr"))


def test_all_mistakes_of_a_log_are_told_at_once(tmp_path: Path) -> None:
    good = content()["events"]
    wrong = [
        good[0],
        {"id": "e9", "type": 3, "time": DAY, "relationships": []},
        {"id": "e10", "type": "a", "time": "yesterday"},
        {"id": "e1", "type": "a", "time": DAY},
        {"id": "e11", "type": "a", "time": DAY, "relationships": [{"objectId": 5}, 7], "attributes": {"a": 1}},
        "text",
    ]
    with pytest.raises(DataError) as caught:
        load(as_json(tmp_path, content(events=wrong)))
    found = "\n".join(caught.value.problems)
    for said in (
        "event 2: events[1]: type is 3, expected text",
        "event 4: events[3]: the id 'e1' was used before",
        "event 5: events[4].relationships[0]: objectId is 5",
        "event 5: events[4].relationships[1] is 7, expected an object",
        "events[4].attributes is {'a': 1}, expected a list",
        "event 6: events[5] is 'text', expected an object",
        "time is 'yesterday', expected",
    ):
        assert said in found, (said, found)


DAY = "2023-04-03T12:08:18Z"


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ([1, 2], "expected an object with `events`"),
        ({"objectTypes": []}, "expected an object with `events`"),
        ({"ocel:events": {}}, "OCEL 1.0"),
        ({"objectTypes": [], "events": 3}, "events is 3, expected a list"),
        ({"objectTypes": [], "events": [], "objects": {"a": 1}}, "objects is"),
        ({"objectTypes": [], "events": []}, "no sequences"),
    ],
)
def test_json_of_the_wrong_shape_is_told(tmp_path: Path, log: object, said: str) -> None:
    with pytest.raises(DataError, match=said):
        load(as_json(tmp_path, log))


def test_broken_json_and_broken_databases_are_told(tmp_path: Path) -> None:
    path = as_json(tmp_path)
    path.write_text(path.read_text()[:-30])
    with pytest.raises(DataError, match="not JSON that can be read"):
        load(path)
    base = as_sqlite(tmp_path)
    base.write_bytes(base.read_bytes()[:5000])
    with pytest.raises(DataError, match="not a SQLite file that can be read"):
        load(base)


def test_a_database_without_the_tables_is_told_what_to_do(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "mine.sqlite") as base:
        base.execute("CREATE TABLE visits (a, b)")
        # a view that would never end; it is not a table, so it is not read
        base.execute(
            "CREATE VIEW event AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n"
        )
    with pytest.raises(DataError, match=r"no table event, object.*give `sql=` and `database=`"):
        load(tmp_path / "mine.sqlite")


def test_a_database_is_not_changed_by_reading(tmp_path: Path) -> None:
    path = as_sqlite(tmp_path)
    path.chmod(0o444)
    before = path.read_bytes()
    load(path)
    assert path.read_bytes() == before and sorted(one.name for one in tmp_path.iterdir()) == ["log.sqlite"]
