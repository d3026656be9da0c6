"""The next event of every draw, by thinning under proved bounds: exact, whatever the bounds are.

Time after a walk's last event is cut into short pieces with a bound each. Under the bounds proposals are a Poisson process; one at time
`t` is the next event with probability `λ(t) / bound`, and otherwise nothing happened there. Pieces are made a window at a time, as long as
they are needed, and their length follows how tight the bounds are. Draws from one past share its pieces.

A proposal has a level, uniform from 0 to the bound. Intensities of the choices lie on top of each other above 0, and the choice at the
level is the one that happens. Where more is known of a piece, every intensity is cut into three parts: what it is at least anywhere on the
piece, what more it is at least at that time, and the rest. First parts of all choices lie below second parts of all, and these below the
rest, so that most levels tell the choice before the network is asked.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from foretell.sampling.nodes import Nodes
from foretell.sampling.walk import Bounds, Walks

TIGHT, LOOSE = 1.15, 2.0  # bound over intensity, below which pieces grow and above which they are cut
CHEAP = 0.1  # proposals that a piece may waste, however loose its bound
GROWTH, CUT = 1.4, 0.3
WORTH, FEW = 1.0, 8  # events that a window is expected to hold; twice as many where walks are few
SEVERAL = 16  # draws a walk from which on it pays to know more of a piece than its bound
MANY, LOOKS = 500, 64  # draws a walk from which on it pays to look ahead, at that many times
FURTHER = 2.0  # mass that is looked for beyond the one that the last of the draws reaches on average
DRAWS_A_PIECE = 50
MOST_PIECES, PIECES_AT_A_TIME = 512, 4096  # of a walk's window, and of all windows together
SHORTEST = 1e-13  # of the time itself, or of a first piece: pieces are not cut below the rounding of time
ROUNDING = 1e-5  # half of a piece over the time itself, above which a place on it is known to 1e-11
AGAIN = 3  # proposals that are looked at together once the first one was not accepted
KEPT = 0.7  # share of walks still wanted, below which the others are set aside


class BoundExceeded(RuntimeError):
    """An intensity outside its proved bounds: a mistake in foretell, never in what it was given."""


@dataclass(frozen=True)
class Cost:
    """What was looked at: a bound is one window of a walk, whose pieces are counted too.

    Proposals are all that were, whether or not the network was asked about them, and also those behind one that was accepted.
    """

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
class _Known:
    """What is known of every choice's intensity on pieces: that is, on each of them between two moments."""

    rates: Nodes  # [A, P, C]
    lower: Tensor  # [A, P, C]: anywhere on a piece
    whole: Tensor  # [A, P]: of all choices
    steps: Tensor  # [A·P·C]: for piece i, how much of its bound the choices up to each one's have at least, from i to i + 1

    @classmethod
    def of(cls, rates: Nodes, upper: Tensor) -> _Known:
        lower = rates.lower().nan_to_num(nan=0.0, neginf=0.0).clamp(min=0.0)
        stacked = lower.cumsum(-1)
        share = torch.where(upper > 0.0, 1.0 / upper, 0.0).unsqueeze(-1) * stacked
        number = torch.arange(upper.numel(), dtype=torch.float64, device=upper.device).view(*upper.shape, 1)
        return cls(rates, lower, stacked[..., -1], (number + share.clamp(max=1.0)).flatten())


@dataclass(frozen=True)
class _Window:
    """Pieces of some walks, and the mass of proposals on them: nothing from the first loose one on."""

    edges: Tensor  # [A, P + 1]
    upper: Tensor  # [A, P]
    mass: Tensor  # [A, P + 1]: up to each edge
    end: Tensor  # [A]
    known: _Known | None = None

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
    draws = len(walk_of_draw)
    count = _pieces(walks, now, horizon, pace, draws)
    window, cost = _window(walks, now, horizon, pace, count, draws >= SEVERAL * len(now))
    drawn = _thin(walks, window, walk_of_draw, random)
    return Stretch(Drawn(drawn.times, drawn.choices, drawn.cost + cost), window.end)


