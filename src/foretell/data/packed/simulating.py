"""Simulate a process and write the sequences to a packed folder, in parts with bounded memory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from foretell.data.clock import Clock
from foretell.data.dataset import SPLITS, Card
from foretell.data.packed.packing import finish, no_progress
from foretell.data.packed.parts import Progress
from foretell.data.packed.writer import SplitWriter, packing
from foretell.data.read_options import ReadOptions
from foretell.data.sequence import Vocabulary
from foretell.data.synthetic import Process, simulate_parts
from foretell.errors import ForetellError

HELD_OUT = 5  # 1 in 5 sequences is dev, and 1 in 5 is test


@dataclass(frozen=True)
class SimulationSummary:
    """The result: numbers of sequences and events of each split, and the true negative log-likelihood per event."""

    counts: dict[str, tuple[int, int]]
    nll_per_event: float | None


def borders(sequences: int) -> list[int]:
    """Return the boundaries of train, dev and test as indices: 60/20/20, in the order of simulation."""
    if sequences < 3:
        raise ForetellError(
            f"{sequences} sequences cannot be split into train, dev and test; ask for 3 or more, or a file"
        )
    held = max(1, sequences // HELD_OUT)
    return [0, sequences - 2 * held, sequences - held, sequences]


def simulate_packed(
    process: Process,
    name: str,
    target: Path,
    sequences: int,
    t_end: float,
    seed: int,
    progress: Progress = no_progress,
) -> SimulationSummary:
    """Write the sequences of `simulate` to a packed folder with train, dev and test."""
    cuts, nll, done = borders(sequences), 0.0, 0
    vocabulary = Vocabulary.of_size(process.type_count)
    with packing(target) as writer:
        writers: dict[str, SplitWriter] = {split: writer.split(split) for split in SPLITS}
        for data in simulate_parts(process, sequences, t_end, seed):
            for split, first, last in zip(SPLITS, cuts[:-1], cuts[1:], strict=True):
                start, stop = max(first - done, 0), min(last - done, len(data))
                if start < stop:
                    writers[split].append(data.columns.span(start, stop))
            done += len(data)
            nll += sum(float(str(one["nll_true"])) for one in data.columns.metadata)
            progress("drawing sequences", done, sequences)
        card = Card(f"Simulated: {name}", "window", "none", len(vocabulary))
        counts = finish(writer, writers, vocabulary, card, Clock.of_unit("none"), ReadOptions(), ())
    events = sum(count for _, count in counts.values())
    return SimulationSummary(counts, nll / events if events else None)
