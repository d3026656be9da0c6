"""Small data with properties of their own: `kind` of a sequence, `mood` of each event."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from foretell.data import EventData, load_file


def row(rng: np.random.Generator, name: str) -> dict[str, Any]:
    """A `busy` sequence has mostly `a`, a `calm` one mostly `b`; an `a` is `up`, a `b` is `down`, and a `c` has no mood."""
    busy = bool(rng.random() < 0.5)
    shares = (0.7, 0.1, 0.2) if busy else (0.1, 0.7, 0.2)
    count = int(rng.integers(3, 9))
    events = rng.choice(["a", "b", "c"], count, p=shares).tolist()
    moods = {"a": "up", "b": "down", "c": None}
    return {
        "id": name,
        "times": np.sort(rng.uniform(0.0, 9.0, count)).round(4).tolist(),
        "events": events,
        "t_end": 10.0,
        "kind": "busy" if busy else "calm",
        "mood": [moods[event] for event in events],
        "doctor": int(rng.integers(3)),
    }


def rows(count: int, seed: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    return [row(rng, f"s{number}") for number in range(count)]


def write(path: Path, lines: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def folder(path: Path, *, train: int = 40, others: int = 24) -> Path:
    for seed, (name, count) in enumerate((("train", train), ("dev", others), ("test", others))):
        write(path / f"{name}.jsonl", rows(count, seed))
    (path / "types.json").write_text('["a", "b", "c"]')
    (path / "dataset.toml").write_text('name = "moods"\n')
    return path


def data_of(path: Path, lines: list[dict[str, Any]]) -> EventData:
    return load_file(str(write(path, lines)))
