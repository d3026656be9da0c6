"""`foretell fmt`: files, folders, standard input; --check and --diff; nothing written where anything is wrong."""

from __future__ import annotations

import io
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.cli.invoking import fine, foretell


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.ndtt").write_text("a:-b.%why\nb.\n")
    (tmp_path / "sub" / "b.ndtt").write_text("c :- d.\nd.\n")
    return tmp_path


def test_files_of_a_folder_are_rewritten_where_they_change(folder: Path):
    before = (folder / "sub/b.ndtt").stat().st_mtime_ns
    assert "1 file laid out anew, 1 unchanged" in fine("fmt", folder).err
    assert (folder / "a.ndtt").read_text() == "a :- b.  %why\nb.\n"
    assert (folder / "sub/b.ndtt").stat().st_mtime_ns == before
    assert "0 files laid out anew, 2 unchanged" in fine("fmt", folder, folder / "a.ndtt").err


def test_check_and_diff_write_nothing_and_tell_by_their_exit_code(folder: Path):
    for flag in ("--check", "--diff"):
        outcome = foretell("fmt", folder, flag)
        assert outcome.code == 1 and "1 file would change" in outcome.err
        assert ("+a :- b.  %why" in outcome.out) == (flag == "--diff")
        assert foretell("fmt", folder / "sub", flag).code == 0
    assert (folder / "a.ndtt").read_text() == "a:-b.%why\nb.\n"


def test_one_file_that_cannot_be_read_leaves_all_as_they_are(folder: Path):
    (folder / "wrong.ndtt").write_text("a :- ,.\n")
    outcome = foretell("fmt", folder)
    assert outcome.code == 1 and "wrong.ndtt:1:6: error[syntax]" in outcome.err
    assert (folder / "a.ndtt").read_text() == "a:-b.%why\nb.\n"
    assert foretell("fmt", folder / "a.ndtt", folder / "none.ndtt").code == 1
    assert (folder / "a.ndtt").read_text() == "a:-b.%why\nb.\n"


def test_standard_input_goes_to_standard_output(monkeypatch: pytest.MonkeyPatch):
    def give(content: bytes) -> None:
        monkeypatch.setattr("foretell.cli.fmt.sys", SimpleNamespace(stdin=SimpleNamespace(buffer=io.BytesIO(content))))

    give(b"a:-b.")
    assert fine("fmt", "-").out == "a :- b.\n"
    give(b"a:-b.")
    outcome = foretell("fmt", "-", "--check")
    assert (outcome.code, outcome.out) == (1, "")
    give(b"\xff\xfe")
    assert "UTF-8" in foretell("fmt", "-").err
    assert foretell("fmt", "-", "a.ndtt").code == 1


def test_a_link_stays_a_link_and_an_empty_folder_is_told(folder: Path):
    os.symlink(folder / "a.ndtt", folder / "link.ndtt")
    fine("fmt", folder / "link.ndtt")
    assert (folder / "link.ndtt").is_symlink() and (folder / "a.ndtt").read_text().startswith("a :- b.")
    (folder / "empty").mkdir()
    assert "no program" in foretell("fmt", folder / "empty").err
