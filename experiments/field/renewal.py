"""How well the time since the last event alone predicts the next time of a log: renewal processes, fitted to train.

    python renewal.py FOLDER/robocup            # a data set as `field.py prepare` wrote it

Three kinds of hazards `λ(u)`, where `u` is the time since the last event: a constant; step functions of `u`; and the shape that
`intensity_shape` gives to models of rules, `exp(c + Σ_k a_k exp(−u/s_k))`, with one set of numbers for all gaps, or one for each functor of
the last event. Scores are nats per event of events 2 to I.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from foretell.data import EventData, load
from foretell.models.units import gap_range
from foretell.terms import split

PENALTY = 1.0  # on squares of the amplitudes
STEPS = 20
NODES = 12  # of the quadrature of a gap, denser at its start


@dataclass(frozen=True)
class Gaps:
    length: Tensor  # float64 [n]
    last: list[str]  # functor of the previous event


def gaps_of(data: EventData) -> Gaps:
    length, last = [], []
    for sequence in data:
        length += np.diff(sequence.times).tolist()
        last += [split(data.vocabulary.names[kind])[0] for kind in sequence.types[:-1].tolist()]
    return Gaps(torch.tensor(length, dtype=torch.float64), last)


def constant(train: Gaps, other: Gaps) -> float:
    mean = train.length.mean()
    return float((-mean.log() - other.length / mean).mean())


def step_function(train: Gaps, other: Gaps) -> float:
    """Fit a step function with `STEPS` steps; the same number of training gaps ends in each."""
    inner = torch.quantile(train.length, torch.linspace(0.0, 1.0, STEPS + 1, dtype=torch.float64)[1:-1])
    start = torch.cat([inner.new_zeros(1), inner])
    stop = torch.cat([inner, inner.new_full((1,), torch.inf)])

    def passed(gaps: Gaps) -> Tensor:
        return (gaps.length[:, None].minimum(stop) - start).clamp(min=0.0)

    step = torch.searchsorted(inner, train.length, right=True)
    rate = (torch.bincount(step, minlength=STEPS) + 0.5) / (passed(train).sum(0) + 0.5 * train.length.mean())
    at = torch.searchsorted(inner, other.length, right=True)
    return float((rate[at].log() - passed(other) @ rate).mean())


def shaped(train: Gaps, others: list[Gaps], scales: Tensor, by_functor: bool) -> list[float]:
    functors = sorted(set(train.last)) if by_functor else [""]
    nodes, weights = (torch.from_numpy(one) for one in np.polynomial.legendre.leggauss(NODES))
    nodes = (nodes + 1.0) / 2.0
    level = torch.full((len(functors),), -2.0, dtype=torch.float64, requires_grad=True)
    amplitude = torch.zeros(len(functors), len(scales), dtype=torch.float64, requires_grad=True)

    def scores(gaps: Gaps) -> Tensor:
        kind = torch.tensor([functors.index(one) if one in functors else 0 for one in gaps.last])
        inside = gaps.length[:, None] * nodes**2
        times = torch.cat([gaps.length[:, None], inside], dim=1)
        decays = torch.exp(-times.unsqueeze(-1) / scales)
        log = level[kind][:, None] + (amplitude[kind][:, None] * decays).sum(-1)
        integral = (log[:, 1:].exp() * gaps.length[:, None] * weights * nodes).sum(1)
        return log[:, 0] - integral

    optimiser = torch.optim.LBFGS([level, amplitude], max_iter=300, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimiser.zero_grad()
        value = PENALTY * amplitude.square().sum() - scores(train).sum()
        value.backward()
        return value

    optimiser.step(loss)  # pyright: ignore[reportArgumentType]
    with torch.no_grad():
        return [float(scores(one).mean()) for one in others]


def main() -> None:
    dataset = load(sys.argv[1])
    splits = dataset.splits()
    train, others = gaps_of(splits["train"]), [gaps_of(splits[name]) for name in ("train", "dev", "test")]
    short, long = gap_range(splits["train"])
    rows = {
        "constant": [constant(train, one) for one in others],
        f"{STEPS} steps": [step_function(train, one) for one in others],
    }
    for count in (4, 8, 12):
        scales = torch.from_numpy(np.geomspace(short, long, count))
        rows[f"shape of {count} scales"] = shaped(train, others, scales, False)
        rows[f"shape of {count} scales, by the last event's functor"] = shaped(train, others, scales, True)
    sys.stdout.write("| hazard | train | dev | test |\n|---|---|---|---|\n")
    for name, found in rows.items():
        sys.stdout.write(f"| {name} | " + " | ".join(f"{one:.3f}" for one in found) + " |\n")


if __name__ == "__main__":
    main()
