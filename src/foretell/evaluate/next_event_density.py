"""The density of the next event, integrated forward in panels from any number of starting points at once.

In: an encoded history and places in it (a starting time and the number of events that are seen). Out, for each place: the mean, the
survival `S = exp(−∫ λ)` at the end, quantiles, and the probability `∫ λ_e S` of each type to be next.

The mean is `∫ S` if `S` is almost 0 at the end. Otherwise `∫ S` would depend on the end of the range, and the mean is conditional
on an event before the end, `(∫ S − S·end)/(1 − S)`.

A panel is narrowed if its 7- and 15-point integrals of `λ` differ, down to the finest allowed width. After a panel on which they agree,
the next one is wider. The errors of all panels are summed and reported.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from foretell.batches.batch import Batch, Queries
from foretell.models.base import IntensityModel
from foretell.models.capabilities import HasRules
from foretell.models.pytree import tensors_of, with_tensors

NODES = 15
CELLS = 128  # parts of [0, 1]; `GaussKronrod.reaching` first finds the part, then the point in it
CORRECTIONS = 4  # Newton steps within that part

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
class GaussKronrod:
    """Nodes on [0, 1], the weights of both rules, and matrices from values at the nodes to the polynomial and its integral from 0."""

    nodes: Tensor  # [15]
    kronrod: Tensor  # [15]
    gauss: Tensor  # [15]
    cumulative: Tensor  # [15, 15]: the integral up to each node
    to_edges: Tensor  # [CELLS + 1, 15]: the integral up to the edge of each cell
    at_edges: Tensor  # [CELLS + 1, 15]: the polynomial at these edges

    def reaching(self, values: Tensor, size: Tensor) -> Tensor:
        """Return the point of [0, 1] at which the integral of each row of `values` [M, 15] first reaches `size` [M]; it has to reach it.

        Within a cell, the cubic with the values and slopes at both edges replaces the polynomial: cells are narrow enough for that.
        """
        up_to = values @ self.to_edges.T
        there = up_to[:, 1:] >= size[:, None]
        there[:, -1] = True
        cell = there.int().argmax(1, keepdim=True)
        slopes = (values @ self.at_edges.T) / CELLS
        start, end = (up_to.gather(1, cell + one).squeeze(1) for one in (0, 1))
        first, last = (slopes.gather(1, cell + one).squeeze(1) for one in (0, 1))
        square, cube = 3.0 * (end - start) - 2.0 * first - last, first + last - 2.0 * (end - start)
        inside = ((size - start) / (end - start).clamp(min=1e-300)).clamp(0.0, 1.0)
        for _ in range(CORRECTIONS):
            missing = size - start - inside * (first + inside * (square + inside * cube))
            slope = first + inside * (2.0 * square + inside * 3.0 * cube)
            inside = (inside + missing / slope.clamp(min=1e-300)).clamp(0.0, 1.0)
        return (cell.squeeze(1) + inside) / CELLS


@lru_cache
def gauss_kronrod(device: torch.device) -> GaussKronrod:
    nodes = np.array([-x for x in _NODES[:-1]] + [0.0] + list(reversed(_NODES[:-1])))
    kronrod = np.array([*list(_KRONROD[:-1]), _KRONROD[-1], *list(reversed(_KRONROD[:-1]))])
    gauss = np.zeros(NODES)
    gauss[[1, 3, 5, 7, 9, 11, 13]] = [*list(_GAUSS[:-1]), _GAUSS[-1], *list(reversed(_GAUSS[:-1]))]
    legendre = np.polynomial.legendre
    # Coefficients of the interpolating polynomial in Legendre's basis, and of its integral from −1.
    basis = np.linalg.inv(legendre.legvander(nodes, NODES - 1))
    integrated = np.stack([legendre.legint(row, lbnd=-1.0) for row in np.eye(NODES)], axis=1)
    running = integrated @ basis / 2.0
    cumulative = legendre.legvander(nodes, NODES) @ running
    edges = np.linspace(-1.0, 1.0, CELLS + 1)
    to_edges, at_edges = legendre.legvander(edges, NODES) @ running, legendre.legvander(edges, NODES - 1) @ basis
    arrays = (nodes + 1.0) / 2.0, kronrod / 2.0, gauss / 2.0, cumulative, to_edges, at_edges
    return GaussKronrod(*(torch.from_numpy(np.ascontiguousarray(array)).to(device) for array in arrays))


SURVIVAL_BELOW = 1e-6
ENOUGH = -math.log(SURVIVAL_BELOW)
LEAST_WEIGHT = 1e-3
MOST_IN_A_PANEL = 4.0  # ∫ λ: the polynomial through the nodes follows exp(−4) to 1e-10 …
MOST_LATER = 10.0  # … and exp(−10) to 1e-4, which is plenty once S is below 1e-2
NARROWEST = 1e-9  # the least width of a panel, as a share of the first one
PASSED = 1e-13  # relative: an expiry is in the past if it is this close to a time
PACKED_BELOW = 0.75  # rows are packed anew once fewer than this share of their places is unfinished
ABREAST = 4  # number of rows for the places of an average history: padding is then about an eighth
FEWEST = 4  # least number of places per row if a history has that many, since each row needs a copy of its history


@dataclass(frozen=True)
class Tolerance:
    """The accuracy of integrals of `λ`. Both numbers are divided by the survival so far, since later errors matter less."""

    tolerance: float  # largest difference between the two integrals of `λ` over a panel, relative to the integral if that is above 1
    finest: float  # panels with a smaller `∫ λ` are not narrowed even if `λ` oscillates inside: their errors remain


@dataclass(frozen=True)
class Places:
    """The starting times of the integration."""

    start: Tensor  # float64 [B, n]
    seen: Tensor  # int64 [B, n]: number of events that are seen
    wanted: Tensor  # bool [B, n]: whether the place is computed
    gap_by_gap: bool = False  # whether place g of every row sees g events


class Expiries:
    """The times at which additions expire. Columns after the seen events of a row are expiries, which the integration passes in order."""

    def __init__(self, batch: Batch) -> None:
        self.times, self.lengths = batch.times, batch.lengths.unsqueeze(1)

    @classmethod
    def of(cls, batch: Batch) -> Expiries | None:
        return None if batch.rules is None or batch.rules.event is None else cls(batch)

    def seen(self, first: Tensor, times: Tensor) -> Tensor:
        """Return the number of changes (events and expiries) seen at times [R, Q·P], at least `first`."""
        return torch.maximum(first, torch.searchsorted(self.times, times.contiguous()).minimum(self.lengths))

    def next(self, now: Tensor) -> Tensor:
        """Return the first expiry after each time [R, Q], or infinity. An expiry within rounding of a time counts as past."""
        place = torch.searchsorted(self.times, now + PASSED * (1.0 + now.abs()), right=True)
        edge = torch.nn.functional.pad(self.times, (0, 1), value=math.inf)
        return torch.where(place < self.lengths, edge.gather(1, place.clamp(max=self.times.shape[1])), math.inf)


@dataclass(frozen=True)
class Horizon:
    first: float  # width of the first panel
    last: float  # least length of time to integrate over; the survival that remains then may be the probability of no event at all
    exact: bool = False  # whether the integration ends exactly at `last`


@dataclass(frozen=True)
class NextEventDensity:
    """The density of the next event of each sequence; times count from its start."""

    mean: Tensor  # float64 [B, n]: conditional on an event before the end if the survival there is above SURVIVAL_BELOW
    error: Tensor  # float64 [B, n]: estimated error of the mean
    survival: Tensor  # float64 [B, n]: the survival at the end
    end: Tensor  # float64 [B, n]: the latest time at which the integration would end
    quantiles: Tensor  # float64 [B, n, levels]: NaN if the level is not reached by the end
    masses: Tensor  # [B, n, K]: probability of each type to be next, in the model's dtype

    def where(self, chosen: Tensor, other: NextEventDensity) -> NextEventDensity:
        """Combine the results of another integration at the chosen places [B, n] with those of this one elsewhere."""
        made = []
        for mine, theirs in ((getattr(self, one.name), getattr(other, one.name)) for one in fields(self)):
            made.append(torch.where(chosen if chosen.ndim == mine.ndim else chosen.unsqueeze(-1), theirs, mine))
        return NextEventDensity(*made)


@torch.no_grad()
def march(
    model: IntensityModel,
    batch: Batch,
    history: Any,
    places: Places,
    horizon: Horizon,
    care: Tolerance,
    quantiles: tuple[float, ...] = (),
) -> NextEventDensity:
    running = _Running(model, batch, history, places, horizon, quantiles)
    while bool(running.active.any()):
        running.step(care)
    return running.marched()


@dataclass(frozen=True)
class _Ranks:
    """The places that are integrated together, in rows [R] of Q places; each row has one history."""

    batch: Batch
    history: Any
    place: Tensor  # int64 [R, Q]: index among all places, row after row; padding has the index after the last one
    gap_by_gap: bool
    asked: dict[int, Queries] = field(default_factory=dict)  # planned queries, by number of times per place


class _Running:
    """The state of the integrations between two panels: tensors with one entry per place and a last entry for padding."""

    def __init__(
        self,
        model: IntensityModel,
        batch: Batch,
        history: Any,
        places: Places,
        horizon: Horizon,
        quantiles: tuple[float, ...],
    ) -> None:
        self.model, self.batch, self.history, self.horizon = model, batch, history, horizon
        self.shape, device = places.start.shape, places.start.device
        self.rule = gauss_kronrod(device)
        self.expiries = Expiries.of(batch)
        self.start, self.seen, self.active = (_flat(one) for one in (places.start, places.seen, places.wanted))
        count = len(self.start) - 1
        self.ranks = _Ranks(batch, history, torch.arange(count, device=device).view(self.shape), places.gap_by_gap)
        nothing = torch.zeros_like(self.start)
        self.elapsed, self.hazard, self.mean = nothing.clone(), nothing.clone(), nothing.clone()
        # With δ the possible error of a panel's hazard, which shifts all later times: Σ δ², Σ δ²·m and Σ δ²·m², where m is ∫S before it.
        self.off = [nothing.clone() for _ in range(3)]
        self.levels = [-math.log1p(-q) for q in quantiles]
        self.reached = nothing.new_full((count + 1, len(quantiles)), torch.nan)
        self.masses = torch.zeros(count + 1, model.types, dtype=model.dtype, device=device)
        self.width = torch.full_like(nothing, horizon.first)
        # The time that the present intensity would need if it stayed constant, and at least the horizon.
        _, total = self._rates(self.start[self.ranks.place].unsqueeze(-1))
        rate = _flat(total.squeeze(-1)).clamp(min=1e-300)
        latest = horizon.last if horizon.exact else 1e3 * horizon.last
        self.end = torch.clamp(2.0 * ENOUGH / rate, min=horizon.last, max=latest)

    def step(self, care: Tolerance) -> None:
        self._close_ranks()
        rule, place = self.rule, self.ranks.place
        used, at, hazard, before = (one[place] for one in (self.active, self.elapsed, self.hazard, self.mean))
        width = torch.minimum(self.width[place], self.end[place] - at)
        if self.expiries is not None:
            now = self.start[place] + at
            width = torch.minimum(width, self.expiries.next(now) - now)
        times = (self.start[place] + at)[..., None] + width[..., None] * rule.nodes
        by_type, rate = self._rates(times)
        whole = width * (rate @ rule.kronrod)
        off = (whole - width * (rate @ rule.gauss)).abs()
        weight = torch.exp(-hazard).clamp(min=LEAST_WEIGHT)
        allowed = care.tolerance * whole.clamp(min=1.0) / weight
        finest = care.finest / weight
        narrowest = NARROWEST * self.horizon.first
        agreed = off <= allowed
        most = torch.where(weight < 1e-2, MOST_LATER, MOST_IN_A_PANEL)
        fine = ((agreed | (whole <= 2.0 * finest)) & (whole <= most)) | (width <= narrowest)
        accepted = fine & used
        survival = torch.exp(-hazard[..., None] - width[..., None] * (rate @ rule.cumulative.T))
        weighed = survival * rule.kronrod

        self._add_masses(accepted, by_type, rate, weighed, torch.exp(-hazard) * -torch.expm1(-whole))
        self._note_quantiles(accepted, hazard, whole, at, width, rate)
        doubt = torch.where(accepted, off.square(), 0.0)
        for power, one in enumerate(self.off):
            self._add(one, doubt * before**power)
        self._add(self.mean, torch.where(accepted, width * weighed.sum(-1), 0.0))
        self._add(self.hazard, torch.where(accepted, whole, 0.0))
        self._add(self.elapsed, torch.where(accepted, width, 0.0))

        # The finest panels are accepted whatever their error, so none needs to be narrower.
        to_finest = finest / whole.clamp(min=1e-300)
        grown = torch.where(off <= allowed / 4096.0, 4.0, torch.where(off <= allowed / 64.0, 2.0, 1.0))
        wider = torch.where(agreed, torch.maximum(grown, to_finest.clamp(max=4.0)), to_finest.clamp(0.5, 4.0))
        factor = torch.where(fine, wider, to_finest.clamp(0.125, 0.5) if care.finest > 0.0 else 0.5)
        factor = torch.minimum(factor, torch.where(fine, 0.75 * most / whole.clamp(min=1e-300), 0.5))
        self.width[place] = factor * width.clamp(min=narrowest)
        self.active &= (self.hazard < ENOUGH) & (self.elapsed < self.end * (1.0 - 1e-12))

    def marched(self) -> NextEventDensity:
        nought, first, second = self.off
        survival = torch.exp(-self.hazard)
        left = torch.where((self.hazard >= ENOUGH) | (self.hazard <= 0.0), 0.0, survival)
        happens = torch.where(left > 0.0, -torch.expm1(-self.hazard), 1.0)
        mean = (self.mean - left * self.elapsed) / happens
        # An error δ of the hazard changes the later S by −δ·S, and so the mean by −δ·(mean − ∫S before it)/(1 − left).
        variance = nought * mean.square() - 2.0 * mean * first + second
        error = variance.clamp(min=0.0).sqrt() / happens
        found = mean, error, survival, self.end, self.reached, self.masses
        return NextEventDensity(*(one[:-1].unflatten(0, self.shape) for one in found))

    def _close_ranks(self) -> None:
        """Once many places are finished, pack the others into fewer rows, each with the history of its places."""
        marching = self.active.nonzero().squeeze(1)
        rows, per_row = self.shape
        if per_row == 1 or self.expiries is not None or len(marching) > PACKED_BELOW * self.ranks.place.numel():
            return
        row = marching // per_row
        counts = torch.bincount(row, minlength=rows)
        abreast = max(min(FEWEST, int(counts.max())), math.ceil(len(marching) / int((counts > 0).sum()) / ABREAST))
        ranks = -(-counts // abreast)  # rows of each history, rounded up
        number = torch.arange(len(marching), device=row.device) - (counts.cumsum(0) - counts)[row]
        first = ranks.cumsum(0) - ranks
        place = row.new_full((int(ranks.sum()), abreast), len(self.start) - 1)
        place[first[row] + number // abreast, number % abreast] = marching
        source = torch.repeat_interleave(torch.arange(rows, device=row.device), ranks)
        if place.numel() > 0.9 * self.ranks.place.numel():
            return
        tensors = [tensor.index_select(0, source) for tensor in tensors_of(self.history)]
        history = with_tensors(self.history, tensors, source.tolist())
        self.ranks = _Ranks(self.batch.take(source), history, place, gap_by_gap=False)

    def _rates(self, times: Tensor) -> tuple[Tensor, Tensor]:
        """Return the intensities of all types at times [R, Q, P] and their total: [R, Q, P, K], and float64 [R, Q, P]."""
        ranks, per_place = self.ranks, times.shape[2]
        if self.expiries is not None:
            seen = self.seen[ranks.place][..., None].expand_as(times).flatten(1)
            asked = Queries.seeing(times.flatten(1), self.expiries.seen(seen, times.flatten(1)))
            queries = self.model.collator.plan_queries(ranks.batch, asked)
        elif per_place in ranks.asked:
            queries = ranks.asked[per_place].at(times.flatten(1))
        else:
            if ranks.gap_by_gap:
                queries = Queries.by_gap(times)
            else:
                seen = self.seen[ranks.place][..., None].expand_as(times)
                queries = Queries.seeing(times.flatten(1), seen.flatten(1))
            queries = ranks.asked[per_place] = self.model.collator.plan_queries(ranks.batch, queries)
        state = self.model.state(ranks.history, queries)
        by_type = self.model.intensities(state)
        # In a model of rules, events can be possible that are not in its vocabulary.
        total = self.model.total(state) if isinstance(self.model, HasRules) else by_type.sum(-1)
        return by_type.unflatten(1, times.shape[1:]), total.double().unflatten(1, times.shape[1:])

    def _add(self, target: Tensor, values: Tensor) -> None:
        target.index_add_(0, self.ranks.place.flatten(), values.flatten(0, 1))

    def _add_masses(self, accepted: Tensor, by_type: Tensor, rate: Tensor, weighed: Tensor, lost: Tensor) -> None:
        """Add the survival that is lost in a panel to the types, in proportion to their intensities at the nodes."""
        share = weighed / (weighed * rate).sum(-1, keepdim=True).clamp(min=1e-300)
        taken = torch.where(accepted, lost, 0.0)[..., None] * share
        self._add(self.masses, (taken.to(by_type.dtype).unsqueeze(-2) @ by_type).squeeze(-2))

    def _note_quantiles(
        self, accepted: Tensor, hazard: Tensor, whole: Tensor, at: Tensor, width: Tensor, rate: Tensor
    ) -> None:
        for number, level in enumerate(self.levels):
            crossed = (accepted & (hazard < level) & (hazard + whole >= level)).nonzero(as_tuple=True)
            if not len(crossed[0]):
                continue
            values = rate[crossed] * width[crossed][:, None]
            inside = self.rule.reaching(values, level - hazard[crossed])
            self.reached[self.ranks.place[crossed], number] = at[crossed] + width[crossed] * inside


def _flat(values: Tensor) -> Tensor:
    """Flatten values by place to one entry per place, with a 0 for padding at the end."""
    return torch.cat([values.flatten(), values.new_zeros(1)])
