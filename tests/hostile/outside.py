"""Which files a case writes, moves or deletes outside the folders that are its own, as Python's audit events tell."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# Events whose arguments at these places are paths that change.
CHANGED = {
    "os.remove": (0,),
    "os.rename": (0, 1),
    "os.rmdir": (0,),
    "os.mkdir": (0,),
    "os.link": (1,),
    "os.symlink": (1,),
    "os.truncate": (0,),
    "os.chmod": (0,),
    "os.chown": (0,),
    "os.utime": (0,),
}
PROGRAMS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "pty.spawn", "socket.connect")


class Trespasses:
    """Changes outside `allowed` since the last `taken`: paths, programs started, connections made."""

    def __init__(self) -> None:
        self.allowed: tuple[str, ...] | None = None  # None: nothing is looked at
        self.found: list[str] = []
        sys.addaudithook(self._hear)  # for the life of the process: hooks cannot be taken away

    def _hear(self, event: str, arguments: tuple[object, ...]) -> None:
        if self.allowed is None:
            return
        if event == "open":
            path, _, flags = arguments
            if isinstance(flags, int) and flags & WRITING:
                self._look(event, path)
        elif event in CHANGED:
            for place in CHANGED[event]:
                self._look(event, arguments[place])
        elif event in PROGRAMS:
            self.found.append(f"{event} {arguments[:2]!r}"[:300])

    def _look(self, event: str, path: object) -> None:
        if isinstance(path, int) or not isinstance(path, (str, bytes, os.PathLike)):
            return  # an open file: its path was looked at when it was opened
        allowed, self.allowed = self.allowed, None  # what is done here is not looked at
        assert allowed is not None
        try:
            real = os.path.realpath(os.fsdecode(path))
            ours = real.endswith(".pyc") or "/__pycache__" in real or real == os.devnull
            if not ours and not any(real == one or real.startswith(one + os.sep) for one in allowed):
                self.found.append(f"{event} {real}"[:300])
        finally:
            self.allowed = allowed

    @contextmanager
    def watching(self, folders: Sequence[Path]) -> Iterator[list[str]]:
        """Collects what happens outside these folders; the list is empty where nothing did."""
        self.found = []
        self.allowed = tuple(os.path.realpath(one) for one in folders)
        try:
            yield self.found
        finally:
            self.allowed = None


_trespasses: list[Trespasses] = []


def watching(folders: Sequence[Path]) -> AbstractContextManager[list[str]]:
    """A context in which changes outside `folders` are collected: one hook per process."""
    if not _trespasses:
        _trespasses.append(Trespasses())
    return _trespasses[0].watching(folders)
