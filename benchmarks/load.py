"""Time to load a log, and its memory per event: `python benchmarks/load.py FOLDER… [--rounds 5] [--out results/NAME.jsonl]`.

Each measurement is a separate process on one core. For comparison, each result has the least that any reader with expat must do: unpack
the same bytes and parse them with callbacks that do nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

ONE = """
import json, resource, sys, time
from pathlib import Path
import numpy
from foretell.data import load
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
wall, cpu = time.perf_counter(), time.process_time()
dataset = load(sys.argv[1])
wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
def size(column):
    return column.values.nbytes + sum(map(sys.getsizeof, column.categories or ()))
events = held = 0
for data in dataset.splits().values():
    columns = data.columns
    events += data.event_count
    arrays = (columns.times, columns.types, columns.offsets, columns.t_ends, columns.starts, columns.ends_assumed)
    held += sum(one.nbytes for one in arrays if one is not None) + sum(map(sys.getsizeof, columns.ids))
    held += sum(map(size, (*columns.attributes.values(), *columns.sequence_attributes.values())))
print(json.dumps({"wall_s": wall, "cpu_s": cpu, "events": events, "bytes_per_event": held / events, "peak_mib": peak / 1024}))
"""
FLOOR = """
import gzip, json, sys, time
from pathlib import Path
from xml.parsers import expat
wall, cpu = time.perf_counter(), time.process_time()
for path in sorted(Path(sys.argv[1]).glob("*.xes*")):
    parser = expat.ParserCreate()
    parser.StartElementHandler = lambda tag, attributes: None
    parser.EndElementHandler = lambda tag: None
    with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
        while chunk := file.read(1 << 20):
            parser.Parse(chunk, False)
    parser.Parse(b"", True)
print(json.dumps({"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    lines = []
    for folder in options.folders:
        ours, floors = [], []
        for _ in range(options.rounds):  # in turns, so that load affects all equally
            ours.append(measure(ONE, folder))
            floors.append(measure(FLOOR, folder))
        found = {
            "data": folder.name,
            "events": ours[0]["events"],
            "bytes_per_event": round(ours[0]["bytes_per_event"], 1),
            "peak_mib": round(statistics.median(one["peak_mib"] for one in ours), 1),
            "wall_s": [round(one["wall_s"], 3) for one in ours],
            "cpu_s": [round(one["cpu_s"], 3) for one in ours],
            "floor_cpu_s": [round(one["cpu_s"], 3) for one in floors],
        }
        cpu, floor = (statistics.median(found[name]) for name in ("cpu_s", "floor_cpu_s"))
        wall = statistics.median(found["wall_s"])
        head = f"{folder.name}: {found['events']:,} events, {wall:.2f} s ({cpu:.2f} s of processor, {cpu / floor:.1f} × the floor)"
        sys.stdout.write(f"{head}, {found['bytes_per_event']} bytes per event, {found['peak_mib']} MiB at the most\n")
        lines.append(json.dumps(found))
    if options.out is not None:
        options.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


def measure(code: str, folder: Path) -> dict[str, float]:
    """Measure in one process, bound to one core if the system supports that."""
    core = {min(os.sched_getaffinity(0))} if hasattr(os, "sched_setaffinity") else None
    bound = f"import os; os.sched_setaffinity(0, {core})\n" if core else ""
    made = subprocess.run(
        [sys.executable, "-c", bound + code, str(folder)], check=True, stdout=subprocess.PIPE, text=True
    )
    return json.loads(made.stdout.splitlines()[-1])


if __name__ == "__main__":
    main()
