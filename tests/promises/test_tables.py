"""Every table of numbers in `experiments/` and `benchmarks/` names the file that its numbers come from, and that file is there."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*(ROOT / "benchmarks").glob("*.md"), *(ROOT / "experiments").rglob("*.md")])
RAW = re.compile(r"[\w.*/-]+\.jsonl?\b(?!\.)")
RENDERED = re.compile(r"\bresults\.md\b")  # made from the `results.json` beside it
TABLE = re.compile(r"(?m)(?:^\|.*\n)+")
NUMBER = re.compile(r"\d\.\d")


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def sections(text: str) -> list[tuple[str, str]]:
    """Each section's own text, and that with the sections around it."""
    found, around = [], list[tuple[int, str]]()
    for part in re.split(r"(?m)^(?=#+ )", text):
        heading = re.match(r"#+", part)
        level = len(heading[0]) if heading else 0
        around = [*((depth, other) for depth, other in around if depth < level), (level, part)]
        found.append((part, "".join(other for _, other in around)))
    return found


def raw_files(page: Path, text: str) -> list[Path]:
    """What the text names of raw files that exist; a page called `results.md` is made from `results.json`."""
    folders = (page.parent, page.parent / "results", ROOT)
    named = [*RAW.findall(text), *(["results.json"] if RENDERED.search(text) or page.name == "results.md" else [])]
    return [path for name in named for folder in folders for path in folder.glob(name.lstrip("/"))]


def unbacked(page: Path) -> list[str]:
    """The first lines of tables with at least three decimal numbers that name no raw file."""
    return [
        table.splitlines()[0]
        for part, text in sections(page.read_text(encoding="utf-8"))
        for table in TABLE.findall(part)
        if len(NUMBER.findall(table)) >= 3 and not raw_files(page, text)
    ]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_table_of_numbers_names_its_raw_numbers(page: Path):
    assert unbacked(page) == []


def test_a_table_without_raw_numbers_is_found(tmp_path: Path):
    table = "\n| a | b |\n|---|---|\n| 0.1 | 0.2 |\n| 0.3 | 0.4 |\n"
    page = tmp_path / "README.md"
    page.write_text(f"# One\n\n`there.json`\n{table}\n## Two\n{table}\n# Three\n`gone.json`, `tool.json.py`\n{table}")
    assert len(unbacked(page)) == 3
    (tmp_path / "there.json").write_text("{}")
    assert unbacked(page) == ["| a | b |"]
    (tmp_path / "results.json").write_text("{}")
    page.write_text(f"# Three\n[all](results.md)\n{table}")
    assert unbacked(page) == []


def test_the_table_of_searches_is_what_its_command_writes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    folder = ROOT / "experiments" / "auto"
    monkeypatch.syspath_prepend(str(folder))
    importlib.import_module("auto").table(folder / "results")
    assert capsys.readouterr().out in (folder / "README.md").read_text(encoding="utf-8")


def test_a_verdict_on_a_search_is_that_of_its_protocol(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(ROOT / "experiments" / "auto"))
    verdict = importlib.import_module("auto").verdict
    assert verdict(0.0, -0.02) == verdict(0.1, 0.3) == "holds"
    assert verdict(0.1, -0.021) == "fails on test" and verdict(-0.002, 0.1) == "behind on dev by 0.002"
    assert verdict(None, None) == "pending"
