"""Which events a command is asked about: a file, a folder, embedded data, or a pipe; some of its splits; one of its sequences. No torch.

What comes through a pipe is JSON lines, CSV or Parquet, told apart by how it begins; messages call it `stdin`.
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

from foretell.data import ColumnMap, EventData, Origin, Vocabulary, load
from foretell.data.files import GZIP_MAGIC
from foretell.data.loading import assemble_file, read
from foretell.data.raw import RawEvents
from foretell.errors import DataError, ForetellError
from foretell.train.splits import open_for

log = logging.getLogger("foretell")

NAME = "stdin"
PATIENCE = 2.0  # seconds without a word after which we say that we are waiting


def open_data(path: str, split: str | None = None, columns: str = "") -> list[EventData]:
    """A file as it is; of a data set the named split, or all of them in order."""
    mapped = ColumnMap.parse(columns)
    if split is None and not Path(path).is_file():
        return list(load(path, columns=mapped).splits().values())
    return [open_for(None, path, split, columns=mapped)]


def chosen_sequences(data: EventData, sequence: str | None) -> EventData:
    """All sequences, or the one with this id or (if no id matches) this place."""
    return chosen_among([data], sequence)[0]


def chosen_among(parts: list[EventData], sequence: str | None) -> list[EventData]:
    """The same over several splits; places count through all of them."""
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
        f"{names}: no sequence {sequence!r}; there are {len(ids)}: {some}; other splits are asked for with --split"
    )


def is_piped() -> bool:
    """Whether something was put in front of us: a pipe, or a file by `<`. A terminal and /dev/null are neither."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError, AttributeError):  # there is no stdin, or it is closed
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode)


def read_stdin() -> bytes:
    """All of it."""
    stream = sys.stdin.buffer
    try:
        ready, _, _ = select.select([stream], [], [], PATIENCE)
    except (OSError, ValueError):  # not a file that can be waited for
        ready = [stream]
    if not ready:
        sys.stderr.write("waiting for events on stdin (end them with Ctrl-D)\n")
    return stream.read()


def piped_content(history: str | None, split: str | None) -> bytes | None:
    """What stdin says, where it is asked for by `-`, or where nothing else is and something is piped in; None: ask elsewhere."""
    if history == "-":
        if split is not None:
            raise DataError(f"{NAME}: it has no split {split!r}")
        return read_stdin()
    if history is not None or split is not None or not is_piped():
        return None
    content = read_stdin()
    if not content:  # a job's closed pipe
        log.warning("%s: nothing came through the pipe, so it is not the history", NAME)
        return None
    return content


def piped_data(content: bytes, columns: str, vocabulary: Vocabulary | None, origin: Origin) -> EventData:
    return assemble_file(_read(content, ColumnMap.parse(columns)), vocabulary, origin, NAME)


def _read(content: bytes, columns: ColumnMap) -> RawEvents:
    """The readers take files, so it is one for a moment."""
    if not content.strip():
        raise DataError(
            f'{NAME}: nothing came; expected JSON lines such as {{"times": [0.5], "events": ["a"], "t_end": 2.0}}'
        )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{NAME}{_suffix(content)}"
        path.write_bytes(content)
        try:
            raw = read(path, columns)
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
            start = b"{"  # the reader says what is wrong with it
        return f"{_text_suffix(start)}.gz"
    return _text_suffix(content[:256])


def _text_suffix(start: bytes) -> str:
    return ".jsonl" if start.removeprefix(codecs.BOM_UTF8).lstrip()[:1] in (b"{", b"[") else ".csv"
