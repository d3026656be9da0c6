"""Files of other projects → `Dataset`. Pickles are only read by `pickles.load`, which runs no code.

easytpp  EasyTPP's JSON: one object per sequence, in a JSON array or one per line, with the lists `time_since_start` and `type_event`;
         optional keys: `dim_process`, `seq_len` (checked) and `seq_idx`
gatech   the pickles of the neural Hawkes process: `{"dim_process": K, "train": [[{"time_since_start", …}, …], …]}`; a file may
         have the keys of all splits, with only one list that is not empty; the key `log_lik` of the paper's repository has the
         true log-likelihood and number of events per sequence, and becomes metadata
ndtt     the pickles of the NDTT code: a list of sequences, each `[{"name": …, "time": …}, …]`; `bos` at time 0 is dropped, and the
         time of the last event, `eos`, becomes `t_end`; `dev_mask.pkl` next to `dev.pkl` has the time from which each is scored
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeGuard, get_args

from foretell.data import pickles
from foretell.data.assembling import assemble_splits
from foretell.data.dataset import Card, Dataset, Origin
from foretell.data.files import text_lines
from foretell.data.gatherer import Gatherer
from foretell.data.raw import RawEvents
from foretell.data.sequence import NO_METADATA
from foretell.errors import DataError
from foretell.reading import parse_json

Reader = Literal["gatech", "easytpp", "ndtt"]
READERS: tuple[Reader, ...] = get_args(Reader)
PICKLE_SUFFIXES = (".pkl", ".pickle")
LOG_LIK, MASK = "log_lik", "_mask"
JSON_SUFFIXES = (".json", ".json.gz", ".jsonl", ".jsonl.gz")
SPLIT_OF = {"train": "train", "dev": "dev", "test": "test", "valid": "dev", "val": "dev", "validation": "dev"}
EASYTPP_KEYS = (
    "time_since_start",
    "type_event",
    "time_since_last_event",
    "dim_process",
    "seq_len",
    "seq_idx",
    "type_text",
)


@dataclass(frozen=True)
class ForeignFile:
    """The contents of a file: `splits` by name. If the file does not name its split, the key is the file's name."""

    splits: Mapping[str, RawEvents]
    types: int | None = None


def is_foreign(path: Path) -> bool:
    """Whether a file has one of these formats, judged by its name and its first line."""
    if path.suffix in PICKLE_SUFFIXES:
        return True
    return path.name.endswith(JSON_SUFFIXES) and _is_easytpp(path)


def foreign_files(folder: Path) -> dict[str, Path]:
    """Return the file of each split in a folder of such files; `valid` and `val` are dev."""
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        split = SPLIT_OF.get(path.name.split(".")[0])
        if split and is_foreign(path):
            if split in found:
                raise DataError(f"{folder}: two files for {split}: {found[split].name} and {path.name}")
            found[split] = path
    return found


def load_foreign(path: str | Path, reader: Reader | None = None, origin: Origin = "window") -> Dataset:
    """Load a file, or a folder with the files `train`, `dev` and `test`; `reader=None` detects the format."""
    path = Path(path)
    files = foreign_files(path) if path.is_dir() else {SPLIT_OF.get(path.name.split(".")[0], "train"): path}
    if not files:
        raise DataError(f"{path}: no train, dev or test file in a foreign format ({', '.join(READERS)})")
    raws: dict[str, RawEvents] = {}
    types: list[int] = []
    for split, file in files.items():
        foreign = _read(file, reader)
        types += [foreign.types] if foreign.types else []
        raws |= _place(foreign, split, file, path.is_dir())
    card = Card(path.resolve().name.split(".")[0], origin, types=max(types, default=None))
    made = assemble_splits(raws, card, path)
    return replace(made, card=replace(card, types=len(made.vocabulary) or None))


def _read(path: Path, reader: Reader | None) -> ForeignFile:
    if path.suffix not in PICKLE_SUFFIXES:
        if reader not in (None, "easytpp"):
            raise DataError(f"{path}: the {reader} reader takes pickles (.pkl), not {path.suffix}")
        return _easytpp(path)
    content = pickles.load(path)
    # pickles of EasyTPP have the format `gatech`
    if reader in ("gatech", "easytpp") or (reader is None and _is_gatech(content)):
        return _gatech(path, content)
    if reader == "ndtt" or isinstance(content, list):
        return _ndtt(path, content)
    raise DataError(f"{path}: found a {type(content).__name__}, which neither Gatech nor NDTT files hold")


