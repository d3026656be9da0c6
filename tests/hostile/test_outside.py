"""What watches hostile cases sees every change of a file outside their folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.hostile.outside import watching

CHANGES: dict[str, Callable[[Path], object]] = {
    "open": lambda path: path.write_text("x"),
    "append": lambda path: path.open("a").close(),
    "os.open": lambda path: os.close(os.open(path, os.O_CREAT | os.O_WRONLY)),
    "remove": lambda path: (path.parent / "there").unlink(),
    "rename": lambda path: (path.parent / "there").rename(path),
    "folder": lambda path: path.mkdir(),
    "link": lambda path: path.symlink_to("there"),
    "tree": lambda path: shutil.rmtree(path.parent / "folder"),
    "program": lambda path: subprocess.run([sys.executable, "-c", ""], check=True),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_outside_is_seen_and_one_inside_is_not(change: str, tmp_path: Path):
    for place in ("mine", "other"):
        (tmp_path / place / "folder").mkdir(parents=True)
        (tmp_path / place / "there").write_text("x")
    with watching([tmp_path / "mine"]) as outside:
        if change != "program":  # no program is inside
            CHANGES[change](tmp_path / "mine" / "new")
        assert not outside
        CHANGES[change](tmp_path / "other" / "new")
    assert outside


def test_reading_and_a_path_that_leads_out_of_the_folder_are_told_apart(tmp_path: Path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "there").write_text("x")
    (tmp_path / "mine" / "link").symlink_to(tmp_path / "there")
    with watching([tmp_path / "mine"]) as outside:
        (tmp_path / "there").read_text()
        assert not outside
        (tmp_path / "mine" / "link").write_text("y")
    assert outside
    assert str(tmp_path / "there") in outside[0]
