"""Converts the viewing records of all users, one sequence per user, to one sequence per week of all users, and writes its program.

    python experiments/iptv/prepare.py --data DATA_FOLDER -o OUT

DATA_FOLDER contains the folder `iptv` (`FORETELL_DATA` may name it instead). OUT becomes a data set with events `watch(u12,drama)`, and
OUT/program has the rules of `programs/iptv.ndtt` with tables of all users and categories. Weeks are counted from the start of each
period (train, dev, test). The rest after the last whole week is a shorter sequence, so that no event is lost. Events at the same
time are sorted by user.
"""

from __future__ import annotations

import argparse
import csv
import os
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from foretell.data import Card, Dataset, EventData, EventSequence, Vocabulary, load, save_dataset
from foretell.errors import ForetellError

WEEK = 168.0  # hours
PROGRAMS = Path(__file__).resolve().parents[2] / "programs"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("FORETELL_DATA", ""), help="the folder that holds `iptv`")
    parser.add_argument("-o", "--out", type=Path, required=True)
    args = parser.parse_args()
    if not args.data:
        parser.error("--data: which folder holds `iptv`? (FORETELL_DATA may name it)")
    try:
        by_user = load(Path(args.data) / "iptv")
        made = weekly(by_user)
        save_dataset(made, args.out)
        write_program(made.vocabulary, args.out / "program")
        check(by_user, load(args.out))
    except ForetellError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def weekly(by_user: Dataset) -> Dataset:
    users = sorted({user_of(one) for data in by_user.splits().values() for one in data}, key=_number)
    categories = [name.replace(" ", "_") for name in by_user.vocabulary.names]
    vocabulary = Vocabulary(tuple(f"watch({user},{category})" for user in users for category in categories))
    place = {user: number for number, user in enumerate(users)}
    splits: dict[str, EventData | None] = {"train": None, "dev": None, "test": None}
    for name, data in by_user.splits().items():
        splits[name] = EventData(list(weeks_of(data, place, len(categories))), vocabulary, "window", name)
    about = {"made_from": by_user.card.name, "weeks": "counted from the start of each split"}
    card = Card("IPTV viewing, all users merged by week", "window", by_user.card.time_unit, len(vocabulary), about)
    return Dataset(splits["train"], splits["dev"], splits["test"], vocabulary, card)


def weeks_of(data: EventData, place: dict[str, int], categories: int) -> Sequence[EventSequence]:
    """Return the sequences of a period, one per week. Types are numbered by user, then by category."""
    ends = {one.t_end for one in data}
    if len(ends) != 1:
        raise ForetellError(f"{data.name}: periods of {sorted(ends)} hours; expected one length for all users")
    end = ends.pop()
    user = np.concatenate([np.full(len(one), place[user_of(one)]) for one in data])
    times, types = data.columns.times, data.columns.types
    order = np.lexsort((np.arange(len(times)), user, times))
    times, kind = times[order], (user * categories + types)[order]
    starts = np.arange(0.0, end, WEEK)
    cuts = [*np.searchsorted(times, starts).tolist(), len(times)]
    found = []
    for number, start in enumerate(starts.tolist()):
        rows = slice(cuts[number], cuts[number + 1])
        metadata = {"week": number, "start": start}
        found.append(EventSequence(times[rows] - start, kind[rows], min(WEEK, end - start), f"week{number}", metadata))
    return found


def user_of(sequence: EventSequence) -> str:
    user = sequence.metadata.get("user")
    if not isinstance(user, str):
        raise ForetellError(f"sequence {sequence.id}: user is {user!r}; expected the user's name in the metadata")
    return user


def _number(user: str) -> tuple[int, str]:
    digits = re.search(r"\d+", user)
    return (int(digits.group()) if digits else -1, user)


def write_program(vocabulary: Vocabulary, folder: Path) -> None:
    """Write the rules and the tables of tags unchanged, and the tables of users and categories from the data."""
    (folder / "iptv").mkdir(parents=True, exist_ok=True)
    shutil.copyfile(PROGRAMS / "iptv.ndtt", folder / "iptv.ndtt")
    for name in ("tags.csv", "has_tag.csv"):
        shutil.copyfile(PROGRAMS / "iptv" / name, folder / "iptv" / name)
    pairs = [name.removeprefix("watch(").removesuffix(")").split(",") for name in vocabulary.names]
    for column, (name, file) in enumerate([("user", "users.csv"), ("category", "categories.csv")]):
        with (folder / "iptv" / file).open("w", newline="", encoding="utf-8") as handle:
            writer = csv.writer(handle, lineterminator="\n")
            writer.writerow([name])
            writer.writerows([value] for value in dict.fromkeys(pair[column] for pair in pairs))


def check(by_user: Dataset, written: Dataset) -> None:
    """Read the written data, check that they have every event of every user, and report their number."""
    categories = [name.replace(" ", "_") for name in by_user.vocabulary.names]
    for name, data in by_user.splits().items():
        merged = written.splits()[name]
        counts = {
            f"watch({user_of(one)},{category})": int(count)
            for one in data
            for category, count in zip(categories, np.bincount(one.types, minlength=len(categories)), strict=True)
        }
        found = dict(zip(merged.vocabulary.names, merged.type_counts().tolist(), strict=True))
        if {kind: count for kind, count in found.items() if count} != {k: c for k, c in counts.items() if c}:
            raise ForetellError(f"{name}: {merged.event_count} events were written, of {data.event_count}")
        lengths = merged.lengths
        sys.stdout.write(
            f"{name}: {len(data)} users, {len(merged)} weeks, {merged.event_count} events (all of them), "
            f"{int(lengths.min())} to {int(lengths.max())} a week; the last week has {merged[len(merged) - 1].t_end:g} hours\n"
        )


if __name__ == "__main__":
    raise SystemExit(main())
