"""XES: what is read from a log, what is written, and what a hostile file gets."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from foretell.data import ColumnMap, load, load_file, save
from foretell.data.read_options import ReadOptions
from foretell.errors import DataError

HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n<log xes.version="1.0" xmlns="http://www.xes-standard.org/">\n'


def event(name: str | None, time: str | None, *more: str) -> str:
    parts = [] if name is None else [f'<string key="concept:name" value="{name}"/>']
    parts += [] if time is None else [f'<date key="time:timestamp" value="{time}"/>']
    return "\n".join(["<event>", *parts, *more, "</event>", ""])


def trace(name: str | None, *inside: str) -> str:
    head = "" if name is None else f'<string key="concept:name" value="{name}"/>\n'
    return f"<trace>\n{head}{''.join(inside)}</trace>\n"


@pytest.fixture
def xes(tmp_path: Path):
    """Writes traces (or raw text) into a file and gives the path."""

    def write(*inside: str, name: str = "log.xes", whole: bool = False) -> Path:
        path = tmp_path / name
        text = "".join(inside) if whole else f"{HEAD}{''.join(inside)}</log>\n"
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
        return path

    return write


DAY1, DAY2, DAY3 = ("2020-01-01T00:00:00Z", "2020-01-02T00:00:00.000+00:00", "2020-01-03T01:00:00+01:00")
LOG = (trace("a", event("Check", DAY1), event("Pay", DAY2)), trace("b", event("Check", DAY1), event("Pay", DAY3)))


@pytest.mark.parametrize("name", ["log.xes", "log.xes.gz"])
def test_a_trace_is_a_sequence_and_an_activity_an_event(xes, name: str) -> None:
    data = load_file(xes(*LOG, name=name))
    assert [one.id for one in data] == ["a", "b"]
    assert [data.names_of(one) for one in data] == [["Check", "Pay"], ["Check", "Pay"]]
    assert [(one.times * data.clock.seconds_per_unit).tolist() for one in data] == [[0.0, 86400.0], [0.0, 2 * 86400.0]]
    assert data.columns.starts is not None and data.columns.starts.tolist() == [1_577_836_800 * 10**9] * 2


def transition(step: str) -> str:
    return f'<string key="lifecycle:transition" value="{step}"/>'


def test_transitions_join_the_names_where_an_activity_has_several(xes) -> None:
    several = trace("a", event("Check", DAY1, transition("start")), event("Check", DAY2, transition("complete")))
    assert load(xes(several)).vocabulary.names == ("Check+complete", "Check+start")
    one_each = trace("a", event("Check", DAY1, transition("start")), event("Pay", DAY2, transition("complete")))
    assert load(xes(one_each)).vocabulary.names == ("Check", "Pay")
    alone = load(xes(several), columns=ColumnMap(event="concept:name"))
    assert alone.vocabulary.names == ("Check",)


def test_transitions_are_decided_for_all_splits_alike_and_as_a_vocabulary_has_them(xes, tmp_path: Path) -> None:
    several = trace("a", event("Check", DAY1, transition("start")), event("Check", DAY2, transition("complete")))
    xes(several, name="train.xes")
    test = xes(trace("b", event("Check", DAY1, transition("start"))), name="test.xes")
    found = load(tmp_path)
    assert found.test is not None and found.test.names_of(found.test[0]) == ["Check+start"]
    again = load_file(test, found.vocabulary)
    assert again.names_of(again[0]) == ["Check+start"]
    plain = load(xes(trace("b", event("Check", DAY1, transition("start"))), name="alone.xes"))
    assert plain.vocabulary.names == ("Check",)


def test_participants_make_terms_and_a_missing_one_leaves_the_activity(xes) -> None:
    who = '<float key="org:resource" value="{}"/>'
    log = trace("a", event("Check it", DAY1, who.format("112.0")), event("Pay", DAY2, who.format("nan")))
    found = load(xes(log), columns=ColumnMap(args=("org:resource",)))
    assert found.vocabulary.names == ("'Check it'(112)", "Pay")


def test_attributes_of_traces_and_events_are_kept_as_columns(xes) -> None:
    nested = '<list key="items"><values><int key="x" value="1"/><int key="x" value="2"/></values></list>'
    inner = '<float key="cost" value="2.5"><string key="currency" value="EUR"/></float>'
    events = (
        event("A", DAY1, '<int key="n" value="7"/>', '<boolean key="ok" value="true"/>', nested, inner),
        event(
            "B",
            DAY2,
            '<int key="n" value="8"/>',
            '<float key="ok" value="nan"/>',
            '<date key="due" value="2021-05-06T00:00:00Z"/>',
        ),
    )
    data = load_file(xes(trace("a", '<string key="kind" value="x"/>', '<int key="amount" value="5"/>', *events)))
    kept = data.columns.attributes
    assert kept["n"].values.tolist() == [7, 8] and kept["n"].values.dtype == np.int64
    assert kept["ok"].texts() == ["true", None]
    assert kept["items/x"].texts() == ['["1", "2"]', None]
    assert kept["cost"].values[0] == 2.5 and np.isnan(kept["cost"].values[1])
    assert kept["cost/currency"].texts() == ["EUR", None]
    assert np.isnat(kept["due"].values[0]) and kept["due"].values[1] == np.datetime64("2021-05-06", "ns")
    of_traces = data.columns.sequence_attributes
    assert of_traces["kind"].texts() == ["x"] and of_traces["amount"].values.tolist() == [5]


def test_attributes_of_traces_stay_with_them_where_others_are_left_out(xes, caplog) -> None:
    amount = '<int key="amount" value="{}"/>'
    data = load_file(
        xes(trace("a", amount.format(1)), trace("b", amount.format(2), event("A", DAY1)), trace("c", event("A", DAY2)))
    )
    assert [one.id for one in data] == ["b", "c"]
    values = data.columns.sequence_attributes["amount"].values
    assert values[0] == 2 and np.isnan(values[1])


def test_attributes_follow_events_that_are_sorted_by_time(xes) -> None:
    log = trace("a", event("B", DAY2, '<int key="n" value="2"/>'), event("A", DAY1, '<int key="n" value="1"/>'))
    data = load_file(xes(log))
    assert data.names_of(data[0]) == ["A", "B"] and data.columns.attributes["n"].values.tolist() == [1, 2]


def test_traces_without_names_or_with_the_same_are_told_apart(xes, caplog) -> None:
    data = load_file(
        xes(trace(None, event("A", DAY1)), trace("x", event("A", DAY1)), trace("x", event("A", DAY2)), trace("y"))
    )
    assert [one.id for one in data] == ["0", "x", "x#2"]
    assert "1 traces have the name of one before" in caplog.text and "1 traces have no events" in caplog.text


def test_a_classifier_names_events_that_have_no_activity(xes, caplog) -> None:
    head = '<classifier name="By code" keys="code"/>\n'
    log = trace("a", event(None, DAY1, '<string key="code" value="c1"/>'))
    assert load(xes(head, log)).vocabulary.names == ("c1",)
    assert "the classifier 'By code' names them, by code" in caplog.text


def test_a_prefix_of_the_elements_is_understood(xes) -> None:
    text = f"{HEAD}{''.join(LOG)}</log>".replace("<log ", '<x:log xmlns:x="urn:x" ').replace("</log>", "</x:log>")
    for word in ("trace", "event", "string", "date"):
        text = text.replace(f"<{word}", f"<x:{word}").replace(f"</{word}", f"</x:{word}")
    assert load(xes(text, whole=True)).vocabulary.names == ("Check", "Pay")


@pytest.mark.parametrize("name", ["out.xes", "out.xes.gz"])
def test_what_is_written_reads_back_the_same(xes, tmp_path: Path, name: str) -> None:
    more = ('<int key="n" value="7"/>', '<float key="f" value="0.1"/>', '<boolean key="ok" value="true"/>')
    odd = event("A &amp; &lt;B&gt; &quot;q&quot;&#10;next", "2020-01-01T00:00:00.123456Z", *more)
    path = xes(trace("a", '<date key="due" value="2021-05-06T07:08:09.000Z"/>', odd, event("C", DAY2)), *LOG[1:])
    before = load_file(path)
    save(before, tmp_path / name)
    after = load_file(tmp_path / name)
    assert after.vocabulary == before.vocabulary and [one.id for one in after] == [one.id for one in before]
    assert after.columns.starts is not None and before.columns.starts is not None
    assert (after.columns.starts == before.columns.starts).all() and (after.columns.times == before.columns.times).all()
    for ours, theirs in ((after.columns.attributes, before.columns.attributes),):
        assert list(ours) == list(theirs)
        for key, column in theirs.items():
            assert column.categories == ours[key].categories
            assert np.array_equal(column.values, ours[key].values, equal_nan=column.values.dtype.kind == "f"), key
    assert after.columns.sequence_attributes["due"].values[0] == np.datetime64("2021-05-06T07:08:09", "ns")


def test_an_end_that_is_known_is_written_and_read(xes, tmp_path: Path) -> None:
    data = load_file(xes(*LOG), options=ReadOptions(observed_until="2020-02-01"))
    save(data, tmp_path / "out.xes")
    again = load_file(tmp_path / "out.xes")
    assert (again.columns.t_ends == data.columns.t_ends).all() and again.columns.ends_assumed is None


def test_all_mistakes_are_told_at_once_with_their_lines(xes) -> None:
    log = trace(
        "a",
        event("A", "yesterday"),
        event(None, DAY1),
        event("B", None),
        event(None, None, '<string key="other" value="x"/>'),
        event("C", DAY1, '<string key="k"/>', '<thing key="k" value="v"/>'),
    )
    path = xes(log)
    with pytest.raises(DataError) as caught:
        load_file(path)
    found = "\n".join(caught.value.problems)
    for line, said in (
        (5, "time:timestamp is 'yesterday', expected a time"),
        (9, "column 'concept:name' is empty"),
        (12, "column 'time:timestamp' is empty"),
        (15, "neither concept:name nor time:timestamp"),
        (21, "<string> with the key 'k' has no value"),
        (22, "<thing> with the key 'k' is no kind of attribute"),
    ):
        assert f"{path}:{line}: " in found and said in found, (line, said, found)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('<!DOCTYPE log [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]><log>&b;</log>', "entities are refused"),
        ('<!DOCTYPE log [<!ENTITY x SYSTEM "file:///etc/passwd">]><log>&x;</log>', "entities are refused"),
        ('<!DOCTYPE log [<!ENTITY % x SYSTEM "http://127.0.0.1/x.dtd"> %x;]><log/>', "entities are refused"),
        ("<log>&nothing;</log>", "not XML that can be read"),
        (f"{HEAD}{LOG[0]}", "is the file whole?"),
        ("<html><body/></html>", "expected <log>"),
        ("", "not XML that can be read"),
        ("\x00\x01\x02", "not XML that can be read"),
        (HEAD + "<trace>" + '<list key="k">' * 100, "nested more than"),
        ("<log></log>", "no sequences"),
    ],
)
def test_hostile_and_broken_xml_is_refused(xes, text: str, said: str) -> None:
    path = xes(text, whole=True)
    with pytest.raises(DataError, match="(?s)" + said.replace("?", r"\?")) as caught:
        load_file(path)
    assert all(problem.startswith(str(path)) for problem in caught.value.problems)


def test_an_attribute_for_every_event_is_refused_before_it_fills_the_memory(xes) -> None:
    log = trace("a", *(event("A", DAY1, f'<int key="k{number}" value="1"/>') for number in range(2100)))
    with pytest.raises(DataError, match="more than 2000 different attributes"):
        load_file(xes(log))


def test_a_truncated_archive_is_told_once(xes) -> None:
    path = xes(*LOG * 50, name="log.xes.gz")
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(DataError, match="truncated") as caught:
        load_file(path)
    assert len(caught.value.problems) == 1


def test_an_attribute_that_is_not_there_is_told_with_a_near_one(xes) -> None:
    with pytest.raises(DataError, match="no event has the attribute 'org:resourc'"):
        load(xes(*LOG), columns=ColumnMap(args=("org:resourc",)))


def test_the_logs_of_the_survey_are_read_as_their_page_counts_them(shared) -> None:
    counts = {"helpdesk": (2931, 13791, 12), "sepsis": (671, 9922, 16), "env-permit": (918, 5626, 27)}
    for name, expected in counts.items():
        found = load(shared(f"processes/{name}"), unseen=("dev", "test"))
        assert found.train is not None
        assert (len(found.train), found.train.event_count, len(found.vocabulary)) == expected, name
        held = sum(one.values.nbytes for one in found.train.columns.attributes.values())
        assert (held + 12 * found.train.event_count) / found.train.event_count < 150


@pytest.mark.parametrize("name", ["out.csv", "out.tsv", "out.parquet", "out.jsonl"])
def test_attributes_go_into_every_format_that_is_written(xes, tmp_path: Path, name: str) -> None:
    inside = (
        event(
            "A",
            DAY1,
            '<int key="n" value="7"/>',
            '<string key="time" value="late, or so"/>',
            '<float key="f" value="0.1"/>',
        ),
        event("B", DAY2, '<int key="n" value="8"/>', '<date key="due" value="2021-05-06T00:00:00Z"/>'),
    )
    data = load_file(
        xes(
            trace("a", '<string key="kind" value="x"/>', *inside),
            trace("b", event("A", DAY1, '<int key="n" value="9"/>')),
        )
    )
    save(data, tmp_path / name)
    again = load_file(tmp_path / name)
    assert again.vocabulary == data.vocabulary and (again.columns.times == data.columns.times).all()
    if name.endswith("jsonl"):
        assert again[0].metadata == {
            "n": [7, 8],
            "time": ["late, or so", None],
            "f": [0.1, None],
            "due": [None, "2021-05-06T00:00:00Z"],
            "kind": "x",
        }
        return
    kept = again.columns.attributes
    assert kept["n"].values.tolist() == [7, 8, 9] and kept["time_"].texts() == ["late, or so", None, None]
    assert kept["f"].values[0] == 0.1 and kept["kind"].texts() == ["x", "x", None] and "due" in kept


def test_numbers_without_a_calendar_are_written_since_1970(tmp_path: Path, caplog) -> None:
    from foretell.data import EventData

    save(EventData.from_names([["a", "b"]], [[0.5, 2.0]], t_ends=[3.0]), tmp_path / "out.xes")
    assert "written as seconds since 1970-01-01" in caplog.text
    again = load_file(tmp_path / "out.xes")
    assert again.columns.starts is not None and again.columns.starts.tolist() == [0] and again.origin == "window"
    assert again.clock.unit == "seconds" and again[0].times.tolist() == [0.5, 2.0] and again[0].t_end == 3.0


def test_lists_with_a_value_per_event_are_attributes_of_events(tmp_path: Path) -> None:
    more = '"cost": [1, 2], "who": ["Pete", null], "odd": [1], "nested": [[1], [2]], "case": 7'
    lines = f'{{"times": ["2024-03-01", "2024-03-02"], "events": ["a", "b"], {more}}}\n'
    (tmp_path / "in.jsonl").write_text(lines + '{"times": ["2024-03-01"], "events": ["a"]}\n')
    save(load_file(tmp_path / "in.jsonl"), tmp_path / "out.xes")
    again = load_file(tmp_path / "out.xes").columns
    assert again.attributes["who"].texts() == ["Pete", None, None] and set(again.attributes) == {"cost", "who"}
    assert np.array_equal(again.attributes["cost"].values, [1.0, 2.0, np.nan], equal_nan=True)
    assert again.sequence_attributes["odd"].texts()[0] == "[1]" and "case" in again.sequence_attributes


def test_a_tag_without_end_is_refused_before_it_fills_the_memory(xes, monkeypatch) -> None:
    from foretell.data.sources import xes_parser

    monkeypatch.setattr(xes_parser, "LONGEST_TAG", 1 << 20)
    with pytest.raises(DataError, match="a tag of more than 1 MB"):
        load_file(xes(trace("a", event("A", DAY1, f'<string key="k" value="{"x" * (4 << 20)}"/>'))))


def test_a_log_comes_through_a_pipe() -> None:
    from foretell.cli.input_data import piped_data

    content = f"{HEAD}{''.join(LOG)}</log>".encode()
    for sent in (content, gzip.compress(content)):
        data = piped_data(sent, ReadOptions(), None, "window")
        assert data.names_of(data[0]) == ["Check", "Pay"]
