"""Elements of a page, made so that nothing can be forgotten: text is escaped unless an element was made of it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from html import escape
from typing import Any

VOID = ("br", "link", "meta", "input")


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def element(name: str, /, *children: str, **attributes: str | int | float | bool | None) -> Markup:
    """`class_` is the attribute `class`, `aria_label` is `aria-label`; True: an attribute without a value; None or False: none."""
    written = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{escape(str(value), quote=True)}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if name in VOID:
        return Markup(f"<{name}{written}>")
    return Markup(f"<{name}{written}>{joined(*children)}</{name}>")


def joined(*children: str) -> Markup:
    return Markup("".join(child if isinstance(child, Markup) else escape(child) for child in children))


def embedded_json(value: Any) -> Markup:
    """JSON that may stand inside a `script` element: no character of it can end the element."""
    text = json.dumps(plain(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(text)


def plain(value: Any) -> Any:
    """Numbers with five digits, which is more than a picture shows; what is not a finite number is null."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):  # an array, or one of its numbers
        return plain(value.tolist())
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        short = float(f"{value:.12g}" if isinstance(value, Precise) else f"{value:.5g}")
        return int(short) if short == int(short) and abs(short) < 1e15 else short
    return value


class Precise(float):
    """A number of which a page keeps twelve digits: a time, say, late on a long clock."""

    __slots__ = ()


def precise(values: Iterable[float]) -> list[Precise]:
    return [Precise(value) for value in values]
