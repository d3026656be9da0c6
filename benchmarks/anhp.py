"""Our A-NHP beside EasyTPP's AttNHP: milliseconds and peak memory of a training step, both sides in turns in one run.

    python benchmarks/anhp.py                                          # ours alone, on made-up sequences
    python benchmarks/anhp.py --rival-python ENV/bin/python            # both; ENV has easy-tpp
    python benchmarks/anhp.py --device cuda --rival-path carry/easytpp # both, by this interpreter

Every case is measured `--rounds` times on each side, in turns, each time in a process of its own; the table shows medians over all
steps. `--out FILE` keeps every measurement as JSON lines. How a step is measured is in `measuring.py`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
CASES = ("16,1", "64,1", "256,1", "1024,1", "16,20", "64,20", "256,20", "1024,20")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="an npz of make_batch.py; default: made-up sequences")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rival-python", help="an interpreter that has easy-tpp")
    parser.add_argument("--rival-path", help="a folder with easy_tpp for this interpreter (see rival_carry.sh)")
    parser.add_argument("--case", action="append", metavar="BATCH,POINTS", help="may be repeated")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    cases = args.case or list(CASES)
    with tempfile.TemporaryDirectory() as folder:
        data = args.data or str(Path(folder) / "batch.npz")
        if not args.data:
            subprocess.run([sys.executable, str(HERE / "make_batch.py"), "--out", data], check=True)
        found: list[dict[str, Any]] = []
        for case in cases:
            for _ in range(args.rounds):
                found.append(measured("ours_anhp.py", sys.executable, None, case, data, args.device, args.repeats))
                if args.rival_python or args.rival_path:
                    python = args.rival_python or sys.executable
                    found.append(
                        measured("rival_easytpp.py", python, args.rival_path, case, data, args.device, args.repeats)
                    )
            sys.stdout.write(line(case, found) + "\n")
            sys.stdout.flush()
    if args.out is not None:
        args.out.write_text("".join(json.dumps(one) + "\n" for one in found), encoding="utf-8")
    return int(any("error" in one for one in found))


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


def line(case: str, found: list[dict[str, Any]]) -> str:
    """One row of the table: medians of both sides, and their ratios."""
    batch, points = (int(part) for part in case.split(","))
    sides = {}
    for script in ("ours_anhp.py", "rival_easytpp.py"):
        mine = [one for one in found if (one["script"], one["batch"], one["points"]) == (script, batch, points)]
        fine = [one for one in mine if "error" not in one]
        if fine:
            sides[script] = (
                statistics.median(ms for one in fine for ms in one["ms"]),
                statistics.median(one["median_user_ms"] + one["median_system_ms"] for one in fine),
                statistics.median(one["peak_bytes"] for one in fine) / 2**20,
            )
        elif mine:
            return f"{case:>8}  {script}: {mine[-1]['error']}"
    ours = sides["ours_anhp.py"]
    text = f"{case:>8}  ours {ours[0]:9.2f} ms {ours[2]:8.0f} MiB"
    if "rival_easytpp.py" in sides:
        rival = sides["rival_easytpp.py"]
        text += f"  rival {rival[0]:9.2f} ms {rival[2]:8.0f} MiB  {rival[0] / ours[0]:5.1f} x faster"
        text += f" ({rival[1] / ours[1]:4.1f} x less processor time)  {rival[2] / ours[2]:5.1f} x less memory"
    return text


if __name__ == "__main__":
    sys.exit(main())
