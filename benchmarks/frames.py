"""The time to read a data frame: `python benchmarks/frames.py [--rows 1000000] [--rounds 5] [--out results/NAME.jsonl]`.

The data are random orders, sorted by time, so that the rows of a customer are scattered. Kinds of frames and of times take turns. For
comparison, each result has the least that any reader must do: sorting the same frame by customer and time in pandas.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

import foretell as ft


def orders(rows: int) -> pd.DataFrame:
    random = np.random.default_rng(0)
    seconds = np.sort(random.integers(0, 10**8, rows))
    return pd.DataFrame(
        {
            "sequence": random.integers(0, rows // 100, rows),
            "time": pd.Timestamp("2020-01-01", tz="Europe/Berlin") + pd.to_timedelta(seconds, unit="s"),
            "event": random.choice([f"product {number}" for number in range(50)], rows),
            "price": random.gamma(2.0, 10.0, rows),
        }
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    logging.getLogger("foretell").setLevel(logging.ERROR)
    frame = orders(options.rows)
    text = frame.assign(time=frame["time"].dt.strftime("%Y-%m-%dT%H:%M:%S%z"))
    polars, arrow = pl.from_pandas(frame), pa.Table.from_pandas(frame)
    tasks = {
        "pandas, datetimes": lambda: ft.from_frame(frame),
        "pandas, ISO 8601 text": lambda: ft.from_frame(text),
        "polars, datetimes": lambda: ft.from_frame(polars),
        "pyarrow, datetimes": lambda: ft.from_frame(arrow),
        "floor: pandas sort_values": lambda: frame.sort_values(["sequence", "time"]),
    }
    ft.from_frame(frame.head(10))  # imports
    found = {name: {"wall_s": [], "cpu_s": []} for name in tasks}
    for _ in range(options.rounds):
        for name, work in tasks.items():
            wall, cpu = time.perf_counter(), time.process_time()
            work()
            found[name]["wall_s"].append(round(time.perf_counter() - wall, 3))
            found[name]["cpu_s"].append(round(time.process_time() - cpu, 3))
    for name, one in found.items():
        wall, cpu = statistics.median(one["wall_s"]), statistics.median(one["cpu_s"])
        sys.stdout.write(f"{name}: {wall:.2f} s ({cpu:.2f} s of processor)\n")
    if options.out:
        lines = [json.dumps({"task": name, "rows": options.rows, **one}) + "\n" for name, one in found.items()]
        options.out.write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
