"""The Python reference is made from docstrings: every public name is on one of its pages, and nothing else is said to be public."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import foretell as ft
from tests.promises.test_docstrings import PICTURES

PAGES = Path(__file__).parents[2] / "docs" / "reference"
SHOWN = re.compile(r"^::: ([\w.]+)$", re.MULTILINE)
LINKED = re.compile(r"\]\[foretell\.(\w+)\]")


def shown() -> Counter[str]:
    return Counter(
        name for page in (PAGES / "python").glob("*.md") for name in SHOWN.findall(page.read_text(encoding="utf-8"))
    )


def test_every_public_name_is_on_one_page_of_the_reference():
    names = Counter(name.removeprefix("foretell.") for name in shown() if name.count(".") == 1)
    assert names == Counter(set(ft.__all__) - {"plot"})


def test_every_picture_is_on_one_page_of_the_reference():
    pictures = Counter(name.rpartition(".")[2] for name in shown() if name.startswith("foretell.report."))
    assert pictures == Counter(PICTURES)


def test_the_overview_links_to_every_public_name():
    linked = Counter(LINKED.findall((PAGES / "python.md").read_text(encoding="utf-8")))
    assert linked == Counter(set(ft.__all__) - {"plot"})
