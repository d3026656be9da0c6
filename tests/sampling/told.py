"""One sequence of a model of rules, and the same history written down for the model: what tests of such sampler compare."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Generic

import numpy as np
import pytest
import torch
from torch import Tensor

from foretell.data import EventSequence
from foretell.errors import ForetellError
from foretell.models.rules.rule_model import RuleModel
from foretell.models.rules.rule_sampler import RuleSampler
from foretell.sampling.core.start import start_sampler
from tests.samples import Rules

AHEAD = np.asarray([1e-3, 0.3, 2.0, 50.0])
CYCLIC = {8}  # programs in which an embedding needs itself


class Told(Generic[Rules]):
    """One sequence, and the same history written down for the model."""

    def __init__(self, model: Rules, names: Sequence[str], times: Sequence[float]) -> None:
        self.model, self.names, self.times = model, list(names), list(times)
        found = start_sampler(model, [self.history], [len(self.names)])
        assert isinstance(found, RuleSampler)
        self.sampler = found

    @property
    def history(self) -> EventSequence:
        self.model.widen(dict.fromkeys(self.names))
        types = [self.model.vocabulary.find(name) for name in self.names]
        return EventSequence(np.asarray(self.times), np.asarray(types, dtype=np.int32), 1e10)

    @property
    def last(self) -> float:
        return self.times[-1] if self.times else 0.0

    def append(self, name: str, time: float) -> None:
        names = [self.sampler.name(0, choice) for choice in range(self.rates([time]).shape[1])]
        self.sampler.append(torch.tensor([time], dtype=torch.float64), torch.tensor([names.index(name)]))
        self.names.append(name)
        self.times.append(time)

    def rates(self, times: Sequence[float] | np.ndarray) -> Tensor:
        return self.sampler.intensities(torch.as_tensor(np.asarray(times), dtype=torch.float64)[None])[0]

    def agrees(self) -> int:
        """With the model asked about the whole history; says how many events are possible."""
        times = self.last + AHEAD
        rates = self.rates(times)
        for row, wanted in zip(rates, self.model.possible_intensities(self.history, times), strict=True):
            found = {self.sampler.name(0, choice): float(rate) for choice, rate in enumerate(row)}
            assert found == pytest.approx(wanted, rel=1e-9, abs=1e-300)
        return rates.shape[1]


def sampled(one: Told[Any], steps: int, seed: int) -> None:
    """Goes on with possible events, some of them at the time of the last."""
    draw = random.Random(seed)
    for _ in range(steps):
        count = one.agrees()
        if not count:
            return
        time = one.last + draw.choice([0.0, 0.2, 0.9])
        one.append(one.sampler.name(0, draw.randrange(count)), time)
    one.agrees()


class CyclesAreRefusedByBoth:
    """An error of the sequence is one of the model, too."""

    def __init__(self, one: Told[Any]) -> None:
        self.one = one

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: object, trace: object) -> bool:
        if not isinstance(error, ForetellError):
            return False
        with pytest.raises(ForetellError):
            self.one.model.possible_intensities(self.one.history, [self.one.last + 1.0])
        return True


TALK = """
:- event(say). :- event(hush). :- exogenous(rain, 2).
person(ann). person(bob).
:- embed(loud, 0).
mood <- say(X), person(X).
mood <- rain.
mood <- bos.
quiet.
quiet <- hush.
loud <- say(_).
!loud <- hush.
!mood <- hush.
mood <- hush.
say(X) :- mood, person(X).
say(X) :- quiet, person(X), not loud.
hush :- loud, quiet.
"""


POOLED = """
:- event(go).
:- embed(go, 2).
node(a). node(b). node(c).
seen(X) <- go(X).
seen(X) <- bos, node(X).
near :b :- node(X), seen(X).
go(X) :- node(X), near.
:- event(stop, 2).
stop : b2 :- node(X), seen(X), near.
"""


def exceeded(
    sampler: RuleSampler, last: float, widths: Sequence[float], times: int = 200, pieces: int = 6
) -> list[float]:
    """Bounds over the largest intensity that was found on a window."""
    draw = torch.Generator().manual_seed(0)
    ratios: list[float] = []
    for width in widths:
        start = last + 20.0 * torch.rand(sampler.count, pieces, generator=draw, dtype=torch.float64)
        bounds = sampler.bounds(start, start + width)
        inside = torch.rand(sampler.count, pieces, times, generator=draw, dtype=torch.float64)
        inside[..., 0], inside[..., 1] = 0.0, 1.0
        found = sampler.intensities((start.unsqueeze(-1) + width * inside).flatten(1)).sum(-1)
        most = found.view(sampler.count, pieces, times).amax(-1)
        assert bool((most <= bounds.upper).all()), (
            f"{float((most - bounds.upper).max())} above the bound, width {width}"
        )
        assert bool((bounds.middle <= bounds.upper).all())
        ratios += (bounds.upper / most).flatten()[most.flatten() > 1e-30].tolist()
    return ratios


def wandered(model: RuleModel, history: EventSequence, seed: int) -> list[tuple[str, list[float]]]:
    """Events at random, each with the intensities before it."""
    sampler, draw, time = start_sampler(model, [history], [len(history)]), random.Random(seed), 1.0
    found = []
    for _ in range(25):
        time += 0.1
        rates = sampler.intensities(torch.full((1, 1), time, dtype=torch.float64))[0, 0]
        choice = draw.randrange(len(rates))
        found.append((sampler.name(0, choice), rates.tolist()))
        sampler.append(torch.tensor([time], dtype=torch.float64), torch.tensor([choice]))
    return found
