"""`foretell predict`: documented shapes, histories from files and pipes, times and patterns, and what is refused."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

from tests.cli.invoking import Outcome, fine, foretell, process, refused

HISTORY = ([1.0, 2.0, 2.0, 5.0], ["0", "1", "0", "1"])


def piped(content: bytes | str, *arguments: object) -> Outcome:
    """With `content` on stdin, in this process."""
    stream = io.TextIOWrapper(io.BytesIO(content.encode() if isinstance(content, str) else content))
    with mock.patch.object(sys, "stdin", stream):
        return foretell(*arguments)


def test_a_prediction_as_json_has_the_documented_shape(anhp: Path, events):
    found = fine("predict", anhp, events(HISTORY, ([], []), ([3.0], ["1"])), "--json").json
    assert [one["sequence"] for one in found] == ["s0", "s1", "s2"]
    for one, seen in zip(found, (4, 0, 1), strict=True):
        keys = ["sequence", "start", "events_seen", "by", "mean", "mean_error", "median", "interval_50", "interval_90"]
        assert list(one) == [*keys, "no_event", "horizon", "possible", "events"]
        assert (one["start"], one["events_seen"], one["by"], one["possible"]) == (8.0, seen, "quadrature", 2)
        low, high = one["interval_90"]
        assert 8.0 < low < one["interval_50"][0] < one["median"] < one["interval_50"][1] < high
        assert [list(event) for event in one["events"]] == [["event", "probability"]] * 2
        assert sum(event["probability"] for event in one["events"]) + one["no_event"] == pytest.approx(1.0, abs=1e-5)


def test_both_ways_stand_side_by_side_and_agree(anhp: Path, events):
    """Each of two shares of 2,000 draws is refused at 5.5 standard errors: a false alarm in fewer than 1e-7 of all seeds."""
    asked = ("predict", anhp, events(HISTORY), "--by", "both", "--n", 2000, "--seed", 4, "--pattern", "1", "--json")
    (found,) = fine(*asked).json
    drawn = found["samples"]
    assert drawn["by"] == "samples" and drawn["draws"] == 2000 and drawn["horizon"] == pytest.approx(found["horizon"])
    assert abs(drawn["mean"] - found["mean"]) < 5.5 * drawn["mean_error"]
    p = found["pattern"]["probability"]
    assert abs(drawn["pattern"]["probability"] - p) < 5.5 * (p * (1 - p) / 2000) ** 0.5
    assert fine(*asked).json == [found], "a seed gives the same again"


def test_samples_alone_take_the_place_of_quadrature(anhp: Path, events):
    (found,) = fine("predict", anhp, events(HISTORY), "--by", "samples", "--n", 50, "--json").json
    assert found["by"] == "samples" and found["draws"] == 50 and "samples" not in found


def test_a_start_hides_what_comes_after_it_and_keeps_what_happens_at_it(anhp: Path, events):
    for start, seen in ((0.5, 0), (2.0, 3), (4.9, 3), (5.0, 4), (30.0, 4)):
        outcome = fine("predict", anhp, events(HISTORY), "--from", start, "--json")
        (found,) = outcome.json
        assert (found["start"], found["events_seen"]) == (start, seen) and found["median"] > start
        assert ("nothing is taken to have happened in between" in outcome.err) == (start > 8.0)


def test_without_a_history_the_test_split_of_the_run_is_predicted(anhp: Path):
    with mock.patch.object(sys, "stdin", None):
        assert len(fine("predict", anhp, "--json").json) == 8
        assert len(fine("predict", anhp, "--split", "train", "--json").json) == 24
        (found,) = fine("predict", anhp, "--sequence", 3, "--json").json
    assert found["events_seen"] > 0


LINE = json.dumps({"id": "p", "times": HISTORY[0], "events": HISTORY[1], "t_end": 8.0})
TABLE = "sequence,time,event,t_end\n" + "".join(f"p,{t},{e},8.0\n" for t, e in zip(*HISTORY, strict=True))


@pytest.mark.parametrize(
    "content",
    [
        LINE,
        f"\n  {LINE}\n\n",
        TABLE,
        gzip.compress(LINE.encode(), mtime=0),
        gzip.compress(TABLE.encode(), mtime=0),
        "\ufeff" + LINE,
    ],
)
def test_a_history_may_come_through_a_pipe_in_any_format(content: bytes | str, anhp: Path, events):
    outcome = piped(content, "predict", anhp, "-", "--json")
    assert outcome.code == 0, outcome
    (wanted,) = fine("predict", anhp, events(HISTORY), "--json").json
    assert outcome.json == [{**wanted, "sequence": "p"}]


def test_a_real_pipe_is_read_without_being_asked_for_and_dev_null_is_none(anhp: Path):
    command = [sys.executable, "-m", "foretell.cli.main", "predict", str(anhp), "--json"]
    done = subprocess.run(command, input=LINE, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and [one["sequence"] for one in json.loads(done.stdout)] == ["p"], done
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and len(json.loads(done.stdout)) == 8, done


def test_a_prediction_can_go_on_down_the_pipe(anhp: Path, events):
    child = process("predict", anhp, events(HISTORY), "--json")
    out, err = child.communicate(timeout=120)
    assert child.returncode == 0 and json.loads(out)[0]["sequence"] == "s0" and err == ""


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "stdin: nothing came; expected JSON lines such as"),
        ("{", "stdin:1: not JSON"),
        ('{"times": [1.0]}', "stdin:1: no key 'events'; found times"),
        (LINE.replace('"0"', '"7"'), "stdin:1: sequence 'p': event `7` is not one of the 2 known event types"),
        ("when,event\n1,0\n", "stdin:1: no column 'time'"),
        (gzip.compress(LINE.encode(), mtime=0)[:40], "stdin"),
        (b"\x1f\x8bnonsense", "stdin"),
        (b"PAR1nonsense", "stdin"),
        (b"\xff\xfe\x00", "stdin"),
    ],
)
def test_what_is_wrong_with_a_piped_history_is_told_of_stdin(content: bytes | str, message: str, anhp: Path):
    outcome = piped(content, "predict", anhp, "-", "--unknown", "error")
    assert outcome.code == 1 and outcome.out == "" and "Traceback" not in outcome.err
    assert message in outcome.err and "/tmp" not in outcome.err


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--pattern", "2"], "pattern '2' can never match: no event of the model is called"),
        (["--pattern", "pass(P"], "expected an event with free places in upper case"),
        (["--from", "-1"], "--from -1: expected a time from 0 on"),
        (["--from", "nan"], "--from nan: expected a time from 0 on"),
        (["--sequence", "x"], "no sequence 'x'; there are 1"),
        (["--split", "test"], "this is one file and has no split 'test'"),
    ],
)
def test_questions_that_have_no_answer_are_refused(more: list[str], message: str, anhp: Path, events):
    assert message in refused("predict", anhp, events(HISTORY), *more)


@pytest.mark.parametrize("more", [["--by", "guess"], ["--top", "0"], ["--n", "0"], ["--seed", "-1"]])
def test_options_that_make_no_sense_are_usage(more: list[str], anhp: Path, events):
    assert foretell("predict", anhp, events(HISTORY), *more).code == 2


def test_a_sentence_and_tables_say_when_what_and_who(anhp: Path, events):
    shown = fine("predict", anhp, events(HISTORY), "--pattern", "1", "--by", "both", "--n", 100).out
    (found,) = fine("predict", anhp, events(HISTORY), "--json").json
    best = found["events"][0]["event"]
    first = f"sequence s0, after 4 events, from 8 on: the next event is expected at {found['mean']:.5g}"
    assert shown.startswith(first) and f"most probably it is {best} (" in shown
    assert "quadrature" in shown and "samples" in shown and "probability by samples" in shown
    assert "the next event is a 1 with probability" in shown and "which 1" in shown and "of 2 possible events" in shown


def test_many_sequences_are_a_row_each(anhp: Path):
    with mock.patch.object(sys, "stdin", None):
        shown = fine("predict", anhp).out
    assert shown.count("quadrature") == 8 and "most probable" in shown and "expected at" not in shown


def test_a_mean_that_is_undefined_is_a_dash_with_the_reason(trained: dict[str, Path], events, tmp_path: Path):
    import shutil

    run = Path(shutil.copytree(trained["hawkes"], tmp_path / "run"))
    table = fine("params", run).json
    for name in table["parameters"]:
        if name.startswith("mu."):
            table["parameters"][name] = 1e-9
    (tmp_path / "p.json").write_text(json.dumps(table))
    fine("params", run, "--load", tmp_path / "p.json")
    path = events(([1.0], ["0"]))
    (found,) = fine("predict", run, path, "--json").json
    assert found["mean"] is None and found["no_event"] > 0.5 and found["median"] is None
    shown = fine("predict", run, path).out
    assert "no mean: with probability" in shown and "above 0.001 the mean is undefined" in shown and "│    – │" in shown


def test_a_run_of_rules_names_what_training_never_met(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from tests.cli.test_new_events import CHAT, write

    monkeypatch.setenv("FORETELL_CACHE", str(tmp_path / "cache"))
    (tmp_path / "chat.ndtt").write_text(CHAT, encoding="utf-8")
    write(tmp_path / "chat.jsonl", [["arrive(ann)", "say(ann)", "say(ann)", "arrive(bob)", "say(bob)"]] * 4)
    options = ("--dim", 2, "--layers", 1, "--epochs", 1, "--quiet", "--out", tmp_path / "run")
    fine("train", "--program", tmp_path / "chat.ndtt", "--data", tmp_path / "chat.jsonl", *options)
    history = json.dumps({"times": [0.5, 1.5], "events": ["arrive(zoe)", "arrive(yan)"], "t_end": 1.5})
    outcome = piped(history, "predict", tmp_path / "run", "-", "--pattern", "say(yan)", "--json")
    assert outcome.code == 0, outcome
    (found,) = outcome.json
    assert {one["event"] for one in found["events"]} == {"say(zoe)", "say(yan)"} and found["possible"] == 2
    assert found["pattern"]["events"][0]["event"] == "say(yan)" and 0.0 < found["pattern"]["probability"] < 1.0
