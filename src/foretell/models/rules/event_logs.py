"""Log-intensities of possible and observed events from their embeddings, and the parameters of intensities under their public names.

`λ_e(t) = τ softplus(w(t)·[1; emb]/τ) r(t)`. `w(t)` changes with the calendar, if there is one (`rule_calendar.py`), and the factors `r(t)`
depend on the time since the last event (`time_mixture.py`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from foretell.errors import ForetellError
from foretell.models.rules.rule_calendar import ClockRows
from foretell.models.rules.rule_network import Embeddings
from foretell.models.rules.time_mixture import Densities
from foretell.nn.intensity import log_softplus
from foretell.plan.plan import Frame

if TYPE_CHECKING:
    from foretell.models.rules.rule_model import RuleModel


def event_logs(
    model: RuleModel, plan: Frame, embeddings: Embeddings, densities: Densities | None, clock: ClockRows | None
) -> tuple[Tensor, Tensor]:
    """Return log-intensities of all possible events, and of all observed events: 0 for those that are not scored."""
    split_up = [len(plan.possible_query), plan.events]
    out = torch.zeros(sum(split_up), dtype=model.dtype, device=model.device)
    for part in plan.intensities:
        functors, rows = model.events_by_dim[part.rows.dim], part.rows.of(embeddings)
        w = torch.stack([model.w[number] for number in functors])
        log_tau = model.log_tau.index_select(0, part.functor)
        scores = torch.addmm(w[:, 0], rows, w[:, 1:].T)
        score = scores.gather(1, part.column.unsqueeze(1)).squeeze(1)
        if clock is not None and model.clock is not None:
            score = score + clock.turned([model.clock.heads[number] for number in functors], part, rows)
        log = log_softplus(score / log_tau.exp()) + (log_tau - math.log(model.time_scale))
        if densities is not None:
            log = log + model.mixture.log_factors(functors, part, rows, densities.of(part.place))
        out = out.index_put((part.place,), log)
    possible, happened = out.split(split_up)
    return possible, happened


def event_arrays(model: RuleModel) -> dict[str, Tensor]:
    """Return parameters of intensities, in the data's unit of time, and of the calendar, under their public names."""
    found: dict[str, Tensor] = {}
    for number, name in enumerate(model.functors):
        found[f"intensity.{name}.w"] = model.w[number] / model.time_scale
        found[f"intensity.{name}.tau"] = model.log_tau[number].exp() / model.time_scale
        found |= {f"intensity.{name}.{letter}": one for letter, one in model.mixture.arrays(number).items()}
    return found if model.clock is None else found | model.clock.named_arrays(model.time_scale)


def check_event_arrays(model: RuleModel, arrays: Mapping[str, Tensor]) -> None:
    """Raise an error if these parameters of intensities are invalid."""
    for name in model.functors:
        if not bool((arrays[f"intensity.{name}.tau"] > 0).all()):
            raise ForetellError(f"intensity.{name}.tau: expected a number above 0")


@torch.no_grad()
def load_event_arrays(model: RuleModel, arrays: Mapping[str, Tensor]) -> None:
    """Set parameters from arrays like those of `event_arrays`."""
    for number, name in enumerate(model.functors):
        model.w[number].copy_(arrays[f"intensity.{name}.w"] * model.time_scale)
        model.log_tau[number] = (arrays[f"intensity.{name}.tau"] * model.time_scale).log()
        for letter, one in model.mixture.arrays(number).items():
            one.copy_(arrays[f"intensity.{name}.{letter}"])
    if model.clock is not None:
        model.clock.load_named_arrays(arrays, model.time_scale)
