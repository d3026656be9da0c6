"""Programs from a test: read fine, or with the codes of what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from foretell.lang.diagnostics import Diagnostic, ProgramError
from foretell.lang.load import ParseResult, parse
from foretell.lang.program import Program
from foretell.lang.source import Source
from foretell.lang.syntax import Statement


def program(text: str, **options: Any) -> Program:
    return Program.from_text(text, "p.ndtt", **options)


def diagnostics(text: str, **options: Any) -> tuple[Diagnostic, ...]:
    """Errors, or the warnings of a program that is fine."""
    try:
        return program(text, **options).warnings
    except ProgramError as error:
        return error.diagnostics


def codes(text: str, **options: Any) -> list[str]:
    return [one.code for one in diagnostics(text, **options)]


def errors(text: str, **options: Any) -> list[str]:
    return [one.code for one in diagnostics(text, **options) if one.severity == "error"]


def warnings(text: str, **options: Any) -> list[str]:
    return [one.code for one in diagnostics(text, **options) if one.severity == "warning"]


def parsed(text: str) -> ParseResult:
    return parse(Source("p.ndtt", text))


def statements(text: str) -> tuple[Statement, ...]:
    found = parsed(text)
    assert not found.errors, "\n".join(one.render() for one in found.errors)
    return found.file.statements


def marked(one: Diagnostic) -> str:
    """The text under the caret."""
    return one.span.source.text[one.span.start : one.span.end]


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
