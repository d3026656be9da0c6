"""How well a pretrained encoder tells the types of masked events: accuracy and cross-entropy with 95 % intervals."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from foretell.batches.batch import length_buckets, make_batch
from foretell.data import EventData
from foretell.evaluate.bootstrap import Estimate, Units, estimates
from foretell.evaluate.scores import plain
from foretell.models.task_heads import MaskedANHP
from foretell.objective.masked import corrupt, masked_terms

ROUNDS = 10  # corruptions of the data
EVENTS_AT_A_TIME = 1 << 13


@dataclass(frozen=True)
class MaskedEvaluation:
    model: str
    data: str
    sequences: int
    masked: int  # events, in all rounds together
    rounds: int
    mask: float
    drop: float
    accuracy: Estimate
    cross_entropy: Estimate  # nats a masked event, lower is better
    bootstrap: str

    def to_json(self) -> dict[str, Any]:
        """Plain numbers; what is not a number is null."""
        return plain(dataclasses.asdict(self))


@torch.no_grad()
def score_masked(
    model: MaskedANHP, data: EventData, *, mask: float, drop: float, rounds: int = ROUNDS, seed: int = 0
) -> MaskedEvaluation:
    """Each round masks and removes others; the rounds of a sequence stay together in the bootstrap."""
    sequences, rights, losses = [], [], []
    with model.evaluating():
        for number in range(rounds):
            rng = np.random.default_rng([seed, number])
            for indices in length_buckets(data.lengths, max(1, len(data)), rng, max_tokens=EVENTS_AT_A_TIME):
                batch = make_batch(data, indices, device=model.device)
                width = batch.times.shape[1]
                drawn = corrupt(data.lengths[indices], width, rng, mask=mask, drop=drop, device=model.device)
                terms = masked_terms(model, batch, drawn)
                row = drawn.masked.nonzero()[:, 0].cpu().numpy()
                sequences.append(indices[row])
                rights.append(terms.right.cpu().numpy())
                losses.append(-terms.log_probability.double().cpu().numpy())
    sequence, right, loss = (np.concatenate([np.zeros(0), *parts]) for parts in (sequences, rights, losses))
    order = np.argsort(sequence, kind="stable")
    units = Units(sequence[order].astype(np.int64), len(data))
    resampling = units.resampling(seed)
    one = np.ones(len(order))
    accuracy, cross_entropy = estimates([units.ratio(right[order], one), units.ratio(loss[order], one)], resampling)
    return MaskedEvaluation(
        model=model.title,
        data=data.name,
        sequences=len(data),
        masked=len(order),
        rounds=rounds,
        mask=mask,
        drop=drop,
        accuracy=accuracy,
        cross_entropy=cross_entropy,
        bootstrap=resampling.describe(),
    )
