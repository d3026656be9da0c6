"""The parsed attributes of an XES file → columns: numbers or dates if all values are, else text as codes."""

from __future__ import annotations

import json

import numpy as np

from foretell.data.columns import Attribute
from foretell.data.sources.xes_parser import CellsByKind
from foretell.data.tables import CodedColumn
from foretell.data.timestamps import parse_times

LARGEST_EXACT = 2.0**53  # the largest integer such that all smaller ones are exact in float64


def coded_text(cells: CellsByKind, key: str, rows: int) -> CodedColumn:
    """Return an attribute of any kind as text; "" is missing."""
    found = _met(cells, key)
    if found is None:
        return CodedColumn(np.zeros(rows, dtype=np.int64), [""])
    row, code, texts, _ = found
    codes, texts = _spread(row, code, texts, rows)
    return CodedColumn(np.where(codes < 0, len(texts), codes), [*texts, ""])


def typed_column(cells: CellsByKind, key: str, rows: int) -> Attribute | None:
    """Return an attribute as numbers or dates if all values are and no row has several, else as text; None if it has no values."""
    found = _met(cells, key)
    if found is None:
        return None
    row, code, texts, kinds = found
    single = not (row[1:] == row[:-1]).any()
    numbers = _numbers(texts, kinds) if single and kinds <= {"int", "float"} else None
    if numbers is not None:
        full = np.full(rows, np.nan)
        full[row] = numbers[code]
        return Attribute(full.astype(np.int64) if kinds == {"int"} and len(row) == rows else full)
    if single and kinds == {"date"} and (parsed := parse_times(texts)).valid.all():
        dates = np.full(rows, "NaT", dtype="datetime64[ns]")
        dates[row] = parsed.instants.astype("datetime64[ns]")[code]
        return Attribute(dates)
    codes, texts = _spread(row, code, texts, rows)
    return Attribute(codes.astype(np.min_scalar_type(-max(len(texts), 1))), tuple(texts))  # smallest dtype, often int8


def _numbers(texts: list[str], kinds: set[str]) -> np.ndarray | None:
    """Return texts as float64; None if a text is no number, or an integer that float64 cannot represent exactly."""
    try:
        numbers = np.array(texts, dtype=np.float64)
    except ValueError:
        return None
    exact = (np.abs(numbers) <= LARGEST_EXACT).all() if "int" in kinds else np.isfinite(numbers).all()
    return numbers if exact else None


def _met(cells: CellsByKind, key: str) -> tuple[np.ndarray, np.ndarray, list[str], set[str]] | None:
    """Return rows, codes, distinct texts and kinds of an attribute's values, over all of its kinds; empty text and `nan` are missing."""
    kinds = {tag.rpartition(":")[2]: found[key] for tag, found in cells.items() if key in found}
    texts: dict[str, int] = {}
    rows, codes, used = [], [], set()
    for kind, one in kinds.items():
        at = np.array([_code(kind, text, texts) for text in one.table], dtype=np.int64)
        code = at[np.frombuffer(one.codes, dtype=np.int32)]
        rows.append(np.frombuffer(one.rows, dtype=np.int64)[code >= 0])
        codes.append(code[code >= 0])
        used |= {kind} if len(codes[-1]) else set()
    if not used:
        return None
    row, code = np.concatenate(rows), np.concatenate(codes)
    if len(kinds) > 1:
        order = np.argsort(row, kind="stable")
        row, code = row[order], code[order]
    return row, code, list(texts), used


def _code(kind: str, text: str, texts: dict[str, int]) -> int:
    if not text or (kind == "float" and text.lower() == "nan"):
        return -1
    if kind == "float" and text.endswith(".0"):
        text = text[:-2]  # tools that write from tables turn the integer 112 into 112.0 if values are missing
    return texts.setdefault(text, len(texts))


def _spread(row: np.ndarray, code: np.ndarray, texts: list[str], rows: int) -> tuple[np.ndarray, list[str]]:
    """Return a code per row, -1 for missing, and the texts. Several values in one row (a list) become one JSON text."""
    full = np.full(rows, -1, dtype=np.int32)
    full[row] = code
    again = row[1:] == row[:-1]
    if not again.any():
        return full, texts
    several = np.unique(row[1:][again])
    first, last = np.searchsorted(row, several), np.searchsorted(row, several, side="right")
    known = {text: place for place, text in enumerate(texts)}
    for at, start, stop in zip(several.tolist(), first.tolist(), last.tolist(), strict=True):
        items = json.dumps([texts[one] for one in code[start:stop].tolist()], ensure_ascii=False)
        full[at] = known.setdefault(items, len(known))
    return full, list(known)
