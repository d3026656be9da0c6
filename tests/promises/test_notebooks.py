"""Tutorials as notebooks: they have been run, they are rendered into the site, and they still run."""

from __future__ import annotations

import json
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.promises.notebooks import notebook_pages
from tests.promises.test_pages import ROOT

NOTEBOOKS = sorted((ROOT / "docs").rglob("*.ipynb"))
MOST_SECONDS = 120  # of a processor, so that a busy machine changes nothing


def cells_of(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def kinds(notebook: dict[str, Any]) -> list[list[str]]:
    """What each cell gives: texts, tables, pictures."""
    outputs = [notebook_pages().joined(cell["outputs"]) for cell in cells_of(notebook)]
    return [[kind for one in cell for kind in sorted(one.get("data", {one["output_type"]: ""}))] for cell in outputs]


def seconds_of_children() -> float:
    """CPU seconds of processes that have ended, kernels of notebooks among them."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_there_are_notebooks():
    assert {path.stem for path in NOTEBOOKS} == {"forecast", "rules", "compare"}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_in_the_repository_was_run_from_top_to_bottom_without_an_error(path: Path):
    cells = cells_of(json.loads(path.read_text(encoding="utf-8")))
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert not any(one["output_type"] == "error" for cell in cells for one in cell["outputs"])


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_page_of_a_notebook_has_its_pictures_and_its_tables(path: Path):
    made = notebook_pages().render(path)
    assert made.pictures and all(f"]({name})" in made.text for name in made.pictures)
    assert all(picture.startswith(b"\x89PNG") for picture in made.pictures.values())
    assert "<table>" in made.text and "<Figure" not in made.text and not re.search(r"<style|\x1b\[", made.text)


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_in_time_and_gives_what_the_page_shows(path: Path):
    pytest.importorskip("nbclient")
    began = seconds_of_children()
    found = notebook_pages().execute(path)
    assert seconds_of_children() - began < MOST_SECONDS
    assert kinds(found) == kinds(json.loads(path.read_text(encoding="utf-8")))


@pytest.mark.slow
def test_the_site_is_built_from_notebooks_that_were_just_run(tmp_path: Path):
    pytest.importorskip("nbclient")
    for name in ("docs", "src", "mkdocs.yml"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / name)
    hook = notebook_pages()
    rules = tmp_path / "docs/tutorial/rules.ipynb"
    hook.write(rules, hook.execute(rules))
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", "site"]
    subprocess.run(build, cwd=tmp_path, check=True, env={"NO_MKDOCS_2_WARNING": "1", "PATH": "/usr/bin:/bin"})
    page = (tmp_path / "site/tutorial/rules.html").read_text(encoding="utf-8")
    assert all(name in page and (tmp_path / "site/tutorial" / name).exists() for name in hook.render(rules).pictures)
