"""What is wrong with a program: a stable code, a place, a sentence, a hint; rendered with the source line and a caret."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from typing import Literal as OneOf
from unicodedata import combining, east_asian_width

from foretell.errors import ForetellError
from foretell.lang.codes import ERRORS, WARNINGS
from foretell.lang.source import Span
from foretell.wording import printable

SHOWN_WIDTH = 160  # characters of a source line that are shown at most
SHOWN_DIAGNOSTICS = 200
TAB = "    "


@dataclass(frozen=True, slots=True)
class Diagnostic:
    code: str  # `unknown-event`; every code has an entry in the docs and a golden example
    span: Span
    message: str
    hint: str | None = None
    severity: OneOf["error", "warning"] = "error"

    def __post_init__(self) -> None:
        assert self.code in (ERRORS if self.severity == "error" else WARNINGS), f"{self.code} is not in codes.py"

    def __str__(self) -> str:
        return self.render()

    def render(self) -> str:
        lines = [printable(f"{self.span.place}: {self.severity}[{self.code}]: {self.message}")]
        if self.span.source.is_read:
            lines += self._excerpt()
        if self.hint:
            lines.append(printable(f"  hint: {self.hint}"))
        return "\n".join(lines)

    def _excerpt(self) -> list[str]:
        """The source line and a caret under the place; of a long line, the part around it."""
        source = self.span.source
        line, column = source.line_column(self.span.start)
        text = source.line(line).rstrip("\r")
        first = max(0, column - 1 - SHOWN_WIDTH // 2) if column > SHOWN_WIDTH else 0
        cells = [TAB if one == "\t" else printable(one) for one in text[first : first + SHOWN_WIDTH]]
        start = column - 1 - first
        marked = cells[start : start + max(1, self.span.end - self.span.start)]
        gutter = len(str(line))
        return [
            f"  {line} | {''.join(cells)}".rstrip(),
            f"  {' ' * gutter} | {' ' * _columns(cells[:start])}{'^' * max(1, _columns(marked))}",
        ]

    def to_json(self) -> dict[str, Any]:
        source = self.span.source
        line, column = source.line_column(self.span.start)
        end_line, end_column = source.line_column(max(self.span.end, self.span.start))
        return {
            "severity": self.severity,
            "code": self.code,
            "file": printable(source.name),
            "line": line,
            "column": column,
            "end_line": end_line,
            "end_column": end_column,
            "message": printable(self.message),
            "hint": printable(self.hint) if self.hint is not None else None,
        }


def _columns(cells: list[str]) -> int:
    """How wide a terminal shows them: East Asian characters take two columns, combining ones none."""
    return sum(0 if combining(one) else 2 if east_asian_width(one) in "WF" else 1 for cell in cells for one in cell)


class ProgramError(ForetellError):
    """Every mistake of a program, in the order of the files and lines; warnings come along."""

    def __init__(self, diagnostics: Sequence[Diagnostic]) -> None:
        assert any(one.severity == "error" for one in diagnostics), "a ProgramError names at least one error"
        self.diagnostics = tuple(diagnostics)
        shown = self.diagnostics
        if len(shown) > SHOWN_DIAGNOSTICS:
            shown = tuple(one for one in shown if one.severity == "error")[:SHOWN_DIAGNOSTICS]
        lines = [one.render() for one in shown]
        if len(shown) < len(self.diagnostics):
            lines.append(f"… and {len(self.diagnostics) - len(shown)} more")
        super().__init__("\n".join(lines))
