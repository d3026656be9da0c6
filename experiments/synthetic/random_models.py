"""Random processes to draw data from: makes a model with strongly varying intensities from its kind and a seed, and draws sequences.

The intensities of a new network are almost constant before training. So the layer that maps the network's state to intensities is drawn
again, by one rule for all kinds. Every weight comes from N(0, g²/D) and every constant from N(−2.5, 1). The gain g is the smallest power of
two at which the total intensity of drawn sequences varies by `LIVELY` (standard deviation over mean, at uniformly drawn times), and so do
the shares of at least half of the types. Then the clock is set so that the mean gap is 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from foretell.data import EventData, EventSequence, Vocabulary
from foretell.errors import ForetellError
from foretell.models.base import IntensityModel
from foretell.sampling.core.futures import sample_futures
from foretell.train.config import make_config

LIVELY = 0.3
GAINS = tuple(2.0**power for power in range(8))
TRIED_ON = 16  # number of sequences on which a gain is tried
LOOKED_AT = 64  # number of times per sequence
WAVES = (
    0.1,
    100.0,
)  # shortest and longest times of the time embedding, before the clock is set; the total rate is then about 1
FOREVER = 1e5
LEVEL = -2.5  # mean of the constants: a type happens every ten units of time or so
READOUT = ("w", "w_elapsed")  # weights that map the network's state to intensities, and
CONSTANTS = ("w_constant",)  # constants that are added to them


@dataclass(frozen=True)
class RandomModel:
    model: IntensityModel
    gain: float
    spread: float  # variation of the total intensity
    shares: float  # variation of a type's share of the total: median over types


def random_model(table: Mapping[str, Any], types: int, seed: int, events: int) -> RandomModel:
    """Return a random model of a [model] `table`; its variation is measured on sequences of `events` events."""
    for gain in GAINS:
        model = _made(table, types, seed, gain)
        data = draw(model, TRIED_ON, np.full(TRIED_ON, events), seed)
        spread, shares = liveliness(model, data, seed)
        if spread >= LIVELY and shares >= LIVELY:
            _set_clock(model, 1.0 / float(data.gaps().mean()))
            return RandomModel(model, gain, spread, shares)
    raise ForetellError(
        f"model.kind = {table.get('kind')!r}, seed {seed}: no gain up to {GAINS[-1]:g} makes it lively; take another seed"
    )


def draw(
    model: IntensityModel,
    count: int,
    lengths: np.ndarray,
    seed: int,
    told: Callable[[int, int], None] | None = None,
) -> EventData:
    """Draw sequences of exactly these lengths: each ends one time unit after its last event."""
    nothing = EventSequence(np.empty(0), np.empty(0, dtype=np.int32), 0.0, "nothing yet")
    with model.evaluating():
        (found,) = sample_futures(
            model, [nothing], horizon=FOREVER, n=count, events=int(lengths.max()), seed=seed, progress=told
        )
    made = []
    for number, (future, length) in enumerate(zip(found.futures, lengths.tolist(), strict=True)):
        if len(future.times) < length:
            raise ForetellError(
                f"{model.title}: a sequence died out after {len(future.times)} events; take another seed"
            )
        kinds = np.array([model.vocabulary.index(name) for name in future.events[:length]], dtype=np.int32)
        times = future.times[:length]
        made.append(EventSequence(times, kinds, float(times[-1]) + 1.0, str(number)))
    return EventData(made, model.vocabulary)


def liveliness(model: IntensityModel, data: EventData, seed: int) -> tuple[float, float]:
    """Return the variation (standard deviation over mean) of the total intensity, and of a type's share of it (median over types)."""
    rng = np.random.default_rng([seed, 2])
    found = [model.intensity(one, np.sort(rng.uniform(0.0, one.times[-1], LOOKED_AT))) for one in data]
    intensities = np.concatenate(found)
    total = intensities.sum(1)
    shares = intensities / total[:, None]
    return float(total.std() / total.mean()), float(np.median(shares.std(0) / shares.mean(0)))


def _made(table: Mapping[str, Any], types: int, seed: int, gain: float) -> IntensityModel:
    config = make_config({"model": dict(table)}, "random model")
    model = config.model.make(Vocabulary.of_size(types), seed=seed, dtype=torch.float64)
    time = getattr(model, "time", None)
    if time is not None:
        time.set_range(*WAVES)
    generator = torch.Generator().manual_seed(seed + 1)
    dim = int(getattr(model, "dim"))  # noqa: B009 (not every kind has one, those of the pilot do)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            if name in READOUT:
                parameter.normal_(generator=generator).mul_(gain / dim**0.5)
            elif name in CONSTANTS:
                parameter.normal_(LEVEL, 1.0, generator=generator)
    model.fitted = True  # nothing is to be taken from data
    model.longest = WAVES[1]
    return model.eval()


def _set_clock(model: IntensityModel, unit: float) -> None:
    """Slow the process down by the factor `unit`: the same process on another clock."""
    model.time_scale *= unit
    model.longest = None if model.longest is None else model.longest * unit
    time = getattr(model, "time", None)
    if time is not None:
        time.set_range(time.m * unit, time.M * unit)