def _place(foreign: ForeignFile, split: str, path: Path, in_folder: bool) -> dict[str, RawEvents]:
    """Return the contents of a file by split, named by the keys in the file or by the file's name."""
    parts = foreign.splits
    if len(parts) == 1:
        ((name, raw),) = parts.items()
        return {split if in_folder else SPLIT_OF.get(name, split): raw}
    if in_folder and split in parts:
        return {split: parts[split]}
    known = {SPLIT_OF[name]: raw for name, raw in parts.items() if name in SPLIT_OF}
    if in_folder or len(known) < len(parts):
        raise DataError(f"{path}: it holds {', '.join(parts)}; expected one split, or train, dev and test")
    return known


def _is_easytpp(path: Path) -> bool:
    """Whether a JSON file starts with a sequence in EasyTPP's format."""
    gatherer = Gatherer(str(path), "line")
    head = ""
    for _, text in text_lines(path, gatherer):
        head += text
        if len(head) > 100_000:
            break
        if head.strip():
            # either one line of JSON lines, or an array over many lines
            if '"time_since_start"' in head:
                return True
            if not head.lstrip().startswith("["):
                return False
    return '"time_since_start"' in head


def _easytpp(path: Path) -> ForeignFile:
    """Read an EasyTPP file, which has one split."""
    gatherer = Gatherer(str(path), "line")
    lines = [(number, text) for number, text in text_lines(path, gatherer) if not text.isspace()]
    records: list[tuple[int, object]] = []
    if lines and lines[0][1].lstrip().startswith("["):
        gatherer.unit = "sequence"
        whole = _parse(gatherer, 0, "".join(text for _, text in lines))
        records = list(enumerate(whole, start=1)) if isinstance(whole, list) else []
    else:
        for number, text in lines:
            record = _parse(gatherer, number, text)
            if record is not None:
                records.append((number, record))
    types = [add_easytpp(gatherer, place, record) for place, record in records]
    name = path.name.removesuffix(".gz").rsplit(".", 1)[0]
    return ForeignFile({name: gatherer.finish()}, max(filter(None, types), default=None))


def add_easytpp(gatherer: Gatherer, place: int, record: object) -> int | None:
    """Add one sequence in EasyTPP's format; return its number of event types, or None. `type_text`, if present, has the types' names."""
    if not isinstance(record, dict):
        gatherer.fault(place, f"expected an object, found {type(record).__name__}")
        return None
    missing = [key for key in ("time_since_start", "type_event") if key not in record]
    if missing:
        gatherer.fault(place, f"no key {' and no key '.join(map(repr, missing))}; found {', '.join(record)}")
        return None
    times = record["time_since_start"]
    length = record.get("seq_len")
    if length is not None and isinstance(times, list) and length != len(times):
        gatherer.fault(place, f"seq_len is {length!r}, but there are {len(times)} times")
        return None
    gatherer.add(
        place,
        times=times,
        events=record.get("type_text"),
        types=record["type_event"],
        id=record.get("seq_idx"),
        metadata={key: value for key, value in record.items() if key not in EASYTPP_KEYS},
    )
    return _type_count(Path(gatherer.path), record.get("dim_process"))


def _parse(gatherer: Gatherer, place: int, text: str) -> object:
    try:
        return parse_json(text)
    except ValueError as error:
        gatherer.fault(place, f"not JSON: {error}")
    return None


def _is_gatech(content: object) -> TypeGuard[dict[object, object]]:
    """Whether the content of a pickle has the format `gatech`."""
    return isinstance(content, dict) and "dim_process" in content


def _gatech(path: Path, content: object) -> ForeignFile:
    """Convert the content of a pickle in the format `gatech`."""
    if not _is_gatech(content):
        raise DataError(f"{path}: expected a dict with `dim_process` and a split, found {type(content).__name__}")
    splits = {
        str(key): value
        for key, value in content.items()
        if key not in ("dim_process", LOG_LIK) and isinstance(value, list) and value
    }
    if not splits:
        raise DataError(f"{path}: no split with sequences; found the keys {', '.join(map(str, content))}")
    raws = {}
    for name, sequences in splits.items():
        label = str(path) if len(splits) == 1 else f"{path}[{name}]"
        gatherer = Gatherer(label, "sequence")
        true = _true_likelihoods(path, content, len(sequences)) if len(splits) == 1 else None
        for number, rows in enumerate(sequences, start=1):
            found = _rows_of(gatherer, number, rows, "time_since_start", "type_event")
            if found is not None:
                about = NO_METADATA if true is None else {LOG_LIK: true[number - 1]}
                gatherer.add(number, times=found[0], events=None, types=found[1], metadata=about)
        raws[name] = gatherer.finish()
    return ForeignFile(raws, _type_count(path, content["dim_process"]))


