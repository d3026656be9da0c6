"""The events on which a command works: a file, a folder, embedded data, or a pipe; selected splits; a selected sequence. No torch.

Input from a pipe is JSON lines, CSV, Parquet or XES, detected from its first bytes; messages call it `stdin`.
"""

from __future__ import annotations

import codecs
import gzip
import io
import logging
import os
import select
import stat
import sys
import tempfile
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from foretell.data import EventData, Origin, ReadOptions, Vocabulary, load
from foretell.data.assembling import assemble_file
from foretell.data.files import GZIP_MAGIC
from foretell.data.loading import read
from foretell.data.raw import RawEvents
from foretell.errors import DataError, ForetellError
from foretell.train.config import DataOptions
from foretell.train.splits import open_for
from foretell.wording import counted

log = logging.getLogger("foretell")

NAME = "stdin"
PATIENCE = 2.0  # seconds without input before a message says that we are waiting


def open_data(path: str, split: str | None, reading: dict[str, Any]) -> list[EventData]:
    """Open a file, the named split of a data set, or all its splits in order. Rules read the names of events."""
    options = replace(DataOptions(), **reading).reading(terms=True)
    if split is None and not Path(path).is_file():
        return list(load(path, options=options).splits().values())
    return [open_for(None, path, split, options=options)]


def asked_times(data: EventData, text: str, option: str) -> tuple[EventData, list[float]]:
    """Return a time given as a number or a date, on the clock of each sequence; sequences that begin later are left out, with a message."""
    numbers = [data.clock.number_of(text, one.start, option) for one in data]
    later = [place for place, number in enumerate(numbers) if not 0.0 <= number < float("inf")]
    if len(later) == len(numbers) and numbers:
        first = f" begin later, the first at {data.clock.iso(0.0, min(one.start or 0 for one in data))}"
        absolute = data.columns.starts is not None
        raise ForetellError(f"{option} {text}: {f'all sequences{first}' if absolute else 'expected a time from 0 on'}")
    if later:
        sys.stderr.write(f"{counted(len(later), 'sequence')} of {len(numbers)} begin after {text}, and are left out\n")
        kept = [place for place in range(len(numbers)) if place not in set(later)]
        return data.select(kept), [numbers[place] for place in kept]
    return data, numbers


def chosen_sequences(data: EventData, sequence: str | None) -> EventData:
    """Return all sequences, or the one with this id or, if no id matches, at this position."""
    return chosen_among([data], sequence)[0]


def chosen_among(parts: list[EventData], sequence: str | None) -> list[EventData]:
    """Return the chosen sequence out of several splits; positions count across splits."""
    if sequence is None:
        return parts
    for data in parts:
        by_id = [place for place, one in enumerate(data) if one.id == sequence]
        if by_id:
            return [data.select(by_id[:1])]
    if sequence.isdecimal():
        place = int(sequence)
        for data in parts:
            if place < len(data):
                return [data.select([place])]
            place -= len(data)
    ids = [one.id for data in parts for one in data]
    some = ", ".join(ids[:5]) + (", …" if len(ids) > 5 else "")
    names = ", ".join(data.name for data in parts)
    raise ForetellError(
        f"{names}: no sequence {sequence!r}; there are {len(ids)}: {some}; use --split for another split"
    )


def is_piped() -> bool:
    """Whether stdin is a pipe, or a file redirected by `<`; False for a terminal and /dev/null."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError, AttributeError):  # stdin does not exist or is closed
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode)


def read_stdin() -> bytes:
    """Read stdin to its end; a message is printed if nothing arrives for a while."""
    stream = sys.stdin.buffer
    try:
        ready, _, _ = select.select([stream], [], [], PATIENCE)
    except (OSError, ValueError):  # a file that does not support `select`
        ready = [stream]
    if not ready:
        sys.stderr.write("waiting for events on stdin (end them with Ctrl-D)\n")
    return stream.read()


def piped_content(history: str | None, split: str | None) -> bytes | None:
    """Return the content of stdin if `-` is given, or if no other data are given and stdin is a pipe; None otherwise."""
    if history == "-":
        if split is not None:
            raise DataError(f"{NAME}: it has no split {split!r}")
        return read_stdin()
    if history is not None or split is not None or not is_piped():
        return None
    content = read_stdin()
    if not content:  # the closed pipe of a background job
        log.warning("%s: nothing came through the pipe, so it is not the history", NAME)
        return None
    return content


def piped_data(content: bytes, options: ReadOptions, vocabulary: Vocabulary | None, origin: Origin) -> EventData:
    return assemble_file(_read(content, options), vocabulary, origin, NAME, options)


def _read(content: bytes, options: ReadOptions) -> RawEvents:
    """Parse the content via a temporary file, since the readers take files."""
    if not content.strip():
        raise DataError(
            f'{NAME}: nothing came; expected JSON lines such as {{"times": [0.5], "events": ["a"], "t_end": 2.0}}'
        )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{NAME}{_suffix(content)}"
        path.write_bytes(content)
        try:
            raw = read(path, options)
        except DataError as error:
            raise DataError(problem.replace(str(path), NAME) for problem in error.problems) from None
        return replace(raw, path=NAME)


def _suffix(content: bytes) -> str:
    if content.startswith(b"PAR1"):
        return ".parquet"
    if content.startswith(GZIP_MAGIC):
        try:
            with gzip.GzipFile(fileobj=io.BytesIO(content)) as packed:
                start = packed.read(256)
        except (OSError, EOFError, zlib.error):
            start = b"{"  # the JSON reader reports the mistake
        return f"{_text_suffix(start)}.gz"
    return _text_suffix(content[:256])


def _text_suffix(start: bytes) -> str:
    first = start.removeprefix(codecs.BOM_UTF8).lstrip()[:1]
    return ".xes" if first == b"<" else ".jsonl" if first in (b"{", b"[") else ".csv"
