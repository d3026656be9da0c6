"""The next event of every draw, by thinning under proved bounds. The draws are exact, however loose the bounds are.

The time after a sequence's last event is cut into short pieces, each with a bound. Proposals are a Poisson process with the bounds as
intensity. A proposal at time `t` is the next event with probability `λ(t) / bound`; otherwise it is rejected. The mass of the bounds
before a draw's next proposal is drawn first (`due`), so that bounds are computed, a window at a time, about as far as they are needed.

The drawn mass may decide how many pieces are computed, but never where they lie. Otherwise a higher bound could depend on a later proposal,
and proposals would not be a Poisson process. So pieces of one length follow each other, whatever windows they are in. The length changes
only after a number of pieces that was fixed before, after a piece whose bound is too loose, and after an event. The new length depends on
how tight the bounds were. Draws from one past share its pieces; with many draws, the pieces that few of them reach are longer.

A proposal has a level, uniform from 0 to the bound. The intensities of the choices are stacked from 0 upwards, and the choice at the level
is the event. If bounds of each choice are available, every intensity is cut into three parts: its minimum on the piece, the increase up to
its lower bound at that time, and the rest. The first parts of all choices are stacked below all second parts, and these below the rest, so
that most levels decide the choice without a call of the network.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from foretell.errors import ForetellError
from foretell.sampling.bounds.chebyshev import ChebyshevPiece, PolynomialCurves
from foretell.sampling.bounds.time_windows import place
from foretell.sampling.core.pace import MOST_PIECES, Pace
from foretell.sampling.core.sampler import Bounds, InverseSampler, ManyChoices, Sampler

LOOSE = 1.0  # a piece is not used if its bound exceeds the intensity by more than this factor
SHARE = 0.7  # share of sequences whose next proposal a window should reach, if all sequences must have the same number of pieces
SEVERAL = 16  # draws per sequence from which bounds of each choice are worth their cost
MANY, LOOKS = (
    500,
    64,
)  # draws per sequence from which looking ahead is worth its cost, and the number of times to look at
SOON = (1.0, 3.0, 6.0, 9.0)  # positions, in pieces, at which the intensity is computed after an event
FEW, LONGER = 300, 1.4  # if at most FEW draws are left, pieces become longer by this factor
FURTHER = 1.5  # mass to cover beyond what the last draw needs on average
DRAWS_A_PIECE = 200
PIECES_AT_A_TIME = 4096  # limit over all windows together
SHORTEST = 1e-13  # relative to the time, or to a first piece: pieces are not cut below the rounding of time
ROUNDING = 1e-5  # half a piece relative to the time; above this, a position in the piece has an error below 1e-11
KEPT = 0.7  # if fewer than this share of the sequences are still needed, the others are dropped


CROWDED = 1e4  # limit of proposals on a piece as short as the rounding of time: more events could not be distinguished


class BoundViolation(RuntimeError):
    """An intensity outside its proved bounds: an error in foretell, never in its input."""


class IntensityOverflow(ForetellError):
    """Intensities are so large, or change so fast, that float64 cannot distinguish the times of events."""

    def __init__(self, time: float) -> None:
        super().__init__(
            f"nothing can be drawn from this model at time {time:g}: its intensities are too large, or change too fast, for float64; "
            f"its parameters are damaged, or its training diverged (a lower train.lr may help)"
        )


@dataclass(frozen=True)
class Cost:
    """Counts of work. `bounds` are windows of a sequence, `pieces` their pieces.

    `proposals` are all proposals, also those decided without the network and those behind an accepted one.
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
class EventDraws:
    times: Tensor  # float64 [draws]: NaN if nothing happens before the horizon
    choices: Tensor  # int64 [draws]: columns of the sequence's intensities; -1 if nothing happens
    cost: Cost

    @property
    def found(self) -> Tensor:
        return self.choices >= 0


