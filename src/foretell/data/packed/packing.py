"""`foretell data pack`: any source that `load` reads → a packed folder, in bounded memory if the format allows it.

1. Each file is split into parts of whole sequences (`parts`), which are stored on disk (`raw_files`), and facts about them are
collected. 2. The facts determine settings for all parts (`settling`). 3. The times of each part are placed, the part is assembled
like a separate file, and appended to its split (`writer`).
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from foretell.data.assembling import assemble
from foretell.data.clock import Clock
from foretell.data.columns import Columns
from foretell.data.dataset import SPLITS, Card, Dataset, EventData, Origin
from foretell.data.files import MOST_MISTAKES
from foretell.data.loading import dataset_files, load
from foretell.data.packed.layout import AttributeKind
from foretell.data.packed.parts import Progress, csv_parts, jsonl_parts, parquet_parts
from foretell.data.packed.raw_files import load_raw, remove_raw, save_raw
from foretell.data.packed.settling import PartFacts, SettledParts, in_words, merged
from foretell.data.packed.writer import PackedFacts, PackWriter, SplitWriter, packing, shard_cuts
from foretell.data.placing import placed
from foretell.data.raw import RawEvents
from foretell.data.read_options import ReadOptions
from foretell.data.sequence import Vocabulary
from foretell.errors import DataError
from foretell.reading import check_regular, read_limits

READERS = {".jsonl": jsonl_parts}
TABLES = {".csv": csv_parts, ".tsv": csv_parts, ".parquet": parquet_parts}
STREAMED = (*READERS, *TABLES)
Shares = tuple[float, float, float]


def no_progress(words: str, done: int, of: int) -> None:
    """A progress callback that does nothing."""


def pack(
    source: str | Path,
    target: str | Path,
    options: ReadOptions | None = None,
    *,
    shares: Shares | None = None,
    seed: int = 0,
    progress: Progress = no_progress,
) -> dict[str, tuple[int, int]]:
    """Write a data set as a packed folder; return the numbers of sequences and events of each split.

    Args:
        source: Any source of `load`: a folder of splits, a file, the name of an embedded data set, and so on.
        target: A folder that does not exist yet.
        options: How files are read.
        shares: The shares of train, dev and test, if the source has only one split; sequences are assigned as by `data.split`.
        seed: The seed of this assignment, as `data.split_seed`.
        progress: Called with a description, the finished amount, and the total.

    Raises:
        DataError: all mistakes in the data; nothing is written.
    """
    target, options = Path(target), ReadOptions() if options is None else options
    heard: list[tuple[str, str]] = []
    found = dataset_files(source, options)
    whole = None
    if found is None or not all(format_of(path) in STREAMED for path in found.files.values()):
        options.tell(source, "this format is read whole before it is packed: it has to fit into memory once")
        whole = load(source, options=options)
    with packing(target) as writer:
        if whole is not None:
            counts = _write_whole(writer, whole, shares, seed, progress)
        else:
            assert found is not None
            silent = replace(found.options, kept=heard)
            counts = _Packing(writer, found.files, silent, found.card, found.vocabulary, shares, seed, progress).run()
    for path, sentence in merged(heard, len(heard)):
        options.tell(path, sentence)
    return counts


def format_of(path: Path) -> str:
    """Return the suffix that determines the format, without `.gz`."""
    return Path(path.name.lower().removesuffix(".gz")).suffix


@dataclass(eq=False)
class _Packing:
    """The state of packing files part by part."""

    writer: PackWriter
    files: Mapping[str, Path]
    options: ReadOptions
    card: Card | None  # None: the source is a single file
    vocabulary: Vocabulary | None
    shares: Shares | None
    seed: int
    progress: Progress
    parts: list[tuple[str, Path]] = field(default_factory=list)
    facts: PartFacts = field(default_factory=PartFacts)
    hashes: dict[str, list[np.ndarray]] = field(default_factory=dict)
    keys: set[str] = field(default_factory=set)  # metadata keys, if covariates may come from them
    events: int = 0
    sequences: int = 0
    unused: tuple[str, ...] = ()

    def run(self) -> dict[str, tuple[int, int]]:
        waiting = self.writer.folder / "parts"
        waiting.mkdir()
        for split, path in self.files.items():
            for raw in self._raw(path, waiting):
                self._keep(split, raw, waiting)
        decisions = self._decided()
        for sentence in decisions.said:
            self.options.tell(next(iter(self.files.values())), sentence)
        counts = self._write(decisions)
        shutil.rmtree(waiting)
        return counts

    def _raw(self, path: Path, waiting: Path) -> Iterator[RawEvents]:
        check_regular(path)
        suffix = format_of(path)
        if suffix in READERS:
            return READERS[suffix](path, self.options, self.progress)
        return TABLES[suffix](path, self.options, waiting / path.name, self.progress)

    def _keep(self, split: str, raw: RawEvents, waiting: Path) -> None:
        most = read_limits().max_events
        self.events += len(raw.times)
        if most is not None and self.events > most:
            raise DataError(f"{raw.path}: it has more events than `max_events={most}`")
        self.facts.add(raw, self.options)
        ids = b"".join(hashlib.blake2b(one.encode(errors="replace"), digest_size=8).digest() for one in raw.ids)
        self.hashes.setdefault(split, []).append(np.frombuffer(ids, dtype=np.uint64))
        if self.options.covariate_names:
            self.keys.update(key for one in raw.metadata for key in one)
        path = waiting / f"{len(self.parts)}"
        save_raw(raw, path)
        self.parts.append((split, path))

    def _decided(self) -> SettledParts:
        card = self.card or Card("")
        try:
            return self.facts.decide(self.options, card.time_unit, card.types if self.vocabulary is None else None)
        except DataError as error:
            mistakes = [message for _, path in self.parts for message in _mistakes(load_raw(path))]
            raise DataError([*error.problems, *mistakes]) from None

    def _write(self, decisions: SettledParts) -> dict[str, tuple[int, int]]:
        vocabulary = decisions.vocabulary if self.vocabulary is None else self.vocabulary
        members = self._members()
        writers: dict[str, SplitWriter] = {}
        problems, clock, origin = list[str](), Clock(), "window"
        again, met, first = self._repeated(), dict[str, set[str]](), 0
        for number, (split, path) in enumerate(self.parts):
            self.progress("writing shards", number, len(self.parts))
            data, mistakes = self._assembled(load_raw(path), decisions, vocabulary)
            remove_raw(path)
            problems += mistakes
            if data is None:
                continue
            clock, origin = data.clock, data.origin
            self.unused = data.report.unused_columns if data.report else ()
            problems += _named_twice(data, again[split], met.setdefault(split, set()), path=str(self.files[split]))
            for name, columns in _shared_out(data.columns, split, members, first):
                if len(columns) and not problems:
                    if name not in writers:
                        writers[name] = self.writer.split(name, self._kinds(decisions))
                    writers[name].append(columns)
            first += len(data)
            if len(problems) >= MOST_MISTAKES:
                break
        if problems:
            raise DataError(problems)
        card = self._card(vocabulary, origin, clock)
        return finish(self.writer, writers, vocabulary, card, clock, self.options, self.unused)

    def _assembled(
        self, raw: RawEvents, decisions: SettledParts, vocabulary: Vocabulary
    ) -> tuple[EventData | None, list[str]]:
        """Assemble a part like a separate file, with the settings for the whole data set."""
        if decisions.worded:
            raw = in_words(raw)
        options = replace(self._with_covariates_of(raw), time_format=decisions.time_format)
        origin = "window" if self.card is None else self.card.origin
        made = placed([raw], options, decisions.unit, origin, decisions.given_first)
        if made.problems:
            return None, [*made.problems, *_mistakes(raw)]
        for sentence in made.said:
            options.tell(raw.path, sentence)
        return assemble(0, made, vocabulary, "part", options, self.vocabulary is not None)

    def _with_covariates_of(self, raw: RawEvents) -> ReadOptions:
        """Return the options without covariates that only occur in other parts. One that occurs in no part stays, and is an error later."""
        here = {*raw.attributes, *raw.sequence_attributes, *(key for one in raw.metadata for key in one)}
        everywhere = self.keys | set(self.facts.kinds)

        def known(texts: Sequence[str]) -> tuple[str, ...]:
            names = [(text, text.partition(":")[0]) for text in texts]
            return tuple(text for text, name in names if name in here or name not in everywhere)

        return replace(self.options, covariates=known(self.options.covariates), static=known(self.options.static))

    def _kinds(self, decisions: SettledParts) -> dict[str, AttributeKind]:
        """Return the stored kind of each attribute, except static covariates, which become one value per sequence."""
        static = {text.partition(":")[0] for text in self.options.static}
        return {name: kind for name, kind in decisions.kinds.items() if name not in static}

    def _members(self) -> np.ndarray | None:
        """Return the split (0, 1, 2) of each sequence if `shares` is set, else None."""
        if self.shares is None:
            return None
        if len(self.files) > 1:
            raise DataError(f"`shares=`: there are {len(self.files)} splits already: {', '.join(self.files)}")
        return shared_out(sum(len(one) for parts in self.hashes.values() for one in parts), self.shares, self.seed)

    def _repeated(self) -> dict[str, set[int]]:
        """Return, per split, the hashes that occur for the ids of several sequences."""
        found: dict[str, set[int]] = {}
        for split, parts in self.hashes.items():
            values, counts = np.unique(np.concatenate(parts), return_counts=True)
            found[split] = set(values[counts > 1].tolist())
        return found

    def _card(self, vocabulary: Vocabulary, origin: Origin, clock: Clock) -> Card:
        if self.card is None:
            (path,) = self.files.values()
            card = Card(path.name.split(".")[0], types=len(vocabulary))
        else:
            card = self.card
        return replace(card, origin=origin, time_unit=card.time_unit or clock.unit)


def shared_out(count: int, shares: Shares, seed: int) -> np.ndarray:
    """Assign each sequence at random to a split (0 train, 1 dev, 2 test), as `data.split` does."""
    order = np.random.default_rng(seed).permutation(count)
    ends = np.round(np.cumsum(shares) * count).astype(int)
    members = np.empty(count, dtype=np.int8)
    for number, part in enumerate(np.split(np.arange(count), ends[:2])):
        members[order[part]] = number
    if not (members == 0).any():
        raise DataError(f"`shares={list(shares)}` leaves none of {count} sequences for training")
    return members


def _shared_out(columns: Columns, split: str, members: np.ndarray | None, first: int) -> Iterator[tuple[str, Columns]]:
    """Yield the sequences of a part by their assigned split; `first` is the index of the part's first sequence."""
    if members is None:
        yield split, columns
        return
    own = members[first : first + len(columns)]
    for number, name in enumerate(SPLITS):
        yield name, columns.select(np.flatnonzero(own == number).tolist())


