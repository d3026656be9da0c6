"""Data for a run: loads a data set with its splits, or splits its sequences, and reads other files in a model's vocabulary."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import numpy as np

from foretell.data import Dataset, EventData, EventSequence, Origin, ReadOptions, Vocabulary, load, load_file
from foretell.data.assembling import without_unknown
from foretell.data.dataset import OTHER, describe_load
from foretell.data.dequantise import dequantise, grid_of
from foretell.data.loading import split_names
from foretell.data.read_options import Unknown
from foretell.data.sources import is_source, whole_source
from foretell.data.windows import in_windows
from foretell.errors import DataError, ForetellError
from foretell.models.units import scored
from foretell.train.config import DataOptions, RunConfig
from foretell.train.other_types import with_other_type
from foretell.wording import counted

ENOUGH_SEQUENCES = (
    20  # from here on sequences are drawn; the rule looks at the data alone, so that all shares are made alike
)


def share_of(data: EventData, share: float, seed: int = 0) -> EventData:
    """Return a share of the sequences, or of each sequence's events. With equal seeds, a smaller share is part of a larger one."""
    if not 0.0 < share <= 1.0:
        raise ForetellError(f"share = {share}: expected a number above 0 and at most 1")
    if share == 1.0:
        return data
    if len(data) >= ENOUGH_SEQUENCES:
        order = np.random.default_rng([seed, 1]).permutation(len(data))
        return data.select(np.sort(order[: _count(share, len(data), 1)]).tolist())
    least = 2 if data.origin == "first-event" else 1  # a given first event alone leaves nothing to learn
    return replace(data, sequences=[_beginning(one, share, least) for one in data], report=None)


def _beginning(sequence: EventSequence, share: float, least: int) -> EventSequence:
    count = _count(share, len(sequence), least)
    if count >= len(sequence):
        return sequence
    end = float(sequence.times[count - 1])
    kept = int(np.searchsorted(sequence.times, end, side="right"))  # tied events stay together
    return sequence.first(kept, end)


def _count(share: float, of: int, least: int) -> int:
    return min(of, max(least, round(share * of)))


log = logging.getLogger("foretell")

ENOUGH_TO_SPLIT = 10


def load_splits(
    options: DataOptions,
    *,
    unseen: tuple[str, ...] = (),
    terms: bool = False,
    in_time: bool = True,
    loaded: Dataset | None = None,
    carried: bool = False,
    level: int = logging.WARNING,
) -> Dataset:
    """Return the data set of a run; if it has no dev and test, it is split by sequences or, if these are few, `in_time`.

    Files of `unseen` splits are not opened. With `terms`, rules read the names of events. A data set that `read_splits` has `loaded` is not
    read again. With `carried`, long sequences are learned in parts. `level` is the logging level of messages.
    """
    dataset = read_splits(options, unseen=unseen, terms=terms) if loaded is None else loaded
    if terms:  # rules define what their events mean
        options = replace(options, unknown="skip")
    split = dataset.dev is None and dataset.test is None and not (unseen and split_names(options.path) & set(unseen))
    return replace(with_splits(dataset, options, split, in_time, carried, level), **dict.fromkeys(unseen))


def read_splits(options: DataOptions, *, unseen: tuple[str, ...] = (), terms: bool = False) -> Dataset:
    """Return the splits as read from their files; raises an error if there is no train split."""
    if not options.path:
        raise ForetellError("no data: give a folder, a file or the name of embedded data (`data=`, or data.path)")
    dataset = load(options.path, unseen=unseen, options=replace(options.reading(terms), unknown="error"))
    if dataset.train is None:
        found = ", ".join(split_names(options.path))
        what = f"name the file to train on `train`, or give it alone, as in `data={Path(options.path) / 'FILE.csv'}`"
        raise ForetellError(f"{options.path}: there is no train split, but {found}; {what}")
    return dataset


def with_splits(
    dataset: Dataset,
    options: DataOptions,
    split: bool,
    in_time: bool = True,
    carried: bool = False,
    level: int = logging.WARNING,
) -> Dataset:
    """Prepare a data set for a run: divide it into splits if `split`, and keep the requested share of the training data."""
    assert dataset.train is not None
    few = len(dataset.train) < ENOUGH_TO_SPLIT
    if options.dequantise and split and few:  # so that splits of one sequence have the same history
        dataset = _dequantised(dataset, dataset.train, options.path, level)
    assert dataset.train is not None
    if split and few and in_time:
        dataset = _split_in_time(dataset, dataset.train, options, level)
    elif split:
        dataset = _split(dataset, dataset.train, options, level)
    assert dataset.train is not None
    if options.dev_share and dataset.dev is None:
        dataset = _set_dev_aside(dataset, dataset.train, options, level)
        assert dataset.train is not None
    if options.dequantise and not (split and few):
        dataset = _dequantised(dataset, dataset.train, options.path, level)
        assert dataset.train is not None
    if options.unknown == "other":
        dataset = with_other_type(dataset, options.path, level)
        assert dataset.train is not None
    dataset = replace(dataset, train=share_of(dataset.train, options.train_fraction, options.split_seed))
    return _in_windows(dataset, options, carried, level)


