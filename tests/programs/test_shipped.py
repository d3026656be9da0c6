"""Programs inside the package: found by name from anywhere, and part of the wheel."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

import foretell as ft
from foretell.lang.load import SHIPPED
from foretell.lang.load import names as shipped_names
from tests.cli.invoking import fine, foretell, refused

ROOT = Path(__file__).parents[2]


def test_a_shipped_program_is_found_by_its_name_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    one, same = ft.Program.named("robocup"), ft.Program.from_file("robocup")
    assert one.digest == same.digest == ft.Program.from_file(SHIPPED / "robocup.ndtt").digest
    assert one.sources[0].name == "robocup.ndtt", "messages do not tell where the package lies"
    assert len(one.tables[0].rows) == 22
    assert "robocup is fine" in fine("check", "robocup").out


def test_every_shipped_program_has_embedded_data_of_its_name():
    from foretell.data.loading import embedded_names

    assert set(shipped_names()) <= set(embedded_names())


def test_a_file_of_the_users_comes_before_a_shipped_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "robocup").mkdir()
    assert len(ft.Program.from_file("robocup").tables) == 1, "a folder is no program"
    (tmp_path / "robocup").rmdir()
    (tmp_path / "robocup").write_text("a.\n")
    assert len(ft.Program.from_file("robocup").tables) == 0
    assert len(ft.Program.named("robocup").tables) == 1


def test_a_name_that_is_neither_a_file_nor_shipped_is_told_what_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ft.ForetellError, match=r"no program `library` ships with foretell: there is robocup$"):
        ft.Program.named("library")
    with pytest.raises(ft.ForetellError, match=r"did you mean `robocup`\?"):
        ft.Program.named("robocop")
    outcome = foretell("train", "--program", "football", "--data", "robocup", "--out", tmp_path / "run")
    assert outcome.code == 1 and not (tmp_path / "run").exists()
    assert "football: error[missing-file]: there is no such file" in outcome.err
    assert "the name of a program: of those that ship with foretell there is robocup" in outcome.err
    assert "did you mean `robocup`?" in foretell("check", "robocop").err


def test_a_run_trained_from_a_name_keeps_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from foretell.train.run import RunFolder

    monkeypatch.chdir(tmp_path)
    options = ("--data", "robocup", "--dim", 1, "--layers", 1, "--epochs", 1, "--batch", 1, "--quiet")
    fine("train", "--program", "robocup", *options, "--out", "run", "--set", "train.dev_points=1")
    made = RunFolder.open("run")
    assert getattr(made.config().model, "program", None) == "robocup" and made.model().kind == "s2ndtt"
    assert "already" in refused("train", "--program", "robocup", *options, "--out", "run")


def test_the_wheel_has_the_programs_and_their_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    backend = pytest.importorskip("hatchling.build", reason="the wheel is built with hatchling")
    monkeypatch.chdir(ROOT)
    with zipfile.ZipFile(tmp_path / backend.build_wheel(str(tmp_path))) as wheel:
        inside = set(wheel.namelist())
    tables = [path.relative_to(SHIPPED) for path in SHIPPED.rglob("*.csv")]
    assert {"foretell/programs/robocup.ndtt", *(f"foretell/programs/{path}" for path in tables)} <= inside and tables
    assert "foretell/data/embedded/robocup/train.jsonl.gz" in inside
