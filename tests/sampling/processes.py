"""Small models with memory, and a history, from which tests sample."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from foretell.data import EventSequence, Vocabulary
from foretell.lang.program import Program
from foretell.models.attention.anhp import ANHP
from foretell.models.classical.hawkes import Hawkes
from foretell.models.last_event.sahp import SAHP
from foretell.models.last_event.thp import THP
from foretell.models.recurrent.nhp import NHP
from foretell.models.recurrent.rmtpp import RMTPP
from foretell.models.rules.andtt import ANDTT
from foretell.models.rules.ndtt import NDTT
from foretell.models.rules.s2ndtt import S2NDTT
from foretell.models.state_space.s2p2 import S2P2
from tests.samples import PLAIN, randomise

TYPES = Vocabulary(("a", "b", "c"))
PAST = EventSequence(np.array([0.3, 1.1, 1.15, 2.0]), np.array([0, 2, 1, 0]), 2.2, "past")
RULES = """
:- event(a, 8).
:- event(b, 8).
:- event(c, 8).
a. b.
calm.
c :- fired.
fired <- a, calm.
fired <- b.
!fired <- c.
a <- a. a <- b. b <- c. c <- c.
"""


def anhp() -> ANHP:
    model = randomise(ANHP(TYPES, **PLAIN, dim=6, layers=2, dtype=torch.float64), seed=21)
    model.time.set_range(0.1, 10.0)
    return model


def nhp() -> NHP:
    return randomise(NHP(TYPES, dim=8, dtype=torch.float64), seed=23, spread=0.9)


def rmtpp() -> RMTPP:
    return randomise(RMTPP(TYPES, dim=8, dtype=torch.float64), seed=27, spread=0.5)


def s2p2() -> S2P2:
    model = randomise(S2P2(TYPES, dim=6, layers=2, states=4, dtype=torch.float64), seed=28, spread=0.8)
    with torch.no_grad():
        for layer in model.layer_list():
            layer.frequency.mul_(6.0)
    return model


def thp() -> THP:
    model = randomise(THP(TYPES, dim=6, layers=2, heads=2, dtype=torch.float64), seed=24, spread=0.4)
    model.time.set_range(0.1, 10.0)
    with torch.no_grad():
        model.w_constant.sub_(1.0)  # fewer events
    return model


def sahp() -> SAHP:
    model = randomise(SAHP(TYPES, dim=6, layers=2, heads=2, dtype=torch.float64), seed=25)
    model.time.set_range(0.1, 10.0)
    with torch.no_grad():
        model.w_constant[:6] -= 2.0  # μ and η: fewer events
    return model


def andtt() -> ANDTT:
    sizes: dict[str, Any] = {"dim": 8, "layers": 1, "intensity_scales": 0}
    model = randomise(ANDTT(Program.from_text(RULES, dim=8), TYPES, dtype=torch.float64, **sizes), seed=22)
    model.time.set_range(0.1, 10.0)
    return model


def timed_andtt() -> ANDTT:
    """With a mixture over time scales."""
    sizes: dict[str, Any] = {"dim": 8, "layers": 1, "intensity_scales": 3}
    model = randomise(ANDTT(Program.from_text(RULES, dim=8), TYPES, dtype=torch.float64, **sizes), seed=22)
    model.time.set_range(0.1, 10.0)
    model.mixture.set_range(0.02, 2.0)
    with torch.no_grad():
        for v in model.mixture.v:
            v[:, 0] -= 4.0  # fewer events
    return model


def ndtt() -> NDTT:
    return randomise(NDTT(Program.from_text(RULES, dim=8), TYPES, dim=8, dtype=torch.float64), seed=26, spread=0.8)


def s2ndtt() -> S2NDTT:
    program, sizes = Program.from_text(RULES, dim=8), {"dim": 8, "layers": 1, "states": 3}
    return randomise(S2NDTT(program, TYPES, dtype=torch.float64, **sizes), seed=26, spread=0.4)


def hawkes() -> Hawkes:
    model = Hawkes(TYPES, decays=2)
    with torch.no_grad():
        model.mu.copy_(torch.tensor([0.4, 0.2, 0.3]))
        model.alpha.copy_(0.15 * torch.rand(3, 3, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64))
        model.beta.copy_(torch.tensor([0.7, 6.0]))
    return model


MODELS = [anhp, nhp, rmtpp, s2p2, thp, sahp, andtt, timed_andtt, ndtt, s2ndtt, hawkes]