LONG = 20_000  # events of a sequence above which windows are advisable


def _in_windows(dataset: Dataset, options: DataOptions, carried: bool, level: int) -> Dataset:
    """Cut the long sequences of all splits into windows if requested; otherwise log a message if one is very long."""
    if not options.window_events:
        longest = max(int(data.lengths.max(initial=0)) for data in dataset.splits().values())
        if longest > LONG and not carried:
            how = "`window_events=1024` cuts it into windows, each with the history before it; nhp, rmtpp and s2p2 can learn from the "
            how += "whole in parts, with `carry_events=1024`"
            log.log(level, "%s: a sequence of %d events is worked through as a whole; %s", options.path, longest, how)
        return dataset
    splits = dataset.splits().items()
    return replace(
        dataset, **{name: as_windows(data, f"{options.path}: {name}", options, level) for name, data in splits}
    )


def as_windows(data: EventData, called: str, options: DataOptions, level: int = logging.WARNING) -> EventData:
    """Return the data with long sequences cut into the windows of a run, and log a message."""
    if not options.window_events:
        return data
    found = in_windows(data, options.window_events, options.history_events)
    if found is not data:
        told = counted(len(found), "window"), options.window_events, options.history_events
        log.log(level, "%s: %s of up to %d events, which see up to %d before them", called, *told)
    return found


def _set_dev_aside(dataset: Dataset, train: EventData, options: DataOptions, level: int) -> Dataset:
    """Set aside some of the training sequences as dev; if there are too few, only log a message."""
    if len(train) < ENOUGH_TO_SPLIT:
        log.log(level, "%s: %d training sequences are too few to set some aside as dev", options.path, len(train))
        return dataset
    order = np.random.default_rng([options.split_seed, 2]).permutation(len(train))
    count = min(max(1, round(options.dev_share * len(train))), len(train) - 1)
    dev, rest = (np.sort(part).tolist() for part in (order[:count], order[count:]))
    log.log(level, "%s: no dev split: %d of %d training sequences are set aside", options.path, count, len(train))
    return replace(
        dataset,
        train=replace(train.select(rest), report=None),
        dev=replace(train.select(dev), name="dev", report=None),
    )


def load_run(config: RunConfig, *, unseen: tuple[str, ...] = (), loaded: Dataset | None = None) -> Dataset:
    """Return the data set of a run, read as its model needs it."""
    terms, carried = bool(getattr(config.model, "program", "")), bool(config.train.carry_events)
    in_time = config.task is None
    return load_splits(config.data, unseen=unseen, terms=terms, in_time=in_time, loaded=loaded, carried=carried)


def with_whole_paths(config: RunConfig) -> RunConfig:
    """Make the paths of data, program and start absolute, so that the run can be opened from any folder."""
    if is_source(config.data.path):
        config = replace(config, data=replace(config.data, path=whole_source(config.data.path)))
    elif Path(config.data.path).exists():
        config = replace(config, data=replace(config.data, path=str(Path(config.data.path).resolve())))
    program = getattr(config.model, "program", "")
    if program and Path(program).is_file():  # else it is the name of a shipped program
        config = replace(config, model=replace(config.model, program=str(Path(program).resolve())))
    if config.train.init:
        config = replace(config, train=replace(config.train, init=str(Path(config.train.init).resolve())))
    return config


def _split_in_time(dataset: Dataset, whole: EventData, options: DataOptions, level: int) -> Dataset:
    """Split each sequence in time: each part is conditioned on all events before it, and only its own events are scored."""
    columns = whole.columns
    begin = np.zeros(len(whole))
    if whole.origin == "first-event":
        begin[columns.lengths > 0] = columns.times[columns.offsets[:-1][columns.lengths > 0]]
    shares = np.cumsum(options.split)
    ends = [*(begin + share * (columns.t_ends - begin) for share in shares[:2]), columns.t_ends]
    if options.split[2] == 0.0:
        ends[1] = columns.t_ends
    made: dict[str, EventData | None] = {}
    before = np.zeros(len(whole))
    for name, share, end in zip(("train", "dev", "test"), options.split, ends, strict=True):
        last = bool((end == columns.t_ends).all())
        part = columns.keep(columns.times <= np.repeat(end, columns.lengths), None if last else end)
        if before.any():
            later = before if part.scored_from is None else np.maximum(before, part.scored_from)
            part = replace(part, scored_from=later)
        data = replace(whole, sequences=part, name=name, report=None)
        made[name] = data if share and (name == "train" or _scored(data)) else None
        before = end if made[name] is not None else before
    log.log(level, "%s: %s", options.path, _told_in_time(whole, made))
    return replace(dataset, **made)


