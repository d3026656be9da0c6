"""EasyTPP's S2P2 on the data of the field, run by an interpreter that has `easy_tpp` (0.3 or later).

    PYTHONPATH=carry/easytpp:src python experiments/field/rival.py FOLDER RESULTS.jsonl --device cuda --jobs 8

The model and the loss are EasyTPP's, but uniform draws, new in every step, replace its grid of integration points. Times are in units of
the mean gap, and scores in the unit of the data. Steps, schedule, clipping and the choice on dev are those of `field.py`.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from field import BATCH_EVENTS, EPOCHS, SEEDS, STEPS

SETS = ("stackoverflow", "iptv_small", "robocup", "helpdesk")
TRIALS = ({"layers": 3, "dim": 64}, {"layers": 4, "dim": 128})
LR, POINTS, SCORED_POINTS, DROPOUT = 5e-3, 10, 40, 0.1


def make(types: int, trial: dict[str, int]) -> Any:
    specs = {
        "P": 16,
        "act_func": "gelu",
        "dropout_rate": DROPOUT,
        "for_loop": False,
        "pre_norm": False,
        "post_norm": True,
        "int_backward_variant": True,
        "relative_time": True,
    }
    config = import_module("easy_tpp.config_factory").ModelConfig(
        model_id="S2P2",
        hidden_size=trial["dim"],
        num_layers=trial["layers"],
        model_specs=specs,
        use_mc_samples=True,
        loss_integral_num_sample_per_step=POINTS,
        num_event_types=types,
        num_event_types_pad=types + 1,
        event_pad_index=types,
        gpu=-1,
        training=True,
    )
    return import_module("easy_tpp.model").BaseModel.generate_model_from_config(config)


def batch_of(sequences: list[Any], unit: float, types: int, device: str) -> tuple[Any, ...]:
    width = max(len(one) for one in sequences)
    times = np.zeros((len(sequences), width))
    gaps = np.zeros_like(times)
    kinds = np.full(times.shape, types)
    there = np.zeros(times.shape, dtype=bool)
    for row, one in enumerate(sequences):
        n = len(one)
        times[row, :n], kinds[row, :n], there[row, :n] = one.times / unit, one.types, True
        gaps[row, 1:n] = np.diff(one.times) / unit
    floats = (torch.from_numpy(part).float().to(device) for part in (times, gaps))
    return *floats, torch.from_numpy(kinds).to(device), torch.from_numpy(there).to(device), None


def draw_anew(model: Any, points: int) -> None:
    """Draw uniform integration points in every gap, instead of the model's grid."""

    def draws(gaps: torch.Tensor) -> torch.Tensor:
        return gaps.unsqueeze(-1) * torch.rand(*gaps.shape, points, device=gaps.device)

    model.make_dtime_loss_samples = draws


def batches(data: Any, size: int, order: np.ndarray) -> list[list[Any]]:
    return [[data[int(place)] for place in order[first : first + size]] for first in range(0, len(order), size)]


@torch.no_grad()
def score(model: Any, data: Any, unit: float, size: int, device: str) -> float:
    """Return the nats per event of events 2 to I, in the unit of the data."""
    model.eval()
    draw_anew(model, SCORED_POINTS)
    torch.manual_seed(1)
    summed, events = 0.0, 0
    order = np.argsort([len(one) for one in data], kind="stable")
    for part in batches(data, size, order[[len(data[int(place)]) > 1 for place in order]]):
        loss, count = model.loglike_loss(batch_of(part, unit, len(data.vocabulary), device))
        summed, events = summed + float(loss), events + int(count)
    return -summed / events - math.log(unit)


def fit_and_score(job: dict[str, Any]) -> dict[str, Any]:
    from foretell import load

    torch.set_num_threads(1)
    data = load(job["path"])
    train, device = data.train, job["device"]
    assert train is not None
    types, unit = len(data.vocabulary), float(train.gaps().mean())
    size = int(np.clip(round(BATCH_EVENTS * len(train) / train.event_count), 1, len(train)))
    epochs = int(np.clip(STEPS * size // len(train), *EPOCHS))
    torch.manual_seed(job["seed"])
    model = make(types, TRIALS[job["trial"]]).to(device)
    model.device = device
    optimizer = torch.optim.Adam(model.parameters(), lr=LR)
    draw, steps, step = np.random.default_rng(job["seed"]), epochs * -(-len(train) // size), 0
    best, kept, began = -math.inf, model.state_dict(), time.monotonic()
    for _ in range(epochs):
        model.train()
        draw_anew(model, POINTS)
        for part in batches(train, size, draw.permutation(len(train))):
            for group in optimizer.param_groups:
                group["lr"] = LR * 0.5 * (1.0 + math.cos(math.pi * step / steps))
            loss, count = model.loglike_loss(batch_of(part, unit, types, device))
            optimizer.zero_grad()
            (loss / max(int(count), 1)).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            step += 1
        found = score(model, data.dev, unit, size, device)
        if found > best:
            best, kept = found, {name: part.clone() for name, part in model.state_dict().items()}
    model.load_state_dict(kept)
    seconds = round(time.monotonic() - began, 1)
    return {**job, "dev": best, "test": score(model, data.test, unit, size, device), "seconds": seconds}


def guarded(job: dict[str, Any]) -> dict[str, Any]:
    try:
        return fit_and_score(job)
    except Exception as error:  # the others continue; the results contain the error
        return {**job, "error": f"{type(error).__name__}: {error}"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("results", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--sets", nargs="*", default=list(SETS))
    args = parser.parse_args()
    done = [json.loads(line) for line in args.results.read_text().splitlines()] if args.results.exists() else []
    have = {(one["set"], one["trial"], one["seed"]) for one in done}
    with multiprocessing.get_context("spawn").Pool(args.jobs) as pool:
        for seeds in (SEEDS[:1], SEEDS[1:]):
            tasks = []
            for name in args.sets:
                first = [one for one in done if one["set"] == name and one["seed"] == SEEDS[0] and "dev" in one]
                trials = [max(first, key=lambda one: one["dev"])["trial"]] if seeds != SEEDS[:1] and first else [0, 1]
                tasks += [
                    {"set": name, "model": "EasyTPP's S2P2", "trial": trial, "seed": seed, "device": args.device}
                    for trial in trials
                    for seed in seeds
                    if (name, trial, seed) not in have
                ]
            tasks.sort(key=lambda one: one["trial"])
            for found in pool.imap_unordered(guarded, [{**one, "path": str(args.data / one["set"])} for one in tasks]):
                found.pop("path")
                done.append(found)
                with args.results.open("a") as file:
                    file.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
