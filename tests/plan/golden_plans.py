"""The plan of every shipped program on its example data, as text. Written anew by `.venv/bin/python -m tests.plan.golden_plans`."""

from __future__ import annotations

import sys
from pathlib import Path

from foretell.lang.load import SHIPPED
from tests.cli.invoking import fine

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent / "golden"
FILES = {path.stem: path for folder in (ROOT / "programs", SHIPPED) for path in sorted(folder.glob("*.ndtt"))}


def example(name: str) -> list[object]:
    """The data that a program comes with."""
    own = FILES[name].parent / name / "example.jsonl"
    return [own] if own.exists() else [name, "--split", "test"]


def planned(name: str) -> str:
    return fine("plan", FILES[name], *example(name), "--dim", 8, "--layers", 2).out


def main() -> None:
    HERE.mkdir(exist_ok=True)
    for name in FILES:
        text = planned(name)
        path = HERE / f"{name}.plan"
        was = path.read_text(encoding="utf-8") if path.exists() else ""
        path.write_text(text, encoding="utf-8")
        sys.stdout.write(
            f"{path.relative_to(ROOT)}: {'as it was' if text == was else 'changed: read the difference'}\n"
        )


if __name__ == "__main__":
    main()
