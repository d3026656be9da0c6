"""Computes what each type of event contributes to the difference between the log-likelihoods of two runs.

    python experiments/nce/by_type.py runs/mle runs/nce [--data FOLDER] [--split dev] [--json]

A type's part is `Σ log λ_k` over its events minus the integral of `λ_k` over all scored time, divided by the number of scored events of all
types. The parts add up to the log-likelihood per event. A second column is the integral divided by the number of events of the type: 1 if
the model expects as many as happen. For models without rules.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from foretell.batches.batch import Queries
from foretell.data import EventData, load
from foretell.errors import ForetellError
from foretell.models.base import IntensityModel
from foretell.models.rules.rule_model import RuleModel
from foretell.objective.loglik import stratified
from foretell.train.run import RunFolder
from foretell.train.splits import in_vocabulary

SEQUENCES, POINTS = 4, 50  # per batch, and per gap


@dataclass(frozen=True)
class ByType:
    count: np.ndarray  # [K]: scored events
    at_events: np.ndarray  # [K]: the sum of their log-intensities
    integral: np.ndarray  # [K]

    @property
    def parts(self) -> np.ndarray:
        return (self.at_events - self.integral) / self.count.sum()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs=2)
    parser.add_argument("--data", help="other data than the first run's own")
    parser.add_argument("--split", default="dev")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    try:
        folders = [RunFolder.open(path) for path in args.runs]
        models = [folder.model("cpu") for folder in folders]
        if models[0].vocabulary != models[1].vocabulary:
            raise ForetellError(f"{args.runs[1]}: other types of events than {args.runs[0]}")
        splits = load(args.data or folders[0].config().data.path).splits()
        if args.split not in splits:
            raise ForetellError(f"--split {args.split}: expected one of {', '.join(splits)}")
        if any(isinstance(model, RuleModel) for model in models):
            raise ForetellError(
                "models made of rules have events and no types: `foretell compare --plot` shows their functors"
            )
        data = in_vocabulary(splits[args.split], models[0].vocabulary)
        first, second = (by_type(model, data) for model in models)
    except ForetellError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    rows = [
        {
            "type": name,
            "events": int(first.count[k]),
            "difference": float(second.parts[k] - first.parts[k]),
            "integral_over_events": [float(one.integral[k] / max(one.count[k], 1)) for one in (first, second)],
        }
        for k, name in enumerate(data.vocabulary.names)
    ]
    rows.sort(key=lambda row: row["difference"])
    if args.json:
        sys.stdout.write(json.dumps(rows, indent=1) + "\n")
        return 0
    sys.stdout.write(f"{first.parts.sum():.4f} and {second.parts.sum():.4f} nats an event\n")
    for row in rows:
        one, two = row["integral_over_events"]
        sys.stdout.write(f"{row['difference']:+.4f}   {row['events']:7,}   {one:6.3f} {two:6.3f}   {row['type']}\n")
    return 0


@torch.inference_mode()
def by_type(model: IntensityModel, data: EventData, seed: int = 0) -> ByType:
    """Compute the parts, with integrals from `POINTS` stratified draws per gap, which are the same for equal seeds."""
    model.eval()
    types = len(data.vocabulary)
    count, at_events, integral = (np.zeros(types) for _ in range(3))
    random = torch.Generator().manual_seed(seed)
    for first in range(0, len(data), SEQUENCES):
        batch = model.collator.batch(data, range(first, min(first + SEQUENCES, len(data))), device=model.device)
        points = stratified(batch, POINTS, random)
        history = model.encode(batch)
        rates = model.intensities(model.state(history, model.collator.plan_queries(batch, points.queries))).double()
        integral += (rates * points.weights.unsqueeze(-1)).sum((0, 1)).numpy()
        seen = torch.arange(batch.times.shape[1]).expand_as(batch.times)
        at_them = model.collator.plan_queries(batch, Queries.seeing(batch.times, seen))
        there = model.intensities(model.state(history, at_them)).double()
        own = there.gather(2, batch.types.unsqueeze(-1)).squeeze(-1)[batch.event_counts].log().numpy()
        kinds = batch.types[batch.event_counts].numpy()
        count += np.bincount(kinds, minlength=types)
        at_events += np.bincount(kinds, weights=own, minlength=types)
    return ByType(count, at_events, integral)


if __name__ == "__main__":
    raise SystemExit(main())
