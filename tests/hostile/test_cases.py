"""Damaged files, archives, logs, databases, pickles, programs and run folders: an answer or a message, in time and in memory."""

from __future__ import annotations

import gzip
import logging
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from foretell.data import load_file, save
from foretell.errors import ForetellError
from foretell.reading import limits
from tests.hostile import commands, described
from tests.hostile.cases import JSONL, KINDS, outcome

QUICK, ALL, BLOCK = 40, 12_000, 1_000
QUICK_COMMANDS = 15  # a whole command takes longer than reading a file
WHOLE = {*commands.KINDS, *described.KINDS}
FINE = ("read", "refused")


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_input_is_read_or_refused(kind: str, tmp_path: Path):
    pytest.importorskip("pyarrow")
    found = [outcome(kind, seed, tmp_path) for seed in range(QUICK_COMMANDS if kind in WHOLE else QUICK)]
    assert set(found) <= set(FINE), [one for one in found if one not in FINE][:3]
    assert "refused" in found


@pytest.mark.slow
@pytest.mark.parametrize("block", range(ALL // BLOCK))
@pytest.mark.parametrize("kind", KINDS)
def test_a_hundred_thousand_damaged_inputs_are_read_or_refused(kind: str, block: int, tmp_path: Path):
    pytest.importorskip("pyarrow")
    for seed in range(QUICK + block * BLOCK, QUICK + (block + 1) * BLOCK):
        said = outcome(kind, seed, tmp_path)
        assert said in FINE, f"{kind} {seed}: {said}"


BOMBS = {
    "x.csv.gz": b"x" * (1 << 20),
    "x.jsonl.gz": b"x" * (1 << 20),
    "y.csv.gz": b"\n" * (1 << 20),
    "y.jsonl.gz": b"\n" * (1 << 20),
    "z.csv.gz": b"a,b,c\n" * (1 << 18),
    "z.jsonl.gz": b'{"times": 3}\n' * (1 << 17),
    "x.xes.gz": b"<log>" * (1 << 18),
    "x.tsv.gz": b"\t" * (1 << 20),
}


@pytest.mark.parametrize("name", BOMBS)
def test_an_archive_that_unpacks_to_far_more_ends_in_a_message(name: str, tmp_path: Path):
    path = tmp_path / name
    with gzip.open(path, "wb", compresslevel=6) as file:
        for _ in range(70):
            file.write(BOMBS[name])
    began = time.process_time()
    with pytest.raises(ForetellError):
        load_file(path)
    assert time.process_time() - began < 20.0  # a few seconds


def test_too_many_events_are_refused_where_that_is_asked_for(tmp_path: Path):
    path = tmp_path / "x.jsonl"
    path.write_text(JSONL)
    with limits(max_events=24):
        load_file(path)
    with limits(max_events=23), pytest.raises(ForetellError, match="more than `max_events=23`"):
        load_file(path)


@pytest.mark.parametrize("name", ["=1+1", "+a", "-a", "@a", "'=b", "''-b", "'c", "\t=d"])
def test_what_a_spreadsheet_would_run_is_written_as_text_and_reads_back_equal(name: str, tmp_path: Path):
    from foretell.data import EventData, EventSequence, Vocabulary

    data = EventData(
        [EventSequence([0.5, 1.0], [0, 1], 2.0, id=f"{name}s")], Vocabulary(tuple(sorted([name.strip(), "x"])))
    )
    save(data, tmp_path / "x.csv")
    cells = [cell.strip('"') for line in (tmp_path / "x.csv").read_text().splitlines()[1:] for cell in line.split(",")]
    assert not any(cell[:1] in ("=", "+", "-", "@", "\t") for cell in cells)
    again = load_file(tmp_path / "x.csv")
    assert again.vocabulary == data.vocabulary and again[0].id == data[0].id
