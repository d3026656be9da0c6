"""Runs two scripts in turns, ours and a rival's: takes their names and the cases, and prints a table with a line per case."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def compare(
    description: str | None, ours: str, rival: str, cases: Sequence[str], repeats: int = 15, models: Sequence[str] = ()
) -> int:
    """Compare two scripts of this folder; with `models`, both scripts run for each of them, with its name in the variable `MODEL`."""
    args = _parser(description, repeats, models).parse_args()
    sides = [(ours, sys.executable, None)]
    if args.rival_python or args.rival_path:
        sides.append((rival, args.rival_python or sys.executable, args.rival_path))
    every: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        data = args.data or str(Path(folder) / "batch.npz")
        if not args.data:
            subprocess.run([sys.executable, str(HERE / "make_batch.py"), "--out", data], check=True)
        for model in (args.model or models) if models else (None,):
            if model is not None:
                os.environ["MODEL"] = model  # the contestants' processes read it
            for case in args.case or cases:
                found: dict[str, list[dict[str, Any]]] = {script: [] for script, _, _ in sides}
                for _ in range(args.rounds):
                    for script, python, path in sides:
                        one = measured(script, python, path, case, data, args.device, args.repeats)
                        found[script].append(one)
                        every.append(one)
                start = f"{case:>8}" if model is None else f"{model:>4} {case:>8}"
                sys.stdout.write(f"{start}  {line(found)}\n")
                sys.stdout.flush()
    if args.out is not None:
        args.out.write_text("".join(json.dumps(one) + "\n" for one in every), encoding="utf-8")
    return int(any("error" in one for one in every))


def _parser(description: str | None, repeats: int, models: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="an npz of make_batch.py; default: made-up sequences")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rival-python", help="an interpreter that has easy-tpp")
    parser.add_argument("--rival-path", help="a folder with easy_tpp for this interpreter (see rival_carry.sh)")
    if models:
        parser.add_argument("--model", action="append", choices=models, help="may be repeated")
    parser.add_argument("--case", action="append", metavar="BATCH,POINTS", help="may be repeated")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=repeats)
    parser.add_argument("--out", type=Path)
    return parser


def measured(
    script: str, python: str, path: str | None, case: str, data: str, device: str, repeats: int
) -> dict[str, Any]:
    environment = {"OMP_WAIT_POLICY": "passive", **os.environ}
    if path is not None:
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [path, os.environ.get("PYTHONPATH", "")]))
    warmup = "5" if device == "cuda" else "1"
    command = [python, str(HERE / script), "--data", data, "--device", device, "--case", case]
    done = subprocess.run(
        [*command, "--repeats", str(repeats), "--warmup", warmup],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    batch, points = (int(part) for part in case.split(","))
    answer = json.loads(done.stdout.splitlines()[-1]) if done.stdout.strip() else {"error": f"status {done.returncode}"}
    return {"script": script, "batch": batch, "points": points, **answer}


def line(found: dict[str, list[dict[str, Any]]]) -> str:
    """Return one row of the table: medians of our script and, if it ran, of the rival's, and their ratios."""
    text, medians = [], []
    for side, (script, measurements) in zip(("ours", "rival"), found.items(), strict=False):
        fine = [one for one in measurements if "error" not in one]
        if not fine:
            return "  ".join([*text, f"{script}: {measurements[-1]['error']}"])
        ms = statistics.median(value for one in fine for value in one["ms"])
        processor = statistics.median(one["median_user_ms"] + one["median_system_ms"] for one in fine)
        memory = statistics.median(one["peak_bytes"] for one in fine) / 2**20
        medians.append((ms, processor, memory))
        text.append(f"{side} {ms:9.2f} ms {memory:8.0f} MiB")
    if len(medians) == 2:
        faster, processor, memory = (theirs / our for our, theirs in zip(*medians, strict=True))
        text.append(f"{faster:5.1f} x faster ({processor:4.1f} x less processor time)  {memory:5.1f} x less memory")
    return "  ".join(text)
