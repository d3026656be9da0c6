"""Draw futures in *shares*: a share is some futures of one history that are drawn together, with their own random numbers.

Shares are computed on the threads of this process, or in shards elsewhere; the draws do not depend on that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from foretell.data import EventSequence
from foretell.sampling.core.future import Future
from foretell.sampling.core.sampler import FutureCovariates
from foretell.sampling.core.start import SampledModel, start_sampler
from foretell.sampling.core.thinning import KEPT, Cost, Pace, next_events, next_window, until_change, waits
from foretell.sampling.core.threads import keep_memory, side_by_side
from foretell.shards.shard_map import ShardItem, Shards, tables_of
from foretell.shards.store import Table, joined

SEQUENCES_AT_A_TIME = 64  # the most futures in a share, whose states are in memory together
WORTH_SHARING = 16  # from this number of futures on, they are divided among threads
EVENTS_GUESSED = 50  # assumed number of events per future when futures are divided into shards
COSTS = ("accepted", "proposals", "bounds", "pieces")


@dataclass(frozen=True)
class SamplingStart:
    """Where the futures of a history start."""

    history: EventSequence
    seen: int  # the number of events of the history up to `start`
    start: float


Share = tuple[int, int]  # (history, its first future)
DrawnShare = tuple[list[Future], Cost]


@dataclass(frozen=True)
class FutureDraws:
    """A request for futures: the model, where they start, how many, and when they end."""

    model: SampledModel
    starts: Sequence[SamplingStart]
    horizon: float
    n: int
    wanted: tuple[int, FutureCovariates]
    seed: int

    @property
    def shares(self) -> list[Share]:
        return [(number, first) for number in range(len(self.starts)) for first in range(0, self.n, _share(self.n))]

    def size(self, share: Share) -> int:
        return min(_share(self.n), self.n - share[1])

    def draw(self, share: Share, told: Callable[[int], None] = lambda done: None) -> DrawnShare:
        number, first = share
        # Each share has its own generator, so that draws depend neither on threads nor on other histories.
        random = torch.Generator().manual_seed(mixed_seed(self.seed, number, first))
        one = self.starts[number]
        return _futures(self.model, one, self.size(share), one.start + self.horizon, self.wanted, random, told)


def in_threads(drawing: FutureDraws, progress: Callable[[int, int], None] | None) -> list[DrawnShare]:
    shares = drawing.shares
    finished = dict.fromkeys(shares, 0)

    def drawn(share: Share) -> DrawnShare:
        def told(count: int) -> None:
            finished[share] = count
            if progress is not None:
                progress(sum(finished.values()), len(drawing.starts) * drawing.n)

        return drawing.draw(share, told)

    return side_by_side(drawn, shares, drawing.model.device)


def in_shards(
    drawing: FutureDraws, progress: Callable[[int, int], None] | None, shards: Shards
) -> Iterator[DrawnShare]:
    shares = drawing.shares
    items = [ShardItem(one, EVENTS_GUESSED * drawing.size(one), drawing.size(one)) for one in shares]
    rows = joined(tables_of("futures", draw_shares, drawing, items, shards, progress))
    start = 0
    for share in shares:
        part = slice(start, start + drawing.size(share))
        futures = [
            Future(np.asarray(times, dtype=np.float64), tuple(events), end)
            for times, events, end in zip(rows["times"][part], rows["events"][part], rows["end"][part], strict=True)
        ]
        yield futures, Cost(*(int(rows[name][start]) for name in COSTS))
        start = part.stop


def draw_shares(drawing: FutureDraws, shares: Sequence[Share]) -> Iterator[Table]:
    """Yield a table for each share, with a row per future; the cost in each row is that of the whole share."""
    keep_memory()
    for share in shares:
        futures, cost = drawing.draw(share)
        yield {
            "history": np.full(len(futures), share[0]),
            "future": np.arange(share[1], share[1] + len(futures)),
            "times": [one.times.tolist() for one in futures],
            "events": [list(one.events) for one in futures],
            "end": [one.end for one in futures],
            **{name: np.full(len(futures), getattr(cost, name)) for name in COSTS},
        }


def _share(n: int) -> int:
    """Return the number of futures per share. It does not depend on the number of threads; many futures make at least two shares."""
    shares = max(-(-n // SEQUENCES_AT_A_TIME), 2 if n >= WORTH_SHARING else 1)
    return -(-n // shares)


def mixed_seed(*numbers: int) -> int:
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> 1)


def _futures(
    model: SampledModel,
    begin: SamplingStart,
    n: int,
    horizon: float,
    wanted: tuple[int, FutureCovariates],
    random: torch.Generator,
    told: Callable[[int], None],
) -> tuple[list[Future], Cost]:
    device, (events, covariates) = model.device, wanted
    sampler = start_sampler(model, [begin.history], [begin.seen])
    sampler.draw_covariates(torch.Generator().manual_seed(mixed_seed(random.initial_seed(), 1)), covariates)
    pace = Pace.first(sampler, device)
    now = torch.tensor([begin.start], dtype=torch.float64, device=device)
    far = torch.full_like(now, horizon)
    together = torch.zeros(n, dtype=torch.int64, device=device)
    drawn = next_events(sampler, together, now, far, pace, random)
    cost = drawn.cost
    made = [_Growing() for _ in range(n)]
    ids = drawn.found.nonzero().squeeze(1)  # the future that each remaining sequence belongs to
    sampler, pace = sampler.select(together[ids]), pace.select(together[ids])
    now, choices = drawn.times[ids], drawn.choices[ids]
    due = torch.zeros_like(now)
    while len(ids):
        happened = (choices >= 0).nonzero().squeeze(1).tolist()
        for row, draw, when, which in zip(
            happened, ids[happened].tolist(), now[happened].tolist(), choices[happened].tolist(), strict=True
        ):
            made[draw].add(when, sampler.name(row, which), events)
        sampler.append(now, choices)
        due = torch.where(choices >= 0, waits(len(ids), random, device), due)
        pace.happened(choices >= 0, horizon - now)
        open_ = torch.tensor([not made[draw].full for draw in ids.tolist()], device=device) & (now < horizon)
        told(n - int(open_.sum()))
        if int(open_.sum()) < KEPT * len(ids):
            keep = open_.nonzero().squeeze(1)
            ids, sampler, pace, now, due, open_ = (
                ids[keep], sampler.select(keep), pace.select(keep), now[keep], due[keep], open_[keep],
            )  # fmt: skip
            if not len(ids):
                break
        sampler = sampler.passed(now)
        end = until_change(sampler, torch.where(open_, horizon, now))
        stretch = next_window(sampler, torch.arange(len(ids), device=device), now, end, pace, due, random)
        cost += stretch.drawn.cost
        choices, due = stretch.drawn.choices, stretch.due
        now = torch.where(stretch.drawn.found, stretch.drawn.times, stretch.end)
    told(n)
    return [one.future() for one in made], cost


@dataclass
class _Growing:
    times: list[float] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    full: bool = False

    def add(self, time: float, event: str, most: int) -> None:
        self.times.append(time)
        self.events.append(event)
        self.full = len(self.times) == most

    def future(self) -> Future:
        return Future(np.asarray(self.times, dtype=np.float64), tuple(self.events), "count" if self.full else "horizon")
