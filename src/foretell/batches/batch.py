"""Sequences in, one padded batch of tensors out, with masks of the events and gaps that count in the likelihood.

A sequence of `n` events has `n + 1` gaps: before the first event, between events, and the tail up to `t_end`. Gap `g` sees the
first `g` events. Times of padding are `t_end`: padded gaps have length zero, and no scored event can see padding.
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
    """Return batches of similar length, as arrays of positions in `lengths`, in random order.

    Sequences of equal length are shuffled, and batches are cut at other positions at every call. A batch whose share of padding is above
    `max_padding` is split (usually the one with the longest sequences); 1.0 splits none. `max_tokens` also limits a batch's padded size
    (sequences × longest); a sequence above that limit gets a batch alone.
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
    # One batch is short. A random one is chosen, so that it is not always the batch with the longest sequences.
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
    """Cut a sorted batch in two where that saves most padding, until no part has more than the allowed share of padding."""
    here = sizes[batch]
    if len(batch) * int(here[-1]) * (1 - max_padding) <= int(here.sum()):
        return [batch]
    count = np.arange(1, len(batch))
    cut = int(np.argmin(count * here[:-1] + (len(batch) - count) * here[-1])) + 1
    return [*_tight(batch[:cut], sizes, max_padding), *_tight(batch[cut:], sizes, max_padding)]


@dataclass(frozen=True, eq=False)
class RuleRows:
    """The timeline of each row of a batch, on the CPU, and the plan of all rows together; only for models made of rules."""

    keys: tuple[bytes, ...]  # one per row; rows with equal keys have equal events, and so the same timeline
    timelines: tuple[Timeline, ...]
    plan: Any = None  # applied by the model's `encode`; None if the model needs none, or if these rows were taken from another batch
    event: Tensor | None = (
        None  # int64 [B, N], where additions expire: the number of each column's event, -1 for an expiry
    )

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
    gap_length: Tensor  # float64 [B, N + 1]: length of the scored part; zero for padding and for gaps that do not count
    scored_start: Tensor  # float64 [B, N + 1]: start of the scored part; usually `gap_start`
    event_counts: Tensor  # bool [B, N]: True where the event is scored
    gap_counts: Tensor  # bool [B, N + 1]: True where the gap's integral is scored
    history_only: Tensor  # bool [B, N]: True where the data mark an event as not scored
    rules: RuleRows | None = None
    covariates: CovariateRows | None = None
    starts: Tensor | None = None  # float64 [B]: the moment of time 0; only for models that follow the calendar
    carried: tuple[Tensor, ...] | None = None  # [B, …] each: the model's state after the earlier parts of the sequences

    def __len__(self) -> int:
        return self.times.shape[0]

    @property
    def scored(self) -> Tensor:
        """The number of scored events of each sequence: [B]."""
        return self.event_counts.sum(1)

    @property
    def is_event(self) -> Tensor:
        """True where a column is an event, False where it is an expiry: bool [1 or B, N]."""
        if self.rules is None or self.rules.event is None:
            return torch.ones(1, self.times.shape[1], dtype=torch.bool, device=self.times.device)
        return self.rules.event >= 0

    def event_of(self, row: Tensor, column: Tensor) -> Tensor:
        """Return the number of each column's event in its sequence. It differs from the column where additions expire."""
        if self.rules is None or self.rules.event is None:
            return column
        return self.rules.event[row, column]

    def rows(self, start: int, stop: int) -> Batch:
        """Return the rows `start` to `stop`, without the plan, which belongs to the whole batch."""
        rules = None if self.rules is None else self.rules.take_rows(slice(start, stop))
        return self._mapped(lambda tensor: tensor[start:stop], rules)

    def take(self, rows: Tensor) -> Batch:
        """Return the rows with these numbers, int64 [R], in any order and with repetitions."""
        rules = None if self.rules is None else self.rules.take_rows(rows.tolist())
        return self._mapped(lambda tensor: tensor.index_select(0, rows), rules)

    def clone(self) -> Batch:
        """Return a copy of the tensors in new memory."""
        return self._mapped(torch.clone, self.rules)

    def _mapped(self, change: Callable[[Tensor], Tensor], rules: RuleRows | None) -> Batch:
        further = self.covariates
        further = None if further is None else CovariateRows(*map(change, further.tensors()))
        starts = None if self.starts is None else change(self.starts)
        carried = None if self.carried is None else tuple(map(change, self.carried))
        return Batch(*map(change, self.tensors()), rules=rules, covariates=further, starts=starts, carried=carried)

    def tensors(self) -> tuple[Tensor, ...]:
        """Return the batch's own tensors: no covariates, no calendar and no carried state."""
        return tuple(getattr(self, field.name) for field in fields(self)[:-4])

    def all_tensors(self) -> tuple[Tensor, ...]:
        further = () if self.covariates is None else self.covariates.tensors()
        return self.tensors() + further + (() if self.starts is None else (self.starts,)) + (self.carried or ())

    def pieces(self, queries_per_gap: int, limit: int, shares: int = 1) -> Iterator[Batch]:
        """Cut the batch into runs of sequences with at most `limit` queries each, but at least one sequence.

        The number of pieces is a multiple of `shares`, the number of processes, unless there are too few sequences.
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
    """Return the sequences with these indices as a batch. The other arguments are those of `batch_of`."""
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
    """Pad sequences to the longest of them, or to `width` events. Types in the mask `unscored` [K] are read but not scored.

    With `part`, the batch has only these events of each sequence, the gaps before them, and the tail of each sequence that ends in the
    part. Every gap is in exactly one part. Times are still measured from the start of the sequence.
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
    """Return masks of the scored events [B, N] and gaps [B, N + 1]: all of them, unless the origin or the window excludes some.

    With `part`, columns are those of this part of the sequences; `lengths` are always those of the whole sequences.
    """
    begin = 0 if part is None else part.start
    event, gap = np.arange(begin, begin + width)[None, :], np.arange(begin, begin + width + 1)[None, :]
    last = lengths[:, None]
    if window == "events-2-to-I":
        events, gaps = (event >= 1) & (event < last), (gap >= 1) & (gap < last)
    else:
        first = 1 if given_first else 0
        # A sequence that is conditioned on its first event, but has no event, is not observed at all.
        events, gaps = (event >= first) & (event < last), (gap >= first) & (gap <= last)
    if part is not None:
        gaps[:, -1] &= lengths <= begin + width  # otherwise the last gap is the first one of the next part
        if begin:
            gaps[:, 0] &= lengths > begin  # otherwise the first gap is the tail, which belongs to the part before
    return events, gaps


