"""The programs that ship inside the package: a name → its file. Each is for the embedded data of the same name."""

from __future__ import annotations

from pathlib import Path

SHIPPED = Path(__file__).parents[1] / "programs"
SUFFIX = ".ndtt"


def names() -> tuple[str, ...]:
    """The names that stand for a program without a file."""
    return tuple(sorted(path.stem for path in SHIPPED.glob(f"*{SUFFIX}")))


def file_of(name: str) -> Path | None:
    """The file of a shipped program, or None if there is none of this name."""
    return SHIPPED / f"{name}{SUFFIX}" if name in names() else None
