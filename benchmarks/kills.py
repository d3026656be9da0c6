"""SIGKILL at random moments of a training of two processes, and of an evaluation on Ray.

    python benchmarks/kills.py --of processes --folder /tmp/kills --out benchmarks/results/kills.json
    python benchmarks/kills.py --of ray --data ../shared/data/stackoverflow --folder /tmp/kills --out benchmarks/results/kills.json

The training is `foretell train --processes 2` on packed data, with a checkpoint every second and a half. Each time, the launcher or one of
its two processes, chosen at random, is killed (about a quarter of them before the first steps), and the run is resumed. `lost_seconds` is
the time since the last checkpoint, or since the start if there was none. At the end, parameters and metrics are compared bit by bit with
those of an uninterrupted run.

The evaluation is `foretell evaluate RUN --on ray:2`. A worker that computes a shard, or the command itself, is killed. Finished shards must
not be computed again, and all digits of the scores must be those of one process. The kills can be made in several calls: each continues.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

FORETELL = [sys.executable, "-m", "foretell"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", "RAY_USAGE_STATS_ENABLED": "0"}
RATE = ",".join(["1.0"] * 20)
LIMIT = 900.0


def foretell(*arguments: object) -> str:
    ran = subprocess.run(
        [*FORETELL, *map(str, arguments)], env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    if ran.returncode:
        raise SystemExit(f"foretell {' '.join(map(str, arguments))} ended with {ran.returncode}:\n{ran.stderr[-3000:]}")
    return ran.stdout


def children(process: int) -> list[int]:
    try:
        return [int(one) for one in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    except OSError:
        return []


def below(process: int) -> list[int]:
    """Return all descendants of a process."""
    found = children(process)
    return found + [one for child in found for one in below(child)]


def title(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
    except OSError:
        return ""


def gone(processes: list[int]) -> bool:
    def state(process: int) -> str:
        try:
            return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return "X"

    return all(state(one) in "ZX" for one in processes)


def until_gone(processes: list[int]) -> float:
    """Wait until all processes have ended and return the seconds; raise if they do not end."""
    began = time.monotonic()
    while not gone(processes):
        if time.monotonic() - began > 60.0:
            raise SystemExit(f"still there: {[title(one) for one in processes if not gone([one])]}")
        time.sleep(0.05)
    return round(time.monotonic() - began, 2)


def count(found: list[dict[str, Any]]) -> int:
    """Return how many runs were killed before they were done."""
    return sum("killed" in one for one in found)


# Two processes


def checkpoint_step(run: Path) -> int:
    """Return the number of steps up to the checkpoint; 0 if there is none."""
    from foretell.train.checkpoint import load_checkpoint

    path = run / "checkpoint.safetensors"
    return load_checkpoint(path).progress.step if path.exists() else 0


def training(data: Path, run: Path, processes: int) -> list[object]:
    how = ["--model", "nhp", "--dim", 16, "--epochs", 6, "--batch", 64, "--no-floors"]
    settings = ["train.checkpoint_seconds=1.5", "train.dtype=float64", "train.buffer=200000"]
    how += [word for one in settings for word in ("--set", one)]
    return ["train", "--data", data, *how, "--out", run, "--processes", processes]


def tensors_digest(run: Path) -> str:
    return hashlib.sha256((run / "model.safetensors").read_bytes()).hexdigest()


def metrics(run: Path) -> list[list[float]]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [[one["epoch"], one["step"], one["train"], one["dev"]] for one in lines]


def kill_training(data: Path, run: Path, draw: random.Random, length: float) -> dict[str, Any]:
    """Resume the run, and kill one of its processes after a while."""
    resumes = (run / "checkpoint.safetensors").exists()
    if not resumes:
        shutil.rmtree(run, ignore_errors=True)
    before = checkpoint_step(run)
    command = ["train", "--resume", run, "--processes", 2] if resumes else training(data, run, 2)
    began, delay, at_once = time.monotonic(), draw.uniform(0.0, length), draw.random() < 0.25
    with open(run.with_name("said"), "w") as said:
        child = subprocess.Popen(
            [*FORETELL, *map(str, command)], env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=said
        )
    while not at_once and "epoch" not in run.with_name("said").read_text() and child.poll() is None:
        time.sleep(0.05)  # until the first steps
    started = time.monotonic()
    while time.monotonic() - started < delay and child.poll() is None:
        time.sleep(0.01)
    found: dict[str, Any] = {
        "after_seconds": round(time.monotonic() - began, 2),
        "of_training": 0.0 if at_once else round(time.monotonic() - started, 2),
        "began_at_step": before,
    }
    everyone = [child.pid, *below(child.pid)]
    victim = draw.randrange(min(3, len(everyone)))
    if child.poll() is None:
        os.kill(everyone[victim], signal.SIGKILL)
        found["killed"] = ("launcher", "first process", "second process")[victim]
    killed_at = time.time()
    child.wait(LIMIT)
    found |= {"exit": child.returncode, "others_ended_after": until_gone(everyone), "step": checkpoint_step(run)}
    path = run / "checkpoint.safetensors"
    if path.exists() and "killed" in found:
        since = killed_at - path.stat().st_mtime
        found["lost_seconds"] = round(
            max(0.0, min(since, found["after_seconds"])), 2
        )  # 0: the remaining processes wrote a checkpoint
    if found["step"] < before:
        raise SystemExit(f"work from before was lost: {found}")
    return found


def two_processes(folder: Path, kills: int, found: dict[str, Any], save: Any) -> None:
    data, whole, run = folder / "packed", folder / "whole", folder / "run"
    if not data.exists():
        drawing = ["--rate", RATE, "--sequences", 4000, "--t-end", 5.0, "--packed", "--seed", 3]
        foretell("data", "simulate", "poisson", *drawing, "--out", data)
    if not (whole / "done").exists():
        shutil.rmtree(whole, ignore_errors=True)
        began = time.monotonic()
        foretell(*training(data, whole, 2))
        (whole / "done").write_text(str(time.monotonic() - began))
    length = float((whole / "done").read_text())
    found.setdefault("kills", [])
    found |= {"undisturbed_seconds": round(length, 1), "steps": metrics(whole)[-1][1]}
    draw, so_far = random.Random(f"processes {len(found['kills'])}"), count(found["kills"])
    while count(found["kills"]) < so_far + kills:
        found["kills"].append(kill_training(data, run, draw, 0.4 * length))
        if found["kills"][-1]["exit"] == 0:  # finished before it was killed: start again
            found["kills"][-1] |= {"same numbers": ended_alike(run, whole)}
            shutil.rmtree(run)
        sys.stdout.write(f"{found['kills'][-1]}\n")
        sys.stdout.flush()
        save()
    foretell(*(["train", "--resume", run, "--quiet", "--processes", 2] if run.exists() else training(data, run, 2)))
    found["in the end"] = ended_alike(run, whole)
    save()


def ended_alike(run: Path, whole: Path) -> dict[str, bool]:
    alike = {"parameters": tensors_digest(run) == tensors_digest(whole), "metrics": metrics(run) == metrics(whole)}
    if not all(alike.values()):
        raise SystemExit(f"{run} ended with other numbers: {alike}")
    return alike


# Ray


def shard_files(run: Path) -> dict[str, int]:
    return {str(one): one.stat().st_mtime_ns for one in run.glob("shards/*/shard-*.parquet")}


def kill_ray(run: Path, asked: list[object], draw: random.Random, length: float, alone: Any) -> dict[str, Any]:
    before, counts = shard_files(run), len(shard_files(run))
    command = [*FORETELL, "evaluate", *map(str, [run, *asked, "--on", "ray:2"])]
    child = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    began, delay, at_once = time.monotonic(), draw.uniform(0.0, length), draw.random() < 0.25
    who = draw.choice(["command", "worker"])
    found: dict[str, Any] = {"shards_before": counts}
    while not at_once and not any("perform_task" in title(one) for one in below(child.pid)) and child.poll() is None:
        time.sleep(0.05)  # until workers are at shards
    started = time.monotonic()
    while time.monotonic() - started < delay and child.poll() is None:
        time.sleep(0.01)
    everyone = below(child.pid)
    workers = [one for one in everyone if "perform_task" in title(one)]
    victim = draw.choice(workers) if who == "worker" and workers else child.pid
    if child.poll() is None:
        os.kill(victim, signal.SIGKILL)
        found["killed"] = "command" if victim == child.pid else "worker"
    out, said = child.communicate(timeout=LIMIT)
    found |= {
        "after_seconds": round(time.monotonic() - began, 2),
        "exit": child.returncode,
        "workers_ended_after": until_gone(workers),
        "again": sum("done again" in line for line in said.splitlines()),
    }
    after = shard_files(run)
    if any(after.get(path) != when for path, when in before.items()):
        raise SystemExit("a shard that was there was done again, or is gone")
    found["shards_after"] = len(after)
    if child.returncode == 0:
        found["same numbers"] = json.loads(out) == alone
        if not found["same numbers"]:
            raise SystemExit("numbers differ")
        shutil.rmtree(run / "shards")
    elif child.returncode != -signal.SIGKILL:
        raise SystemExit(f"ended with {child.returncode}: {said[-2000:]}")
    return found


def on_ray(folder: Path, data: Path, kills: int, found: dict[str, Any], save: Any) -> None:
    run, asked = folder / "scored", [data, "--split", "test", "--no-times", "--json"]
    if not (run / "model.safetensors").exists():
        trained = ["--model", "nhp", "--data", data, "--out", run, "--epochs", 1, "--train-fraction", 0.05]
        foretell("train", *trained, "--set", "model.dim=16", "--no-floors", "--quiet")
    if not (folder / "alone.json").exists():
        (folder / "alone.json").write_text(foretell("evaluate", run, *asked))
    alone = json.loads((folder / "alone.json").read_text())
    if "undisturbed_seconds" not in found:
        began = time.monotonic()
        same = json.loads(foretell("evaluate", run, *asked, "--on", "ray:2")) == alone
        found |= {"undisturbed_seconds": round(time.monotonic() - began, 1), "same numbers": same}
        found |= {"shards": len(shard_files(run)), "kills": []}
        shutil.rmtree(run / "shards")
    draw, so_far = random.Random(f"ray {len(found['kills'])}"), count(found["kills"])
    while count(found["kills"]) < so_far + kills:
        found["kills"].append(kill_ray(run, asked, draw, 0.3 * found["undisturbed_seconds"], alone))
        sys.stdout.write(f"{found['kills'][-1]}\n")
        sys.stdout.flush()
        save()
    found["in the end"] = json.loads(foretell("evaluate", run, *asked, "--on", "ray:2")) == alone
    save()


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--folder", type=Path, required=True)
    options.add_argument("--out", type=Path, required=True)
    options.add_argument("--data", type=Path, help="for the evaluation on Ray: StackOverflow")
    options.add_argument("--kills", type=int, default=20)
    options.add_argument("--of", choices=("processes", "ray"), required=True)
    given = options.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    found: dict[str, Any] = json.loads(given.out.read_text()) if given.out.exists() else {}
    found |= {"machine": platform.machine(), "cores": os.cpu_count(), "date": time.strftime("%Y-%m-%d")}

    def save() -> None:
        given.out.write_text(json.dumps(found, indent=1) + "\n")

    part = found.setdefault(given.of, {})
    part["load"] = os.getloadavg()[0]
    if given.of == "processes":
        two_processes(given.folder, given.kills, part, save)
    else:
        on_ray(given.folder, given.data, given.kills, part, save)


if __name__ == "__main__":
    main()
