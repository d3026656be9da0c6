"""Data as a run uses it: the named data set, its splits as they are or made from its sequences, and other files in a model's vocabulary."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import numpy as np

from foretell.data import ColumnMap, Dataset, EventData, EventSequence, Origin, Vocabulary, load, load_file
from foretell.data.dequantise import dequantise, grid_of
from foretell.data.loading import split_names
from foretell.errors import DataError, ForetellError
from foretell.train.config import DataOptions

ENOUGH_SEQUENCES = (
    20  # from here on sequences are drawn; the rule looks at the data alone, so that all shares are made alike
)


def share_of(data: EventData, share: float, seed: int = 0) -> EventData:
    """A share of the sequences, or of each sequence's events. A smaller share of one seed is part of a larger one."""
    if not 0.0 < share <= 1.0:
        raise ForetellError(f"share = {share}: expected a number above 0 and at most 1")
    if share == 1.0:
        return data
    if len(data) >= ENOUGH_SEQUENCES:
        order = np.random.default_rng([seed, 1]).permutation(len(data))
        return data.select(np.sort(order[: _count(share, len(data), 1)]).tolist())
    least = 2 if data.origin == "first-event" else 1  # a first event that is given leaves nothing to learn by itself
    return replace(data, sequences=[_beginning(one, share, least) for one in data], report=None)


def _beginning(sequence: EventSequence, share: float, least: int) -> EventSequence:
    count = _count(share, len(sequence), least)
    if count >= len(sequence):
        return sequence
    end = float(sequence.times[count - 1])
    kept = int(np.searchsorted(sequence.times, end, side="right"))  # what happens at the same time stays together
    return sequence.first(kept, end)


def _count(share: float, of: int, least: int) -> int:
    return min(of, max(least, round(share * of)))


log = logging.getLogger("foretell")

ENOUGH_TO_SPLIT = 10


def load_splits(options: DataOptions, *, unseen: tuple[str, ...] = ()) -> Dataset:
    """The data set of a run; one without dev and test is split by sequences. Files of splits that are to stay `unseen` are not opened."""
    if not options.path:
        raise ForetellError("no data: give a folder, a file or the name of embedded data (--data, or data.path)")
    dataset = load(options.path, columns=options.columns, unseen=unseen)
    if dataset.train is None:
        raise ForetellError(f"{options.path}: there is no train split")
    if dataset.dev is None and dataset.test is None and not (unseen and split_names(options.path) & set(unseen)):
        dataset = _split(dataset, dataset.train, options)
    assert dataset.train is not None
    if options.dequantise:
        dataset = _dequantised(dataset, dataset.train, options.path)
        assert dataset.train is not None
    shared = share_of(dataset.train, options.train_fraction, options.split_seed)
    return replace(dataset, train=shared, **dict.fromkeys(unseen))


def _dequantised(dataset: Dataset, train: EventData, path: str) -> Dataset:
    """All splits, on the grid of the first."""
    grid, made = grid_of(train), {}
    for name, data in dataset.splits().items():
        found = dequantise(data, grid)
        made[name] = found.data
        if found.grid is not None:
            told = path, name, found.grid, 100.0 * found.ties
            log.warning("%s: %s: times were spread evenly within a grid of %g; %.1f %% of gaps were 0", *told)
    return replace(dataset, **made)


def _split(dataset: Dataset, whole: EventData, options: DataOptions) -> Dataset:
    if len(whole) < ENOUGH_TO_SPLIT:
        log.warning(
            "%s: %d sequences are too few to set some aside: all of them are used for training, and scores are of what was learned from",
            options.path,
            len(whole),
        )
        return dataset
    order = np.random.default_rng(options.split_seed).permutation(len(whole))
    ends = np.round(np.cumsum(options.split) * len(whole)).astype(int)
    parts = np.split(np.arange(len(whole)), ends[:2])
    made = {}
    for name, part in zip(("train", "dev", "test"), parts, strict=True):
        chosen = np.sort(order[part])
        if name == "train" and not len(chosen):
            raise ForetellError(
                f"{options.path}: data.split = {list(options.split)} leaves none of {len(whole)} sequences for training"
            )
        made[name] = replace(whole.select(chosen.tolist()), name=name, report=None) if len(chosen) else None
    log.warning(
        "%s: no dev and test splits: its sequences were shared out, %s",
        options.path,
        ", ".join(f"{len(data)} {name}" for name, data in made.items() if data is not None),
    )
    return replace(dataset, **made)


def open_for(
    vocabulary: Vocabulary | None,
    path: str,
    split: str | None,
    *,
    columns: ColumnMap | None = None,
    origin: Origin = "window",
) -> EventData:
    """Events for a model that exists: a file, or a split of a data set, in the model's own vocabulary, or in theirs where it has none."""
    if Path(path).is_file():
        if split is not None:
            raise ForetellError(f"{path}: this is one file and has no split {split!r}")
        return load_file(path, vocabulary, columns=columns, origin=origin)
    splits = load(path, columns=columns).splits()
    if split is None:
        split = "test" if "test" in splits else next(iter(splits))
    if split not in splits:
        raise ForetellError(f"{path}: there is no split {split!r}; there are {', '.join(splits)}")
    return splits[split] if vocabulary is None else in_vocabulary(splits[split], vocabulary)


def in_vocabulary(data: EventData, vocabulary: Vocabulary) -> EventData:
    """The same events under another vocabulary; events it does not have are the user's mistake."""
    if data.vocabulary == vocabulary:
        return data
    used = np.flatnonzero(data.type_counts())
    names = data.vocabulary.names
    unknown = [names[kind] for kind in used if names[kind] not in vocabulary]
    if unknown:
        raise DataError(f"{data.name}: event type `{name}` is not one of the model's" for name in unknown)
    place = np.zeros(len(names), dtype=np.int32)
    place[used] = [vocabulary.index(names[kind]) for kind in used]
    moved = [EventSequence(s.times, place[s.types], s.t_end, s.id, s.metadata, s.unscored) for s in data]
    return EventData(moved, vocabulary, data.origin, data.name)