def _pieces(walks: Walks, now: Tensor, horizon: Tensor, pace: Pace, draws: int) -> int:
    """How many pieces the next windows should have; where draws are many, also how long they should be."""
    most = min(MOST_PIECES, max(8, PIECES_AT_A_TIME // len(now)))
    if draws >= MANY * len(now):  # then it pays to look how far the last of them will go
        steps = (torch.arange(LOOKS, dtype=torch.float64, device=now.device) + 0.5) * (most / LOOKS)
        times = torch.minimum(now[:, None] + pace.width[:, None] * steps, horizon[:, None])
        mass = (walks.intensities(times).sum(-1) * pace.width[:, None]).cumsum(1) * (most / LOOKS)
        live = horizon > now
        short = int(((mass < math.log(draws / len(now)) + FURTHER) & live[:, None]).sum(1).max())
        count = min(most, math.ceil((short + 1) * most / LOOKS))
        worth = min(most, draws // (DRAWS_A_PIECE * len(now)))  # so many that what they cost is little beside the draws
        if count < worth:
            pace.width.copy_(torch.where(live, pace.width * (count / worth), pace.width))
        return max(count, worth)
    known = (horizon > now) & (pace.rate > 0.0)
    if not bool(known.any()):
        return 2
    wished = (WORTH if len(now) > FEW else 2.0 * WORTH) / (pace.rate * pace.width)[known].clamp(min=1e-9)
    return int(wished.quantile(0.7).ceil().clamp(2, most))


def _window(walks: Walks, now: Tensor, horizon: Tensor, pace: Pace, count: int, several: bool) -> tuple[_Window, Cost]:
    live = horizon > now
    steps = torch.arange(count + 1, dtype=torch.float64, device=now.device)
    edges = torch.minimum(now[:, None] + pace.width[:, None] * steps, horizon[:, None])
    found = walks.bounds(edges[:, :-1], edges[:, 1:])
    upper, mass, usable, width = _judged(found, edges, pace.width, walks.width)
    pace.width.copy_(torch.where(live, torch.minimum(width, 2.0 * (horizon - now)), pace.width))
    last = found.middle.gather(1, (usable - 1).clamp(min=0)[:, None]).squeeze(1)
    pace.rate.copy_(torch.where(live, last, pace.rate))
    known = _Known.of(found.rates, upper) if found.rates is not None and several else None
    cost = Cost(bounds=int(live.sum()), pieces=int((edges[:, 1:] > edges[:, :-1]).sum()))
    return _Window(edges, upper, mass, edges.gather(1, usable[:, None]).squeeze(1), known), cost


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
    upper = torch.where(counted & (lengths > 0.0), found.upper, 0.0)
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
    together = 1
    while len(draw):
        noise = torch.rand(2, together, len(draw), generator=random, dtype=torch.float64).to(device)
        masses = reached - torch.log1p(-noise[0]).cumsum(0)  # of proposals, one after the other
        inside = masses < window.whole[row]
        turn, place = inside.nonzero(as_tuple=True)
        if not len(turn):
            break
        mine, mass = row[place], masses[turn, place]
        piece = _piece(window.mass, mine, mass)
        times = window.edges[mine, piece] + (mass - window.mass[mine, piece]) / window.upper[mine, piece]
        times = torch.minimum(times, window.edges[mine, piece + 1])
        chosen = _chosen(walks, window, mine, piece, times, noise[1][turn, place])
        # Of proposals looked at together the first that is accepted is the next event.
        which = torch.full(masses.shape, -1, dtype=torch.int64, device=device)
        when = torch.empty_like(masses)
        which[turn, place], when[turn, place] = chosen, times
        first = (which >= 0).int().argmax(0, keepdim=True)
        which, when = which.gather(0, first).squeeze(0), when.gather(0, first).squeeze(0)
        accepted = which >= 0
        done = draw[accepted]
        found_times[done], found[done] = when[accepted], which[accepted]
        cost += Cost(accepted=len(done), proposals=len(turn))
        left = (~accepted & inside[-1]).nonzero().squeeze(1)
        draw, row, reached, together = draw[left], row[left], masses[-1, left], AGAIN
    return Drawn(found_times, found, cost)


def _piece(mass: Tensor, row: Tensor, reached: Tensor) -> Tensor:
    """On which piece of its walk a proposal is; none is beyond the last."""
    if len(mass) == 1:
        found = torch.searchsorted(mass[0], reached, right=True)
    else:
        found = torch.searchsorted(mass[row], reached[:, None], right=True).squeeze(1)
    return (found - 1).clamp(max=mass.shape[1] - 2)


def _chosen(walks: Walks, window: _Window, row: Tensor, piece: Tensor, times: Tensor, chance: Tensor) -> Tensor:
    """What each proposal is, whose level is that share of the bound: int64 [n], -1 where nothing happens."""
    known = window.known
    if known is None:
        return _choice(_rates(walks, window, row, piece, times), chance * window.upper[row, piece])
    number = row * window.upper.shape[1] + piece
    end = (number + 1).double()
    sought = torch.minimum(number + chance, torch.nextafter(end, torch.zeros_like(end)))
    choices = known.lower.shape[-1]
    chosen = torch.searchsorted(known.steps, sought, right=True) - number * choices
    asked = (chosen >= choices).nonzero().squeeze(1)
    row, piece, times = row[asked], piece[asked], times[asked]
    level, lower = chance[asked] * window.upper[row, piece], known.lower[row, piece]
    low, high = _range_then(window, known, row, piece, times)
    more = (low - lower).clamp(min=0.0)
    above = level - known.whole[row, piece]
    found = _choice(more, above)
    chosen[asked] = found
    last = ((found < 0) & (level <= high)).nonzero().squeeze(1)
    if len(last):
        row, piece, times, passed = row[last], piece[last], times[last], (lower + more)[last]
        rates = _rates(walks, window, row, piece, times)
        rest = rates - passed
        if bool((rest < 0.0).any()):
            draw, which = divmod(int(rest.argmin()), choices)
            raise BoundExceeded(
                f"intensity {rates[draw, which]:.17g} below its bound {passed[draw, which]:.17g} at {times[draw]:.17g}"
            )
        chosen[asked[last]] = _choice(rest, (above - more.sum(1))[last])
    return chosen


def _range_then(window: _Window, known: _Known, row: Tensor, piece: Tensor, times: Tensor) -> tuple[Tensor, Tensor]:
    """No larger than each intensity at these times [n, C], and no smaller than the total [n]."""
    start, end = window.edges[row, piece], window.edges[row, piece + 1]
    middle, half = (start + end) / 2.0, (end - start) / 2.0
    s = ((times - middle) / half).clamp(-1.0, 1.0)
    low, high = Nodes(known.rates.v[:, row, piece], known.rates.remainder[row, piece]).range_at(s)
    # On a piece so short that rounding moves a time along it, nothing is known of one moment.
    placed = half > ROUNDING * times.abs()
    high = torch.where(placed, high.sum(1), math.inf).nan_to_num(nan=math.inf, posinf=math.inf)
    return torch.where(placed.unsqueeze(-1), low, 0.0).nan_to_num(nan=0.0), high


def _choice(parts: Tensor, level: Tensor) -> Tensor:
    """In which of the parts [n, C] on top of each other the level is; -1 above the last."""
    level = level.clamp(min=0.0)  # which rounding may have put a hair below the first
    which = (parts.cumsum(1) <= level[:, None]).sum(1)
    return torch.where(which < parts.shape[1], which, -1)


def _rates(walks: Walks, window: _Window, row: Tensor, piece: Tensor, times: Tensor) -> Tensor:
    """Intensities [n, C], which are checked against their bound."""
    rates, upper = _at(walks, row, times), window.upper[row, piece]
    total = rates.sum(1)
    if bool((total > upper).any()):
        worst = int((total / upper).argmax())
        raise BoundExceeded(f"intensity {total[worst]:.17g} above its bound {upper[worst]:.17g} at {times[worst]:.17g}")
    return rates


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
