"""The next event of every draw, by thinning under proved bounds: exact, whatever the bounds are.

Time after a walk's last event is cut into short pieces with a bound each. Under the bounds proposals are a Poisson process; one at time
`t` is the next event with probability `λ(t) / bound`, and otherwise nothing happened there. Pieces are made a window at a time, as long as
they are needed, and their length follows how tight the bounds are. Draws from one past share its pieces.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from foretell.sampling.walk import Bounds, Walks

TIGHT, LOOSE = 1.15, 2.0  # bound over intensity, below which pieces grow and above which they are cut
CHEAP = 0.1  # proposals that a piece may waste, however loose its bound
GROWTH, CUT = 1.4, 0.3
WORTH, FEW = (
    1.0,
    8,
)  # events that a window is expected to hold; twice as many where walks are few, and pieces cost little
MOST_PIECES, PIECES_AT_A_TIME = 512, 4096  # of a walk's window, and of all windows together
SHORTEST = 1e-13  # of the time itself, or of a first piece: pieces are not cut below the rounding of time
KEPT = 0.7  # share of walks still wanted, below which the others are set aside


class BoundExceeded(RuntimeError):
    """An intensity above its proved bound: a mistake in foretell, never in what it was given."""


@dataclass(frozen=True)
class Cost:
    """What was looked at: a bound is one window of a walk, whose pieces are counted too."""

    accepted: int = 0
    proposals: int = 0
    bounds: int = 0
    pieces: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.accepted + other.accepted,
            self.proposals + other.proposals,
            self.bounds + other.bounds,
            self.pieces + other.pieces,
        )


@dataclass(frozen=True)
class Pace:
    """What is remembered of each walk: how long pieces may be, and how many events there were a unit of time."""

    width: Tensor  # float64 [W]
    rate: Tensor  # float64 [W]; 0: not known

    @classmethod
    def first(cls, walks: Walks, device: torch.device) -> Pace:
        width = torch.full((walks.count,), walks.width, dtype=torch.float64, device=device)
        return cls(width, torch.zeros_like(width))

    def taken(self, walks: Tensor) -> Pace:
        return Pace(self.width[walks], self.rate[walks])

    def put(self, walks: Tensor, other: Pace) -> None:
        if other is not self:
            self.width[walks], self.rate[walks] = other.width, other.rate


@dataclass(frozen=True)
class Drawn:
    times: Tensor  # float64 [draws]: NaN where nothing happens up to the horizon
    choices: Tensor  # int64 [draws]: columns of the walk's intensities; -1 where nothing happens
    cost: Cost

    @property
    def found(self) -> Tensor:
        return self.choices >= 0


@dataclass(frozen=True)
class _Window:
    """Pieces of some walks, and the mass of proposals on them: nothing from the first loose one on."""

    edges: Tensor  # [A, P + 1]
    upper: Tensor  # [A, P]
    mass: Tensor  # [A, P + 1]: up to each edge
    end: Tensor  # [A]

    @property
    def whole(self) -> Tensor:
        return self.mass[:, -1]


@dataclass(frozen=True)
class Stretch:
    """What the next window of each walk brought."""

    drawn: Drawn
    end: Tensor  # float64 [W]: how far it goes; nothing is known beyond


@torch.inference_mode()
def next_events(
    walks: Walks,
    walk_of_draw: Tensor,  # int64 [draws]
    start: Tensor,  # float64 [W]
    horizon: Tensor,  # float64 [W]
    pace: Pace,  # goes on from here, in place
    random: torch.Generator,  # on the CPU, so that every device draws the same
) -> Drawn:
    """The next event of every draw; draws may share walks."""
    times = torch.full_like(walk_of_draw, 0, dtype=torch.float64).fill_(math.nan)
    choices = torch.full_like(walk_of_draw, -1)
    cost = Cost()
    now = start.clone()
    kept, subset, slower = torch.arange(walks.count, device=start.device), walks, pace
    while True:
        waiting = ((choices < 0) & (now < horizon)[walk_of_draw]).nonzero().squeeze(1)
        wanted = torch.zeros(walks.count, dtype=torch.bool, device=start.device)
        wanted[walk_of_draw[waiting]] = True
        if not len(waiting):
            pace.put(kept, slower)
            return Drawn(times, choices, cost)
        if int(wanted.sum()) < KEPT * len(kept):
            pace.put(kept, slower)
            kept = wanted.nonzero().squeeze(1)
            subset, slower = walks.taken(kept), pace.taken(kept)
        place = torch.empty_like(wanted, dtype=torch.int64)
        place[kept] = torch.arange(len(kept), device=start.device)
        # Walks that are not wanted but not set aside either get a window of no length.
        end = torch.where(wanted, horizon, now)[kept]
        stretch = next_stretch(subset, place[walk_of_draw[waiting]], now[kept], end, slower, random)
        times[waiting], choices[waiting] = stretch.drawn.times, stretch.drawn.choices
        now[kept] = stretch.end
        cost += stretch.drawn.cost


@torch.inference_mode()
def next_stretch(
    walks: Walks, walk_of_draw: Tensor, now: Tensor, horizon: Tensor, pace: Pace, random: torch.Generator
) -> Stretch:
    """The next event of every draw within the next window of its walk."""
    window, cost = _window(walks, now, horizon, pace)
    drawn = _thin(walks, window, walk_of_draw, random)
    return Stretch(Drawn(drawn.times, drawn.choices, drawn.cost + cost), window.end)


def _window(walks: Walks, now: Tensor, horizon: Tensor, pace: Pace) -> tuple[_Window, Cost]:
    live = horizon > now
    known = live & (pace.rate > 0.0)
    count = 2
    if bool(known.any()):
        wished = (WORTH if len(now) > FEW else 2.0 * WORTH) / (pace.rate * pace.width)[known].clamp(min=1e-9)
        count = int(wished.quantile(0.7).ceil().clamp(2, min(MOST_PIECES, max(8, PIECES_AT_A_TIME // len(now)))))
    steps = torch.arange(count + 1, dtype=torch.float64, device=now.device)
    edges = torch.minimum(now[:, None] + pace.width[:, None] * steps, horizon[:, None])
    found = walks.bounds(edges[:, :-1], edges[:, 1:])
    upper, mass, usable, width = _judged(found, edges, pace.width, walks.width)
    pace.width.copy_(torch.where(live, torch.minimum(width, 2.0 * (horizon - now)), pace.width))
    pace.rate.copy_(torch.where(live, found.middle[:, 0], pace.rate))
    cost = Cost(bounds=int(live.sum()), pieces=int((edges[:, 1:] > edges[:, :-1]).sum()))
    return _Window(edges, upper, mass, edges.gather(1, usable[:, None]).squeeze(1)), cost


def _judged(found: Bounds, edges: Tensor, width: Tensor, first: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Bounds, masses and how many pieces are used; and how long the next pieces should be."""
    lengths = edges[:, 1:] - edges[:, :-1]
    ratio = torch.where(lengths > 0.0, found.upper / found.middle.clamp(min=1e-300), 1.0)
    short = lengths <= SHORTEST * edges[:, 1:].abs().clamp(min=first)
    wasted = (found.upper - found.middle).clamp(min=0.0) * lengths  # proposals, beside those that are accepted
    fine = (ratio <= LOOSE) | (wasted <= CHEAP) | (short & found.upper.isfinite())
    usable = fine.int().cumprod(1).sum(1)
    stuck = (usable == 0) & short[:, 0]
    if bool(stuck.any()):
        raise BoundExceeded("no finite bound on the shortest piece of time: are there infinite parameters?")
    counted = torch.arange(lengths.shape[1], device=edges.device)[None] < usable[:, None]
    upper = torch.where(counted, found.upper, 0.0)
    mass = torch.nn.functional.pad((upper * lengths).cumsum(1), (1, 0))
    tight = ((ratio < TIGHT) | (wasted < CHEAP / 4.0) | ~counted).all(1)
    all_used = usable == lengths.shape[1]
    width = torch.where(usable == 0, width * CUT, torch.where(all_used, width, width * 0.8))
    return upper, mass, usable, torch.where(all_used & tight, width * GROWTH, width)