def starts_of(chosen: Sequence[EventSequence]) -> Tensor:
    """Return the moments at which sequences start: float64 [B]. Raise an error if a start is unknown."""
    unknown = [one.id for one in chosen if one.start is None]
    if unknown:
        raise ForetellError(
            f"sequence {unknown[0]!r}: the model follows the calendar, and nothing says when this sequence started; expected data with "
            "absolute times, or a model trained with model.calendar = false"
        )
    return torch.tensor([moment_of(one.start) for one in chosen if one.start is not None], dtype=torch.float64)


@dataclass(frozen=True)
class Queries:
    """Times at which intensities are computed; each one sees a prefix of its sequence's events."""

    times: Tensor  # float64 [B, Q]
    visible: Visible
    plan: Any = None  # a `QueryPlan`, for models made of rules

    @classmethod
    def by_gap(cls, times: Tensor) -> Queries:
        """Make queries from times [B, G, P]: the `P` times of gap `g` see the first `g` events."""
        rows, gaps, per_gap = times.shape
        return cls(times.reshape(rows, gaps * per_gap), Visible(None, per_gap))

    @classmethod
    def seeing(cls, times: Tensor, seen: Tensor) -> Queries:
        """Make queries from times [B, Q], each of which sees the first `seen` [B, Q] events."""
        return cls(times, Visible(seen, None))

    @classmethod
    def of_events(cls, batch: Batch) -> Queries:
        """Make one query at the time of each event, which sees the events before it."""
        return cls.by_gap(batch.times.unsqueeze(-1))

    @classmethod
    def at_times(cls, batch: Batch, times: Tensor) -> Queries:
        """Make queries at times [B, Q] between events: each sees the events with a smaller time."""
        seen = torch.searchsorted(batch.times, times.contiguous(), right=False)
        return cls.seeing(times, torch.minimum(seen, batch.lengths[:, None]))

    def at(self, times: Tensor) -> Queries:
        """Return queries at other times [B, Q] with the same visible events and the same plan."""
        return replace(self, times=times)

    def seen(self) -> Tensor:
        """The number of events that each query sees: [1 or B, Q]."""
        if self.visible.seen is not None:
            return self.visible.seen
        assert self.visible.per_gap is not None
        return (torch.arange(self.times.shape[1], device=self.times.device) // self.visible.per_gap)[None]


@dataclass(frozen=True)
class Sample:
    """Use a random sample of the possible events at each query: `keep` of them, uniformly without replacement, each with weight K/J."""

    keep: int  # J
    rng: np.random.Generator


class Collator:
    """Makes batches for models without rules: padding, covariates and calendar."""

    captured_after = 1  # occurrences of a capture key; at the first one, since batches of a shape almost always recur
    covariates: CovariateEncoder | None = None  # None if the model has no covariates
    calendar: bool = False  # whether the model follows the calendar

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
        """Return the sequences with these indices as a batch, padded to the longest or to `width` events.

        Types in the mask `unscored` [K] are not scored. `planned=False` leaves out the plan. A `part` is these events of each sequence.
        """
        chosen = [data[int(index)] for index in indices]
        padded = batch_of(chosen, data.origin, window=window, device=device, width=width, unscored=unscored, part=part)
        batch = self.with_rules(self.with_inputs(padded, chosen, part), chosen, data.vocabulary)
        return self.plan_batch(batch) if planned else batch

    def with_inputs(self, batch: Batch, chosen: Sequence[EventSequence], part: range | None = None) -> Batch:
        """Return the batch with covariates and starts of its rows, if the model uses them. `part` says which events the batch has."""
        if self.covariates is not None:
            rows = self.covariates.rows(chosen, batch.times.shape[1], batch.times.device, part)
            batch = replace(batch, covariates=rows)
        return replace(batch, starts=starts_of(chosen).to(batch.times.device)) if self.calendar else batch

    def watched(self, sequence: EventSequence, until: float) -> EventSequence:
        """Return the sequence as observed until this time, for models in which the database changes between events."""
        return sequence

    def batch_until(
        self, history: EventSequence, vocabulary: Vocabulary, asked: np.ndarray, device: torch.device | str
    ) -> Batch:
        """Return a batch of one history for query times `asked`, which may be after the history's end."""
        watched = self.watched(history, float(asked.max(initial=0.0)))
        return self.batch(EventData([watched], vocabulary), [0], device=device)

    def with_rules(self, batch: Batch, chosen: Sequence[EventSequence], vocabulary: Vocabulary) -> Batch:
        """Return the batch with the timelines of its rows, for models made of rules."""
        return batch

    def plan_batch(self, batch: Batch) -> Batch:
        """Return the batch with the plan that `model.encode` applies, unless it already has one."""
        return batch

    def plan_queries(
        self, batch: Batch, queries: Queries, sample: Sample | None = None, chosen: Tensor | None = None
    ) -> Queries:
        """Return queries with the plan that the model applies: for all possible events, a random `sample`, or the `chosen` ones [B, Q]."""
        return queries

    def plans_ahead(self, batch: Batch, points: int) -> Mapping[Hashable, Any]:
        """Return the plans, by key, that `plan_batch` needs, and `plan_queries` with this many points per gap."""
        return {}

    def hand(self, plans: Mapping[Hashable, Any]) -> None:
        """Accept the plans that were made ahead for the next batch."""

    def capture_key(self, batch: Batch) -> Hashable:
        """Return the key of a captured step: batches with equal keys can use the same one."""
        return tuple(batch.times.shape)

    @contextmanager
    def keeping(self) -> Iterator[object]:
        """Within this context plans are reused without a device check. It yields them; a captured graph must keep them alive."""
        yield None
