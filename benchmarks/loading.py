"""Time to load tables of events, and their memory: `python benchmarks/loading.py [--rows 1000000]`.

Every file has the same events; times are ISO 8601 text, except in `numbers`. Results are medians of five loads on one core, with the file
in the page cache. If pandas is installed, its `read_csv` with parsed dates is measured for comparison; it does not build sequences.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import platform
import statistics
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from datetime import date
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from foretell.data import EventData, ReadOptions, load_file
from foretell.data.assembling import assemble_file
from foretell.data.csv_files import csv_table
from foretell.data.event_table import gathered

ROUNDS = 5
RESULTS = Path(__file__).parent / "results" / f"loading-{date.today()}.json"


def make(folder: Path, rows: int) -> dict[str, Path]:
    """Make orders of customers over a year: 20 types, with the rows of all customers sorted by time."""
    rng = np.random.default_rng(0)
    times = np.datetime64("2023-01-01", "ms") + np.sort(rng.integers(0, 365 * 86400 * 1000, rows))
    customers, kinds = rng.integers(0, rows // 50, rows), rng.integers(0, 20, rows)
    texts = np.datetime_as_string(times).tolist()
    files = {"csv": folder / "log.csv", "numbers": folder / "numbers.csv", "parquet": folder / "log.parquet"}
    both = zip(customers.tolist(), texts, kinds.tolist(), strict=True)
    files["csv"].write_text("sequence,time,event\n" + "".join(f"c{c},{t},event {k}\n" for c, t, k in both))
    seconds = (times.astype(np.int64) / 1000.0).tolist()
    both = zip(customers.tolist(), seconds, kinds.tolist(), strict=True)
    files["numbers"].write_text("sequence,time,event\n" + "".join(f"c{c},{t},event {k}\n" for c, t, k in both))
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = pa.array([f"event {k}" for k in range(20)])
    events = pa.DictionaryArray.from_arrays(pa.array(kinds, pa.int32()), names)
    columns = {"sequence": [f"c{c}" for c in customers.tolist()], "time": pa.array(times), "event": events}
    pq.write_table(pa.table(columns), files["parquet"])
    return files


def seconds_of(load: Callable[[], object]) -> dict[str, float]:
    """Return the medians of wall time and of this process's CPU time."""
    walls, own = [], []
    for _ in range(ROUNDS):
        began, used = time.perf_counter(), time.process_time()
        load()
        walls.append(time.perf_counter() - began)
        own.append(time.process_time() - used)
    return {"seconds": round(statistics.median(walls), 3), "cpu_seconds": round(statistics.median(own), 3)}


def bytes_per_event(load: Callable[[], EventData]) -> float:
    tracemalloc.start()
    data = load()
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return round(held / data.event_count, 1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    rows = parser.parse_args().rows
    logging.getLogger("foretell").setLevel(logging.ERROR)
    import pyarrow

    pyarrow.set_cpu_count(1)
    found: dict[str, object] = {"date": str(date.today()), "machine": platform.processor() or platform.machine()}
    found |= {"python": sys.version.split()[0], "numpy": np.__version__, "pyarrow": pyarrow.__version__, "rows": rows}
    with tempfile.TemporaryDirectory() as folder:
        files = make(Path(folder), rows)
        for name, path in files.items():
            found[name] = seconds_of(lambda path=path: load_file(path))
        slow = ReadOptions()
        found["csv without pyarrow"] = seconds_of(
            lambda: assemble_file(gathered(csv_table(files["csv"], slow, fast=False)), None, "window", "log")
        )
        found["bytes per event"] = bytes_per_event(lambda: load_file(files["csv"]))
        try:
            import pandas
        except ImportError:
            found["pandas.read_csv"] = "not installed"
        else:
            found["pandas.read_csv"] = seconds_of(lambda: pandas.read_csv(files["csv"], parse_dates=["time"]))
    RESULTS.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    sys.stdout.write(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
