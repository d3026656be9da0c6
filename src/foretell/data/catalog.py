"""The data sets that ship inside the package: a name → the folder that holds them."""

from __future__ import annotations

from pathlib import Path

EMBEDDED = Path(__file__).parent / "embedded"


def names() -> tuple[str, ...]:
    """The names that `load` knows without a file."""
    return tuple(sorted(path.parent.name for path in EMBEDDED.glob("*/dataset.toml")))


def folder(name: str) -> Path | None:
    """The folder of an embedded data set, or None if there is none of this name."""
    return EMBEDDED / name if name in names() else None
