"""The kind "synthetic": the paper's pilot. Data drawn from random models of several kinds; every kind fitted to every data set.

Units are, for each kind, one that draws the data and scores the true model on their test split; then for each data set and model one fit
a number of layers (dev alone), and with the best one fit a seed with its test scores. Data stay in the folder of the unit that drew them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from foretell.data import Card, Dataset, load, save_dataset
from foretell.errors import ForetellError
from foretell.evaluate.scores import ScoringOptions
from foretell.models.build import save_model
from foretell.reproduce.bench import Bench
from foretell.reproduce.definition import Definition, check_keys, merged
from foretell.reproduce.experiment import Results, Summary
from foretell.reproduce.models import best_of
from foretell.reproduce.random_models import draw, random_model
from foretell.reproduce.unit import Record, Unit, slug
from foretell.train.config import make_config

KEYS = ("kind", "title", "paper", "device", "seeds", "minutes", "draw", "train", "model", "close", "reference", "rival")
OF_A_MODEL = ("name", "model", "draw", "layers")
DATA = "data"
MODEL = "true.safetensors"
SPLITS = ("train", "dev", "test")


@dataclass(frozen=True)
class Drawing:
    """How data are drawn."""

    types: int = 10
    sequences: tuple[int, ...] = (800, 100, 100)  # of train, dev and test
    lengths: tuple[int, int] = (49, 99)  # uniform, both included
    seed: int = 0


@dataclass(frozen=True)
class Family:
    """One kind of model: how it is fitted, and how the one that data are drawn from is made."""

    name: str
    model: Mapping[str, Any]
    draw: Mapping[str, Any]  # goes over `model`
    layers: tuple[int, ...]  # to choose from on dev; empty: it has none


class Synthetic:
    def __init__(self, definition: Definition) -> None:
        table = definition.table
        check_keys(table, KEYS, definition.source)
        self.definition = definition
        self.drawing = _drawing(table.get("draw", {}), definition.source)
        self.all = [_family(entry, definition.source) for entry in table.get("model", ())]
        wanted = {slug(one) for one in definition.models}
        self.families = [one for one in self.all if not wanted or slug(one.name) in wanted]
        if not self.families:
            known = ", ".join(one.name for one in self.all)
            raise ForetellError(
                f"{definition.name}: none of the models {', '.join(definition.models)}; there are {known}"
            )
        self.seeds = definition.seeds or tuple(table.get("seeds", (0,)))
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
                    found += [self._fit_unit(source, one, "final", best.get("layers"), seed) for seed in self.seeds]
        return found

    def work(self, unit: Unit, bench: Bench) -> dict[str, Any]:
        if unit.settings["part"] == "draw":
            return self._draw(unit, bench)
        settings = unit.settings
        dataset = load(bench.folder.parent / f"data-{slug(settings['data'])}" / DATA)
        if dataset.train is None or dataset.dev is None or dataset.test is None:
            raise ForetellError(
                f"{bench.folder.parent}: the data of {settings['data']} are not whole; remove their unit"
            )
        final = settings["part"] == "final"
        fitted = bench.fit(
            settings["config"],
            dataset.train,
            dataset.dev,
            source=f"{self.definition.source}, {settings['model']}",
            keep=False,
        )
        about = {name: settings[name] for name in ("part", "data", "model", "seed", "layers")} | fitted.facts
        if final:
            about["test"] = bench.score(fitted.model, dataset.test, ScoringOptions(times=False)).evaluation.to_json()
        return about

    def summarise(self, results: Results) -> Summary:
        from foretell.reproduce.synthetic_results import summary_of

        return summary_of(self, results)

    def _draw(self, unit: Unit, bench: Bench) -> dict[str, Any]:
        settings, drawing = unit.settings, self.drawing
        lowest, highest = drawing.lengths
        made = random_model(settings["generator"], drawing.types, drawing.seed, (lowest + highest) // 2)
        bench.give_way()
        lengths = np.random.default_rng([drawing.seed, 3]).integers(lowest, highest + 1, sum(drawing.sequences))
        whole = draw(made.model, len(lengths), lengths, drawing.seed, lambda done, of: bench.give_way())
        ends = np.cumsum(drawing.sequences)
        parts = [whole.select(range(end - size, end)) for end, size in zip(ends, drawing.sequences, strict=True)]
        card = Card(f"{settings['data']} data", "window", "mean gaps", drawing.types)
        save_dataset(Dataset(*parts, vocabulary=whole.vocabulary, card=card), bench.folder / DATA)
        save_model(made.model, bench.folder / MODEL)
        test = load(bench.folder / DATA).test
        assert test is not None
        truth = bench.score(made.model, test, ScoringOptions(times=False))
        return {
            "part": "draw",
            "data": settings["data"],
            "gain": made.gain,
            "spread": made.spread,
            "share_spread": made.shares,
            "mean_gap": float(whole.gaps().mean()),
            "events": {name: part.event_count for name, part in zip(SPLITS, parts, strict=True)},
            "lengths": [int(lengths.min()), float(lengths.mean()), int(lengths.max())],
            "truth": truth.evaluation.to_json(),
        }

    def _draw_unit(self, one: Family) -> Unit:
        generator = dict(merged(one.model, one.draw))
        make_config({"model": generator}, f"{self.definition.source}, {one.name}")
        settings = {"part": "draw", "data": one.name, "generator": generator, "drawing": self._drawing_settings()}
        return Unit(drawn_name(one), settings, 4.0 * self.minutes)

    def _fit_unit(self, source: Family, one: Family, part: str, layers: int | None, seed: int) -> Unit:
        size = {} if layers is None else {"layers": layers}
        train = dict(self.definition.table.get("train", {}))
        config = {"model": merged(one.model, size), "train": {**train, "seed": seed}}
        make_config(config, f"{self.definition.source}, {one.name}")
        settings = {
            "part": part,
            "data": source.name,
            "generator": dict(merged(source.model, source.draw)),
            "drawing": self._drawing_settings(),
            "model": one.name,
            "layers": layers,
            "size": size,
            "seed": seed,
            "config": config,
        }
        name = f"{slug(source.name)}-data-{slug(one.name)}" + (
            f"-grid-layers{layers}" if part == "grid" else f"-seed{seed}"
        )
        return Unit(name, settings, self.minutes * (1.0 if layers is None else 0.5 + 0.25 * layers), self.device)

    def _drawing_settings(self) -> dict[str, Any]:
        one = self.drawing
        return {"types": one.types, "sequences": list(one.sequences), "lengths": list(one.lengths), "seed": one.seed}


def drawn_name(one: Family) -> str:
    return f"data-{slug(one.name)}"


def drawn_data(units: Path, name: str) -> Path:
    """Where the data of a kind of model are, among the folders of units."""
    return units / f"data-{slug(name)}" / DATA


def _drawing(table: Mapping[str, Any], source: str) -> Drawing:
    check_keys(table, ("types", "sequences", "lengths", "seed"), f"{source}, [draw]")
    made = Drawing(
        int(table.get("types", 10)),
        tuple(table.get("sequences", (800, 100, 100))),
        tuple(table.get("lengths", (49, 99))),  # pyright: ignore[reportArgumentType]
        int(table.get("seed", 0)),
    )
    if len(made.sequences) != 3 or min(made.sequences) < 1 or len(made.lengths) != 2:
        raise ForetellError(f"{source}, [draw]: expected three numbers of sequences and two lengths")
    if made.types < 1 or not 1 <= made.lengths[0] <= made.lengths[1]:
        raise ForetellError(f"{source}, [draw]: expected types and lengths from 1 on, the shorter length first")
    return made


def _family(entry: Mapping[str, Any], source: str) -> Family:
    check_keys(entry, OF_A_MODEL, f"{source}, [[model]] {entry.get('name')}")
    layers: Sequence[int] = entry.get("layers", ())
    return Family(str(entry["name"]), dict(entry["model"]), dict(entry.get("draw", {})), tuple(layers))
