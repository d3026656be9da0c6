"""Futures of histories drawn in *shares*: those that are drawn side by side from one history, with random numbers of their own.

Shares are drawn on the threads of this process, or in shards elsewhere; neither changes a draw.
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

SEQUENCES_AT_A_TIME = 64  # whose pasts are held side by side
WORTH_SHARING = 16  # futures from which on they are shared out among threads
EVENTS_GUESSED = 50  # of a future, when futures are cut into shards
COSTS = ("accepted", "proposals", "bounds", "pieces")


@dataclass(frozen=True)
class SamplingStart:
    """The start of the future of a history."""

    history: EventSequence
    seen: int  # events of the history that have happened by then
    start: float


Share = tuple[int, int]  # (history, its first future): futures that are drawn side by side
DrawnShare = tuple[list[Future], Cost]


@dataclass(frozen=True)
class FutureDraws:
    """The request for draws."""

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
        # Of its own for every share, so that neither threads nor other histories change what is drawn.
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
    """A table for each share, with a row per future; each has the cost of the whole share."""
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
    """Futures of a history that are drawn side by side: equal shares, whatever the number of threads, but at least two of many."""
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
    ids = drawn.found.nonzero().squeeze(1)  # which future each sequence is, from here on
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
