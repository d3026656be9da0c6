"""For all tests: replays are kept in a folder of their own, and never in the user's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session", autouse=True)
def replays_are_kept_apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("replays")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FORETELL_CACHE", str(folder))
        yield folder
