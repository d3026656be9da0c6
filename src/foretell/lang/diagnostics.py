"""Mistakes in a program: each has a stable code, a place, a message and a hint, and is rendered with the source line and a caret."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from typing import Literal as OneOf
from unicodedata import combining, east_asian_width

from foretell.errors import ForetellError
from foretell.lang.source import Span
from foretell.wording import printable

ERRORS = {
    # mistakes in the text
    "syntax": "a word or sign stands where it cannot",
    "missing-full-stop": "a statement does not end",
    "missing-comma": "two arguments or conditions stand side by side",
    "unclosed-parenthesis": "a parenthesis is opened and not closed",
    "stray-parenthesis": "a parenthesis is closed that was not opened",
    "unclosed-quote": "a quote is opened and not closed on its line",
    "empty-arguments": "parentheses without arguments",
    "upper-case-functor": "a variable stands where a functor is expected",
    "nested-term": "a term inside a term",
    "bad-word": "neither a name nor an integer",
    "fractional-number": "a number with a fraction",
    "arithmetic": "there is no arithmetic",
    "odd-character": "a character that means nothing in the language",
    "comment-sign": "a comment of another language",
    "unknown-arrow": "an arrow of another language",
    "wrong-arrow": "`:-` where `<-` was meant, or the other way round",
    "disjunction": "there is no `or`",
    "negation-sign": "a negation of another language, or where none can be",
    "comparison-sign": "a comparison of another language",
    "bad-range": "`1..5` or `a(x; y)` that stands for no facts or heads",
    "not-a-number": "a name where integers are compared",
    "bad-duration": "`for` with no duration, or where nothing is added",
    "bad-count": "a count, `min` or `max` that says nothing",
    "parameter-names": "names of parameters that are misplaced, missing or too many",
    "too-many-errors": "so many mistakes that the rest of the file was not read",
    # mistakes about files
    "missing-file": "a program, include or table that does not exist",
    "unreadable-file": "a file that cannot be read as what it should be",
    "outside-folder": "an include or table outside the program's folder",
    "include-cycle": "a file that includes itself",
    "include-twice": "a file that is included, or read as one table, twice",
    "bad-table": "a table with rows that are no facts",
    # mistakes in declarations
    "unknown-declaration": "a declaration that does not exist",
    "bad-declaration": "a declaration with the wrong arguments",
    "bad-dimension": "a dimension that is no whole number in range",
    "no-place-for-features": "features of something that is not an event, or has no embedding",
    "declared-twice": "two declarations that contradict each other",
    "reserved-name": "`bos` or `eos` as a name of the program's own",
    # mistakes in rules
    "unbound-head": "a head variable that the body does not bind",
    "unbound-name": "a variable in a parameter name that the body does not bind",
    "unbound-negation": "a variable under `not` that nothing else binds",
    "unbound-comparison": "a compared variable that nothing binds",
    "unbound-count": "a variable in a count that nothing else binds",
    "event-first": "a `<-` rule that does not begin with an event",
    "unknown-event": "a `<-` rule whose event nothing declares",
    "never-true": "a condition that nothing can ever make true",
    "negation-cycle": "something that depends on its own absence",
    "automatic-name": "a parameter named as those of a rule are by themselves",
    "shape-clash": "one parameter name for matrices of two shapes",
}
WARNINGS = {
    "two-arities": "a name with different numbers of arguments: a functor for each",
    "used-once": "a variable that is used once: a typo?",
    "never-fires": "a rule whose conditions contradict each other",
    "removes-nothing": "the removal of what nothing adds",
    "event-never-possible": "an event that no rule makes possible",
    "constant-rate": "an event of dimension 0, whose rate nothing can change",
    "unused-declaration": "a declaration of what is used nowhere",
    "unused-name": "a parameter name that names nothing",
    "event-as-condition": "an event as a condition of `:-`: it is possible, not past",
    "declaration-as-fact": "a fact that looks like a declaration without its `:-`",
    "repeated-rule": "a fact or rule that is there twice",
    "cyclic-proof": "recursion through facts with embeddings, whose proofs may be cyclic",
    "duplicate-row": "a row that a table has twice",
    "empty-table": "a table with a header and no rows",
    "doubtful-table": "a table without a header, or with semicolons, by the look of it",
}


SHOWN_WIDTH = 160  # the largest number of characters of a source line that is shown
SHOWN_DIAGNOSTICS = 200
TAB = "    "


@dataclass(frozen=True, slots=True)
class Diagnostic:
    code: str  # for example `unknown-event`; every code has an entry in the docs and a golden example
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
        """Return the source line and a caret under the place. Long lines are cut around the place."""
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
    """Return the width in terminal columns: East Asian characters take two columns, combining characters none."""
    return sum(0 if combining(one) else 2 if east_asian_width(one) in "WF" else 1 for cell in cells for one in cell)


class ProgramError(ForetellError):
    """Raised with all mistakes of a program, sorted by file and line, and with its warnings.

    Args:
        diagnostics: mistakes and warnings, each with a stable `code`, a place, a message and often a hint.

    Example:
        >>> try:
        ...     ft.Program.from_text("user(ann). buy(U) <- users(U).")
        ... except ft.ProgramError as error:
        ...     sorted({one.code for one in error.diagnostics})
        ['unknown-event']
    """

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
