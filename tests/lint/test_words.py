"""Sentences for readers: rates are "per", and a docstring says what a thing is."""

import re

from tests.lint.source import LIBRARY

ROOT = LIBRARY.parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
RATES = re.compile(
    r"\b(nats|points|draws|nodes|pieces|windows|proposals)\s+an?\s+(event|gap|query|step)\b|\bevents\s+a\s+(second|sequence)\b"
)
UNSAID = re.compile(r'"""(Of|The same) ')


def test_rates_are_per():
    for path in [*PAGES, *sorted(LIBRARY.rglob("*.py"))]:
        found = RATES.search(path.read_text(encoding="utf-8"))
        assert not found, f"{path}: {found.group()!r}: write `per`"


def test_no_docstring_leaves_out_what_it_speaks_of():
    for path in sorted(LIBRARY.rglob("*.py")):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            assert not UNSAID.search(line), f"{path}:{number}: {line.strip()}"


def test_such_sentences_would_be_found():
    assert RATES.search("two points a\ngap") and not RATES.search("two points per gap")
    assert UNSAID.search('"""Of each event."""') and not UNSAID.search('"""The times of each event."""')
