"""A linear probe of embeddings: logistic regression from the embeddings of RoboCup's events to the team that acts later.

    python experiments/pretraining/probe.py [--run RUN …] [--ahead 1 5] [--out probe.json]

Runs are those of `foretell train` or `foretell pretrain` on the embedded games; without `--run`, an A-NHP is trained and another one
pretrained. Events are embedded from their past only, since the future contains the answer. For comparison there are the more frequent team,
and a probe of the types: the last event's type, and decaying counts of all earlier types. Games 2001 and 2002 are fitted, the penalty is
chosen on 2003, and 2004 is scored.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from foretell.data import Dataset, EventData, load
from foretell.evaluate.bootstrap import Ratio, estimates, resample_blocks
from foretell.evaluate.queries import embeddings_of
from foretell.models.attention.anhp import ANHP
from foretell.models.build import Network
from foretell.train.fit import fit
from foretell.train.label_tasks import pretrain
from foretell.train.run import RunFolder

TEAMS = ("purple", "pink")
PENALTIES = (1e-2, 1e-1, 1.0, 10.0, 100.0, 1000.0)
FADING = 0.8  # the factor of all counts per event
SPLITS = ("train", "dev", "test")


@dataclass(frozen=True)
class Logistic:
    """`softmax(weight·x + level)` of standardised features."""

    mean: Tensor
    spread: Tensor
    weight: Tensor
    level: Tensor

    def log_probabilities(self, features: np.ndarray) -> np.ndarray:
        x = (torch.from_numpy(features) - self.mean) / self.spread
        return torch.log_softmax(F.linear(x, self.weight, self.level), dim=-1).numpy()


def fit_logistic(features: np.ndarray, labels: np.ndarray, classes: int, penalty: float) -> Logistic:
    """Fit by penalised maximum likelihood, a convex problem, with L-BFGS in float64."""
    x, y = torch.from_numpy(features.astype(np.float64)), torch.from_numpy(labels)
    mean, spread = x.mean(0), x.std(0, correction=0).clamp(min=1e-8)
    x = (x - mean) / spread
    weight = torch.zeros(classes, x.shape[1], dtype=torch.float64, requires_grad=True)
    level = torch.zeros(classes, dtype=torch.float64, requires_grad=True)
    solver = torch.optim.LBFGS([weight, level], max_iter=200, line_search_fn="strong_wolfe", tolerance_grad=1e-7)

    def closure() -> Tensor:
        solver.zero_grad()
        loss = F.cross_entropy(F.linear(x, weight, level), y) + 0.5 * penalty * (weight**2).sum() / x.shape[1]
        loss.backward()
        return loss

    solver.step(closure)
    return Logistic(mean, spread, weight.detach(), level.detach())


def team_of(name: str) -> int:
    """Return the team of the player who acts, the first argument: 1 for `pass(pink3,pink5)`."""
    actor = name.split("(", 1)[1]
    return next(place for place, team in enumerate(TEAMS) if actor.startswith(team))


def labels_of(data: EventData, ahead: int) -> list[np.ndarray]:
    """Return for each event the team that acts `ahead` events later, if there is such an event."""
    return [np.array([team_of(name) for name in data.names_of(one)[ahead:]], dtype=np.int64) for one in data]


def bags(data: EventData) -> list[np.ndarray]:
    """Return the type of each event, and decaying counts of the types up to it: [events, 2·K]."""
    found = []
    for sequence in data:
        own = np.eye(len(data.vocabulary))[sequence.types]
        counts = np.zeros_like(own)
        for place, row in enumerate(own):
            counts[place] = row + (FADING * counts[place - 1] if place else 0.0)
        found.append(np.concatenate([own, counts], axis=1))
    return found


def probe(features: dict[str, list[np.ndarray]], labels: dict[str, list[np.ndarray]]) -> dict[str, Any]:
    """Fit on train with the penalty that is best on dev; score on test, with intervals over blocks of events."""
    tables = {
        split: np.concatenate([one[: len(y)] for one, y in zip(features[split], labels[split], strict=True)])
        for split in SPLITS
    }
    true = {split: np.concatenate(labels[split]) for split in SPLITS}
    fits = {penalty: fit_logistic(tables["train"], true["train"], len(TEAMS), penalty) for penalty in PENALTIES}
    penalty = max(fits, key=lambda one: mean_log(fits[one].log_probabilities(tables["dev"]), true["dev"]))
    logs = fits[penalty].log_probabilities(tables["test"])
    return {"features": tables["test"].shape[1], "penalty": penalty, **scored(logs, labels["test"])}


def scored(logs: np.ndarray, labels: Sequence[np.ndarray]) -> dict[str, Any]:
    true = np.concatenate(labels)
    sequence = np.repeat(np.arange(len(labels)), [len(one) for one in labels])
    one = np.ones(len(true))
    ratios = [Ratio((logs.argmax(1) == true).astype(float), one), Ratio(-logs[np.arange(len(true)), true], one)]
    accuracy, loss = estimates(ratios, resample_blocks(sequence, 0))
    return {
        name: [round(found.value, 4), round(found.low, 4), round(found.high, 4)]
        for name, found in (("accuracy", accuracy), ("log_loss", loss))
    }


def mean_log(logs: np.ndarray, true: np.ndarray) -> float:
    return float(logs[np.arange(len(true)), true].mean())


def majority(labels: dict[str, list[np.ndarray]]) -> dict[str, Any]:
    counts = np.bincount(np.concatenate(labels["train"]), minlength=len(TEAMS))
    logs = np.log(counts / counts.sum())
    return scored(np.tile(logs, (sum(map(len, labels["test"])), 1)), labels["test"])


def trained(dataset: Dataset, epochs: int) -> dict[str, Network]:
    """Train a model of the next event, and pretrain another one on masked events."""
    assert dataset.train is not None
    options = {"epochs": epochs, "batch": 1, "pseudo_count": 1.0, "lr": 2e-3}
    models = {name: ANHP(dataset.vocabulary, dim=32, layers=1, shortest_wave=3.0) for name in ("generative", "masked")}
    fit(models["generative"], dataset.train, dataset.dev, **options)
    masked = pretrain(
        models["masked"], dataset.train, dataset.dev, epochs=epochs, batch=1, lr=2e-3, mask=0.15, drop=0.1
    )
    return {"A-NHP, trained": models["generative"], "A-NHP, pretrained": masked.model}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, nargs="+", default=[])
    parser.add_argument("--data", default="robocup")
    parser.add_argument("--ahead", type=int, nargs="+", default=[1, 5], help="how many events later")
    parser.add_argument("--epochs", type=int, default=40, help="of the models that are trained where no run is given")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    dataset = load(args.data)
    parts = dataset.splits()
    networks = {str(path): RunFolder.open(path).network() for path in args.run} or trained(dataset, args.epochs)
    features = {"types": {split: bags(parts[split]) for split in SPLITS}}
    for name, network in networks.items():
        features[name] = {split: embeddings_of(network, parts[split], history="causal") for split in SPLITS}
    results = []
    for ahead in args.ahead:
        labels = {split: labels_of(parts[split], ahead) for split in SPLITS}
        found: dict[str, Any] = {"ahead": ahead, "events": sum(map(len, labels["test"])), "majority": majority(labels)}
        found |= {name: probe(table, labels) for name, table in features.items()}
        results.append(found)
        for name, one in found.items():
            sys.stdout.write(f"{name}: {json.dumps(one)}\n")
    if args.out is not None:
        args.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    logging.getLogger("foretell").setLevel(logging.ERROR)
    sys.exit(main())
