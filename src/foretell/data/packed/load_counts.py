"""The `LoadReport` of a split that is processed shard by shard, from counts that are summed over shards."""

from __future__ import annotations

import numpy as np

from foretell.data.columns import Columns, gaps_of
from foretell.data.dataset import GRIDS, LoadReport, grid_shares


class LoadCounts:
    """Counts for a `LoadReport`, summed over all shards so far."""

    def __init__(self) -> None:
        self.sequences = self.events = self.gaps = self.ties = self.missing_ends = 0
        self.on_grid: dict[float, int] = dict.fromkeys(GRIDS, 0)

    def add(self, columns: Columns) -> None:
        """Add the counts of a shard."""
        gaps = gaps_of(columns.times, columns.offsets)
        self.sequences += len(columns)
        self.events += len(columns.times)
        self.gaps += len(gaps)
        self.ties += int((gaps == 0).sum())
        self.missing_ends += 0 if columns.ends_assumed is None else int(columns.ends_assumed.sum())
        if not len(columns.times):
            return
        shares = dict(grid_shares(columns.times))
        # keep only grids that float64 resolves at the times of every shard
        self.on_grid = {
            one: count + round(shares[one] * len(columns.times)) for one, count in self.on_grid.items() if one in shares
        }

    def report(self, path: str, attributes: tuple[str, ...] = (), unused: tuple[str, ...] = ()) -> LoadReport:
        """Return the report of all shards."""
        return LoadReport(
            path=path,
            sequences=self.sequences,
            events=self.events,
            ties=self.ties / self.gaps if self.gaps else 0.0,
            grid_shares=tuple((one, count / self.events) for one, count in self.on_grid.items()) if self.events else (),
            missing_ends=self.missing_ends,
            attributes=attributes,
            unused_columns=unused,
        )


def positive_gaps(times: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return the positive gaps between neighbouring events of a sequence; the int64 times may be unsorted within a sequence."""
    sequences = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    ordered = times[np.lexsort((times, sequences))] if len(times) else times
    gaps = gaps_of(ordered, offsets)
    return gaps[gaps > 0]
