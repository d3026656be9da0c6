"""Run the tests that need a CUDA device, and record date, machine, commit and counts.

    make test-gpu                                            # here
    python benchmarks/gpu_tests.py --commit 1a2b3c4          # a machine that has the tree without its git folder
    python benchmarks/gpu_tests.py --add record.json         # a record that was made on another machine

A record is one line of `results/gpu-tests.jsonl`; `gpu-tests.md` shows the last records. Only files with such tests are collected, so
pytest, torch, numpy, safetensors, lark and tomli-w are enough. `--carry FOLDER` copies the pure Python packages among these into a folder,
which a machine without a network can put on its PYTHONPATH.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import platform
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RECORDS, PAGE = ROOT / "benchmarks" / "results" / "gpu-tests.jsonl", ROOT / "benchmarks" / "gpu-tests.md"
CARRIED = ("pytest", "pluggy", "iniconfig", "packaging", "pygments", "lark", "tomli-w")
SHOWN = 10


class Counts:
    """A pytest plugin that counts the outcomes of tests."""

    def __init__(self) -> None:
        self.ends: dict[str, str] = {}
        self.failed: list[str] = []

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "call" or report.outcome != "passed":
            self.ends[report.nodeid] = report.outcome
        if report.failed:
            self.failed.append(report.nodeid)

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.failed.append(report.nodeid)


def test_files() -> list[str]:
    found = (
        path for path in sorted((ROOT / "tests").rglob("test_*.py")) if "mark.gpu" in path.read_text(encoding="utf-8")
    )
    return [str(path.relative_to(ROOT)) for path in found]


def commit() -> str:
    made = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return made.stdout.strip() or "unknown"


def run(named: str | None) -> dict[str, Any]:
    import pytest
    import torch

    if not torch.cuda.is_available():
        raise SystemExit("no CUDA device here: nothing was run, nothing is recorded")
    counts, began = Counts(), time.monotonic()
    arguments = ["-q", "-p", "no:cacheprovider", "-m", "gpu", *test_files()]
    code = int(pytest.main(["--rootdir", str(ROOT), *arguments], plugins=[counts]))
    ends = list(counts.ends.values())
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "commit": named or commit(),
        "machine": torch.cuda.get_device_name(0),
        "torch": torch.__version__,
        "python": platform.python_version(),
        **{end: ends.count(end) for end in ("passed", "failed", "skipped")},
        "seconds": round(time.monotonic() - began, 1),
        "exit": code,
        "failures": counts.failed,
    }


def add(record: dict[str, Any]) -> None:
    with RECORDS.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")
    PAGE.write_text(
        page([json.loads(line) for line in RECORDS.read_text(encoding="utf-8").splitlines()]), encoding="utf-8"
    )


def page(records: list[dict[str, Any]]) -> str:
    lines = [
        "# Tests on a GPU",
        "",
        "<!-- made by benchmarks/gpu_tests.py; do not edit -->",
        "",
        "Tests that need a CUDA device are not among those that run on every change. `make test-gpu` runs them and adds a line",
        "here, the last one first; every record is in `results/gpu-tests.jsonl`.",
        "",
        "| date | commit | machine | torch | passed | failed | skipped | seconds |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for one in records[: -SHOWN - 1 : -1]:
        cells = [one[key] for key in ("date", "commit", "machine", "torch", "passed", "failed", "skipped", "seconds")]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    if records and records[-1]["failures"]:
        lines += ["", "Failed the last time: " + ", ".join(f"`{name}`" for name in records[-1]["failures"]) + "."]
    return "\n".join(lines) + "\n"


def carry(folder: Path) -> None:
    for name in CARRIED:
        for file in importlib.metadata.files(name) or ():
            if file.suffix in (".py", ".lark", ".typed") and ".." not in file.parts:
                target = folder / file
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file.locate(), target)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--commit", help="what is tested, where there is no git folder")
    parser.add_argument("--out", type=Path, help="write the record to this file instead of adding it here")
    parser.add_argument("--add", type=Path, help="run nothing: add this record")
    parser.add_argument("--carry", type=Path, help="run nothing: copy the pure-Python packages that the tests need")
    options = parser.parse_args()
    if options.carry:
        carry(options.carry)
        return 0
    record = json.loads(options.add.read_text(encoding="utf-8")) if options.add else run(options.commit)
    if options.out:
        options.out.write_text(json.dumps(record) + "\n", encoding="utf-8")
    else:
        add(record)
    return 0 if options.add else record["exit"]


if __name__ == "__main__":
    sys.exit(main())
