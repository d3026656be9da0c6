"""Dev scores against evaluations: runs in, a table out. The first run is what the others are measured against.

    python experiments/nce/curve.py runs/mle runs/nce [--within 0.02] [--json]

For each run: its best dev score, what it had evaluated by then, and when it first came within so many nats of the first run's best.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from foretell.train.run import RunFolder


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--within", type=float, default=0.02, help="nats an event below the first run's best")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    records = {str(path): RunFolder.open(path).metrics() for path in args.runs}
    found = summaries(records, args.within)
    if args.json:
        sys.stdout.write(json.dumps(found, indent=1) + "\n")
        return 0
    for name, one in found.items():
        sys.stdout.write(f"{name}\n   best    {_line(one['best'])}\n")
        reached = _line(one["reached"]) if one["reached"] else "never"
        sys.stdout.write(f"   within {args.within:g} nats of the first run's best: {reached}\n")
        for record in one["curve"]:
            sys.stdout.write(f"      {_line(record)}\n")
    return 0


def summaries(records: dict[str, list[dict[str, Any]]], within: float) -> dict[str, dict[str, Any]]:
    """By run: its best epoch, the first that is good enough, and all that were better than those before them."""
    curves = {name: [_short(one) for one in lines] for name, lines in records.items()}
    goal = max(one["dev"] for one in next(iter(curves.values()))) - within
    found = {}
    for name, curve in curves.items():
        better = [one for place, one in enumerate(curve) if all(one["dev"] > past["dev"] for past in curve[:place])]
        reached = next((one for one in better if one["dev"] >= goal), None)
        found[name] = {"best": better[-1], "reached": reached, "curve": better}
    return found


def _short(record: dict[str, Any]) -> dict[str, Any]:
    return {name: record[name] for name in ("epoch", "dev", "states", "intensities")}


def _line(one: dict[str, Any]) -> str:
    return f"dev {one['dev']:8.4f}   epoch {one['epoch']:3d}   {one['states']:13,} states   {one['intensities']:15,} intensities"


if __name__ == "__main__":
    raise SystemExit(main())