def _named_twice(data: EventData, again: set[int], met: set[str], path: str) -> list[str]:
    """Return messages for ids that also occur in an earlier part; only ids whose hash occurs repeatedly are compared."""
    problems: list[str] = []
    for one in data.columns.ids if again else ():
        digest = hashlib.blake2b(one.encode(errors="replace"), digest_size=8).digest()
        if int.from_bytes(digest, "little") in again:
            if one in met:
                problems.append(f"{path}: sequence {one!r}: this id was used before; ids are unique")
            met.add(one)
    return problems


def _mistakes(raw: RawEvents) -> list[str]:
    return raw.located(raw.mistakes() if not raw.stamped else raw.problems)


def _write_whole(
    writer: PackWriter, dataset: Dataset, shares: Shares | None, seed: int, progress: Progress
) -> dict[str, tuple[int, int]]:
    """Write a data set that is in memory."""
    splits = dataset.splits()
    if shares is not None:
        if len(splits) > 1:
            raise DataError(f"`shares=`: there are {len(splits)} splits already: {', '.join(splits)}")
        (data,) = splits.values()
        members = shared_out(len(data), shares, seed)
        parts = ((name, data.select(np.flatnonzero(members == n).tolist())) for n, name in enumerate(SPLITS))
        splits = {name: part for name, part in parts if len(part)}
    writers: dict[str, SplitWriter] = {}
    for name, data in splits.items():
        writers[name] = writer.split(name)
        cuts = list(shard_cuts(data.columns.offsets))
        for number, (start, stop) in enumerate(cuts):
            writers[name].append(data.columns.span(start, stop))
            progress(f"writing {name}", number + 1, len(cuts))
    first = next(iter(dataset.splits().values()))
    names = ReadOptions(covariates=first.covariates.events, static=first.covariates.static)
    unused = first.report.unused_columns if first.report else ()
    card = replace(dataset.card, origin=first.origin)
    return finish(writer, writers, dataset.vocabulary, card, dataset.clock, names, unused)


def finish(
    writer: PackWriter,
    writers: Mapping[str, SplitWriter],
    vocabulary: Vocabulary,
    card: Card,
    clock: Clock,
    options: ReadOptions,
    unused: tuple[str, ...],
) -> dict[str, tuple[int, int]]:
    """Write the manifest and the card; return the numbers of sequences and events of each split."""
    for name in SPLITS:
        if name in writers:
            own = writers[name]
            attributes = tuple(one for _, one in own.attributes if one not in options.covariate_names.columns)
            report = own.counts.report(f"{card.name}/{name}", attributes, unused)
            writer.entries[name] = own.finish(report)
    described = {
        "unit": clock.unit,
        "seconds_per_unit": clock.seconds_per_unit,
        "zone": clock.zone,
        "absolute": clock.absolute,
    }
    # options for reading no longer apply; only the covariates are kept
    settled = replace(card, time_format="", timezone="", start="", types=len(vocabulary) or None)
    settled = replace(settled, covariates=options.covariates or card.covariates, static=options.static or card.static)
    writer.finish(PackedFacts(vocabulary, settled, described))
    return {name: (entry.sequences, entry.events) for name, entry in writer.entries.items()}
