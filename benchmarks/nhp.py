"""Our NHP beside EasyTPP's: milliseconds and peak memory of a training step, both sides in turns in one run.

    python benchmarks/nhp.py                                          # ours alone, on made-up sequences
    python benchmarks/nhp.py --rival-python ENV/bin/python            # both; ENV has easy-tpp
    python benchmarks/nhp.py --device cuda --rival-path carry/easytpp # both, by this interpreter

Every case is measured `--rounds` times on each side, in turns, each time in a process of its own; the table shows medians over all
steps. `--out FILE` keeps every measurement as JSON lines. How a step is measured is in `measuring.py`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from anhp import HERE, measured

CASES = ("16,1", "64,1", "256,1", "16,20", "64,20")
OURS, RIVAL = "ours_nhp.py", "rival_easytpp_nhp.py"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="an npz of make_batch.py; default: made-up sequences")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rival-python", help="an interpreter that has easy-tpp")
    parser.add_argument("--rival-path", help="a folder with easy_tpp for this interpreter (see rival_carry.sh)")
    parser.add_argument("--case", action="append", metavar="BATCH,POINTS", help="may be repeated")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    sides = [(OURS, sys.executable, None)]
    if args.rival_python or args.rival_path:
        sides.append((RIVAL, args.rival_python or sys.executable, args.rival_path))
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        data = args.data or str(Path(folder) / "batch.npz")
        if not args.data:
            subprocess.run([sys.executable, str(HERE / "make_batch.py"), "--out", data], check=True)
        for case in args.case or CASES:
            for _ in range(args.rounds):
                for script, python, path in sides:
                    found.append(measured(script, python, path, case, data, args.device, args.repeats))
            sys.stdout.write(line(case, [script for script, _, _ in sides], found) + "\n")
            sys.stdout.flush()
    if args.out is not None:
        args.out.write_text("".join(json.dumps(one) + "\n" for one in found), encoding="utf-8")
    return int(any("error" in one for one in found))


def line(case: str, scripts: list[str], found: list[dict[str, Any]]) -> str:
    """One row of the table: medians of both sides, and their ratios."""
    batch, points = (int(part) for part in case.split(","))
    text, medians = f"{case:>8}", []
    for script in scripts:
        mine = [one for one in found if (one["script"], one["batch"], one["points"]) == (script, batch, points)]
        fine = [one for one in mine if "error" not in one]
        if not fine:
            return f"{text}  {script}: {mine[-1]['error']}"
        ms = statistics.median(value for one in fine for value in one["ms"])
        processor = statistics.median(one["median_user_ms"] + one["median_system_ms"] for one in fine)
        memory = statistics.median(one["peak_bytes"] for one in fine) / 2**20
        medians.append((ms, processor, memory))
        text += f"  {'ours' if script == OURS else 'rival'} {ms:9.2f} ms {memory:6.0f} MiB"
    if len(medians) == 2:
        (ours, our_processor, our_memory), (rival, their_processor, their_memory) = medians
        text += f"  {rival / ours:5.1f} x faster ({their_processor / our_processor:4.1f} x less processor time)"
        text += f"  {their_memory / our_memory:5.1f} x less memory"
    return text


if __name__ == "__main__":
    sys.exit(main())