def _scored(data: EventData) -> int:
    return sum(int(scored(one, data.origin).sum()) for one in data)


def _told_in_time(whole: EventData, made: dict[str, EventData | None]) -> str:
    counts = {name: 0 if data is None else _scored(data) for name, data in made.items()}
    if len(whole) == 1:
        (one,) = whole
        ends = {
            name: "" if data is None else whole.clock.shown(data[0].t_end, one.start) for name, data in made.items()
        }
        parts = [f"{name} until {ends[name]} ({counted(counts[name], 'event')})" for name in made if counts[name]]
        found = f"one sequence: it is split in time, {', then '.join(parts)}"
    else:
        parts = [f"{counted(counts[name], 'event')} {name}" for name in made if counts[name]]
        found = f"{len(whole)} sequences: each is split in time, at shares of its window: {', '.join(parts)}"
    missing = [name for name in made if not counts[name]]
    lacking = f"; there is nothing to score in {' and '.join(missing)}, which is left out" if missing else ""
    return f"{found}; each part is scored given all that came before it{lacking}"


def _dequantised(dataset: Dataset, train: EventData, path: str, level: int) -> Dataset:
    """Dequantise all splits with the grid of the training split."""
    grid, made = grid_of(train), {}
    for name, data in dataset.splits().items():
        found = dequantise(data, grid)
        made[name] = found.data
        if found.grid is not None:
            told = path, name, found.grid, 100.0 * found.ties
            log.log(level, "%s: %s: times were spread evenly within a grid of %g; %.1f %% of gaps were 0", *told)
    return replace(dataset, **made)


def _split(dataset: Dataset, whole: EventData, options: DataOptions, level: int) -> Dataset:
    if len(whole) < ENOUGH_TO_SPLIT:
        log.log(
            level,
            "%s: %d sequences are too few to set some aside: all of them are used for training, and scores will be on training data",
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
    log.log(
        level,
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
    options: ReadOptions | None = None,
    origin: Origin = "window",
) -> EventData:
    """Return events for an existing model: a file, or a split of a data set; in `vocabulary` or, if it is None, in their own."""
    options = ReadOptions() if options is None else options
    if not is_source(path) and Path(path).is_file():
        if split is not None:
            raise ForetellError(f"{path}: this is one file and has no split {split!r}")
        return load_file(path, vocabulary, options=options, origin=origin)
    splits = load(path, options=options).splits()
    if split is None:
        split = "test" if "test" in splits else next(iter(splits))
    if split not in splits:
        raise ForetellError(f"{path}: there is no split {split!r}; there are {', '.join(splits)}")
    return splits[split] if vocabulary is None else in_vocabulary(splits[split], vocabulary, options.unknown)


def in_vocabulary(data: EventData, vocabulary: Vocabulary, unknown: Unknown = "error") -> EventData:
    """Return the events in another vocabulary. Events of unknown types are an error, or are skipped or `other`, according to `unknown`."""
    if data.vocabulary == vocabulary:
        return data
    used = np.flatnonzero(data.type_counts())
    names = data.vocabulary.names
    missing = [kind for kind in used.tolist() if names[kind] not in vocabulary]
    other = vocabulary.find(OTHER) if unknown == "other" else None
    if missing and other is None and (unknown != "skip" or len(missing) == len(used)):
        raise DataError(f"{data.name}: event type `{names[kind]}` is not one of the model's" for kind in missing)
    place = np.full(len(names), -1 if other is None else other, dtype=np.int32)
    known = [kind for kind in used.tolist() if kind not in set(missing)]
    place[known] = [vocabulary.index(names[kind]) for kind in known]
    types = place[data.columns.types]
    moved = replace(data.columns, types=np.maximum(types, 0))
    if missing:
        counts = data.type_counts()
        said = tuple((names[kind], int(counts[kind])) for kind in missing)
        origin = data.origin
        if other is None:
            moved, origin = without_unknown(moved, types >= 0, origin)
        report = replace(describe_load(moved, data.name), unknown_types=said, unknown=unknown)
        log.warning("%s: %s", data.name, report.warnings[-1])
        return replace(data, sequences=moved, vocabulary=vocabulary, origin=origin, report=report)
    return replace(data, sequences=moved, vocabulary=vocabulary)
