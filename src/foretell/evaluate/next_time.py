"""When the next event is expected: the mean of its density, by adaptive quadrature of the survival function.

From each prefix of a sequence, `E[t − t_prev] = ∫ S(u) du` with `S = exp(−∫ λ)`. Panels of 15 Gauss-Kronrod nodes march into the
future until `S < 1e-6`; a panel whose 7- and 15-point integrals of `λ` differ is halved, one on which they agree is followed by a wider
one. What is left of `S` at the horizon is the probability that nothing happens by then (`no_event`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from foretell.data import EventData
from foretell.models.base import IntensityModel, Queries
from foretell.models.batch import Batch, Window
from foretell.train.score import batches_of

SURVIVAL_BELOW = 1e-6
TOLERANCE = 1e-5  # of a panel's integral of λ
LEAST_WEIGHT = 1e-3
MOST_IN_A_PANEL = 4.0  # ∫ λ: the polynomial through the nodes follows exp(−4) to 1e-10
SHORT_GAPS = 0.01  # the quantile of the gaps at which marching begins; panels double from there
HORIZON = 100.0  # in largest observation times of the data
UNDEFINED_ABOVE = 1e-3  # of no_event: the mean is then not reported

# Gauss-Kronrod (7, 15) on [-1, 1]: Piessens et al., QUADPACK (1983), table for qk15.
_NODES = (
    0.991455371120812639206854697526329,
    0.949107912342758524526189684047851,
    0.864864423359769072789712788640926,
    0.741531185599394439863864773280788,
    0.586087235467691130294144691693013,
    0.405845151377397166906606412076961,
    0.207784955007898467600689403773245,
    0.0,
)
_KRONROD = (
    0.022935322010529224963732008058970,
    0.063092092629978553290700663189204,
    0.104790010322250183839876322541518,
    0.140653259715525918745189590510238,
    0.169004726639267902826583426598550,
    0.190350578064785409913256402421014,
    0.204432940075298892414161999234649,
    0.209482141084727828012999174891714,
)
_GAUSS = (
    0.129484966168869693270611432679082,
    0.279705391489276667901467771423780,
    0.381830050505118944950369775488975,
    0.417959183673469387755102040816327,
)


@dataclass(frozen=True)
class NextTimes:
    """For every scored event, in the order of the data: the predicted time given what came before it."""

    sequence: np.ndarray
    event: np.ndarray
    predicted: np.ndarray  # NaN where the mean is undefined
    no_event: np.ndarray


@dataclass(frozen=True)
class Rule:
    """Nodes on [0, 1], both rules' weights there, and the matrix that integrates from 0 to each node."""

    nodes: Tensor
    kronrod: Tensor
    gauss: Tensor
    cumulative: Tensor


def gauss_kronrod(device: torch.device) -> Rule:
    nodes = np.array([-x for x in _NODES[:-1]] + [0.0] + list(reversed(_NODES[:-1])))
    kronrod = np.array([*list(_KRONROD[:-1]), _KRONROD[-1], *list(reversed(_KRONROD[:-1]))])
    gauss = np.zeros(15)
    gauss[[1, 3, 5, 7, 9, 11, 13]] = [*list(_GAUSS[:-1]), _GAUSS[-1], *list(reversed(_GAUSS[:-1]))]
    legendre = np.polynomial.legendre
    # Coefficients of the interpolating polynomial in Legendre's basis, integrated from −1 to each node.
    basis = np.linalg.inv(legendre.legvander(nodes, 14))
    integrals = np.stack([legendre.legval(nodes, legendre.legint(row, lbnd=-1.0)) for row in np.eye(15)], axis=1)
    cumulative = integrals @ basis
    arrays = (nodes + 1.0) / 2.0, kronrod / 2.0, gauss / 2.0, cumulative / 2.0
    return Rule(*(torch.from_numpy(np.ascontiguousarray(array)).to(device) for array in arrays))


