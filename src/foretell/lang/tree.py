"""A syntax tree as plain lists and dicts, and as lines of text; printed by `foretell check --show ast`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from foretell.lang.source import Source, Span


def tree(node: object) -> Any:
    """Convert dataclasses to dicts with their class names. Places are left out, except for the line of a statement."""
    if is_dataclass(node) and not isinstance(node, type):
        found: dict[str, Any] = {"node": type(node).__name__}
        for one in fields(node):
            value = getattr(node, one.name)
            if not isinstance(value, Span | Source) and not (value is None and one.name in ("duration", "log")):
                found[one.name] = tree(value)
        return found
    return [tree(one) for one in node] if isinstance(node, tuple | list) else node


def tree_lines(value: Any, indent: int = 0) -> Iterator[str]:
    """Yield one line per node with its plain fields, followed by the lines of its children."""
    pad = "  " * indent
    if isinstance(value, list):
        for one in value:
            yield from tree_lines(one, indent)
        return
    plain = {name: one for name, one in value.items() if name != "node" and not isinstance(one, list | dict)}
    words = " ".join(f"{name}={one}" for name, one in plain.items() if one is not None and one is not False)
    yield f"{pad}{value['node']} {words}".rstrip()
    for name, one in value.items():
        if isinstance(one, list | dict) and one:
            yield f"{pad}  {name}:"
            yield from tree_lines(one, indent + 2)
