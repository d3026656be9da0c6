"""The kind "synthetic": the paper's pilot. Data are drawn from random models of several kinds, and every kind is fitted to every data set.

Each kind has one unit that draws data and scores the true model on their test split. Each data set and model has one fit per number of
layers (dev score only), and then, with the best number, one fit per seed with test scores. Data stay in the folder of the unit that drew
them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from foretell.data import Card, Dataset, load, save_dataset
from foretell.errors import ForetellError
from foretell.evaluate.scores import ScoringOptions
from foretell.models.build import save_model
from foretell.reproduce.experiment import Definition, ExperimentSummary, Results, check_keys, merged
from foretell.reproduce.models import best_of
from foretell.reproduce.unit import Record, Unit, Workspace, slug, whole
from foretell.train.config import make_config

from .random_models import draw, random_model

KEYS = ("kind", "title", "paper", "device", "seeds", "minutes", "draw", "train", "model", "close", "reference", "rival")
OF_A_MODEL = ("name", "model", "draw", "layers")
DATA = "data"
MODEL = "true.safetensors"
SPLITS = ("train", "dev", "test")


@dataclass(frozen=True)
class Drawing:
    """How data are drawn."""

    types: int = 10
    sequences: Sequence[int] = (800, 100, 100)  # of train, dev and test
    lengths: Sequence[int] = (49, 99)  # range of the uniform lengths, both ends included
    seed: int = 0

    def check(self, source: str) -> None:
        if len(self.sequences) != 3 or min(self.sequences) < 1 or len(self.lengths) != 2:
            raise ForetellError(f"{source}, [draw]: expected three numbers of sequences and two lengths")
        if self.types < 1 or not 1 <= self.lengths[0] <= self.lengths[1]:
            raise ForetellError(f"{source}, [draw]: expected types and lengths from 1 on, the shorter length first")

    def settings(self) -> dict[str, Any]:
        return asdict(self) | {"sequences": list(self.sequences), "lengths": list(self.lengths)}


@dataclass(frozen=True)
class ModelFamily:
    """One kind of model: how it is fitted, and how the true model is made from which data are drawn."""

    name: str
    model: Mapping[str, Any]
    draw: Mapping[str, Any]  # settings of the true model, which replace those of `model`
    layers: tuple[int, ...]  # numbers of layers to choose from on dev; empty: the model has no layers


class Synthetic:
    def __init__(self, definition: Definition) -> None:
        table = definition.table
        check_keys(table, KEYS, definition.source)
        self.definition = definition
        check_keys(table.get("draw", {}), [one.name for one in fields(Drawing)], f"{definition.source}, [draw]")
        self.drawing = Drawing(**table.get("draw", {}))
        self.drawing.check(definition.source)
        self.all = [
            ModelFamily(str(one["name"]), dict(one["model"]), dict(one.get("draw", {})), tuple(one.get("layers", ())))
            for one in definition.entries("model", OF_A_MODEL)
        ]
        chosen = definition.chosen(one.name for one in self.all)
        self.families = [one for one in self.all if one.name in chosen]
        self.device = table.get("device", "cpu")
        self.minutes = float(table.get("minutes", 1.0))

    def units(self, done: Mapping[str, Record]) -> list[Unit]:
        found = [self._draw_unit(one) for one in self.all]
        for source in self.all:
            if drawn_name(source) not in done:
                continue
            for one in self.families:
                sizes = [self._fit_unit(source, one, "grid", layers, 0) for layers in one.layers if len(one.layers) > 1]
                found += sizes
                best = best_of(sizes, done)
                if not sizes:
                    best = {"layers": one.layers[0]} if one.layers else {}
                if best is not None:
                    found += [
                        self._fit_unit(source, one, "final", best.get("layers"), seed)
                        for seed in self.definition.own_seeds
                    ]
        return found

    def work(self, unit: Unit, workspace: Workspace) -> dict[str, Any]:
        if unit.settings["part"] == "draw":
            return self._draw(unit, workspace)
        settings = unit.settings
        folder = workspace.folder.parent / f"data-{slug(settings['data'])}" / DATA
        train, dev, test = whole(load(folder), f"{folder} (remove its unit)")
        source = f"{self.definition.source}, {settings['model']}"
        fitted = workspace.fit(settings["config"], train, dev, source=source, keep=False)
        about = {name: settings[name] for name in ("part", "data", "model", "seed", "layers")} | fitted.facts
        if settings["part"] == "final":
            about["test"] = workspace.score(fitted.model, test, ScoringOptions(times=False)).evaluation.to_json()
        return about

    def summarise(self, results: Results) -> ExperimentSummary:
        from .synthetic_results import summary_of

        return summary_of(self, results)

    def _draw(self, unit: Unit, workspace: Workspace) -> dict[str, Any]:
        settings, drawing = unit.settings, self.drawing
        lowest, highest = drawing.lengths
        made = random_model(settings["generator"], drawing.types, drawing.seed, (lowest + highest) // 2)
        workspace.give_way()
        lengths = np.random.default_rng([drawing.seed, 3]).integers(lowest, highest + 1, sum(drawing.sequences))
        drawn = draw(made.model, len(lengths), lengths, drawing.seed, lambda done, of: workspace.give_way())
        ends = np.cumsum(drawing.sequences)
        parts = [drawn.select(range(end - size, end)) for end, size in zip(ends, drawing.sequences, strict=True)]
        card = Card(f"{settings['data']} data", "window", "mean gaps", drawing.types)
        save_dataset(Dataset(*parts, vocabulary=drawn.vocabulary, card=card), workspace.folder / DATA)
        save_model(made.model, workspace.folder / MODEL)
        test = load(workspace.folder / DATA).test
        assert test is not None
        truth = workspace.score(made.model, test, ScoringOptions(times=False))
        return {
            "part": "draw",
            "data": settings["data"],
            "gain": made.gain,
            "spread": made.spread,
            "share_spread": made.shares,
            "mean_gap": float(drawn.gaps().mean()),
            "events": {name: part.event_count for name, part in zip(SPLITS, parts, strict=True)},
            "lengths": [int(lengths.min()), float(lengths.mean()), int(lengths.max())],
            "truth": truth.evaluation.to_json(),
        }

    def _draw_unit(self, one: ModelFamily) -> Unit:
        generator = dict(merged(one.model, one.draw))
        make_config({"model": generator}, f"{self.definition.source}, {one.name}")
        settings = {"part": "draw", "data": one.name, "generator": generator, "drawing": self.drawing.settings()}
        return Unit(drawn_name(one), settings, 4.0 * self.minutes)

    def _fit_unit(self, source: ModelFamily, one: ModelFamily, part: str, layers: int | None, seed: int) -> Unit:
        size = {} if layers is None else {"layers": layers}
        train = dict(self.definition.table.get("train", {}))
        config = {"model": merged(one.model, size), "train": {**train, "seed": seed}}
        make_config(config, f"{self.definition.source}, {one.name}")
        settings = {
            "part": part,
            "data": source.name,
            "generator": dict(merged(source.model, source.draw)),
            "drawing": self.drawing.settings(),
            "model": one.name,
            "layers": layers,
            "size": size,
            "seed": seed,
            "config": config,
        }
        last = f"grid-layers{layers}" if part == "grid" else f"seed{seed}"
        name = f"{slug(source.name)}-data-{slug(one.name)}-{last}"
        return Unit(name, settings, self.minutes * (1.0 if layers is None else 0.5 + 0.25 * layers), self.device)


def drawn_name(one: ModelFamily) -> str:
    return f"data-{slug(one.name)}"
