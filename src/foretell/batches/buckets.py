"""Lengths → batches of similar lengths, so that little of a padded batch is padding.

In: the length of every sequence, a batch size and a seeded generator. Out: for every batch, the indices of its
sequences; each index is in exactly one batch. A new call with the same generator gives other batches.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


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
