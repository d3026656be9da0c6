"""Remove the last event of every sequence and store its type as a label: data for a classifier of the last event.

    python experiments/pretraining/prepare.py DATA_FOLDER/mimic2 LABELLED

In: a data set of three splits. Out: a folder in the same format, in which every sequence lacks its last event and has
the key `last`. Sequences of one event are left out.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from foretell.data import EventData, EventSequence, load, save_dataset

LABEL = "last"


def cut(data: EventData) -> EventData:
    made = [
        EventSequence(
            one.times[:-1],
            one.types[:-1],
            one.times[-2],
            one.id,
            {**one.metadata, LABEL: data.vocabulary[int(one.types[-1])]},
        )
        for one in data
        if len(one) >= 2
    ]
    return EventData(made, data.vocabulary, data.origin, data.name)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source")
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    dataset = load(args.source)
    parts = {name: cut(data) for name, data in dataset.splits().items()}
    save_dataset(replace(dataset, **parts), args.out)
    for name, data in parts.items():
        sys.stdout.write(f"{name}: {len(data)} sequences, {data.event_count} events\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