def _true_likelihoods(path: Path, content: Mapping[object, object], count: int) -> list[object] | None:
    """Return `(log-likelihood, events)` per sequence from the paper's repository, or None if the file has no such key."""
    found = content.get(LOG_LIK)
    if not isinstance(found, list):
        return None
    if len(found) != count:
        raise DataError(
            f"{path}: {LOG_LIK} has {len(found)} entries, but there are {count} sequences; expected one each"
        )
    return [list(one) if isinstance(one, tuple) else one for one in found]


def _ndtt(path: Path, content: object) -> ForeignFile:
    """Convert the content of a pickle in the format `ndtt`."""
    if not isinstance(content, list):
        raise DataError(f"{path}: expected a list of sequences, found {type(content).__name__}")
    gatherer = Gatherer(str(path), "sequence")
    mask = _mask(path, len(content))
    for number, rows in enumerate(content, start=1):
        found = _rows_of(gatherer, number, rows, "time", "name")
        if found is not None:
            _add_between_marks(gatherer, number, *found, cutoff=mask[number - 1])
    return ForeignFile({path.stem: gatherer.finish()})


def _mask(path: Path, count: int) -> list[object]:
    """Return the time from which each sequence is scored, from the mask file next to this one; None for all without such a file."""
    beside = path.with_name(f"{path.stem}{MASK}{path.suffix}")
    if not beside.exists():
        return [None] * count
    found = pickles.load(beside)
    if not isinstance(found, list) or len(found) != count:
        what = f"a list of {len(found)}" if isinstance(found, list) else f"a {type(found).__name__}"
        raise DataError(f"{beside}: expected a list with one time for each of the {count} sequences, found {what}")
    return found


def _scored_after(times: list[Any], cutoff: object) -> object:
    """Return a cutoff slightly before an event at the mask's time: NDTT scores this event, but ours are scored strictly after it."""
    return math.nextafter(float(cutoff), 0.0) if isinstance(cutoff, int | float) and cutoff in times else cutoff


def _add_between_marks(
    gatherer: Gatherer, number: int, times: list[Any], names: list[Any], cutoff: object = None
) -> None:
    end = None
    if names and names[-1] == "eos":
        end = times[-1]
        times, names = times[:-1], names[:-1]
    if names and names[0] == "bos":
        if times[0] != 0:
            gatherer.fault(number, f"bos is at {times[0]!r}, expected time 0")
            return
        times, names = times[1:], names[1:]
    for mark, place in (("bos", "first"), ("eos", "last")):
        if mark in names:
            gatherer.fault(number, f"{mark} is event {names.index(mark)} of the others, expected it {place}")
            return
    bounds = {"t_end": end, "score_from": _scored_after(times, cutoff)}
    gatherer.add(number, times=times, events=names, bounds=bounds)


def _rows_of(
    gatherer: Gatherer, place: int, rows: object, time_key: str, event_key: str
) -> tuple[list[Any], list[Any]] | None:
    """Return times and events from a list with one dict per event; for other input, note a mistake and return None."""
    if not isinstance(rows, list):
        gatherer.fault(place, f"expected a list of events, found {type(rows).__name__}")
        return None
    for index, row in enumerate(rows):
        missing = [key for key in (time_key, event_key) if not isinstance(row, dict) or key not in row]
        if missing:
            found = ", ".join(map(str, list(row)[:10])) if isinstance(row, dict) else type(row).__name__
            gatherer.fault(place, f"event {index} has no {' and no '.join(map(repr, missing))}; found {found}")
            return None
    return [row[time_key] for row in rows], [row[event_key] for row in rows]


def _type_count(path: Path, value: object) -> int | None:
    """Check a file's `dim_process`; return the number of event types, or None if it is absent."""
    if value is None:
        return None
    if type(value) is not int or value < 1:
        raise DataError(f"{path}: dim_process is {value!r}, expected the number of event types")
    return value
