"""Sequences in, one padded batch of tensors out, with masks of the events and gaps that count in the likelihood.

A sequence of `n` events has `n + 1` gaps: before the first event, between events, and the tail up to `t_end`. Gap `g` sees the
first `g` events. Padded times are `t_end`, so that padded gaps have length zero and no scored event can see padding.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor

from foretell.batches.covariates import CovariateEncoder, CovariateRows
from foretell.data import EventData, EventSequence, Origin, Vocabulary
from foretell.data.calendar import moment_of
from foretell.errors import ForetellError
from foretell.ground.timeline import Timeline
from foretell.nn.attention import Visible
from foretell.options import Window


def length_buckets(
    lengths: Sequence[int] | np.ndarray,
    batch_size: int,
    rng: np.random.Generator,
    *,
    max_tokens: int | None = None,
    max_padding: float = 0.2,
) -> list[np.ndarray]:
    """Batches in random order; equal lengths are shuffled among each other, and the cuts move with every call.

    A batch with a larger share of padding than `max_padding` (the few longest sequences, as a rule) is split; 1.0
    splits none. `max_tokens` also limits a batch's padded size (sequences × longest); a sequence longer than
    that gets a batch alone.
    """
    assert batch_size >= 1 and (max_tokens is None or max_tokens >= 1)
    sizes = np.asarray(lengths, dtype=np.int64)
    if not len(sizes):
        return []
    order = np.lexsort((rng.random(len(sizes)), sizes))
    tokens = None if max_tokens is None else _token_cuts(sizes[order], batch_size, max_tokens)
    cuts = _even_cuts(len(sizes), batch_size, rng) if tokens is None else tokens
    batches = [part for batch in np.split(order, cuts) for part in _tight(batch, sizes, max_padding)]
    return [batches[place] for place in rng.permutation(len(batches))]


def _even_cuts(count: int, batch_size: int, rng: np.random.Generator) -> np.ndarray:
    # one batch is short; which one is random, so that it is not always the longest sequences that are alone
    short = count % batch_size
    starts = np.arange(batch_size, count, batch_size)
    if short and len(starts):
        at = int(rng.integers(len(starts) + 1))
        starts = starts.copy()
        starts[at:] = starts[at:] - batch_size + short
    return starts


def _token_cuts(ordered: np.ndarray, batch_size: int, max_tokens: int) -> np.ndarray:
    cuts: list[int] = []
    start = 0
    for place, length in enumerate(ordered.tolist()):
        if place > start and (place - start == batch_size or (place - start + 1) * length > max_tokens):
            cuts.append(place)
            start = place
    return np.array(cuts, dtype=np.int64)


def _tight(batch: np.ndarray, sizes: np.ndarray, max_padding: float) -> list[np.ndarray]:
    """A sorted batch, cut where that saves most until no part is padded more than allowed."""
    here = sizes[batch]
    if len(batch) * int(here[-1]) * (1 - max_padding) <= int(here.sum()):
        return [batch]
    count = np.arange(1, len(batch))
    cut = int(np.argmin(count * here[:-1] + (len(batch) - count) * here[-1])) + 1
    return [*_tight(batch[:cut], sizes, max_padding), *_tight(batch[cut:], sizes, max_padding)]


@dataclass(frozen=True, eq=False)
class RuleRows:
    """For models made of rules: the timeline of each row of a batch, on the CPU, and the plan of all rows together."""

    keys: tuple[bytes, ...]  # equal keys are equal events, and so one timeline
    timelines: tuple[Timeline, ...]
    plan: Any = None  # of the kind that the model's `encode` applies; None where it needs none, or rows were taken
    event: Tensor | None = None  # int64 [B, N]: where additions expire, which event each column is; -1: an expiry

    def take_rows(self, rows: slice | Sequence[int]) -> RuleRows:
        event = None if self.event is None else self.event[rows]
        if isinstance(rows, slice):
            return RuleRows(self.keys[rows], self.timelines[rows], event=event)
        timelines = tuple(self.timelines[row] for row in rows)
        return RuleRows(tuple(self.keys[row] for row in rows), timelines, event=event)


@dataclass(frozen=True)
class Batch:
    times: Tensor  # float64 [B, N]
    types: Tensor  # int64 [B, N]
    t_end: Tensor  # float64 [B]
    lengths: Tensor  # int64 [B]
    gap_start: Tensor  # float64 [B, N + 1]
    gap_end: Tensor  # float64 [B, N + 1]
    gap_length: Tensor  # float64 [B, N + 1]: how much of the gap is scored; zero where it is padding or does not count
    scored_start: Tensor  # float64 [B, N + 1]: where the scored part of the gap begins, which is its start but for one
    event_counts: Tensor  # bool [B, N]: True where the event is scored
    gap_counts: Tensor  # bool [B, N + 1]: True where the gap's integral is scored
    history_only: Tensor  # bool [B, N]: True where the data say that an event is not scored
    rules: RuleRows | None = None
    covariates: CovariateRows | None = None
    starts: Tensor | None = None  # float64 [B]: the moment of time 0, for a model that follows the calendar
    carried: tuple[Tensor, ...] | None = (
        None  # [B, …] each: of a later part of sequences, what the model kept of those before
    )

    def __len__(self) -> int:
        return self.times.shape[0]

    @property
    def scored(self) -> Tensor:
        """The number of scored events of each sequence: [B]."""
        return self.event_counts.sum(1)

    @property
    def is_event(self) -> Tensor:
        """False where a column is an expiry: [1 or B, N]."""
        if self.rules is None or self.rules.event is None:
            return torch.ones(1, self.times.shape[1], dtype=torch.bool, device=self.times.device)
        return self.rules.event >= 0

    def event_of(self, row: Tensor, column: Tensor) -> Tensor:
        """Which events of their sequences some columns are; columns are events but where additions expire."""
        if self.rules is None or self.rules.event is None:
            return column
        return self.rules.event[row, column]

    def rows(self, start: int, stop: int) -> Batch:
        """Some rows that follow one another; a plan is of all rows together, and stays behind."""
        rules = None if self.rules is None else self.rules.take_rows(slice(start, stop))
        return self._mapped(lambda tensor: tensor[start:stop], rules)

    def take(self, rows: Tensor) -> Batch:
        """Rows by number, int64 [R], in any order and any number of times."""
        rules = None if self.rules is None else self.rules.take_rows(rows.tolist())
        return self._mapped(lambda tensor: tensor.index_select(0, rows), rules)

    def clone(self) -> Batch:
        """A copy of the rows in memory of its own."""
        return self._mapped(torch.clone, self.rules)

    def _mapped(self, change: Callable[[Tensor], Tensor], rules: RuleRows | None) -> Batch:
        further = self.covariates
        further = None if further is None else CovariateRows(*map(change, further.tensors()))
        starts = None if self.starts is None else change(self.starts)
        carried = None if self.carried is None else tuple(map(change, self.carried))
        return Batch(*map(change, self.tensors()), rules=rules, covariates=further, starts=starts, carried=carried)

    def tensors(self) -> tuple[Tensor, ...]:
        """The batch without covariates, calendar and carried state."""
        return tuple(getattr(self, field.name) for field in fields(self)[:-4])

    def all_tensors(self) -> tuple[Tensor, ...]:
        further = () if self.covariates is None else self.covariates.tensors()
        return self.tensors() + further + (() if self.starts is None else (self.starts,)) + (self.carried or ())

    def pieces(self, queries_per_gap: int, limit: int, shares: int = 1) -> Iterator[Batch]:
        """Cut into runs of sequences with at most `limit` queries each (one sequence at the least).

        As many for each of `shares` processes, unless there are too few sequences.
        """
        per_sequence = max(1, (self.times.shape[1] + 1) * queries_per_gap)
        count = -(-len(self) // max(1, limit // per_sequence))  # rounded up
        count = min(-(-count // shares) * shares, len(self))
        for piece in range(count):
            yield self.rows(len(self) * piece // count, len(self) * (piece + 1) // count)


def make_batch(
    data: EventData,
    indices: Sequence[int] | np.ndarray,
    *,
    window: Window = "all",
    device: torch.device | str = "cpu",
    width: int | None = None,
) -> Batch:
    """The chosen sequences of data as a batch; the rest as in `batch_of`."""
    return batch_of([data[int(index)] for index in indices], data.origin, window=window, device=device, width=width)


def batch_of(
    chosen: Sequence[EventSequence],
    origin: Origin,
    *,
    window: Window = "all",
    device: torch.device | str = "cpu",
    width: int | None = None,
    unscored: np.ndarray | None = None,
    part: range | None = None,
) -> Batch:
    """Pad sequences to the longest of them, or to `width` events. Types that are `unscored` [K] happen, and do not count.

    With `part` only these events of each sequence, with the gaps before them and, of sequences that end there, the tail: every gap is in
    one part. Times stay those of the sequence.
    """
    if window not in get_args(Window):
        raise ForetellError(f"unknown window {window!r}: choose one of {', '.join(get_args(Window))}")
    whole = np.array([len(sequence.times) for sequence in chosen], dtype=np.int64)
    first = 0 if part is None else part.start
    lengths = whole if part is None else np.clip(whole - first, 0, len(part))
    width = int(lengths.max(initial=0)) if width is None else width
    t_end = np.array([sequence.t_end for sequence in chosen], dtype=np.float64)
    times = np.broadcast_to(t_end[:, None], (len(chosen), width)).copy()
    types = np.zeros((len(chosen), width), dtype=np.int64)
    history_only = np.zeros((len(chosen), width), dtype=bool)
    before = np.zeros((len(chosen), 1))  # when the first gap begins
    for row, sequence in enumerate(chosen):
        own, there = slice(lengths[row]), slice(first, first + lengths[row])
        times[row, own], types[row, own] = sequence.times[there], sequence.types[there]
        if sequence.unscored is not None:
            history_only[row, own] = sequence.unscored[there]
        if first and whole[row]:
            before[row] = sequence.times[min(first, whole[row]) - 1]
    event_counts, gap_counts = what_counts(whole, width, origin == "first-event", window, part)
    event_counts &= ~history_only
    scored_from = np.array([sequence.scored_from for sequence in chosen], dtype=np.float64)[:, None]
    event_counts &= (times > scored_from) | (scored_from == 0.0)
    if unscored is not None and len(unscored):
        event_counts &= ~unscored[types]
    start = np.concatenate([before, times], axis=1)
    end = np.concatenate([times, t_end[:, None]], axis=1)
    gap_counts &= (end > scored_from) | (scored_from == 0.0)
    scored_start = np.clip(scored_from, start, end)
    length = (end - scored_start) * gap_counts
    arrays = times, types, t_end, lengths, start, end, length, scored_start, event_counts, gap_counts, history_only
    return Batch(*(torch.from_numpy(np.ascontiguousarray(array)).to(device) for array in arrays), rules=None)


def what_counts(
    lengths: np.ndarray, width: int, given_first: bool, window: Window, part: range | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """True for events and gaps that are in the likelihood (all of them, unless the origin or the window excludes some).

    With `part`, columns are those of a part of sequences of these (whole) `lengths`.
    """
    begin = 0 if part is None else part.start
    event, gap = np.arange(begin, begin + width)[None, :], np.arange(begin, begin + width + 1)[None, :]
    last = lengths[:, None]
    if window == "events-2-to-I":
        events, gaps = (event >= 1) & (event < last), (gap >= 1) & (gap < last)
    else:
        first = 1 if given_first else 0
        # A sequence that is conditioned on its first event but has none is not observed at all before it.
        events, gaps = (event >= first) & (event < last), (gap >= first) & (gap <= last)
    if part is not None:
        gaps[:, -1] &= lengths <= begin + width  # else it is the first gap of the next part
        if begin:
            gaps[:, 0] &= lengths > begin  # else it is the tail, which the part before has
    return events, gaps


def starts_of(chosen: Sequence[EventSequence]) -> Tensor:
    """The moments at which sequences start: float64 [B]."""
    unknown = [one.id for one in chosen if one.start is None]
    if unknown:
        raise ForetellError(
            f"sequence {unknown[0]!r}: the model follows the calendar, and nothing says when this sequence started; expected data with "
            "absolute times, or a model trained with model.calendar = false"
        )
    return torch.tensor([moment_of(one.start) for one in chosen if one.start is not None], dtype=torch.float64)


@dataclass(frozen=True)
class Queries:
    """Times at which something is wanted, each seeing a prefix of its sequence's events."""

    times: Tensor  # float64 [B, Q]
    visible: Visible
    plan: Any = None  # a `QueryPlan`, for models made of rules

    @classmethod
    def by_gap(cls, times: Tensor) -> Queries:
        """From [B, G, P]: the `P` times of gap `g` see the first `g` events."""
        rows, gaps, per_gap = times.shape
        return cls(times.reshape(rows, gaps * per_gap), Visible(None, per_gap))

    @classmethod
    def seeing(cls, times: Tensor, seen: Tensor) -> Queries:
        """Times [B, Q] that see the first `seen` events each."""
        return cls(times, Visible(seen, None))

    @classmethod
    def of_events(cls, batch: Batch) -> Queries:
        """The events' own times, each seeing the events before it."""
        return cls.by_gap(batch.times.unsqueeze(-1))

    @classmethod
    def at_times(cls, batch: Batch, times: Tensor) -> Queries:
        """Times that are no event's: each sees the events with a smaller time."""
        seen = torch.searchsorted(batch.times, times.contiguous(), right=False)
        return cls.seeing(times, torch.minimum(seen, batch.lengths[:, None]))

    def at(self, times: Tensor) -> Queries:
        """Other times [B, Q] that see the same events; the plan is kept."""
        return replace(self, times=times)

    def seen(self) -> Tensor:
        """The number of events that each query sees: [1 or B, Q]."""
        if self.visible.seen is not None:
            return self.visible.seen
        assert self.visible.per_gap is not None
        return (torch.arange(self.times.shape[1], device=self.times.device) // self.visible.per_gap)[None]


@dataclass(frozen=True)
class Sample:
    """At each query only some of the possible events, uniformly without replacement, each with weight K/J."""

    keep: int  # J
    rng: np.random.Generator


class Collator:
    """For models without rules: padding alone."""

    captured_after = 1  # occurrences of a capture key: at once, since batches of a shape are sure to come again
    covariates: CovariateEncoder | None = None  # of a model that has covariates
    calendar: bool = False  # the model follows the calendar

    def batch(
        self,
        data: EventData,
        indices: Sequence[int] | np.ndarray,
        *,
        window: Window = "all",
        device: torch.device | str = "cpu",
        width: int | None = None,
        unscored: np.ndarray | None = None,
        planned: bool = True,
        part: range | None = None,
    ) -> Batch:
        """The chosen sequences, padded to the longest or to `width` events; types that are `unscored` [K] happen and do not count.

        Not `planned`: rows will be taken from it, and `plan_batch` called for those. With `part` only these events of each sequence.
        """
        chosen = [data[int(index)] for index in indices]
        padded = batch_of(chosen, data.origin, window=window, device=device, width=width, unscored=unscored, part=part)
        batch = self.with_rules(self.with_inputs(padded, chosen, part), chosen, data.vocabulary)
        return self.plan_batch(batch) if planned else batch

    def with_inputs(self, batch: Batch, chosen: Sequence[EventSequence], part: range | None = None) -> Batch:
        """The batch with the covariates of its rows and when they start, where the model uses that; of a `part` of each sequence."""
        if self.covariates is not None:
            rows = self.covariates.rows(chosen, batch.times.shape[1], batch.times.device, part)
            batch = replace(batch, covariates=rows)
        return replace(batch, starts=starts_of(chosen).to(batch.times.device)) if self.calendar else batch

    def watched(self, sequence: EventSequence, until: float) -> EventSequence:
        """The sequence, observed until a time that is asked about, where what is known between events depends on it."""
        return sequence

    def batch_until(
        self, history: EventSequence, vocabulary: Vocabulary, asked: np.ndarray, device: torch.device | str
    ) -> Batch:
        """A single history with query times, which may be after its end."""
        watched = self.watched(history, float(asked.max(initial=0.0)))
        return self.batch(EventData([watched], vocabulary), [0], device=device)

    def with_rules(self, batch: Batch, chosen: Sequence[EventSequence], vocabulary: Vocabulary) -> Batch:
        """The batch with the timelines of its rows, for models made of rules."""
        return batch

    def plan_batch(self, batch: Batch) -> Batch:
        """The batch with what `model.encode` applies, unless it has it."""
        return batch

    def plan_queries(
        self, batch: Batch, queries: Queries, sample: Sample | None = None, chosen: Tensor | None = None
    ) -> Queries:
        """Queries about a batch with what the model applies; about a `sample` of the possible events, or `chosen` [B, Q] ones."""
        return queries

    def plans_ahead(self, batch: Batch, points: int) -> Mapping[Hashable, Any]:
        """The plans that `plan_batch`, and `plan_queries` with this many points per gap, will need, by their keys."""
        return {}

    def hand(self, plans: Mapping[Hashable, Any]) -> None:
        """Plans that were made ahead, of the batch that comes next."""

    def capture_key(self, batch: Batch) -> Hashable:
        """Batches for which this is equal can be served by one captured step."""
        return tuple(batch.times.shape)

    @contextmanager
    def keeping(self) -> Iterator[object]:
        """A context in which plans are reused without checking the device; a graph must keep them alive."""
        yield None
