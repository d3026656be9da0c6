"""Diagnostics of programs → a SARIF 2.1.0 log, which code hosts and editors show beside the lines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from foretell.lang.diagnostics import ERRORS, WARNINGS, Diagnostic
from foretell.wording import printable

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def sarif(found: Sequence[Diagnostic], version: str) -> dict[str, Any]:
    """Return a log with one run. Its rules are the codes that were found. Columns count UTF-16 units, the default of SARIF."""
    codes = sorted({one.code for one in found})
    rules = [
        {
            "id": code,
            "shortDescription": {"text": {**ERRORS, **WARNINGS}[code]},
            "defaultConfiguration": {"level": "error" if code in ERRORS else "warning"},
        }
        for code in codes
    ]
    driver = {"name": "foretell", "version": version, "rules": rules}
    results = [_result(one, codes.index(one.code)) for one in found]
    run = {"tool": {"driver": driver}, "columnKind": "utf16CodeUnits", "results": results}
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _result(one: Diagnostic, rule: int) -> dict[str, Any]:
    text = printable(one.message) + (f"\nhint: {printable(one.hint)}" if one.hint else "")
    location: dict[str, Any] = {"artifactLocation": {"uri": _uri(one.span.source.name)}}
    if one.span.source.is_read:
        location["region"] = _region(one)
    return {
        "ruleId": one.code,
        "ruleIndex": rule,
        "level": one.severity,
        "message": {"text": text},
        "locations": [{"physicalLocation": location}],
    }


def _region(one: Diagnostic) -> dict[str, int]:
    names = ("startLine", "startColumn"), ("endLine", "endColumn")
    found: dict[str, int] = {}
    for (line_name, column_name), offset in zip(names, (one.span.start, one.span.end), strict=True):
        line, column = one.span.source.line_column(offset)
        before = one.span.source.line(line)[: column - 1]
        found |= {line_name: line, column_name: utf16_length(before) + 1}
    return found


def utf16_length(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def _uri(name: str) -> str:
    path = Path(name)
    return path.as_uri() if path.is_absolute() else quote(path.as_posix())
