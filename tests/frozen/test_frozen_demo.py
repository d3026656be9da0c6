"""The demo prints and scores what it did."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.frozen.demo import FILE, shown
from tests.frozen.numbers import MOST_SHOWN, differences


@pytest.mark.slow
def test_the_demo_is_what_it_was(tmp_path: Path):
    frozen = json.loads(FILE.read_text(encoding="utf-8"))
    assert list(differences(shown(tmp_path / "demo"), frozen, 1e-9))[:MOST_SHOWN] == []
