"""Compares classifiers trained on few labels, from scratch and from an encoder pretrained on all sequences, with two simple guesses.

    python experiments/pretraining/few_labels.py LABELLED [--seeds 0 1 2 3 4] [--shares 0.1 0.25 1]

LABELLED is the output of `prepare.py`. The protocol is in README.md. Writes `few-labels.json`.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from foretell.data import Dataset, EventData, load
from foretell.data.labels import Labels, find_labels
from foretell.evaluate.compare import holm
from foretell.evaluate.permutation import permutation_test
from foretell.evaluate.task_scores import predict_labels, score_labels
from foretell.models.attention.anhp import ANHP
from foretell.models.start_from import take_encoder
from foretell.models.task_heads import PSEUDO_COUNT, Classifier
from foretell.train.config import PretrainOptions, RunConfig, make_config, read_config
from foretell.train.label_tasks import Pretraining, classify, pretrain

HERE = Path(__file__).resolve().parent
ARMS = ("scratch", "pretrained")
LABEL = "last"


def fresh(config: RunConfig, data: EventData, seed: int) -> ANHP:
    made = config.model.make(data.vocabulary, seed=seed, dtype=getattr(torch, config.train.dtype))
    assert isinstance(made, ANHP)
    return made


def some(data: EventData, share: float, seed: int) -> EventData:
    """Draw a random share of the sequences, whose labels are used."""
    count = max(2, round(share * len(data)))
    return data.select(np.sort(np.random.default_rng([seed, 7]).permutation(len(data))[:count]).tolist())


def fitted(
    config: RunConfig, dataset: Dataset, labels: Labels, share: float, seed: int, start: Pretraining | None
) -> Classifier:
    assert dataset.train is not None
    model = fresh(config, dataset.train, seed)
    if start is not None:
        take_encoder(model, start.model, dataset.train, "pretrained", seed=seed)
    else:
        model.prepare(dataset.train)  # units of time do not depend on labels, in both arms
    train = some(dataset.train, share, seed)
    return classify(model, train, dataset.dev, config.train, label=LABEL, labels=labels, seed=seed).model


def per_sequence(model: Classifier, labels: Labels, data: EventData) -> tuple[np.ndarray, np.ndarray]:
    """Return for each sequence whether its label is predicted correctly, and the log-loss."""
    true = np.concatenate(labels.targets(data))
    chances = np.concatenate([one.probabilities for one in predict_labels(model, data)])
    return (chances.argmax(1) == true).astype(float), -np.log(chances[np.arange(len(true)), true])


def guesses(dataset: Dataset, labels: Labels) -> dict[str, Any]:
    """Return the scores of two guesses: the most frequent label, and the last diagnosis before."""
    assert dataset.train is not None and dataset.test is not None
    true = np.concatenate(labels.targets(dataset.test))
    counts = np.bincount(np.concatenate(labels.targets(dataset.train)), minlength=len(labels.names)) + PSEUDO_COUNT
    seen = [
        labels.names.index(name) if (name := dataset.test.names_of(one)[-1]) in labels.names else -1
        for one in dataset.test
    ]
    return {
        "majority": {
            "accuracy": round(float((true == counts.argmax()).mean()), 4),
            "log_loss": round(float(-np.log(counts[true] / counts.sum()).mean()), 4),
        },
        "seen last": {"accuracy": round(float((true == np.array(seen)).mean()), 4)},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--experiment", type=Path, default=HERE)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--shares", type=float, nargs="+", default=[0.1, 0.25, 1.0])
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    config = make_config(read_config(args.experiment / "pretrain.toml"))
    task = config.task
    assert isinstance(task, PretrainOptions)
    dataset = load(args.data)
    assert dataset.train is not None and dataset.test is not None
    labels = find_labels(dataset.splits().values(), LABEL)
    found: dict[tuple[float, str], list[tuple[np.ndarray, np.ndarray]]] = {}
    fits = []
    for seed in args.seeds:
        begin = time.perf_counter()
        model = fresh(config, dataset.train, seed)
        start = pretrain(model, dataset.train, dataset.dev, config.train, mask=task.mask, drop=task.drop, seed=seed)
        spent = time.perf_counter() - begin
        for share in args.shares:
            for arm in ARMS:
                begin = time.perf_counter()
                classifier = fitted(config, dataset, labels, share, seed, start if arm == "pretrained" else None)
                scores = score_labels(classifier, dataset.test).scores
                found.setdefault((share, arm), []).append(per_sequence(classifier, labels, dataset.test))
                one: dict[str, Any] = {"arm": arm, "share": share, "seed": seed}
                one |= {name: round(getattr(scores, name).value, 4) for name in ("accuracy", "macro_f1", "log_loss")}
                fits.append(
                    one | {"seconds": round(time.perf_counter() - begin, 1), "pretraining_seconds": round(spent, 1)}
                )
                sys.stdout.write(f"{json.dumps(fits[-1])}\n")
                sys.stdout.flush()
    rows, tests = [], []
    for share in args.shares:
        means = {arm: [np.mean(part, axis=0) for part in zip(*found[share, arm], strict=True)] for arm in ARMS}
        row: dict[str, Any] = {"share": share, "labels": len(some(dataset.train, share, 0))}
        for place, name in enumerate(("accuracy", "log_loss")):
            row |= {f"{name}_{arm}": round(float(means[arm][place].mean()), 4) for arm in ARMS}
            test = permutation_test(means["pretrained"][place], means["scratch"][place])
            row[f"{name}_pretrained_less_scratch"] = {
                "difference": round(test.difference, 4),
                "p": test.p_value,
                "units": test.units,
            }
            tests.append(row[f"{name}_pretrained_less_scratch"])
        rows.append(row)
    for test, p in zip(tests, holm([one["p"] for one in tests]), strict=True):
        test["p_corrected"] = round(p, 5)
    results = {
        "label": LABEL,
        "labels": len(labels.names),
        "guesses": guesses(dataset, labels),
        "shares": rows,
        "fits": fits,
    }
    (args.out or args.experiment / "few-labels.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(f"{json.dumps(results['guesses'])}\n" + "".join(f"{json.dumps(row)}\n" for row in rows))
    return 0


if __name__ == "__main__":
    logging.getLogger("foretell").setLevel(logging.ERROR)  # every fit would repeat the same warnings
    sys.exit(main())