@torch.no_grad()
def predict_next_times(
    model: IntensityModel,
    data: EventData,
    *,
    window: Window = "all",
    progress: Callable[[int, int], None] | None = None,
) -> NextTimes:
    longest = model.longest if model.longest is not None else max((sequence.t_end for sequence in data), default=1.0)
    horizon = HORIZON * longest
    first_panel = _first_panel(data, horizon)
    rule = gauss_kronrod(model.device)
    parts: list[tuple[np.ndarray, ...]] = []
    done = 0
    for indices, batch in batches_of(data, model, window, 30):
        history = model.encode(batch)
        expected, survival = _march(model, history, batch, rule, first_panel, horizon)
        row, event = torch.nonzero(batch.event_counts, as_tuple=True)
        names = torch.tensor(indices, device=row.device)[row]
        predicted = (batch.gap_start[:, :-1] + expected)[row, event]
        missed = survival[row, event]
        predicted = torch.where(missed > UNDEFINED_ABOVE, torch.nan, predicted)
        parts.append(tuple(column.cpu().numpy() for column in (names, event, predicted, missed)))
        done += len(indices)
        if progress is not None:
            progress(done, len(data))
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)] if parts else [np.empty(0)] * 4
    order = np.lexsort((columns[1], columns[0]))
    return NextTimes(*(column[order] for column in columns))


def _first_panel(data: EventData, horizon: float) -> float:
    """The shortest gaps: after an event an intensity may jump and fall on their scale, and a wider panel would not see it."""
    gaps = data.gaps()
    positive = gaps[gaps > 0.0]
    return float(np.quantile(positive, SHORT_GAPS)) if len(positive) else horizon / (100.0 * HORIZON)


def _march(
    model: IntensityModel,
    history: Any,
    batch: Batch,
    rule: Rule,
    first_panel: float,
    horizon: float,
) -> tuple[Tensor, Tensor]:
    """`∫ S` and the last `S` from every prefix of a batch: [B, N] each."""
    start = batch.gap_start[:, :-1]
    elapsed, hazard, expected = torch.zeros_like(start), torch.zeros_like(start), torch.zeros_like(start)
    width = torch.full_like(start, first_panel)
    active = batch.event_counts.clone()
    enough = -float(np.log(SURVIVAL_BELOW))
    # As far as an intensity like the present one would need, and no less than the horizon: what is left then may never happen.
    rate = model.total(model.state(history, Queries.by_gap(start.unsqueeze(-1)))).double()
    ends = torch.clamp(2.0 * enough / rate.clamp(min=1e-300), min=horizon, max=1e3 * horizon)
    while bool(active.any()):
        place, used = _packed(active)
        at = elapsed.gather(1, place)
        step = torch.minimum(width.gather(1, place), ends.gather(1, place) - at)
        times = start.gather(1, place)[..., None] + at[..., None] + step[..., None] * rule.nodes
        seen = place[..., None].expand_as(times).flatten(1)
        state = model.state(history, Queries.seeing(times.flatten(1), seen))
        rate = model.total(state).double().unflatten(1, times.shape[1:])
        whole = step * (rate @ rule.kronrod)
        off = (whole - step * (rate @ rule.gauss)).abs()
        # What is off later matters less: it is weighed by the survival up to there.
        weight = torch.exp(-hazard.gather(1, place)).clamp(min=LEAST_WEIGHT)
        allowed = TOLERANCE * whole.clamp(min=1.0) / weight
        fine = (off <= allowed) & (whole <= MOST_IN_A_PANEL) | (step <= first_panel * 1e-9)
        inside = torch.exp(-hazard.gather(1, place)[..., None] - step[..., None] * (rate @ rule.cumulative.T))
        accepted = fine & used
        _add(expected, place, torch.where(accepted, step * (inside @ rule.kronrod), 0.0))
        _add(hazard, place, torch.where(accepted, whole, 0.0))
        _add(elapsed, place, torch.where(accepted, step, 0.0))
        wider = torch.where(fine, torch.where(off <= allowed / 64.0, 2.0, 1.0), 0.5) * step.clamp(
            min=first_panel * 1e-9
        )
        _add(width, place, torch.where(used, wider - width.gather(1, place), 0.0))
        active &= (hazard < enough) & (elapsed < ends * (1.0 - 1e-12))
    return expected, torch.exp(-hazard)


def _packed(active: Tensor) -> tuple[Tensor, Tensor]:
    """The active places of each row, side by side, and which of them are real: [B, most active]."""
    most = int(active.sum(1).max())
    place = torch.argsort(active.int(), dim=1, descending=True, stable=True)[:, :most]
    return place, active.gather(1, place)


def _add(target: Tensor, place: Tensor, values: Tensor) -> None:
    target.scatter_add_(1, place, values)