def _thin(walks: Walks, window: _Window, walk_of_draw: Tensor, random: torch.Generator) -> Drawn:
    """Proposals one after the other for every draw, until one is accepted or the window ends."""
    device = window.mass.device
    found_times = torch.full_like(walk_of_draw, 0, dtype=torch.float64).fill_(math.nan)
    found = torch.full_like(walk_of_draw, -1)
    draw, row = torch.arange(len(walk_of_draw), device=device), walk_of_draw
    reached = torch.zeros(len(draw), dtype=torch.float64, device=device)
    cost = Cost()
    while len(draw):
        noise = torch.rand(2, len(draw), generator=random, dtype=torch.float64).to(device)
        reached = reached - torch.log1p(-noise[0])
        stays = reached < window.whole[row]
        draw, row, reached, chance = draw[stays], row[stays], reached[stays], noise[1][stays]
        if not len(draw):
            break
        piece = torch.searchsorted(window.mass[row], reached[:, None], right=True).squeeze(1) - 1
        piece = piece.clamp(max=window.upper.shape[1] - 1)
        upper = window.upper[row, piece]
        times = window.edges[row, piece] + (reached - window.mass[row, piece]) / upper
        times = torch.minimum(times, window.edges[row, piece + 1])
        rates = _at(walks, row, times)
        summed = rates.cumsum(1)
        total = summed[:, -1]
        if bool((total > upper).any()):
            worst = int((total / upper).argmax())
            raise BoundExceeded(
                f"intensity {total[worst]:.17g} above its bound {upper[worst]:.17g} at {times[worst]:.17g}"
            )
        level = chance * upper  # given that it is below the total, it is uniform there, and says which
        accepted = level < total
        chosen = (summed <= level[:, None]).sum(1).clamp(max=rates.shape[1] - 1)
        done = draw[accepted]
        found_times[done], found[done] = times[accepted], chosen[accepted]
        cost += Cost(accepted=len(done), proposals=len(draw))
        draw, row, reached = draw[~accepted], row[~accepted], reached[~accepted]
    return Drawn(found_times, found, cost)


def _at(walks: Walks, row: Tensor, times: Tensor) -> Tensor:
    """Intensities [draws, C] at one time for each draw; draws of a walk are asked about side by side."""
    asked, row = row.unique(return_inverse=True)
    if len(asked) < KEPT * walks.count:
        walks = walks.taken(asked)
    elif len(asked) < walks.count:
        row = asked[row]
    order = row.argsort(stable=True)
    counts = row.bincount(minlength=walks.count)
    first = counts.cumsum(0) - counts
    column = torch.empty_like(row)
    column[order] = torch.arange(len(row), device=row.device) - first[row[order]]
    wide = int(counts.max())
    grid = times.new_zeros(walks.count, wide)
    some = times.new_zeros(walks.count).index_put((row,), times)  # what fills up a walk's row is one of its own times
    grid += some[:, None]
    grid[row, column] = times
    return walks.intensities(grid)[row, column]
