"""Train A-NDTT on the weeks of all users, with down-sampling; write the time of each epoch, and scores, to `weeks.json`.

    python experiments/iptv/train.py --data iptv_weeks [--device cuda] [--epochs 4] [--out FILE]

`iptv_weeks` is the output of `prepare.py`. With 4,832 possible events at every time, scores do not evaluate all of them: log-likelihoods
are unbiased estimates from `JUDGED` events at each of `POINTS` times per gap, and are reported with the spread of two such estimates. The
exact score of Poisson is computed for comparison.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch

from foretell.data import EventData, load
from foretell.data.files import replacing
from foretell.models.classical.poisson import Poisson
from foretell.models.rules.andtt import ANDTT
from foretell.train.config import make_config, read_config
from foretell.train.fit import fit
from foretell.train.likelihood_task import mean_log_likelihood
from foretell.train.run import environment

HERE = Path(__file__).parent
JUDGED, POINTS, ESTIMATES = 16, 1, 2


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--dim", type=int)
    parser.add_argument("--out", type=Path, default=HERE / "weeks.json")
    args = parser.parse_args()
    table = read_config(HERE / "config.toml")
    table["train"] |= {"device": args.device} | ({"epochs": args.epochs} if args.epochs else {})
    table["model"] |= {"dim": args.dim} if args.dim else {}
    config = make_config({"train": table["train"]})
    dataset = load(str(args.data))
    train, dev, test = dataset.train, dataset.dev, dataset.test
    assert train is not None and dev is not None and test is not None
    found: dict[str, Any] = {
        "model": table["model"],
        "train": table["train"],
        "machine": environment(config.train.device),
    }
    model = ANDTT.preset("plain", args.data / "program" / "iptv.ndtt", dataset.vocabulary, **table["model"])
    began = time.perf_counter()
    model.prepare(train)
    model.ground(dev)
    model.ground(test)
    found["replay_seconds"] = round(time.perf_counter() - began, 1)
    found["parameters"] = sum(parameter.numel() for parameter in model.parameters())
    found["epochs"] = []

    def told(record: dict[str, Any]) -> None:
        seconds = record["train_seconds"]
        found["epochs"].append({**record, "events_a_second": round(train.event_count / seconds)})
        say(found["epochs"][-1])
        write(args.out, found)

    say({name: found[name] for name in ("replay_seconds", "parameters")})
    fit(model, train, dev, config.train, on_epoch=told)
    if torch.cuda.is_available():
        found["peak_gib"] = round(torch.cuda.max_memory_allocated() / 2**30, 2)
    found["dev"], found["test"] = judged(model, dev), judged(model, test)
    poisson = Poisson(dataset.vocabulary)
    fit(poisson, train)
    found["poisson"] = {"dev": mean_log_likelihood(poisson, dev, 1), "test": mean_log_likelihood(poisson, test, 1)}
    write(args.out, found)
    say({name: found[name] for name in ("dev", "test", "poisson")})
    return 0


def judged(model: ANDTT, data: EventData) -> dict[str, float]:
    """Return nats per event: the mean of some estimates, and their standard deviation."""
    weeks = [EventData([sequence], data.vocabulary) for sequence in data]
    values = []
    for seed in range(ESTIMATES):
        sums = [mean_log_likelihood(model, week, POINTS, "all", JUDGED, seed) * week.event_count for week in weeks]
        values.append(sum(sums) / data.event_count)
    return {"log_likelihood": statistics.fmean(values), "spread": statistics.stdev(values)}


def write(path: Path, found: dict[str, Any]) -> None:
    """Write the results after every epoch, so that an interrupted run leaves those so far."""
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(found, indent=1, default=str) + "\n", encoding="utf-8")


def say(what: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(what, default=str) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