@dataclass(frozen=True)
class _Known:
    """Bounds of every choice's intensity: at single times (`curves`) and over whole pieces."""

    curves: PolynomialCurves  # [A, P, C]
    lower: Tensor  # [A, P, C]: minimum over the piece
    whole: Tensor  # [A, P]: sum of `lower` over all choices
    steps: Tensor  # [A·P·C]: for piece i, i plus the cumulative share of `lower` in the bound, up to each choice

    @classmethod
    def of(cls, rates: ChebyshevPiece, upper: Tensor) -> _Known:
        lower = rates.lower().nan_to_num(nan=0.0, neginf=0.0).clamp(min=0.0)
        stacked = lower.cumsum(-1)
        share = torch.where(upper > 0.0, 1.0 / upper, 0.0).unsqueeze(-1) * stacked
        number = torch.arange(upper.numel(), dtype=torch.float64, device=upper.device).view(*upper.shape, 1)
        return cls(rates.curves(), lower, stacked[..., -1], (number + share.clamp(max=1.0)).flatten())


@dataclass(frozen=True)
class _Window:
    """Pieces of some sequences, and the mass of proposals on them; the mass is 0 from the first loose piece on."""

    edges: Tensor  # [A, P + 1]
    upper: Tensor  # [A, P]
    mass: Tensor  # [A, P + 1]: mass up to each edge
    end: Tensor  # [A]
    rates: ChebyshevPiece | None = None  # [A, P, C]: intensity of every choice on the piece
    origin: Tensor | None = None  # [A]: polynomials are of the logarithm of the time since then; None: of time
    known: _Known | None = None
    proposals: ManyChoices | None = None

    @property
    def whole(self) -> Tensor:
        return self.mass[:, -1]


@dataclass(frozen=True)
class WindowDraws:
    """The results of the next window of each sequence."""

    drawn: EventDraws
    due: Tensor  # float64 [draws]: for draws without an event, the mass from the end of the window to the next proposal
    end: Tensor  # float64 [W]: the end of the window


def waits(draws: int, random: torch.Generator, device: torch.device) -> Tensor:
    """Draw the mass up to the next proposal, exponentially distributed: [draws]."""
    return -torch.log1p(-torch.rand(draws, generator=random, dtype=torch.float64)).to(device)


@torch.inference_mode()
def next_events(
    sampler: Sampler,
    row_of_draw: Tensor,  # int64 [draws]
    start: Tensor,  # float64 [W]
    horizon: Tensor,  # float64 [W]
    pace: Pace,  # updated in place
    random: torch.Generator,  # on the CPU, so that draws are equal on every device
) -> EventDraws:
    """Return the next event of every draw up to the horizon; draws may share sequences."""
    times = torch.full_like(row_of_draw, 0, dtype=torch.float64).fill_(math.nan)
    choices = torch.full_like(row_of_draw, -1)
    cost = Cost()
    now, due = start.clone(), waits(len(row_of_draw), random, start.device)
    kept, subset, slower = torch.arange(sampler.count, device=start.device), sampler.passed(now), pace
    while True:
        waiting = ((choices < 0) & (now < horizon)[row_of_draw]).nonzero().squeeze(1)
        wanted = torch.zeros(sampler.count, dtype=torch.bool, device=start.device)
        wanted[row_of_draw[waiting]] = True
        if not len(waiting):
            pace.put(kept, slower)
            return EventDraws(times, choices, cost)
        if int(wanted.sum()) < KEPT * len(kept):
            pace.put(kept, slower)
            left = wanted[kept].nonzero().squeeze(1)
            kept, subset = kept[left], subset.select(left)
            slower = pace.select(kept)
        place = torch.empty_like(wanted, dtype=torch.int64)
        place[kept] = torch.arange(len(kept), device=start.device)
        # Sequences that are not needed, but not dropped yet, get a window of length 0.
        end = until_change(subset, torch.where(wanted, horizon, now)[kept])
        mine, rest = place[row_of_draw[waiting]], due[waiting]
        stretch = next_window(subset, mine, now[kept], end, slower, rest, random, ahead=sampler.count == 1)
        times[waiting], choices[waiting], due[waiting] = stretch.drawn.times, stretch.drawn.choices, stretch.due
        now[kept] = stretch.end
        subset = subset.passed(stretch.end)
        cost += stretch.drawn.cost


