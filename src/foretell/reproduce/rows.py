"""The scores of every test event of one fit, in a small file. Intervals, tests and scores by functor are computed from it.

Each metric has a value and a count per row (`foretell.evaluate.metrics`). Values are stored as float32, whose rounding is far below the
noise of any test.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from foretell.data import EventData
from foretell.data.files import replacing
from foretell.errors import ForetellError
from foretell.evaluate.bootstrap import Estimate, Units, estimates
from foretell.evaluate.compare import Difference, difference_of
from foretell.evaluate.metrics import ALL, Metric, score_of
from foretell.evaluate.permutation import PERMUTATIONS, Over
from foretell.evaluate.record import digest_of
from foretell.evaluate.scores import ScoredModel

if TYPE_CHECKING:
    from foretell.reproduce.experiment import Results

WHO = "participants"  # stands for "participants all", or for the only pattern


@dataclass(frozen=True)
class ScoreRows:
    """One row per scored event, in the order of the data."""

    data: str  # digest of the scored data; only rows with equal digests can be paired
    sequences: int
    sequence: np.ndarray  # int64 [rows]
    type: np.ndarray  # int32 [rows]; -1: no event
    names: tuple[str, ...]  # names of the types
    metrics: tuple[Metric, ...]

    @property
    def units(self) -> Units:
        return Units(self.sequence, self.sequences)

    @cached_property
    def by_key(self) -> dict[str, Metric]:
        return {one.key: one for one in self.metrics}

    @classmethod
    def of(cls, scored: ScoredModel, data: EventData) -> ScoreRows:
        events = scored.events
        names = data.vocabulary.names
        metrics = tuple(one for one in scored.metrics() if (known := score_of(one.key)) is None or known.tested)
        return cls(digest_of(data), len(data), events.sequence, events.type, names, metrics)


def write_rows(path: Path, rows: ScoreRows) -> None:
    about = {
        "data": rows.data,
        "sequences": rows.sequences,
        "names": rows.names,
        "metrics": [{"key": m.key, "title": m.title, "kind": m.kind, "root": m.root} for m in rows.metrics],
    }
    arrays: dict[str, np.ndarray] = {"sequence": rows.sequence.astype(np.int32), "type": rows.type.astype(np.int32)}
    for place, one in enumerate(rows.metrics):
        share = one.kind == "share" and not (one.values % 1.0).any()
        arrays[f"values {place}"] = one.values.astype(np.uint8 if share else np.float32)
        arrays[f"counts {place}"] = one.counts.astype(np.uint8)
        if one.variances is not None and one.variances.any():
            arrays[f"variances {place}"] = one.variances.astype(np.float32)
    with replacing(path) as temporary, open(temporary, "wb") as file:
        np.savez_compressed(file, allow_pickle=False, about=np.asarray(json.dumps(about)), **arrays)


def read_rows(path: Path) -> ScoreRows:
    try:
        with np.load(path, allow_pickle=False) as file:
            about = json.loads(str(file["about"]))
            metrics = []
            for place, one in enumerate(about["metrics"]):
                noise = file.get(f"variances {place}")
                variances = None if noise is None else noise.astype(np.float64)
                values, counts = file[f"values {place}"].astype(np.float64), file[f"counts {place}"]
                metrics.append(Metric(one["key"], one["title"], one["kind"], values, counts, variances, one["root"]))
            sequence = file["sequence"].astype(np.int64)
            names = tuple(about["names"])
            return ScoreRows(about["data"], int(about["sequences"]), sequence, file["type"], names, tuple(metrics))
    except (OSError, ValueError, KeyError) as error:
        raise ForetellError(
            f"{path}: not a file of scores ({type(error).__name__}: {error}); remove its folder"
        ) from error


def check_same_data(rows: Sequence[ScoreRows]) -> None:
    """Raise if rows are not of the same events: then they cannot be pooled or paired."""
    first = rows[0]
    for other in rows[1:]:
        if other.data != first.data or len(other.sequence) != len(first.sequence):
            raise ForetellError(
                "scores of different test data cannot be compared: name the data as before (`data=`), or remove the folders of "
                "the units that were done with other data"
            )


def pooled(rows: Sequence[ScoreRows]) -> ScoreRows:
    """Combine several fits of one model: a row has the mean of their values if it counts in all of them.

    So a metric's value is the mean over the seeds (for an RMSE, the root of the mean squared error over all seeds).
    """
    first = rows[0]
    check_same_data(rows)
    keys = [one.key for one in first.metrics if all(one.key in other.by_key for other in rows)]
    return replace(first, metrics=tuple(_mean([one.by_key[key] for one in rows]) for key in keys))


@dataclass(frozen=True)
class SeedRows:
    """The fits of one model, by seed."""

    by_seed: Mapping[int, ScoreRows]

    @cached_property
    def pooled(self) -> ScoreRows:
        return pooled(list(self.by_seed.values()))

    def estimate(self, metric: str) -> Estimate:
        return estimate_of(self.pooled, metric)

    def values(self, metric: str) -> tuple[float, ...]:
        return tuple(one.by_key[metric].ratio(one.units).value for one in self.by_seed.values())

    def spread(self, metric: str) -> float | None:
        """Return the standard deviation over the seeds; None if there is only one seed."""
        values = self.values(metric)
        return float(np.std(values, ddof=1)) if len(values) > 1 else None


def seed_rows(results: Results, key: Callable[[Mapping[str, Any]], Any]) -> dict[Any, SeedRows]:
    """Return the rows of finished units, by the value of `key` for their settings, then by seed; units with the key None are left out."""
    found: dict[Any, dict[int, ScoreRows]] = {}
    for unit in results.units:
        name = key(unit.settings)
        rows = results.rows(unit.name) if name is not None and unit.name in results.records else None
        if rows is not None:
            found.setdefault(name, {})[int(unit.settings["seed"])] = rows
    return {name: SeedRows(rows) for name, rows in found.items()}


def estimate_of(rows: ScoreRows, metric: str) -> Estimate:
    return estimates([rows.by_key[metric].ratio(rows.units)], rows.units.resampling(0))[0]


def difference_between(
    names: tuple[str, str], first: ScoreRows, second: ScoreRows, metric: str, permutations: int = PERMUTATIONS
) -> Difference:
    """Return the difference first minus second over the same sequences (or events, if sequences are few); p is not corrected."""
    check_same_data([first, second])
    over: Over = "sequences" if first.units.whole_sequences else "events"
    metrics = first.by_key[metric], second.by_key[metric]
    return difference_of(names, *metrics, first.units, [over], permutations=permutations)


def participants_key(rows: ScoreRows) -> str:
    """Return the key of the metric that `participants` stands for: that of all patterns, or of the only pattern."""
    keys = [key for key in rows.by_key if key.startswith(f"{WHO} ")]
    return next((key for key in keys if key == f"{WHO} {ALL}"), keys[0] if keys else WHO)


def _mean(metrics: Sequence[Metric]) -> Metric:
    counts = np.min([one.counts for one in metrics], axis=0)
    # A row that does not count can still have a value: the integral of a sequence without events.
    dropped = np.max([one.counts for one in metrics], axis=0) > counts
    values = np.where(dropped, 0.0, np.mean([one.values for one in metrics], axis=0))
    noise = [one.variances for one in metrics if one.variances is not None]
    variances = np.sum(noise, axis=0) / len(metrics) ** 2 if noise else None
    return replace(metrics[0], values=values, counts=counts, variances=variances)
