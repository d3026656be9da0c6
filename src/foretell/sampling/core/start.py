"""The walks of each kind of model."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from foretell.data import EventSequence
from foretell.errors import ForetellError
from foretell.models.attention.anhp import ANHP
from foretell.models.base import IntensityModel
from foretell.models.classical.hawkes import Hawkes
from foretell.models.classical.poisson import Poisson
from foretell.models.last_event.last_event import LastEventModel
from foretell.models.recurrent.nhp import NHP
from foretell.models.rules.andtt import ANDTT
from foretell.models.rules.ndtt import NDTT
from foretell.sampling.anhp_sampler import ANHPWalks
from foretell.sampling.classical_sampler import HawkesWalks
from foretell.sampling.core.sampler import Walks
from foretell.sampling.last_event_sampler import MonotoneWalks
from foretell.sampling.nhp_sampler import NHPWalks
from foretell.sampling.rules.andtt_sampler import ANDTTWalks
from foretell.sampling.rules.ndtt_sampler import NDTTWalks


def start_walks(model: IntensityModel, histories: Sequence[EventSequence], seen: Sequence[int]) -> Walks:
    """One walk for each history, which begins with its first `seen` events."""
    numbers = [one.detach().flatten() for one in model.parameters()]
    if numbers and not bool((0.0 * torch.cat(numbers)).sum() == 0.0):  # but for what is infinite or no number
        raise ForetellError(
            f"{model.title}: some of its parameters are not finite numbers, so nothing can be drawn from it"
        )
    if isinstance(model, ANHP):
        return ANHPWalks.start(model, histories, seen)
    if isinstance(model, NHP):
        return NHPWalks.start(model, histories, seen)
    if isinstance(model, LastEventModel):
        return MonotoneWalks.start(model, histories, seen)
    if isinstance(model, Hawkes | Poisson):
        return HawkesWalks.start(model, histories, seen)
    if isinstance(model, ANDTT):
        return ANDTTWalks.start(model, histories, seen)
    if isinstance(model, NDTT):
        return NDTTWalks.start(model, histories, seen)
    raise ForetellError(f"{model.title} cannot be sampled from")