def until_change(sampler: Sampler, end: Tensor) -> Tensor:
    """Limit windows to the next time at which intensities change without an event."""
    changes = sampler.changes()
    return end if changes is None else torch.minimum(end, changes)


@torch.inference_mode()
def next_window(
    sampler: Sampler,
    row_of_draw: Tensor,  # int64 [draws]
    now: Tensor,  # float64 [W]
    horizon: Tensor,  # float64 [W]
    pace: Pace,
    due: Tensor,  # float64 [draws]
    random: torch.Generator,
    *,
    ahead: bool = False,
) -> WindowDraws:
    """Return the next event of every draw within the next window of its sequence; with `ahead`, a single sequence may look ahead."""
    if isinstance(sampler, InverseSampler):
        return _inverted(sampler, row_of_draw, now, horizon, due, random)
    draws = len(row_of_draw) / len(now)
    if draws < MANY or not ahead or sampler.pieces:
        wanted = torch.zeros_like(now).scatter_reduce_(0, row_of_draw, due, "amax")
        steps = _steps(sampler, now, horizon, pace, wanted)
    else:
        steps = _ahead(sampler, now, horizon, pace, draws)
    window, cost = _window(sampler, now, horizon, pace, steps, draws)
    drawn, due = _thin(sampler, window, row_of_draw, due, random)
    return WindowDraws(EventDraws(drawn.times, drawn.choices, drawn.cost + cost), due, window.end)


def _inverted(
    sampler: InverseSampler, row_of_draw: Tensor, now: Tensor, horizon: Tensor, due: Tensor, random: torch.Generator
) -> WindowDraws:
    """Draw by inversion, for the whole range up to the horizon."""
    times = sampler.select(row_of_draw).invert(now[row_of_draw], due)
    found = (times <= horizon[row_of_draw]).nonzero().squeeze(1)
    level = torch.rand(len(times), generator=random, dtype=torch.float64).to(times.device)[found]
    choices = torch.full_like(row_of_draw, -1)
    if len(found):
        rates = _at(sampler, row_of_draw[found], times[found])
        chosen = _choice(rates, level * rates.sum(1))
        choices[found] = chosen.masked_fill(
            chosen < 0, rates.shape[1] - 1
        )  # by rounding the level may be above the last choice
    times = torch.where(choices >= 0, times, math.nan)
    return WindowDraws(EventDraws(times, choices, Cost(accepted=len(found), proposals=len(found))), due, horizon)


class _Clock:
    """The clock on which pieces have equal lengths: time itself, or a clock that slows down with the time since the last event.

    With a shortest scale `e`, the clock shows `e·log(1 + u/e)` at a time `u` after the last event, as long as `e + u` is below a limit `c`.
    From there on it runs at the constant speed `e/c`. It depends only on past events.
    """

    def __init__(self, sampler: Sampler, now: Tensor) -> None:
        growth = sampler.growth()
        self.now, self.short = now[:, None], None
        if growth is not None:
            self.short, self.limit = growth.short, growth.short + growth.limit
            self.base = (self.now - growth.last[:, None] + self.short).clamp(max=self.limit)

    def after(self, lengths: Tensor) -> Tensor:
        """Return the times at which these lengths [W, P] of the clock after now have passed."""
        if self.short is None:
            return self.now + lengths
        if self.limit == math.inf:
            return self.now + self.base * torch.expm1(lengths / self.short)
        growing = torch.minimum(lengths, self.short * torch.log(self.limit / self.base))
        steady = (lengths - growing) * (self.limit / self.short)
        return self.now + self.base * torch.expm1(growing / self.short) + steady

    def lengths(self, waits: Tensor) -> Tensor:
        """Convert waiting times after now [W, P] to lengths of the clock."""
        if self.short is None:
            return waits
        growing = torch.minimum(waits, self.limit - self.base)
        steady = (waits - growing) * (self.short / self.limit)
        return self.short * torch.log1p(growing / self.base) + steady

    def pieces(self, mass: Tensor, pace: Pace) -> Tensor:
        """Estimate the number of pieces that contain this mass of proposals, at the known rate: [W]."""
        if self.short is None:
            return mass / (pace.rate * pace.width).clamp(min=1e-9)
        far = self.lengths((mass / pace.rate.clamp(min=1e-300))[:, None]).squeeze(1)
        return (far / pace.width).clamp(max=1e9)


