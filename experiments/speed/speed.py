"""The kind "speed": training time per sequence (making batches, forward, backward and step) of each model on each data set.

A unit fits for a few epochs, without dev, and returns the median over the epochs after a warm-up. Nothing else runs meanwhile. It is always
timed on a CPU, and also on a GPU if there is one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from foretell.data import EventData, EventSequence, Vocabulary
from foretell.errors import ForetellError
from foretell.reproduce.experiment import (
    Definition,
    ExperimentSummary,
    Finding,
    Picture,
    Results,
    TableSection,
    Verdict,
    check_keys,
    merged,
)
from foretell.reproduce.unit import Record, Unit, Workspace, slug
from foretell.train.config import make_config
from foretell.train.fit import fit
from foretell.train.run import environment

KEYS = ("kind", "title", "paper", "minutes", "threads", "warm_up", "repeats", "train", "model", "set", "finding")
OF_A_MODEL = ("name", "model")
OF_A_SET = ("name", "data", "drawn", "sequences", "models", "train", "paper", "note", "program")
OF_A_FINDING = ("name", "claim", "faster", "than", "sets", "device")
DEVICES = ("cpu", "cuda")


class Speed:
    def __init__(self, definition: Definition) -> None:
        self.definition = definition
        table = definition.table
        check_keys(table, KEYS, definition.source)
        self.models = {one["name"]: one["model"] for one in definition.entries("model", OF_A_MODEL)}
        self.sets = definition.entries("set", OF_A_SET)
        for one in self.sets:
            unknown = [name for name in one["models"] if name not in self.models]
            if unknown:
                raise ForetellError(f"{definition.source}, [[set]] {one['name']}: there is no [[model]] {unknown[0]}")
        self.findings = definition.entries("finding", OF_A_FINDING)
        self.chosen = definition.chosen(self.models)

    def units(self, done: Mapping[str, Record]) -> list[Unit]:
        return [self._unit(one, name) for one in self.sets for name in one["models"] if name in self.chosen]

    def work(self, unit: Unit, workspace: Workspace) -> dict[str, Any]:
        settings = unit.settings
        data = self._data(settings, workspace)
        about: dict[str, Any] = {"set": settings["set"], "model": settings["model"], "sequences": len(data)}
        about["events"] = data.event_count
        before = torch.get_num_threads()
        threads = min(int(settings["threads"]), _cores())
        try:
            torch.set_num_threads(threads)
            about["cpu"] = self._timed(settings, data, "cpu", workspace) | {"threads": threads}
        finally:
            torch.set_num_threads(before)
        if workspace.device != "cpu":
            workspace.give_way()
            gpu = environment(workspace.device).get("gpu")
            about["cuda"] = self._timed(settings, data, workspace.device, workspace) | {"gpu": gpu}
        return about

    def summarise(self, results: Results) -> ExperimentSummary:
        found = {(record["set"], record["model"]): record for record in results.records.values()}
        times = [
            {"set": where, "model": name, **{on: record[on]["milliseconds"] for on in DEVICES if on in record}}
            for (where, name), record in found.items()
        ]
        picture = Picture("speed.png", lambda path: draw_speed(self.sets, found, path))
        sections = [_table(self.sets, found)]
        findings = [_finding(one, found) for one in self.findings]
        return ExperimentSummary(sections, findings, {"milliseconds": times}, (picture,) if found else ())

    def _unit(self, one: Mapping[str, Any], name: str) -> Unit:
        table = self.definition.table
        model = dict(self.models[name])
        if "program" in one and "program" in model:
            model["program"] = one["program"]
        train = merged(table.get("train", {}), one.get("train", {}))
        settings = {
            "set": one["name"],
            "data": one.get("data"),
            "drawn": one.get("drawn"),
            "sequences": one.get("sequences", 0),
            "model": name,
            "config": {"model": model, "train": train},
            "threads": int(table.get("threads", 1)),
            "warm_up": int(table.get("warm_up", 2)),
            "repeats": int(table.get("repeats", 5)),
        }
        make_config(settings["config"], f"{self.definition.source}, {name}")
        minutes = float(table.get("minutes", 1.0))
        return Unit(f"{slug(one['name'])}-{slug(name)}", settings, minutes, "cuda", alone=True)

    def _data(self, settings: Mapping[str, Any], workspace: Workspace) -> EventData:
        if settings["drawn"] is not None:
            return drawn(**settings["drawn"])
        data = workspace.dataset(settings["data"], sequences=settings["sequences"]).train
        if data is None:
            raise ForetellError(f"{settings['data']}: there is no train split")
        return data

    def _timed(self, settings: Mapping[str, Any], data: EventData, device: str, workspace: Workspace) -> dict[str, Any]:
        epochs = settings["warm_up"] + settings["repeats"]
        train = {**settings["config"]["train"], "epochs": epochs, "patience": 0, "cool": 0, "device": device}
        table = {"model": self.definition.placed(settings["config"]["model"]), "train": train}
        config = make_config(table, f"{self.definition.source}, {settings['model']}")
        model = config.model.make(data.vocabulary, seed=0, dtype=getattr(torch, config.train.dtype))
        result = fit(model, data, None, config.train, stop=workspace.stop)
        seconds = [one["train_seconds"] for one in result.records[settings["warm_up"] :]]
        each = [1000.0 * one / len(data) for one in seconds]
        return {"milliseconds": median(each), "fastest": min(each), "slowest": max(each), "repeats": len(each)}


def drawn(sequences: int, types: int, lengths: Sequence[int], seed: int = 0) -> EventData:
    """Draw random events, since the time of training does not depend on them; lengths are uniform, both ends included."""
    rng = np.random.default_rng(seed)
    made = []
    for number in range(sequences):
        count = int(rng.integers(lengths[0], lengths[1] + 1))
        times = np.cumsum(rng.exponential(1.0, count))
        kinds = rng.integers(0, types, count).astype(np.int32)
        made.append(EventSequence(times, kinds, float(times[-1]) + 1.0, str(number)))
    return EventData(made, Vocabulary.of_size(types))


def _cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


Found = Mapping[tuple[str, str], Mapping[str, Any]]


def _milliseconds(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return "–"
    return f"{found['milliseconds']:.3g} [{found['fastest']:.3g}, {found['slowest']:.3g}]"


def _table(sets: Sequence[Mapping[str, Any]], found: Found) -> TableSection:
    rows = []
    for one in sets:
        for name in one["models"]:
            record = found.get((one["name"], name))
            if record is None:
                continue
            paper = one.get("paper", {}).get(name)
            about = f"{record['events'] / record['sequences']:.0f}", "–" if paper is None else f"{paper:,}"
            rows.append([one["name"], name, *about, *(_milliseconds(record.get(on)) for on in DEVICES)])
    cpus = ", ".join(map(str, sorted({record["cpu"]["threads"] for record in found.values()})))
    gpus = ", ".join(sorted({str(record["cuda"]["gpu"]) for record in found.values() if "cuda" in record}))
    devices = f"CPU ({cpus} threads), ms", f"GPU ({gpus or 'none'}), ms"
    head = ["data set", "model", "events a sequence", "paper, ms", *devices]
    note = (
        "Milliseconds a training sequence, forward, backward and step: median of the epochs, [fastest, slowest]. The paper has an NVIDIA "
        "K80, and on RoboCup six Haswell cores."
    )
    return TableSection("Training time a sequence", head, rows, note)


def _finding(table: Mapping[str, Any], found: Found) -> Finding:
    """Check that one model takes less time than another on every named data set."""
    device = str(table.get("device", "cuda"))
    ratios = {}
    for name in table["sets"]:
        one, other = (found.get((name, table[key])) for key in ("faster", "than"))
        if one is None or other is None or device not in one or device not in other:
            told = f"not measured yet: {name} on {device}"
            return Finding(table["name"], table["claim"], "pending", told)
        ratios[name] = one[device]["milliseconds"] / other[device]["milliseconds"]
    told = "; ".join(f"{name}: {value:.2f}" for name, value in ratios.items())
    verdict: Verdict = "holds" if max(ratios.values()) < 1.0 else "does not hold"
    detail = f"{table['faster']} over {table['than']}, {device}: {told}"
    return Finding(table["name"], table["claim"], verdict, detail, max(ratios.values()))


def draw_speed(sets: Sequence[Mapping[str, Any]], found: Found, path: Path) -> None:
    """Draw one panel per data set: the paper's time, and ours on the CPU and on the GPU, on a logarithmic scale."""
    from foretell.report.canvas import COLOURS, FAINT, INK, blank_figure, save_figure

    shown = [one for one in sets if any((one["name"], name) in found for name in one["models"])]
    figure, panels = blank_figure(1, (2.9 * len(shown) + 0.6, 3.4), columns=len(shown))
    for axes, one in zip(panels, shown, strict=True):
        names = [name for name in one["models"] if (one["name"], name) in found]
        for place, name in enumerate(names):
            record = found[(one["name"], name)]
            paper = one.get("paper", {}).get(name)
            for value, mark, colour, label in (
                (paper, "x", FAINT, "paper"),
                (record["cpu"]["milliseconds"], "o", COLOURS[0], "CPU"),
                (record.get("cuda", {}).get("milliseconds"), "s", COLOURS[1], "GPU"),
            ):
                if value is not None:
                    axes.plot([place], [value], mark, color=colour, markersize=6, label=label)
        axes.set_yscale("log")
        axes.set_xticks(range(len(names)), names, fontsize=8, rotation=30)
        axes.set_xlim(-0.5, len(names) - 0.5)
        axes.set_title(one["name"], fontsize=10, color=INK)
    panels[0].set_ylabel("ms a sequence", fontsize=9, color=INK)
    handles = {
        label: handle for axes in panels for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    panels[-1].legend(handles.values(), handles.keys(), frameon=False, fontsize=8)
    save_figure(figure, path)
