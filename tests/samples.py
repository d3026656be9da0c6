"""Small event data and models with random parameters, from a seed: what tests of models are run on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import torch

from foretell.data import EventData, EventSequence, Vocabulary
from foretell.data.dataset import Origin
from foretell.models.attention.anhp import ANHP
from foretell.models.attention.structure import AnhpOptions
from foretell.models.base import IntensityModel
from foretell.models.rules.rule_model import RuleModel
from foretell.reference.events import Event, History

PLAIN = AnhpOptions.presets["plain"]
NAMES = ("a", "b", "c", "d", "e", "f")
Model = TypeVar("Model", bound=IntensityModel)
Rules = TypeVar("Rules", bound=RuleModel)


def event_data(
    rows: Sequence[tuple[Sequence[float], Sequence[int]]],
    *,
    types: int = 3,
    t_end: float | Sequence[float] = 10.0,
    origin: Origin = "window",
) -> EventData:
    """Sequences from (times, types), over the types a, b, c …"""
    ends = [t_end] * len(rows) if isinstance(t_end, int | float) else t_end
    sequences = [
        EventSequence(np.array(times, dtype=np.float64), np.array(kinds, dtype=np.int32), end, str(place))
        for place, ((times, kinds), end) in enumerate(zip(rows, ends, strict=True))
    ]
    return EventData(sequences, Vocabulary(NAMES[:types]), origin, "sample")


def random_rows(
    seed: int, lengths: Sequence[int], *, types: int = 3, t_end: float = 10.0, ties: bool = False
) -> list[tuple[list[float], list[int]]]:
    """Times in order, on a grid of 21 places where `ties` are wanted."""
    random = np.random.default_rng(seed)
    rows = []
    for length in lengths:
        times = np.sort(random.uniform(0.0, 0.95 * t_end, length))
        if ties:
            times = np.round(times / t_end * 20.0) / 20.0 * t_end
        rows.append((times.tolist(), random.integers(0, types, length).tolist()))
    return rows


def random_data(
    seed: int, lengths: Sequence[int], *, types: int = 3, t_end: float = 10.0, ties: bool = False
) -> EventData:
    return event_data(random_rows(seed, lengths, types=types, t_end=t_end, ties=ties), types=types, t_end=t_end)


def as_history(data: EventData, index: int) -> History:
    """A sequence as the slow twin reads it."""
    sequence = data[index]
    return tuple(map(Event, data.names_of(sequence), sequence.times.tolist()))


def randomise(model: Model, seed: int, spread: float = 0.6) -> Model:
    """Every parameter drawn anew, so that none is at a value where it has no effect."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.copy_(spread * noise)
    return model


def with_hawkes_part(model: ANHP, seed: int) -> ANHP:
    """Fill what a model has of a Hawkes process, which is no parameter."""
    generator = torch.Generator().manual_seed(seed)
    if model.hawkes is not None:
        model.hawkes.alpha.copy_(torch.rand(model.hawkes.alpha.shape, generator=generator, dtype=torch.float64))
        model.hawkes.log_beta.copy_(torch.randn(model.hawkes.log_beta.shape, generator=generator, dtype=torch.float64))
    return model


def randomise_rules(model: Rules, seed: int, spread: float = 0.6) -> Rules:
    """As `randomise`, with exponents above 1, where a pool is no sum and has slopes on both sides."""
    randomise(model, seed, spread)
    with torch.no_grad():
        for name, stack in model.rule_network.stacks.items():
            if name.endswith("_beta"):
                stack.abs_().add_(0.05)
    return model
