"""What the pages of the programs and the guide to rules show is what happens."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretell.lang.load import SHIPPED
from tests.cli.invoking import foretell
from tests.programs.sessions import Command, Shown, agrees, steps

ROOT = Path(__file__).parents[2]
PAGES = sorted([*(ROOT / "programs").glob("*/README.md"), *SHIPPED.glob("*/README.md")])
GUIDE = ROOT / "docs/guide/rules.md"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORETELL_CACHE", str(tmp_path / "cache"))


def run(command: Command) -> None:
    outcome = foretell(*command.arguments)
    printed = outcome.err + outcome.out
    assert "Traceback" not in printed
    if command.output:
        assert agrees(command.output, printed), f"$ {command.line}\n{printed}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name)
def test_a_programs_page_shows_what_its_commands_print(page: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(ROOT)
    commands = [one for one in steps(page) if isinstance(one, Command)]
    assert any(" why " in one.line for one in commands) and all(one.output for one in commands)
    for command in commands:
        run(command)


def test_the_commands_of_the_list_of_programs_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    commands = [one for one in steps(ROOT / "programs/README.md") if isinstance(one, Command)]
    assert len(commands) == 4
    (tmp_path / "programs").symlink_to(ROOT / "programs")  # a picture is written into the working folder
    monkeypatch.chdir(tmp_path)
    for command in commands:
        assert foretell(*command.arguments).code == 0, command.line


def test_the_guide_to_rules_shows_what_its_commands_print(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    codes = []
    for step in steps(GUIDE):
        if isinstance(step, Shown):
            path = tmp_path / step.name
            path.write_text(f"{path.read_text()}\n{step.text}" if step.continued else step.text, encoding="utf-8")
        else:
            assert step.output, step.line
            run(step)
            codes.append(foretell(*step.arguments).code)
    assert codes.count(1) == 2, "one program with mistakes and one log that disagrees; all else is fine"
    assert (tmp_path / "library.svg").exists()


def test_shortened_output_still_has_to_be_true():
    printed = "one\ntwo words\nthree\n"
    assert agrees(["one", "two …", "three"], printed) and agrees(["one", "…"], printed)
    for claimed in (["one"], ["one", "three"], ["one", "three …", "three"], ["…", "two words"], ["one", "…", "four"]):
        assert not agrees(claimed, printed)
