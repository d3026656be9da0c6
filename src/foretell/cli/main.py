"""`foretell`: runs a command, and turns errors into a message and an exit code.

0: success. 1: wrong input (message on stderr). 2: wrong usage. 130: interrupted.

Before Ctrl-C is handled, only the standard library is imported; `run` loads the commands.
"""

from __future__ import annotations

import io
import logging
import os
import signal
import sys
import warnings
from types import FrameType
from typing import Any, NoReturn


def run() -> None:
    """The entry point of the installed command."""
    interrupted: list[bool] = []
    before = _handle_interrupts(interrupted)
    sys.unraisablehook = _unraisable
    try:
        _run()
    except KeyboardInterrupt:
        _interrupted()
    except (Exception, SystemExit) as ended:
        if interrupted:  # an interrupted import may end in another error, and typer ends silently
            _interrupted()
        processes = os.environ.get("WORLD_SIZE", "")
        if isinstance(ended, SystemExit) and processes.isdecimal() and int(processes) > 1:
            _leave(ended.code)
        raise
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)


def _handle_interrupts(interrupted: list[bool]) -> Any:
    """Install a handler that records Ctrl-C and raises KeyboardInterrupt; not in a thread, and not if SIGINT has another handler."""

    def on_signal(signum: int, frame: FrameType | None) -> None:
        interrupted.append(True)
        raise KeyboardInterrupt

    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return None
    try:
        return signal.signal(signal.SIGINT, on_signal)
    except ValueError:  # not the main thread
        return None


def _unraisable(found: Any) -> None:
    """End the command on a Ctrl-C inside a callback of the interpreter, where nothing can catch it."""
    if found.exc_type is KeyboardInterrupt:
        os.write(2, b"interrupted\n")
        os._exit(130)
    sys.__unraisablehook__(found)


def _leave(code: object) -> NoReturn:
    """Flush the output and exit at once: Gloo threads may still run, and must not meet the interpreter's shutdown."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 0 if code is None else 1)


def _interrupted() -> NoReturn:
    sys.stderr.write("interrupted\n")
    sys.exit(130)


def _open_streams() -> None:
    """Reopen closed standard streams as empty ones; otherwise files that we open would get their file descriptors."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 (open until the process ends)


def _run() -> None:
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # spinning idle threads slow a busy machine tenfold
    # numpy's and torch's warnings about single operations; our own messages report non-finite numbers
    warnings.filterwarnings("ignore", category=RuntimeWarning)
    _open_streams()
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors in ("strict", "surrogateescape"):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal's encoding may lack letters of a name
    from foretell.cli.commands import app
    from foretell.cli.option_words import as_options
    from foretell.errors import ForetellError
    from foretell.wording import readable

    said: set[str] = set()

    def readably(record: logging.LogRecord) -> bool:
        """Show each message once, even if a command reads the same data several times."""
        text = as_options(readable(record.getMessage()))
        record.msg, record.args = text, ()
        again, _ = text in said, said.add(text)
        return not again

    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(readably)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s", handlers=[handler])
    logging.addLevelName(logging.WARNING, "warning")
    try:
        app()
    except ForetellError as error:
        from foretell.lang.diagnostics import ProgramError

        lines = as_options(str(error)).splitlines()
        placed = isinstance(error, ProgramError)  # its messages contain the word "error" and the position
        sys.stderr.write("".join(f"{line}\n" if placed else f"error: {line}\n" for line in lines))
        sys.exit(1)
    except BrokenPipeError:
        # The reader of our output has closed the pipe (`foretell … | head`), which is no error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        sys.stderr.write(readable(f"error: {place}{error.strerror or error}") + "\n")
        sys.exit(1)
    except (MemoryError, RuntimeError) as error:
        if not _is_out_of_memory(error):
            raise
        sys.stderr.write(
            "error: there is not enough memory for this; give fewer events, a smaller batch or a smaller model\n"
        )
        sys.exit(1)


def _is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means lack of memory; PyTorch raises `RuntimeError`s for that, too."""
    said = str(error)
    words = (
        "DefaultCPUAllocator",
        "out of memory",
        "Storage size calculation overflowed",
        "numel: integer multiplication overflow",
    )
    return isinstance(error, MemoryError) or any(one in said for one in words)


def __getattr__(name: str) -> Any:
    """Load `app` on first use."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from foretell.cli.commands import app

    return app


if __name__ == "__main__":
    run()
