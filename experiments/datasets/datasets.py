"""The kind "datasets": counts the size of each data set, and shows it beside the numbers of the paper's table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from foretell.data import Dataset, load
from foretell.reproduce.experiment import Definition, ExperimentSummary, Finding, Results, TableSection, check_keys
from foretell.reproduce.unit import Record, Unit, Workspace, slug

KEYS = ("kind", "title", "paper", "set")
OF_A_SET = ("name", "data", "experiment", "paper", "note")
OF_THE_PAPER = ("types", "sequences", "events", "lengths")
SPLITS = ("train", "dev", "test")


class Datasets:
    def __init__(self, definition: Definition) -> None:
        check_keys(definition.table, KEYS, definition.source)
        self.definition = definition
        sets = definition.entries("set", OF_A_SET)
        for one in sets:
            check_keys(one.get("paper", {}), OF_THE_PAPER, f"{definition.source}, [[set]] {one.get('name')}, paper")
        chosen = definition.chosen(str(one["name"]) for one in sets)
        self.sets = [one for one in sets if one["name"] in chosen]

    def units(self, done: Mapping[str, Record]) -> list[Unit]:
        """Return the units. Data that another experiment draws are only looked up when results are written."""
        return [Unit(slug(one["name"]), {"data": one["data"]}, 0.1) for one in self.sets if "data" in one]

    def work(self, unit: Unit, workspace: Workspace) -> dict[str, Any]:
        return {"statistics": statistics(workspace.dataset(unit.settings["data"]))}

    def summarise(self, results: Results) -> ExperimentSummary:
        found: list[tuple[Mapping[str, Any], dict[str, Any] | None]] = []
        for one in self.sets:
            if "data" in one:
                record = results.records.get(slug(one["name"]))
                found.append((one, None if record is None else record["statistics"]))
            else:
                folder = results.folder.parent / one["experiment"]
                found.append((one, statistics(load(folder)) if (folder / "dataset.toml").exists() else None))
        there = [(one, counted) for one, counted in found if counted is not None]
        sections = [
            TableSection("Data sets", HEAD, [row for one, counted in found for row in _rows(one, counted)], NOTE)
        ]
        if there:
            sections.append(
                TableSection(
                    "Splits", ["data set", "split", "sequences", "events", "lengths", "mean gap"], _splits(there)
                )
            )
        numbers = {"data_sets": {one["name"]: counted for one, counted in there}}
        findings = [_finding(one, counted) for one, counted in found if "paper" in one]
        return ExperimentSummary(sections, findings, numbers)


HEAD = ("data set", "from", "K", "sequences", "events: train", "dev", "test", "lengths: min", "mean", "max")
NOTE = "K is the size of the vocabulary. Lengths are events a sequence, over all splits. Where the paper gives no number there is a dash."


def statistics(dataset: Dataset) -> dict[str, Any]:
    """Return the sizes of all splits, and of the whole data set."""
    splits = dataset.splits()
    lengths = np.concatenate([data.lengths for data in splits.values()])
    return {
        "types": len(dataset.vocabulary),
        "lengths": _spread(lengths),
        "sequences": {name: len(data) for name, data in splits.items()},
        "events": {name: data.event_count for name, data in splits.items()},
        "split_lengths": {name: _spread(data.lengths) for name, data in splits.items()},
        "mean_gap": {name: float(data.gaps().mean()) if len(data.gaps()) else None for name, data in splits.items()},
    }


def _spread(lengths: np.ndarray) -> list[float]:
    return [int(lengths.min()), float(lengths.mean()), int(lengths.max())]


def _rows(one: Mapping[str, Any], counted: Mapping[str, Any] | None) -> list[list[str]]:
    rows = []
    paper = one.get("paper")
    if paper is not None:
        rows.append([one["name"], "paper", *_cells(paper)])
    if counted is None:
        rows.append([one["name"], "here", *["pending"] * (len(HEAD) - 2)])
    else:
        rows.append(
            [one["name"], "here", *_cells({**counted, "events": [counted["events"].get(name) for name in SPLITS]})]
        )
    if one.get("note"):
        rows[-1][1] = "here*"
    return rows


def _cells(found: Mapping[str, Any]) -> list[str]:
    sequences = found.get("sequences")
    together = (
        None if sequences is None else sum(sequences.values()) if isinstance(sequences, Mapping) else sum(sequences)
    )
    events: Sequence[Any] = found.get("events", [None] * 3)
    low, mean, high = found.get("lengths", [None] * 3)
    return [_cell(one) for one in (found.get("types"), together, *events, low, mean, high)]


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


def _splits(there: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> list[list[str]]:
    rows = []
    for one, counted in there:
        for name in counted["events"]:
            low, mean, high = counted["split_lengths"][name]
            gap = counted["mean_gap"][name]
            sizes = _cell(counted["sequences"][name]), _cell(counted["events"][name])
            lengths = f"{low} / {mean:.1f} / {high}"
            rows.append([one["name"], name, *sizes, lengths, "–" if gap is None else f"{gap:.4g}"])
    return rows


def _finding(one: Mapping[str, Any], counted: Mapping[str, Any] | None) -> Finding:
    paper, claim = one["paper"], "the numbers of the paper's table"
    if counted is None:
        wanted = "data" if "data" in one else f"`foretell reproduce {one['experiment'].split('/')[0]}`"
        return Finding(one["name"], claim, "pending", f"waits for {wanted}")
    theirs = {f"events of {name}": value for name, value in zip(SPLITS, paper.get("events", ()), strict=False)}
    ours = {f"events of {name}": counted["events"].get(name) for name in SPLITS}
    for place, name in enumerate(("shortest", "mean length", "longest")):
        if "lengths" in paper:
            theirs[name] = paper["lengths"][place]
            ours[name] = round(counted["lengths"][place])
    if "types" in paper:
        theirs["K"], ours["K"] = paper["types"], counted["types"]
    off = [f"{name} {_cell(ours[name])} (paper {value:,})" for name, value in theirs.items() if ours[name] != value]
    told = "; ".join(off) if off else "all equal"
    if one.get("note"):
        told += f". {one['note']}"
    return Finding(one["name"], claim, "does not hold" if off else "holds", told, float(len(off)))
