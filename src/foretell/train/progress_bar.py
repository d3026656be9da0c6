"""A progress bar in a terminal or notebook, and plain lines on any other stderr. Does not import torch.

`bar` opens one for a command, `training_bar` opens one for a fit in Python.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, Task, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from foretell.durations import short_duration

PLAIN_LINE_EVERY = 5.0  # seconds
NOTEBOOK_EVERY = 0.2  # seconds
NOTEBOOK_LINES = 8  # of the lines that stay


class Bar:
    """A progress display: `move` updates it, and `keep` prints a line that stays. This base class shows nothing."""

    def move(self, words: str, done: int, of: int, left: str | None = None) -> None:
        """Set the words, the position and the remaining time, which is estimated from the speed of the bar by default."""

    def keep(self, line: str) -> None:
        """Show a line that stays."""


class _TimeLeft(TimeRemainingColumn):
    """The remaining time: the given one, else an estimate from the speed."""

    def render(self, task: Task) -> Text:
        left = task.fields.get("left")
        return super().render(task) if left is None else Text(left, style="progress.remaining")


class TerminalBar(Bar):
    """A progress bar in a terminal, drawn with rich."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.task = progress.add_task("", total=None, left=None)

    def move(self, words: str, done: int, of: int, left: str | None = None) -> None:
        self.progress.update(self.task, description=words, completed=done, total=of or None, left=left)

    def keep(self, line: str) -> None:
        self.progress.console.print(line, highlight=False, markup=False)


class LineBar(Bar):
    """Plain lines on stderr if it is no terminal: the current state, every few seconds."""

    def __init__(self) -> None:
        self.last_line = time.monotonic()

    def move(self, words: str, done: int, of: int, left: str | None = None) -> None:
        if time.monotonic() - self.last_line >= PLAIN_LINE_EVERY:
            self.keep(_said(words, done, of, left))

    def keep(self, line: str) -> None:
        self.last_line = time.monotonic()
        sys.stderr.write(line + "\n")


class NotebookBar(Bar):
    """An HTML element that is redrawn in place, with the last lines passed to `keep`."""

    def __init__(self, display: Callable[..., Any]) -> None:
        self.lines: list[str] = []
        self.began, self.drawn = time.monotonic(), 0.0
        self.words, self.done, self.of, self.left = "", 0, 0, ""
        self.handle = display(self, display_id=True)

    def move(self, words: str, done: int, of: int, left: str | None = None) -> None:
        self.words, self.done, self.of, self.left = words, done, of, left or ""
        if done >= of > 0 or time.monotonic() - self.drawn >= NOTEBOOK_EVERY:
            self._draw()

    def keep(self, line: str) -> None:
        self.lines = [*self.lines, line][-NOTEBOOK_LINES:]
        self._draw()

    def _draw(self) -> None:
        self.drawn = time.monotonic()
        self.handle.update(self)

    def __repr__(self) -> str:
        return "\n".join([*self.lines, _said(self.words, self.done, self.of, self.left)])

    def _repr_html_(self) -> str:
        passed = short_duration(time.monotonic() - self.began)
        said = ", ".join(part for part in (self.words, passed, self.left) if part)
        kept = f"<pre>{escape(chr(10).join(self.lines))}</pre>" if self.lines else ""
        place = f' value="{self.done}" max="{self.of}"' if self.of else ""
        return f"{kept}<div><progress{place}></progress> {escape(said)}</div>"


def _said(words: str, done: int, of: int, left: str | None) -> str:
    place = f" {done}/{of}" if of else ""
    return f"{words}{place}{', ' + left if left else ''}"


@contextmanager
def bar(quiet: bool = False) -> Iterator[Bar]:
    """Yield a bar on stderr; with `quiet`, one that shows nothing."""
    console = Console(stderr=True, emoji=False)
    if quiet or not console.is_terminal:
        yield Bar() if quiet else LineBar()
        return
    columns = TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn(), _TimeLeft()
    with Progress(*columns, console=console, transient=True) as progress:
        yield TerminalBar(progress)


@contextmanager
def training_bar(wanted: bool | None) -> Iterator[Bar | None]:
    """Yield the bar of a fit in Python: in a notebook and on a terminal, unless it is turned off. None: no bar."""
    display = None if wanted is False else notebook_display()
    if display is not None:
        yield NotebookBar(display)
    elif wanted or (wanted is None and sys.stderr.isatty()):
        with bar() as shown:
            yield shown
    else:
        yield None


def notebook_display() -> Callable[..., Any] | None:
    """Return IPython's `display` in a notebook kernel; None elsewhere."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if shell is None or not hasattr(shell, "kernel"):
        return None
    from IPython.display import display  # pyright: ignore[reportMissingImports, reportMissingModuleSource]

    return display
