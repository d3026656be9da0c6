"""A lock file that one process at a time can hold. The operating system releases the lock when the process ends.

The file of a dead process is not locked; the next process takes it over.
"""

from __future__ import annotations

import contextlib
import errno
import io
import logging
import os
import socket
import time
from pathlib import Path
from typing import IO

from foretell.errors import ForetellError

logger = logging.getLogger(__name__)

UNSUPPORTED = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}
RETRY_SECONDS = 0.05
_NO_LINKS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


class FileLock:
    """A lock that one process at a time can hold. The holder may acquire it several times, and must release it as often."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.depth = 0
        self._file: IO[str] | None = None

    def try_acquire(self) -> bool:
        """Try to take the lock, and return whether this object now holds it; creates the folder if needed."""
        if self.depth == 0 and not self._lock():
            return False
        self.depth += 1
        return True

    def acquire(self, seconds: float) -> bool:
        """Wait up to `seconds` for the lock, and return whether this object now holds it."""
        until = time.monotonic() + seconds
        while not self.try_acquire():
            if time.monotonic() >= until:
                return False
            time.sleep(RETRY_SECONDS)
        return True

    def release(self) -> None:
        assert self.depth, "released more often than it was taken"
        self.depth -= 1
        if self.depth == 0 and self._file is not None:
            with contextlib.suppress(OSError):  # Windows does not remove open files; an empty lock file does no harm
                self.path.unlink(missing_ok=True)
            self._file.close()
            self._file = None

    def holder(self) -> str:
        """Return a description of the lock's holder, as written in the file."""
        try:
            return self.path.read_text(encoding="utf-8")[:200].strip() or "another process"
        except (OSError, UnicodeDecodeError):
            return "another process"

    def _lock(self) -> bool:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # do not write elsewhere: a folder from a stranger may have a link, or a pipe, in place of the file
            number = os.open(self.path, os.O_RDWR | os.O_CREAT | _NO_LINKS, 0o666)
            file = open(number, "r+", encoding="utf-8")  # noqa: SIM115
        except (OSError, io.UnsupportedOperation) as error:
            raise ForetellError(self._unwritable(error)) from None
        # if the previous holder has just removed the file, the file that we opened locks nothing
        if not _locked(file) or not _is_at(file.fileno(), self.path):
            file.close()
            return False
        try:
            file.truncate()
            file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
            file.flush()
        except OSError as error:
            with contextlib.suppress(OSError):
                self.path.unlink(missing_ok=True)
                self.path.parent.rmdir()  # fails if the folder has other files
            with contextlib.suppress(OSError):
                file.close()
            raise ForetellError(self._unwritable(error)) from None
        self._file = file
        return True

    def _unwritable(self, error: Exception) -> str:
        if getattr(error, "errno", None) == errno.ELOOP:
            return f"{self.path}: cannot be written: it is a link; remove it"
        reason = getattr(error, "strerror", None)
        if reason is None or getattr(error, "errno", None) == errno.EISDIR:
            return f"{self.path}: cannot be written: it is no ordinary file; remove it"
        return f"{self.path.parent}: cannot be written: {reason}"

    def __del__(self) -> None:
        if self._file is not None:
            self.depth = 1
            self.release()


def _locked(file: IO[str]) -> bool:
    try:
        import fcntl
    except ImportError:
        return _locked_on_windows(file)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise
        logger.warning("%s: this file system has no locks: take care that no other process writes there", file.name)
    return True


def _locked_on_windows(file: IO[str]) -> bool:
    import msvcrt

    try:
        file.seek(0)
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # pyright: ignore[reportAttributeAccessIssue]
    except OSError:
        return False
    return True


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False
