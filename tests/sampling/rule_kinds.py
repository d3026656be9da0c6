"""Models of rules with random weights, of each kind, and one sequence of each: what tests of their sampler start from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from foretell.data import EventSequence, Vocabulary
from foretell.lang.program import Program
from foretell.models.rules.andtt import ANDTT
from foretell.models.rules.andtt_sampler import ANDTTSampler
from foretell.models.rules.ndtt import NDTT
from foretell.models.rules.ndtt_sampler import NDTTSampler
from foretell.models.rules.rule_model import RuleModel
from foretell.models.rules.rule_sampler import RuleSampler
from foretell.models.rules.s2ndtt import S2NDTT
from foretell.models.rules.s2ndtt_sampler import S2NDTTSampler
from tests.plan.rich_programs import RichCase
from tests.samples import randomise, randomise_rules
from tests.sampling.told import Told


def _meet(model: RuleModel, names: Sequence[str], times: Sequence[float]) -> None:
    """Parameters for all that the history gives rise to."""
    model.widen(dict.fromkeys(names))
    types = np.asarray([model.vocabulary.find(name) for name in names], dtype=np.int32)
    model.possible_intensities(EventSequence(np.asarray(times, dtype=np.float64), types, 1e10), [1e3])


def told_andtt(
    text: str, names: Sequence[str] = (), times: Sequence[float] = (), dim: int = 3, spread: float = 0.6, **options: Any
) -> Told[ANDTT]:
    options = {"intensity_scales": 0, **options}
    model = ANDTT(Program.from_text(text, dim=dim), Vocabulary(()), dim=dim, layers=2, dtype=torch.float64, **options)
    model.time.set_range(0.5, 20.0)
    model.mixture.set_range(0.05, 3.0)
    _meet(model, names, times)
    return Told(randomise(model, 1, spread), names, times)


def told_ndtt(
    text: str, names: Sequence[str] = (), times: Sequence[float] = (), dim: int = 3, spread: float = 0.8, **options: Any
) -> Told[NDTT]:
    model = NDTT(Program.from_text(text, dim=dim), Vocabulary(()), dim=dim, dtype=torch.float64, **options)
    return _told(model, names, times, spread)


def told_s2ndtt(
    text: str, names: Sequence[str] = (), times: Sequence[float] = (), dim: int = 3, spread: float = 0.6, **options: Any
) -> Told[S2NDTT]:
    sizes = {"layers": 2, "states": 3, **options}
    model = S2NDTT(Program.from_text(text, dim=dim), Vocabulary(()), dim=dim, dtype=torch.float64, **sizes)
    return _told(model, names, times, spread)


def _told(model: Any, names: Sequence[str], times: Sequence[float], spread: float) -> Told[Any]:
    model.time_scale = 1.3
    model.mixture.set_range(0.05, 3.0)
    _meet(model, names, times)
    return Told(randomise_rules(model, 1, spread), names, times)


def andtt_of(case: RichCase, seen: int) -> Told[ANDTT]:
    events, times, _ = case.sequences[0]
    return Told(case.model(), events[:seen], times[:seen])


def ndtt_of(case: RichCase, seen: int, spread: float = 0.6) -> Told[NDTT]:
    events, times, _ = case.sequences[0]
    return Told(case.ndtt(spread=spread), events[:seen], times[:seen])


def s2ndtt_of(case: RichCase, seen: int, spread: float = 0.6) -> Told[S2NDTT]:
    events, times, _ = case.sequences[0]
    return Told(case.s2ndtt(spread=spread), events[:seen], times[:seen])


@dataclass(frozen=True)
class Kind:
    name: str
    told: Callable[..., Told[Any]]
    of_case: Callable[[RichCase, int], Told[Any]]
    start: Callable[..., RuleSampler]
    programs: int  # random ones that are tried where there is time


KINDS = [
    Kind("A-NDTT", told_andtt, andtt_of, ANDTTSampler.start, 150),
    Kind("NDTT", told_ndtt, ndtt_of, NDTTSampler.start, 120),
    Kind("S2-NDTT", told_s2ndtt, s2ndtt_of, S2NDTTSampler.start, 120),
]
# With factors of the time since the last event; random programs have some or none.
FACTORS = [{"intensity_scales": 3}, {"intensity_scales": 2, "intensity_shape": 2}, {"intensity_shape": 3}]
TIMED = [
    Kind(f"{one.name} with time scales", partial(one.told, **factors), one.of_case, one.start, one.programs)
    for one, factors in zip(KINDS, FACTORS, strict=True)
]
