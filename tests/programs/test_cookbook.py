"""Every program of the cookbook is without a warning, agrees with its log, and allows afterwards exactly what the page says."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from foretell import terms
from foretell.data import load_file
from foretell.ground.replay import replay
from foretell.lang.formatter import format_program
from foretell.lang.program import Program
from foretell.lang.source import Source
from tests.cli.invoking import fine, foretell
from tests.programs.sessions import Command, Shown, steps

PAGE = Path(__file__).parents[2] / "docs/guide/cookbook.md"
_AFTERWARDS = re.compile(r"^Possible afterwards: (.*?)\. Impossible: (.*)\.$", re.MULTILINE)


@dataclass(frozen=True)
class Recipe:
    program: Shown
    log: Shown
    possible: set[str]
    impossible: list[str]


def recipes() -> dict[str, Recipe]:
    shown = [one for one in steps(PAGE) if isinstance(one, Shown)]
    claims = [tuple(re.findall("`([^`]*)`", part) for part in one) for one in _AFTERWARDS.findall(PAGE.read_text())]
    pairs = zip(shown[::2], shown[1::2], claims, strict=True)
    return {program.name: Recipe(program, log, set(can), cannot) for program, log, (can, cannot) in pairs}


RECIPES = recipes()


def after(recipe: Recipe) -> str:
    """A time soon after the last event, before anything more expires."""
    return str(float(recipe.log.text.splitlines()[-1].split(",")[0]) + 0.5)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FORETELL_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(recipe: Recipe, folder: Path) -> tuple[Path, Path]:
    paths = folder / recipe.program.name, folder / recipe.log.name
    for path, shown in zip(paths, (recipe.program, recipe.log), strict=True):
        path.write_text(shown.text, encoding="utf-8")
    return paths


def test_there_are_twenty_with_a_log_each():
    assert len(RECIPES) >= 20
    assert all(one.log.name == name.replace(".ndtt", ".csv") for name, one in RECIPES.items())


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_checked_replayed_and_true_to_its_page(name: str, folder: Path):
    recipe = RECIPES[name]
    file, log = written(recipe, folder)
    program = Program.from_file(file)
    assert [one.render() for one in program.warnings] == []
    assert format_program(Source(name, recipe.program.text)) == recipe.program.text
    (timeline,) = replay(program, load_file(log)).timelines
    state = timeline.states - 1
    grounding = timeline.grounding
    possible = {grounding.text(one) for one in timeline.facts_at(state) if grounding.is_event(one)}
    assert possible == recipe.possible
    assert recipe.impossible and not possible & set(recipe.impossible)
    for event in recipe.impossible:
        assert "is not true" in fine("why", file, log, event, "--at", after(recipe)).out


@pytest.mark.parametrize("name", RECIPES)
def test_a_log_goes_on_with_what_is_possible_and_with_nothing_else(name: str, folder: Path):
    recipe = RECIPES[name]
    file, log = written(recipe, folder)
    columns = recipe.log.text.splitlines()[0].count(",") - 1
    for event, code in [(min(recipe.possible), 0), (recipe.impossible[0], 1)]:
        functor, args = terms.split(event)
        log.write_text(
            recipe.log.text + ",".join([after(recipe), functor, *args, *[""] * (columns - len(args))]) + "\n"
        )
        outcome = foretell("replay", file, log, "--quiet")
        assert outcome.code == code, outcome


def test_the_pages_commands_run(folder: Path):
    written(RECIPES["sessions.ndtt"], folder)
    commands = [one for one in steps(PAGE) if isinstance(one, Command)]
    assert len(commands) == 2
    for command in commands:
        fine(*command.arguments)
