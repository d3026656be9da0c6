"""The result of a search: a leaderboard on dev from the records of its units, with the chosen candidate and the reason.

The best candidate on dev that is no variant is chosen, unless a variant is better by more than the standard error of their difference:
the best of many variants on dev is often best by luck, and seldom best on other data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from foretell.data import FrameResult
from foretell.data.frame_output import FrameColumns
from foretell.errors import ForetellError
from foretell.evaluate.bootstrap import Estimate
from foretell.evaluate.compare import difference_of
from foretell.evaluate.scores import plain
from foretell.models.registry import find_model
from foretell.reproduce.experiment import Results
from foretell.reproduce.rows import ScoreRows, check_same_data, read_rows
from foretell.reproduce.unit import ROWS, RUN
from foretell.search.halving import FLOORS, PARTIAL, WHOLE, unit_folders
from foretell.train.floor_fits import verdict
from foretell.train.run import RunFolder

METRIC = "log_likelihood"
NORMAL = 2 * 1.96  # standard errors in a 95 % interval
EntryState = Literal["whole", "shorter", "stopped"]


@dataclass(frozen=True)
class LeaderboardEntry:
    """The best fit of a candidate so far."""

    candidate: str
    title: str
    why: str  # the reason for trying it
    kind: str
    variant: bool
    state: EntryState  # all epochs that the rules give, fewer, or stopped before its end
    dev: Estimate  # log-likelihood in nats per event
    behind: Estimate | None  # how much better the chosen candidate is, on the same events; None for the chosen one
    fits: int
    epochs: int
    best_epoch: int | None
    parameters: int
    seconds: float  # of all its fits
    run: str

    @property
    def is_floor(self) -> bool:
        return self.candidate in FLOORS


@dataclass(frozen=True)
class Leaderboard(FrameResult):
    """Candidates, the best on dev first; as a frame, one row per candidate."""

    entries: tuple[LeaderboardEntry, ...]
    chosen: str  # name of the candidate
    reason: str
    verdict: str  # whether it beats the floors or, if a floor is chosen, that no network beats it
    failed: Mapping[str, str]  # by title: the error, or that its epochs take too long
    untried: tuple[str, ...]  # titles of candidates for which there was no time

    @property
    def best(self) -> LeaderboardEntry:
        return next(one for one in self.entries if one.candidate == self.chosen)

    def frame_columns(self) -> FrameColumns:
        rows = self.entries
        return {
            "model": [one.title for one in rows],
            "chosen": np.array([one.candidate == self.chosen for one in rows]),
            **{name: np.array([getattr(one.dev, name) for one in rows]) for name in ("value", "low", "high")},
            "state": [one.state for one in rows],
            "epochs": np.array([one.epochs for one in rows]),
            "parameters": np.array([one.parameters for one in rows]),
            "seconds": np.array([one.seconds for one in rows]),
            "run": [one.run for one in rows],
        }

    def to_json(self) -> dict[str, Any]:
        found = asdict(self) | {"entries": [asdict(one) for one in self.entries]}
        return plain({name: found[name] for name in ("chosen", "reason", "verdict", "entries", "failed", "untried")})


@dataclass(frozen=True)
class _Scored:
    """A fit with scores on dev: complete, or stopped on the way."""

    name: str
    record: Mapping[str, Any]
    rows: ScoreRows
    folder: Path


def leaderboard(results: Results, titles: Mapping[str, str], *, floors_chosen: bool = True) -> Leaderboard:
    """Return the leaderboard of the fits so far; `titles` are those of all candidates.

    Without `floors_chosen`, floors are listed but cannot be chosen.
    """
    found = _scored(results)
    best: dict[str, _Scored] = {}
    for one in found:
        name = one.record["candidate"]
        if name not in best or one.record["dev"] > best[name].record["dev"]:
            best[name] = one
    open_to = {name: one for name, one in best.items() if floors_chosen or name not in FLOORS}
    if not open_to:
        raise ForetellError(
            f"{results.folder}: no model was scored in this time; give more minutes: the same command continues the search"
        )
    check_same_data([one.rows for one in best.values()])
    chosen, reason = _choice(open_to)
    entries = [_entry(one, best[chosen], found) for one in best.values()]
    floor_titles = {name: find_model(name).about.title for name in FLOORS}
    failed = {{**floor_titles, **titles}[name]: why for name, why in _failed(results).items() if name not in best}
    untried = tuple(title for name, title in titles.items() if name not in best and title not in failed)
    floors = {best[name].record["title"]: best[name].record["dev"] for name in FLOORS if name in best}
    title, score = best[chosen].record["title"], best[chosen].record["dev"]
    advice = "more minutes, or more data, may help"
    said = _floor_won(best, chosen) if chosen in FLOORS else verdict(title, score, floors, "dev", advice)
    said = "; ".join(one for one in (said, *_without_score(best)) if one)
    ordered = sorted(entries, key=lambda one: -one.dev.value)
    return Leaderboard(tuple(ordered), chosen, reason, said, failed, untried)


def _scored(results: Results) -> list[_Scored]:
    found = []
    for folder in unit_folders(results.folder):
        path, record = folder.path, folder.record() or folder.read(PARTIAL)
        if record is not None and record.get("dev") is not None and (path / ROWS).exists():
            found.append(_Scored(path.name, record, read_rows(path / ROWS), path))
    return found


def _failed(results: Results) -> dict[str, str]:
    """Return by candidate: the error, or why it was given up."""
    found: dict[str, str] = {}
    for folder in unit_folders(results.folder):
        settings, record = folder.read("settings.json") or {}, folder.record() or {}
        told = record.get("gave_up") or (folder.error().strip().splitlines() or [""])[-1]
        if told and settings:
            found[settings["candidate"]] = told
    return found


def _choice(best: Mapping[str, _Scored]) -> tuple[str, str]:
    """Return the chosen candidate, and a sentence with the reason."""
    ranked = sorted(best, key=lambda name: -best[name].record["dev"])
    top = ranked[0]
    plain_ones = [name for name in ranked if not best[name].record["variant"]]
    said = f"{best[top].record['title']} has the highest log-likelihood on dev"
    if not plain_ones or top == plain_ones[0]:
        after = (
            f", {_gap(best[top], best[ranked[1]])} more than {best[ranked[1]].record['title']}" if ranked[1:] else ""
        )
        return top, f"{said}{after}"
    first = plain_ones[0]
    for name in ranked:  # search for the best variant that is clearly better
        if not best[name].record["variant"] or best[name].record["dev"] <= best[first].record["dev"]:
            break
        difference = _difference(best[name], best[first])
        error = (difference.high - difference.low) / NORMAL
        if difference.value > error:
            title = best[name].record["title"]
            return name, (
                f"{title} is better on dev than {best[first].record['title']} by {difference.value:.4f} nats per event, "
                f"more than the standard error of that difference ({error:.4f})"
            )
    return first, (
        f"{best[first].record['title']} is the best on dev of the models that are no variants; {best[top].record['title']} has "
        f"{_gap(best[top], best[first])} more, which is within the standard error of that difference"
    )


def _without_score(best: Mapping[str, _Scored]) -> list[str]:
    """Return sentences about floors without a score (no time, or too many types), since it is unknown whether these are beaten."""
    # The weekly floor takes no time: it lacks a score only if the data have no weeks.
    missing = [find_model(name).about.title for name in FLOORS if name not in best and name != "weekly"]
    return [f"{title} has no score here, so whether it is beaten is not known" for title in missing]


def _floor_won(best: Mapping[str, _Scored], chosen: str) -> str:
    """Return a sentence for a search in which a floor is best: by how much the networks lose to it, and what to try."""
    others = [name for name in best if name not in FLOORS]
    if not others:
        return "no network was scored in this time: give more minutes, and the same command continues the search"
    other = max(others, key=lambda name: best[name].record["dev"])
    return (
        f"no network beats this floor on dev: the best of them, {best[other].record['title']}, has {best[other].record['dev']:.4f} "
        f"against {best[chosen].record['dev']:.4f} nats per event; more minutes, or more data, may help"
    )


def _gap(one: _Scored, other: _Scored) -> str:
    return f"{one.record['dev'] - other.record['dev']:.4f} nats per event"


def _difference(one: _Scored, other: _Scored) -> Estimate:
    """Return the score of the first minus that of the second, on the same events."""
    metrics = one.rows.by_key[METRIC], other.rows.by_key[METRIC]
    return difference_of((one.name, other.name), *metrics, one.rows.units, []).difference


def _entry(one: _Scored, chosen: _Scored, every: Sequence[_Scored]) -> LeaderboardEntry:
    record = one.record
    own = [other.record for other in every if other.record["candidate"] == record["candidate"]]
    cut = record["rung"] < WHOLE or record["planned"] != record["wanted"]
    state: EntryState = "stopped" if record["stopped"] else "shorter" if cut else "whole"
    return LeaderboardEntry(
        candidate=record["candidate"],
        title=record["title"],
        why=record["why"],
        kind=record["kind"],
        variant=record["variant"],
        state=state,
        dev=Estimate(record["dev"], *record["interval"]),
        behind=None if one is chosen else _difference(chosen, one),
        fits=len(own),
        epochs=record["epochs"],
        best_epoch=record["best_epoch"],
        parameters=record["parameters"],
        seconds=round(sum(other["seconds"] for other in own), 1),
        run=str(one.folder / RUN),
    )


def curves(results: Results, board: Leaderboard) -> dict[str, list[tuple[int, float]]]:
    """Return dev scores by step for each entry's run, for a plot; directly fitted models have none."""
    found = {}
    for entry in board.entries:
        records = RunFolder.open(entry.run).metrics()
        points = [(one["step"], one["dev"]) for one in records if one.get("dev") is not None and "step" in one]
        if len(points) > 1:
            found[entry.title] = points
    return found
