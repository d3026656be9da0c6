"""A data set whose names try to break out of a page, and runs on it: with rules and without."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretell.data import Card, Dataset, EventData, EventSequence, Vocabulary, save_dataset
from tests.cli.invoking import fine
from tests.report.browser import browser

SCRIPT = "talk('<script>window.hacked=1</script>')"
IMAGE = "talk('\"><img src=x onerror=window.hacked=2>')"
CLOSING = "leave('</script><b>&amp;')"
NAMES = (SCRIPT, IMAGE, "talk(bob)", CLOSING, "leave(bob)")

PROGRAM = """
:- event(talk).
:- event(leave).
person('<script>window.hacked=1</script>').
person('"><img src=x onerror=window.hacked=2>').
person('</script><b>&amp;').
person(bob).
talk(P) :- person(P).
leave(P) :- person(P).
person(P) <- talk(P).
met(P) <- talk(P).
!met(P) <- leave(P).
talk(P) :- met(P).
"""


def sequences(seed: int, count: int) -> list[EventSequence]:
    random = np.random.default_rng(seed)
    made = []
    for place in range(count):
        times = np.sort(random.uniform(0.0, 10.0, 12))
        made.append(
            EventSequence(times, random.integers(0, len(NAMES), 12, dtype=np.int32), 10.0, f"<i>{seed}-{place}")
        )
    return made


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the data and two runs: `anhp` and `andtt`."""
    folder = tmp_path_factory.mktemp("hostile")
    vocabulary = Vocabulary(NAMES)
    train, dev, test = (
        EventData(sequences(seed, count), vocabulary, name=name)
        for seed, (name, count) in enumerate({"train": 12, "dev": 3, "test": 3}.items())
    )
    save_dataset(Dataset(train, dev, test, vocabulary, Card("<u>hostile", "window", "<em>hours", 5)), folder / "data")
    (folder / "talk.ndtt").write_text(PROGRAM)
    options = ("--data", folder / "data", "--epochs", 3, "--quiet", "--layers", 2, "--dim", 4)
    fine("train", "--model", "anhp", "--out", folder / "anhp", *options, "--set", "model.shortest_wave=0.5")
    fine("train", "--model", "andtt", "--program", folder / "talk.ndtt", "--out", folder / "andtt", *options)
    return folder


@pytest.fixture(scope="session")
def page(hostile: Path) -> Path:
    """A report of both runs."""
    fine("report", hostile / "andtt", hostile / "anhp", "-o", hostile / "report.html", "--quiet")
    return hostile / "report.html"


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with browser(tmp_path_factory.mktemp("profile")) as found:
        yield found
