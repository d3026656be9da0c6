"""Event data for the tests of reading and writing: the real data sets where they lie beside the checkout, and small made-up files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

SHARED = Path(__file__).parents[2] / "../shared/data"


@pytest.fixture
def shared() -> Callable[[str], Path]:
    """The folder of a real data set; the test is skipped where it is not there."""

    def folder(name: str) -> Path:
        path = (SHARED / name).resolve()
        if not path.is_dir():
            pytest.skip(f"the data set {name} is not in ../shared/data")
        return path

    return folder


@pytest.fixture
def jsonl(tmp_path: Path) -> Callable[..., Path]:
    """Writes records (or raw text) as JSON lines and gives the path."""

    def write(*records: object, name: str = "data.jsonl") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [record if isinstance(record, str) else json.dumps(record) for record in records]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path

    return write