def _most(sequences: int) -> int:
    return min(MOST_PIECES, max(8, PIECES_AT_A_TIME // sequences))


def _steps(sampler: Sampler, now: Tensor, horizon: Tensor, pace: Pace, wanted: Tensor) -> Tensor:
    """Return where the pieces of the next window of each sequence end, in units of the piece length [W, P + 1], to cover `wanted` mass."""
    live, clock = horizon > now, _Clock(sampler, now)
    unknown = live & (pace.rate == 0.0) & (not sampler.pieces)
    wished = torch.full_like(wanted, sampler.pieces) if sampler.pieces else clock.pieces(wanted, pace)
    if bool(pace.rate.isnan().any()):
        raise IntensityOverflow(float(now[pace.rate.isnan()][0]))
    if bool(unknown.any()):
        soon = _pieces_soon(sampler, clock, horizon, pace, wanted)
        wished = torch.where(unknown, soon, wished)
    if bool(wished.isnan().any()):
        raise IntensityOverflow(float(now[wished.isnan()][0]))
    wished = wished.ceil().clamp(1, _most(len(now)))
    if not sampler.ragged:
        wished = torch.minimum(wished, wished[live].quantile(SHARE).ceil())
    count = torch.where(live, torch.minimum(wished, pace.left), 0.0)[:, None]
    return torch.minimum(torch.arange(int(count.max()) + 1, dtype=torch.float64, device=now.device), count)


def _pieces_soon(sampler: Sampler, clock: _Clock, horizon: Tensor, pace: Pace, wanted: Tensor) -> Tensor:
    """Estimate the number of pieces that contain the `wanted` mass, from intensities at some times behind the next pieces: [W].

    Pieces may grow, so the first intensities say little about later pieces; the last one is also stored as the rate in `pace`.
    """
    looks = torch.tensor(SOON if clock.short is not None else SOON[:1], dtype=torch.float64, device=wanted.device)
    times = torch.minimum(clock.after(pace.width[:, None] * looks), horizon[:, None])
    rates = sampler.look(times).sum(-1)
    pace.rate.copy_(torch.where(pace.rate == 0.0, rates[:, -1], pace.rate))
    edges = torch.cat([clock.now, clock.after(pace.width[:, None] * looks)], 1)
    mass = torch.nn.functional.pad((rates * (edges[:, 1:] - edges[:, :-1])).cumsum(1), (1, 0))
    before = (mass[:, 1:] <= wanted[:, None]).sum(1, keepdim=True)  # number of looks before the mass is reached
    left = (wanted[:, None] - mass.gather(1, before)) / rates.gather(1, before.clamp(max=len(looks) - 1)).clamp(
        min=1e-300
    )
    reached = edges.gather(1, before) - clock.now + left
    return (clock.lengths(reached).squeeze(1) / pace.width).clamp(max=1e9)


def _ahead(sampler: Sampler, now: Tensor, horizon: Tensor, pace: Pace, draws: float) -> Tensor:
    """Return pieces for many draws, about as far as the last of them will go; where few draws remain, pieces are longer."""
    live, most = horizon > now, _most(len(now))
    apart = most / LOOKS
    looks = (torch.arange(LOOKS, dtype=torch.float64, device=now.device) + 0.5) * apart
    clock = _Clock(sampler, now)
    times = torch.minimum(clock.after(pace.width[:, None] * looks), horizon[:, None])
    ends = clock.after(pace.width[:, None] * torch.arange(LOOKS + 1, dtype=torch.float64, device=now.device) * apart)
    mass = (sampler.look(times).sum(-1) * (ends[:, 1:] - ends[:, :-1])).cumsum(1)
    short = int(((mass < math.log(draws) + FURTHER) & live[:, None]).sum(1).max())
    worth = min(most, int(draws / DRAWS_A_PIECE))  # pieces whose cost is small compared with that of the draws
    length = min(most, (short + 1) * apart)
    if length < worth:
        pace.width.copy_(torch.where(live, pace.width * (length / worth), pace.width))
        ends = torch.arange(worth + 1, dtype=torch.float64, device=now.device)
    else:
        least = mass.masked_fill(~live[:, None], math.inf).amin(0)
        many = min(length, int((draws * torch.exp(-least) > FEW).sum()) * apart)
        count = math.ceil(many) + math.ceil((length - many) / LONGER)
        ends = torch.arange(count + 1, dtype=torch.float64, device=now.device)
        ends = ends + (ends - math.ceil(many)).clamp(min=0.0) * (LONGER - 1.0)
    pace.left.fill_(len(ends) - 1)
    return ends * live[:, None]


def _window(
    sampler: Sampler, now: Tensor, horizon: Tensor, pace: Pace, steps: Tensor, draws: float
) -> tuple[_Window, Cost]:
    live, clock = horizon > now, _Clock(sampler, now)
    least = clock.lengths(SHORTEST * now.abs()[:, None])  # a shorter piece would be lost in the rounding of time
    edges = torch.minimum(clock.after(torch.maximum(pace.width[:, None], least) * steps), horizon[:, None])
    found = sampler.bounds(edges[:, :-1], edges[:, 1:])
    upper, mass, usable, worst = _judged(found, edges, sampler.width, sampler.waste(draws))
    end = edges.gather(1, usable[:, None]).squeeze(1)
    some = (edges[:, 1:] > edges[:, :-1]).sum(1)
    used = torch.minimum(usable, some)
    last = found.middle.gather(1, (used - 1).clamp(min=0)[:, None]).squeeze(1)
    pace.rate.copy_(torch.where(live, last, pace.rate))
    pace.passed(used, used < some, worst)
    known = _Known.of(found.rates, upper) if found.rates is not None and draws >= SEVERAL else None
    cost = Cost(bounds=int(live.sum()), pieces=int(some.sum()))
    return _Window(edges, upper, mass, end, found.rates, found.origin, known, found.proposals), cost


def _judged(found: Bounds, edges: Tensor, first: float, waste: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the bounds, the masses, the number of usable pieces, and the largest looseness of these and the first unusable piece."""
    lengths = edges[:, 1:] - edges[:, :-1]
    over = (found.upper - found.middle).clamp(min=0.0)
    wasted = over * lengths  # rejected proposals
    loose = torch.minimum(over / (LOOSE * found.middle).clamp(min=1e-300), wasted / waste)
    loose = torch.maximum(loose, wasted / CROWDED)  # limits rejected proposals even where the intensity is high
    loose = torch.where(lengths > 0.0, loose.nan_to_num(nan=math.inf), 0.0)
    short = lengths <= 2.0 * SHORTEST * edges[:, 1:].abs().clamp(min=first)  # twice, because edges are rounded
    fine = (loose <= 1.0) | (short & found.upper.isfinite())
    usable = fine.int().cumprod(1).sum(1)
    stuck = (usable == 0) & short[:, 0]
    crowded = (fine & short & (found.upper * lengths > CROWDED)).any(1)
    if bool((stuck | crowded).any()):
        raise IntensityOverflow(float(edges[stuck | crowded, 0][0]))
    number = torch.arange(lengths.shape[1], device=edges.device)[None]
    counted = number < usable[:, None]
    upper = torch.where(counted & (lengths > 0.0), found.upper, 0.0)
    mass = torch.nn.functional.pad((upper * lengths).cumsum(1), (1, 0))
    return upper, mass, usable, torch.where(number <= usable[:, None], loose, 0.0).amax(1)


def _thin(
    sampler: Sampler, window: _Window, row_of_draw: Tensor, due: Tensor, random: torch.Generator
) -> tuple[EventDraws, Tensor]:
    """Test the proposals of every draw until one is accepted or the window ends; also return the mass from its end to the next proposal."""
    device = window.mass.device
    found_times = torch.full_like(due, math.nan)
    found = torch.full_like(row_of_draw, -1)
    beyond = torch.zeros_like(due)
    draw, row = torch.arange(len(row_of_draw), device=device), row_of_draw
    chances = torch.rand(1, len(draw), generator=random, dtype=torch.float64).to(device)
    masses, new, at_once = due[None], 1, window.known is not None
    cost = Cost()
    while True:
        whole = window.whole[row]
        inside = masses < whole
        place = inside.nonzero()[:, 1]
        mine, mass, chance = row[place], masses[inside], chances[inside]
        piece = _piece(window.mass, mine, mass)
        edge = mine * window.mass.shape[1] + piece
        before, start, end = (
            _of(one, edge + more) for one, more in ((window.mass, 0), (window.edges, 0), (window.edges, 1))
        )
        times = torch.minimum(start + (mass - before) / _of(window.upper, edge - mine), end)
        chosen = (
            _at_once(window, mine, piece, chance) if at_once else _chosen(sampler, window, mine, piece, times, chance)
        )
        # Of several proposals tested together, the first accepted one is the next event.
        which = torch.full(masses.shape, -1, dtype=torch.int64, device=device)
        when = torch.empty_like(masses)
        which[inside], when[inside] = chosen, times
        if len(which) > 1:
            first = (which >= 0).int().argmax(0, keepdim=True)
            which, when = which.gather(0, first), when.gather(0, first)
        which, when = which.squeeze(0), when.squeeze(0)
        accepted = which >= 0
        done = draw[accepted]
        found_times[done], found[done] = when[accepted], which[accepted]
        cost += Cost(accepted=len(done), proposals=int(inside[-new:].sum()))
        over = (~accepted & ~inside[-1]).nonzero().squeeze(1)
        after = inside[:, over].sum(0, keepdim=True)  # the first proposal beyond the window
        beyond[draw[over]] = masses[:, over].gather(0, after).squeeze(0) - whole[over]
        left = (~accepted & inside[-1]).nonzero().squeeze(1)
        if not len(left):
            return EventDraws(found_times, found, cost), beyond
        draw, row = draw[left], row[left]
        # A proposal that is not accepted at once is tested again, together with the proposals after it.
        held = 1 if at_once else 0
        at_once, new = False, sampler.together - held
        noise = torch.rand(2, new, len(left), generator=random, dtype=torch.float64).to(device)
        more = masses[-1, left] - torch.log1p(-noise[0]).cumsum(0)
        masses = torch.cat([masses[:held, left], more])
        chances = torch.cat([chances[:held, left], noise[1]])


def _of(table: Tensor, number: Tensor) -> Tensor:
    return table.flatten().index_select(0, number)


def _piece(mass: Tensor, row: Tensor, reached: Tensor) -> Tensor:
    """Return the piece of its sequence that contains a proposal; rounding cannot put a proposal behind the last piece."""
    if len(mass) == 1:
        found = torch.searchsorted(mass[0], reached, right=True)
    else:
        found = torch.searchsorted(mass[row], reached[:, None], right=True).squeeze(1)
    return (found - 1).clamp(max=mass.shape[1] - 2)


def _at_once(window: _Window, row: Tensor, piece: Tensor, chance: Tensor) -> Tensor:
    """Return the choice of each proposal whose level is in the first part of an intensity; -1 for higher levels."""
    known = window.known
    if known is None:
        return torch.full_like(row, -1)
    number = row * window.upper.shape[1] + piece
    end = (number + 1).double()
    sought = torch.minimum(number + chance, torch.nextafter(end, torch.zeros_like(end)))
    choices = known.lower.shape[-1]
    chosen = torch.searchsorted(known.steps, sought, right=True) - number * choices
    return chosen.masked_fill_(chosen >= choices, -1)


def _chosen(sampler: Sampler, window: _Window, row: Tensor, piece: Tensor, times: Tensor, chance: Tensor) -> Tensor:
    """Return the choice of each proposal, whose level is the share `chance` of the bound: int64 [n], -1 where nothing happens."""
    if not len(row):
        return row
    if window.proposals is not None:
        return window.proposals.chosen(row, piece, times, chance * window.upper[row, piece])
    if window.rates is None:
        return _choice(_rates(sampler, window, row, piece, times), chance * window.upper[row, piece])
    chosen = _at_once(window, row, piece, chance)
    asked = (chosen < 0).nonzero().squeeze(1)
    row, piece, times = row[asked], piece[asked], times[asked]
    level = chance[asked] * window.upper[row, piece]
    low, high = _range_then(window, row, piece, times)
    lower, below = torch.zeros_like(low), torch.zeros_like(level)
    if window.known is not None:
        lower, below = window.known.lower[row, piece], window.known.whole[row, piece]
    more = (low - lower).clamp(min=0.0)
    above = level - below
    found = _choice(more, above)
    chosen[asked] = found
    last = ((found < 0) & (level <= high)).nonzero().squeeze(1)
    if len(last):
        row, piece, times, passed = row[last], piece[last], times[last], (lower + more)[last]
        rates = _rates(sampler, window, row, piece, times)
        rest = rates - passed
        if bool((rest < 0.0).any()):
            draw, which = divmod(int(rest.argmin()), rest.shape[-1])
            raise BoundViolation(
                f"intensity {rates[draw, which]:.17g} below its bound {passed[draw, which]:.17g} at {times[draw]:.17g}"
            )
        chosen[asked[last]] = _choice(rest, (above - more.sum(1))[last])
    return chosen


def _range_then(window: _Window, row: Tensor, piece: Tensor, times: Tensor) -> tuple[Tensor, Tensor]:
    """Return a lower bound of each intensity at these times [n, C], and an upper bound of the total [n]."""
    start, end = window.edges[row, piece], window.edges[row, piece + 1]
    s = place(times, start, end, None if window.origin is None else window.origin[row])
    if window.known is not None:
        curves = window.known.curves.map(lambda one: one[..., row, piece, :])
    else:
        assert window.rates is not None
        curves = window.rates.map(lambda one: one[..., row, piece, :]).curves()
    low, high = curves.range_at(s)
    # If rounding moves a time noticeably along a very short piece, there is no better bound than that of the piece.
    placed = (end - start) / 2.0 > ROUNDING * times.abs()
    high = torch.where(placed, high.sum(1), math.inf).nan_to_num(nan=math.inf, posinf=math.inf)
    return torch.where(placed.unsqueeze(-1), low, 0.0).nan_to_num(nan=0.0), high


def _choice(parts: Tensor, level: Tensor) -> Tensor:
    """Return which of the stacked parts [n, C] contains the level; -1 above the last one."""
    level = level.clamp(min=0.0)  # rounding may have made it slightly negative
    which = (parts.cumsum(1) <= level[:, None]).sum(1)
    return torch.where(which < parts.shape[1], which, -1)


def _rates(sampler: Sampler, window: _Window, row: Tensor, piece: Tensor, times: Tensor) -> Tensor:
    """Return intensities [n, C], after a check against their bound."""
    rates, upper = _at(sampler, row, times), window.upper[row, piece]
    total = rates.sum(1)
    if bool(total.isnan().any()):
        raise IntensityOverflow(float(times[total.isnan()][0]))
    if bool((total > upper).any()):
        worst = int((total / upper).argmax())
        raise BoundViolation(
            f"intensity {total[worst]:.17g} above its bound {upper[worst]:.17g} at {times[worst]:.17g}"
        )
    return rates


def _at(sampler: Sampler, row: Tensor, times: Tensor) -> Tensor:
    """Return intensities [draws, C] at one time per draw; draws of the same sequence share a call."""
    asked, row = row.unique(return_inverse=True)
    if len(asked) < KEPT * sampler.count:
        sampler = sampler.select(asked)
    elif len(asked) < sampler.count:
        row = asked[row]
    order = row.argsort(stable=True)
    counts = row.bincount(minlength=sampler.count)
    first = counts.cumsum(0) - counts
    column = torch.empty_like(row)
    column[order] = torch.arange(len(row), device=row.device) - first[row[order]]
    wide = int(counts.max())
    grid = times.new_zeros(sampler.count, wide)
    some = times.new_zeros(sampler.count).index_put((row,), times)  # rows are filled up with one of their own times
    grid += some[:, None]
    grid[row, column] = times
    return sampler.intensities(grid)[row, column]
