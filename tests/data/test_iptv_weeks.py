"""`experiments/iptv/prepare.py`: one sequence per user in, one per week of all users out, with the program that fits it."""

from __future__ import annotations

import csv
import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from foretell.data import load
from foretell.ground.replay import replay
from foretell.lang.program import Program

SCRIPT = next(
    folder / "experiments" / "iptv" / "prepare.py"
    for folder in Path(__file__).resolve().parents
    if (folder / "pyproject.toml").exists()
)


@pytest.fixture
def prepare():
    spec = importlib.util.spec_from_file_location("iptv_prepare", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def by_user(tmp_path: Path) -> Path:
    """Three users, two weeks and a day; u2 and u10 watch at one time, and someone at the very start of the second week."""
    folder = tmp_path / "iptv"
    folder.mkdir()
    rows = [
        {"times": [1.0, 168.0, 340.0], "types": [0, 1, 1], "t_end": 360.0, "user": "u10"},
        {"times": [1.0, 1.5], "types": [1, 0], "t_end": 360.0, "user": "u2"},
        {"times": [], "types": [], "t_end": 360.0, "user": "u3"},
    ]
    for split in ("train", "dev"):
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "types.json").write_text('["news", "daily life"]')
    (folder / "dataset.toml").write_text('name = "small"\ntime_unit = "hours"\ntypes = 2\n')
    return tmp_path


def run(prepare, monkeypatch: pytest.MonkeyPatch, data: Path, out: Path) -> int:
    monkeypatch.setattr(sys, "argv", ["prepare.py", "--data", str(data), "-o", str(out)])
    return prepare.main()


def test_weeks_have_all_users_in_order_of_time_and_then_of_user(prepare, by_user, monkeypatch, capsys):
    assert run(prepare, monkeypatch, by_user, by_user / "out") == 0
    made = load(by_user / "out").train
    assert made is not None
    assert [made.names_of(week) for week in made] == [
        ["watch(u2,daily_life)", "watch(u10,news)", "watch(u2,news)"],
        ["watch(u10,daily_life)"],
        ["watch(u10,daily_life)"],
    ]
    assert [week.times.tolist() for week in made] == [[1.0, 1.0, 1.5], [0.0], [4.0]]
    assert [week.t_end for week in made] == [168.0, 168.0, 24.0]
    assert "train: 3 users, 3 weeks, 5 events (all of them)" in capsys.readouterr().out


def test_the_program_beside_the_data_knows_all_users_and_has_the_rules_of_the_shipped_one(
    prepare, by_user, monkeypatch
):
    assert run(prepare, monkeypatch, by_user, by_user / "out") == 0
    folder = by_user / "out" / "program"
    with (folder / "iptv" / "users.csv").open(newline="", encoding="utf-8") as file:
        assert [row[0] for row in csv.reader(file)] == ["user", "u2", "u3", "u10"]
    made = load(by_user / "out").train
    assert made is not None
    timelines = replay(Program.from_file(folder / "iptv.ndtt"), made).timelines
    assert [int(one.possible_events.sum()) for one in timelines] == [3, 1, 1]
    shipped = Program.from_file(prepare.PROGRAMS / "iptv.ndtt")
    own = Program.from_file(folder / "iptv.ndtt")
    assert [str(one.rule.head) for one in own.rules] == [str(one.rule.head) for one in shipped.rules]


def test_a_sequence_without_a_user_is_told(prepare, by_user, monkeypatch, capsys):
    row = {"times": [1.0], "types": [0], "t_end": 360.0}
    (by_user / "iptv" / "train.jsonl").write_text(json.dumps(row) + "\n")
    assert run(prepare, monkeypatch, by_user, by_user / "out") == 1
    assert "expected the user's name in the metadata" in capsys.readouterr().err


def test_no_event_of_a_random_log_is_lost(prepare, by_user, monkeypatch):
    rng = np.random.default_rng(0)
    rows = []
    for user in range(5):
        times = np.sort(rng.uniform(0, 500, 200)).round(3).tolist()
        rows.append({"times": times, "types": rng.integers(0, 2, 200).tolist(), "t_end": 500.0, "user": f"u{user}"})
    (by_user / "iptv" / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert run(prepare, monkeypatch, by_user, by_user / "out") == 0
    made = load(by_user / "out").train
    assert made is not None
    merged = sorted(
        (round(float(time) + 168.0 * number, 3), name)
        for number, week in enumerate(made)
        for time, name in zip(week.times, made.names_of(week), strict=True)
    )
    names = ["news", "daily_life"]
    expected = [
        (t, f"watch({r['user']},{names[k]})") for r in rows for t, k in zip(r["times"], r["types"], strict=True)
    ]
    assert merged == sorted(expected)
