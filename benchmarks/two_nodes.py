"""Checks that a Ray cluster of two nodes on one machine gives the numbers of one process, also if a node is killed.

    python benchmarks/two_nodes.py --data ../shared/data/stackoverflow --folder /tmp/two-nodes --out benchmarks/results/two-nodes.json

A model is trained for an epoch on a share of the data. Then `foretell evaluate RUN --data DATA --split test` runs in one process, on the
cluster, and on the cluster while its second node is killed after the first shards. All digits that the command prints are compared.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

FORETELL = [sys.executable, "-m", "foretell"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0"}


def foretell(*arguments: object) -> tuple[str, str, float]:
    began = time.monotonic()
    ran = subprocess.run(
        [*FORETELL, *map(str, arguments)], env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    if ran.returncode:
        raise SystemExit(f"foretell {' '.join(map(str, arguments))} ended with {ran.returncode}:\n{ran.stderr[-3000:]}")
    return ran.stdout, ran.stderr, round(time.monotonic() - began, 1)


def on_cluster(run: Path, asked: list[object], kill: bool) -> dict[str, Any]:
    """Return the output of `evaluate` on two nodes with one core each."""
    import ray
    from ray.cluster_utils import Cluster

    os.environ.setdefault("RAY_worker_niceness", "0")  # else they get little time next to other programs
    memory = 300 * 2**20
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": memory})
    second = cluster.add_node(num_cpus=1, object_store_memory=memory)
    killed: dict[str, Any] = {}

    def killer() -> None:
        while len(list(run.glob("shards/*/shard-*.parquet"))) < 2:
            time.sleep(0.02)
        killed["after_shards"] = len(list(run.glob("shards/*/shard-*.parquet")))
        cluster.remove_node(second, allow_graceful=False)

    if kill:
        threading.Thread(target=killer, daemon=True).start()
    try:
        out, said, seconds = foretell("evaluate", run, *asked, "--on", f"ray:{cluster.address}")
    finally:
        if ray.is_initialized():
            ray.shutdown()
        cluster.shutdown()
    *before, said_last = out.splitlines()
    again = [line.split(" Node IP")[0] for line in said.splitlines() if "done again" in line]
    shards = len(list(run.glob("shards/*/shard-*.parquet")))
    return {
        "said": json.loads(said_last),
        "before": before,
        "wall_seconds": seconds,
        "shards": shards,
        "again": again,
        **killed,
    }


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--data", type=Path, required=True)
    options.add_argument("--folder", type=Path, required=True)
    options.add_argument("--out", type=Path)
    options.add_argument("--model", default="nhp")
    given = options.parse_args()
    shutil.rmtree(given.folder, ignore_errors=True)
    given.folder.mkdir(parents=True)
    run = given.folder / "run"
    trained = ["--model", given.model, "--data", given.data, "--out", run, "--epochs", 1, "--train-fraction", 0.05]
    foretell("train", *trained, "--set", "model.dim=16", "--no-floors", "--quiet")
    asked: list[object] = [given.data, "--split", "test", "--json"]
    out, _, seconds = foretell("evaluate", run, *asked)
    alone = json.loads(out)
    found: dict[str, Any] = {
        "what": f"foretell evaluate on the test split of {given.data.name}, {given.model} of dimension 16, one thread per process",
        "machine": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "load": os.getloadavg(),
        "date": time.strftime("%Y-%m-%d"),
        "one process": {"wall_seconds": seconds},
    }
    for name, kill in (("two nodes", False), ("two nodes, one killed", True)):
        copy = given.folder / name.replace(" ", "-").replace(",", "")
        shutil.copytree(run, copy)
        ran = on_cluster(copy, asked, kill)
        said = json.dumps(ran.pop("said")).replace(str(copy), str(run))
        ran["same numbers"] = json.loads(said) == alone
        found[name] = ran
        sys.stdout.write(f"{name}: {ran}\n")
    found["scores"] = alone
    if given.out:
        given.out.write_text(json.dumps(found, indent=1) + "\n")
    if not all(found[name]["same numbers"] for name in ("two nodes", "two nodes, one killed")):
        raise SystemExit("numbers differ")


if __name__ == "__main__":
    main()
