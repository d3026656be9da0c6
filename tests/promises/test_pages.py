"""What README, docs and changelog promise: commands that exist, options that exist, code that compiles, links that lead somewhere."""

from __future__ import annotations

import ast
import re
import shlex
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

import foretell
from foretell.cli.main import app
from foretell.reproduce.experiment import Definition, merged, open_experiment
from foretell.train.config import make_config
from tests.promises.notebooks import notebook_pages

ROOT = Path(__file__).parents[2]
DOCS = sorted(page for suffix in ("*.md", "*.ipynb") for page in (ROOT / "docs").rglob(suffix))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *DOCS]
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
COMMANDS: Any = typer.main.get_command(app)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@cache
def text_of(page: Path) -> str:
    """A page as Markdown: a notebook as it is rendered."""
    return notebook_pages().render(page).text if page.suffix == ".ipynb" else page.read_text(encoding="utf-8")


def fenced(page: Path, *languages: str) -> Iterator[str]:
    for language, body in FENCE.findall(text_of(page)):
        if language in languages:
            yield body


def shown_commands(page: Path) -> list[str]:
    """`foretell …` in code blocks (after a prompt or at the start of a line) and in inline code."""
    found = []
    for body in fenced(page, "console", "bash", "sh", "shell", ""):
        joined = body.replace("\\\n", " ")
        found += [line.strip().removeprefix("$ ") for line in joined.splitlines()]
    prose = FENCE.sub("", text_of(page))
    found += re.findall(r"`([^`\n]+)`", prose)
    return [line for line in found if re.match(r"foretell [a-z-]", line)]


def wrong_with(line: str) -> str | None:
    """What the command line would not accept of a command; names and numbers stand for themselves."""
    words = shlex.split(line.split(" #")[0].split(" | ")[0], posix=True)[1:]
    command, path = COMMANDS, ["foretell"]
    while hasattr(command, "commands") and words and not words[0].startswith("-"):
        if words[0] not in command.commands:
            return None if words[0] in ("COMMAND", "…", "...") else f"{' '.join(path)} has no command {words[0]!r}"
        path.append(words[0])
        command = command.commands[words.pop(0)]
    options = {opt: param for param in command.params for opt in [*param.opts, *param.secondary_opts]}
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    places = float("inf") if any(param.nargs == -1 for param in arguments) else len(arguments)
    while words:
        word = words.pop(0)
        if word in ("…", "...", "|"):
            break
        if word.startswith("-"):
            name, equals, _ = word.partition("=")
            if name == "--help":
                continue
            if name not in options:
                return f"{' '.join(path)} has no option {name}"
            if not getattr(options[name], "is_flag", False) and not equals and words:
                words.pop(0)
        else:
            places -= 1
            if places < 0:
                return f"{' '.join(path)}: one argument too many: {word}"
    return None


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_command_shown_is_one_that_the_command_line_accepts(page: Path):
    wrong = [f"{line}: {problem}" for line in shown_commands(page) if (problem := wrong_with(line))]
    assert not wrong, "\n".join(wrong)


def test_the_check_above_finds_what_is_wrong():
    for line in (
        "foretell tain --data x",
        "foretell train --dta x",
        "foretell data describe x y",
        "foretell data merge a",
        "foretell evaluate RUN --jsn",
    ):
        assert wrong_with(line), line
    for line in ("foretell train --data x --set train.lr=1", "foretell evaluate RUN --json", "foretell --version"):
        assert wrong_with(line) is None, line
    assert sum(len(shown_commands(page)) for page in PAGES) > 10, "no commands were found at all"


def test_the_page_of_commands_has_every_command():
    page = (ROOT / "docs/reference/cli.md").read_text(encoding="utf-8")
    for name, command in COMMANDS.commands.items():
        for full in [f"{name} {sub}" for sub in command.commands] if hasattr(command, "commands") else [name]:
            assert f"\n## foretell {full}\n" in page, full
            assert f"`foretell {full}" in page, full


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_python_that_is_shown_compiles_and_uses_names_that_exist(page: Path):
    for body in fenced(page, "python", "py"):
        tree = ast.parse(body)
        aliases = {
            alias.asname or alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.Import)
            for alias in node.names
            if alias.name == "foretell"
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases:
                assert node.attr in foretell.__all__, f"foretell has no {node.attr}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_toml_that_is_shown_parses_and_configurations_are_valid(page: Path):
    for body in fenced(page, "toml"):
        table = tomllib.loads(body)
        if "kind" in table:  # an experiment
            for quick in ({}, table.pop("quick", {})):
                definition = Definition("shown", page.parent / "shown", merged(table, quick))
                assert open_experiment(definition).units({})
        elif table.keys() & {"train", "model"}:
            make_config(table, name_of(page))


def anchors(page: Path) -> set[str]:
    """The anchors that headings get."""
    found = set()
    for heading in re.findall(r"^#+ (.+)$", FENCE.sub("", text_of(page)), re.MULTILINE):
        text = re.sub(r"[^\w\s-]", "", re.sub(r"[`*]", "", heading)).strip().lower()
        found.add(re.sub(r"[-\s]+", "-", text))
    return found


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_relative_link_leads_to_a_file_and_a_heading(page: Path):
    broken = []
    for link in LINK.findall(FENCE.sub("", text_of(page))):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        made = page.suffix == ".ipynb" and path.endswith(".png")  # a picture in the notebook
        if not (made or target.exists()) or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            broken.append(link)
    assert not broken, f"{name_of(page)}: {broken}"


def test_the_changelog_begins_with_what_is_not_released_and_then_has_notes_on_this_version():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## (.*)$", text, flags=re.MULTILINE)
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert headings[0] == "[Unreleased]" and re.fullmatch(rf"\[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d", headings[1])
    date = headings[1].split(" - ")[1]
    cited = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {version}\n" in cited and f"\ndate-released: {date}\n" in cited
    known = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")
    assert set(re.findall(r"^### (.*)$", text, flags=re.MULTILINE)) <= set(known)


def test_pages_of_the_navigation_exist_and_every_page_is_in_it():
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    named = set(re.findall(r"([\w/-]+\.(?:md|ipynb))", re.split(r"^nav:", text, flags=re.MULTILINE)[1]))
    assert named == {str(page.relative_to(ROOT / "docs")) for page in DOCS}


def test_the_documented_files_of_a_run_are_those_that_are_written():
    from foretell.train import run

    docs = "".join(text_of(page) for page in PAGES)
    for name in (run.CONFIG, run.ENVIRONMENT, run.METRICS, run.MODEL, "scores.parquet"):
        assert f"`{name}`" in docs, name


def test_the_example_in_the_package_docstring_uses_names_that_exist():
    for name in re.findall(r"\bft\.(\w+)", foretell.__doc__ or ""):
        assert name in foretell.__all__, name


def test_the_version_of_the_package_is_the_one_of_its_metadata():
    from importlib import metadata

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert metadata.version("foretell") == project["version"]
