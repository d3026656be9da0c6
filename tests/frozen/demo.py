"""`foretell demo` as it was: its table, the scores of both runs at full digits, and what each epoch gave.

    python -m tests.frozen.demo    writes demo.json anew

It trains in float32 for many epochs, so another processor may give other last digits than the one that wrote it.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from tests.cli.invoking import process
from tests.frozen.cases import Found, records
from tests.frozen.numbers import one_thread

FILE = Path(__file__).with_name("demo.json")
LONGEST = 300.0  # seconds; one minute is usual
PLACES = "runs:", "pictures:"  # lines that name folders


def shown(folder: Path) -> Found:
    """What a demo prints and leaves."""
    with one_thread():
        child = process("demo", "--quiet", "--out", folder)
        out, err = child.communicate(timeout=LONGEST)
    assert child.returncode == 0, err
    lines = [line for line in out.splitlines() if not line.startswith(PLACES)]
    return {"printed": lines, **{kind: _run(folder / kind) for kind in ("anhp", "andtt")}}


def _run(folder: Path) -> Found:
    epochs = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    scores = json.loads((folder / "evaluation.json").read_text(encoding="utf-8"))
    return {"scores": scores, "records": records(epochs)}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        FILE.write_text(json.dumps(shown(Path(folder)), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
