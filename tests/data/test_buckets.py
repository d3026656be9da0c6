"""Batches hold similar lengths, every sequence once, and differ from draw to draw."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from foretell.batches.batch import length_buckets
from foretell.data import load

_lengths = st.lists(st.integers(0, 50), max_size=80)


def padding_share(lengths, batches):
    """The share of padded positions when every batch is as wide as its longest sequence."""
    sizes = np.asarray(lengths, dtype=np.int64)
    padded = sum(len(batch) * int(sizes[batch].max()) for batch in batches)
    return 1 - int(sizes.sum()) / padded if padded else 0.0


@given(_lengths, st.integers(1, 20), st.integers(0, 5))
def test_every_sequence_is_in_exactly_one_batch_and_no_batch_is_too_large(lengths, size, seed) -> None:
    batches = length_buckets(lengths, size, np.random.default_rng(seed), max_padding=1.0)
    assert sorted(np.concatenate([np.zeros(0, int), *batches]).tolist()) == list(range(len(lengths)))
    assert all(1 <= len(batch) <= size for batch in batches)
    assert len(batches) == -(-len(lengths) // size)


@given(_lengths, st.integers(1, 20), st.sampled_from([0.0, 0.1, 0.2, 0.5]))
def test_no_batch_is_padded_more_than_allowed(lengths, size, share) -> None:
    batches = length_buckets(lengths, size, np.random.default_rng(0), max_padding=share)
    assert sorted(np.concatenate([np.zeros(0, int), *batches]).tolist()) == list(range(len(lengths)))
    for batch in batches:
        assert padding_share(lengths, [batch]) <= share + 1e-12


@given(_lengths, st.integers(1, 20), st.integers(1, 200), st.integers(0, 5))
def test_a_limit_on_padded_tokens_holds_but_for_single_long_sequences(lengths, size, tokens, seed) -> None:
    batches = length_buckets(lengths, size, np.random.default_rng(seed), max_tokens=tokens)
    assert sorted(np.concatenate([np.zeros(0, int), *batches]).tolist()) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) <= size and (len(batch) == 1 or len(batch) * max(lengths[i] for i in batch) <= tokens)


def test_one_generator_gives_the_same_batches_again_and_other_ones_next() -> None:
    lengths = np.random.default_rng(1).integers(1, 9, 200)
    rng = np.random.default_rng(5)
    first, second = length_buckets(lengths, 16, rng), length_buckets(lengths, 16, rng)
    again = length_buckets(lengths, 16, np.random.default_rng(5))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert any(not np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def test_padding_stays_under_a_fifth_on_stackoverflow(shared) -> None:
    dataset = load(shared("stackoverflow"))
    for data in dataset.splits().values():
        for seed in range(3):
            batches = length_buckets(data.lengths, 64, np.random.default_rng(seed))
            assert padding_share(data.lengths, batches) < 0.2
    lengths = dataset.train.lengths
    assert len(length_buckets(lengths, 64, np.random.default_rng(0))) <= -(-len(lengths) // 64) + 6  # few are split
    assert padding_share(lengths, length_buckets(lengths, 64, np.random.default_rng(0), max_tokens=8192)) < 0.2
