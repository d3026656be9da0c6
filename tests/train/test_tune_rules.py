"""A search over programs: what they leave unscored must be the same, and impossible events are settled as for training."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.invoking import fine, foretell

pytest.importorskip("optuna", reason="tuning needs the extra `tune`")

ALL = ":- event(a, 2).\n:- event(b, 2).\na.\nb.\na <- a.\nb <- a.\n"
ONE = ":- event(a, 2).\n:- exogenous(b, 2).\na.\na <- b.\n"
NEVER_B = ":- event(a, 2).\n:- event(b, 2).\n:- event(c, 2).\na.\nc.\na <- a.\nb <- c.\n"


@pytest.fixture
def space(tmp_path: Path):
    for split in ("train", "dev"):
        rows = [
            {"times": [0.5, 1.0 + number / 10, 2.0], "events": ["a", "b", "a"], "t_end": 3.0, "id": f"s{number}"}
            for number in range(4)
        ]
        (tmp_path / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def written(programs: dict[str, str], data: str = "") -> Path:
        for name, text in programs.items():
            (tmp_path / name).write_text(text)
        named = [str(tmp_path / name) for name in programs]
        config = tmp_path / "space.toml"
        config.write_text(
            f"[data]\npath = {json.dumps(str(tmp_path))}\n{data}[model]\nkind = 'andtt'\nlayers = 1\ndim = [2, 3]\n"
            f"program = {json.dumps(named)}\n[train]\nepochs = 1\n"
        )
        return config

    return written


def rows(tmp_path: Path) -> list[dict]:
    return [json.loads(line) for line in (tmp_path / "out" / "trials.jsonl").read_text().splitlines()]


def test_programs_that_score_other_events_are_not_compared(space, tmp_path: Path):
    config = space({"all.ndtt": ALL, "one.ndtt": ONE})
    fine("tune", config, "--out", tmp_path / "out", "--quiet")
    by_program = {row["setting"]["model.program"].split("/")[-1]: row for row in rows(tmp_path)}
    assert by_program["all.ndtt"]["state"] == "complete" and by_program["one.ndtt"]["state"] == "failed"
    assert "scores 8 events of dev, others 12" in by_program["one.ndtt"]["error"]


def test_impossible_events_are_left_out_if_the_configuration_says_so(space, tmp_path: Path):
    programs = {"never.ndtt": NEVER_B}
    outcome = foretell("tune", space(programs), "--out", tmp_path / "strict", "--quiet")
    assert outcome.code == 1 and "none of 2 settings finished" in outcome.err
    fine("tune", space(programs, "impossible = 'skip'\n"), "--out", tmp_path / "out", "--quiet")
    assert {row["state"] for row in rows(tmp_path)} == {"complete"}
