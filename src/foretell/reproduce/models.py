"""The kind "models": several models fitted to one data set, their sizes chosen on dev, scored on test once, compared pair by pair.

Units are, for a model with a grid, one fit a size (one seed, dev score only); then, with the best size, one fit a seed with its test
scores. A model without a grid has the latter only.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from foretell.errors import ForetellError
from foretell.reproduce.bench import Bench
from foretell.reproduce.definition import Definition, check_keys, merged
from foretell.reproduce.experiment import Results, Summary
from foretell.reproduce.rows import WHO
from foretell.reproduce.unit import Device, Record, Unit, slug
from foretell.train.config import make_config, read_config

KEYS = (
    "kind",
    "title",
    "paper",
    "data",
    "device",
    "seeds",
    "minutes",
    "columns",
    "compare",
    "predict",
    "also_predict",
    "times",
    "monte_carlo",
)
TABLES = ("train", "cut", "grid", "model", "change", "finding")
OF_A_MODEL = ("name", "config", "model", "train", "grid", "seeds", "minutes", "device", "like")
METRICS = (
    "log_likelihood",
    "time_log_likelihood",
    "type_log_likelihood",
    "rmse",
    "error_rate",
    "error_rate_without_time",
    "participants",
)
COLUMNS = ("log_likelihood", "rmse", "error_rate")


@dataclass(frozen=True)
class Entrant:
    """One model of the comparison."""

    name: str
    table: dict[str, Any]  # {"model": …, "train": …} as in a configuration
    grid: tuple[dict[str, Any], ...]  # the sizes to choose from; empty: the model has its size
    sized_by: str  # the model whose grid chooses its size: its own name, or that of the model it is like
    seeds: tuple[int, ...]
    minutes: float
    device: Device


class Models:
    def __init__(self, definition: Definition) -> None:
        from foretell.reproduce.findings import check_findings

        self.definition = definition
        table = definition.table
        check_keys(table, (*KEYS, *TABLES), definition.source)
        self.predict: tuple[str, ...] = tuple(table.get("predict", ()))
        self.columns = self._columns()
        self.cut: Mapping[str, int] = table.get("cut", {})
        self.grid_seed = int(table.get("grid", {}).get("seed", 0))
        self.everyone = self._entrants()
        self.entrants = [one for one in self.everyone if _chosen(one.name, definition.models)]
        check_findings(table.get("finding", ()), [one.name for one in self.everyone], definition.source)
        if not self.entrants:
            known = ", ".join(entry["name"] for entry in table.get("model", ()))
            raise ForetellError(
                f"{definition.name}: none of the models {', '.join(definition.models)}; there are {known}"
            )

    @property
    def data(self) -> str:
        return str(self.definition.table["data"])

    def _columns(self) -> list[str]:
        """The scores of the tables; these, and those that findings are about, are ones that will be there."""
        table = self.definition.table
        there = {one: True for one in METRICS} | {"rmse": bool(table.get("times", True)), WHO: bool(self.predict)}
        asked = {"columns": table.get("columns", ())}
        asked |= {f"[[finding]] {one.get('name')}": one.get("metrics", ()) for one in table.get("finding", ())}
        scored = [one for one in METRICS if there[one]]
        wrong = [
            f"{self.definition.source}, {where}: {one!r} is not scored here; there are {', '.join(scored)}"
            for where, metrics in asked.items()
            for one in metrics
            if not there.get(WHO if str(one).startswith(f"{WHO} ") else one, False)
        ]
        if wrong:
            raise ForetellError("\n".join(wrong))
        return list(table.get("columns", [one for one in COLUMNS if there[one]]))

    def units(self, done: Mapping[str, Record]) -> list[Unit]:
        found: list[Unit] = []
        by_name = {one.name: one for one in self.everyone}
        for one in self.entrants:
            chooser = by_name[one.sized_by]
            sizes = [self._grid_unit(chooser, size) for size in chooser.grid]
            found += [size for size in sizes if size not in found]
            best = best_of(sizes, done)
            if not sizes or best is not None:
                found += [self._final_unit(one, {} if best is None else best, seed) for seed in one.seeds]
        return found

    def work(self, unit: Unit, bench: Bench) -> dict[str, Any]:
        settings = unit.settings
        dataset = bench.dataset(self.data, **self.cut)
        if dataset.train is None or dataset.dev is None or dataset.test is None:
            raise ForetellError(f"{self.data}: expected the splits train, dev and test")
        final = settings["part"] == "final"
        source = f"{self.definition.source}, {settings['model']}"
        about = {name: settings[name] for name in ("model", "part", "seed", "size")}
        try:
            config = {**settings["config"], "model": self.definition.placed(settings["config"]["model"])}
            fitted = bench.fit(config, dataset.train, dataset.dev, source=source, keep=final)
        except ForetellError as error:
            if final:
                raise
            return about | {
                "dev": None,
                "fit_seconds": None,
                "error": str(error),
            }  # a size that does not train is not chosen
        about |= fitted.facts
        if not final:
            return about
        from foretell.reproduce.scoring import scores

        return about | scores(fitted.model, dataset.test, bench, self)

    def summarise(self, results: Results) -> Summary:
        from foretell.reproduce.comparison import summary_of

        return summary_of(self, results)

    def _grid_unit(self, one: Entrant, size: dict[str, Any]) -> Unit:
        named = "-".join(f"{key}{value}" for key, value in size.items())
        return self._unit(f"{slug(one.name)}-grid-{named}", one, "grid", size, self.grid_seed)

    def _final_unit(self, one: Entrant, size: dict[str, Any], seed: int) -> Unit:
        return self._unit(f"{slug(one.name)}-seed{seed}", one, "final", size, seed)

    def _unit(self, name: str, one: Entrant, part: str, size: dict[str, Any], seed: int) -> Unit:
        grid_train = self.definition.table.get("grid", {}).get("train", {}) if part == "grid" else {}
        config = merged(one.table, {"model": size, "train": {**grid_train, "seed": seed}})
        make_config(config, f"{self.definition.source}, {one.name}")  # a mistake in any of them shows at once
        settings = {"model": one.name, "part": part, "seed": seed, "size": size, "config": config, "data": self.data}
        if part == "final":
            options = self.definition.table
            settings |= {
                key: options[key] for key in ("predict", "also_predict", "times", "monte_carlo") if key in options
            }
        if self.cut:
            settings["cut"] = dict(self.cut)
        scale = _relative_cost(size, one.grid)
        return Unit(name, settings, one.minutes * scale, one.device)

    def _entrants(self) -> list[Entrant]:
        table = self.definition.table
        made: list[Entrant] = []
        for entry in table.get("model", ()):
            check_keys(entry, OF_A_MODEL, f"{self.definition.source}, [[model]] {entry.get('name')}")
            made.append(self._entrant(entry, table, made))
        return made

    def _entrant(self, entry: Mapping[str, Any], table: Mapping[str, Any], earlier: Sequence[Entrant]) -> Entrant:
        """`config` names a file with the settings, `like` an earlier model of this experiment; the entry's own tables go over these."""
        base: dict[str, Any] = {"train": dict(table.get("train", {}))}
        if "config" in entry:
            found = read_config(self.definition.folder / entry["config"])
            base = merged(base, {key: found.get(key, {}) for key in ("model", "train")})
        like = next((one for one in earlier if one.name == entry.get("like")), None)
        if like is not None:
            base = merged(base, like.table)
        elif "like" in entry:
            raise ForetellError(f"{self.definition.source}: like = {entry['like']!r}: no model of this name above it")
        base = merged(base, {"model": entry.get("model", {}), "train": entry.get("train", {})})
        base = merged(base, table.get("change", {}))  # what a quick run changes in every model
        kind = base["model"].get("kind", "anhp")
        base["model"] = _only_known(kind, base["model"], entry)
        return Entrant(
            name=str(entry["name"]),
            table=base,
            sized_by=str(entry["name"]) if like is None or "grid" in entry else like.sized_by,
            grid=_sizes(table.get("grid", {}), entry.get("grid", ())),
            seeds=tuple(entry.get("seeds", self.definition.seeds or table.get("seeds", (0,)))),
            minutes=float(entry.get("minutes", table.get("minutes", 1.0))),
            device=entry.get("device", table.get("device", "cpu")),
        )


def best_of(sizes: Sequence[Unit], done: Mapping[str, Record]) -> dict[str, Any] | None:
    """The size with the best dev score, once all of them are known."""
    if not sizes or any(one.name not in done for one in sizes):
        return None
    judged = {one.name: done[one.name]["dev"] for one in sizes}
    best = max(sizes, key=lambda one: -math.inf if judged[one.name] is None else judged[one.name])
    return dict(best.settings["size"])


def _sizes(grid: Mapping[str, Any], keys: Sequence[str]) -> tuple[dict[str, Any], ...]:
    return (
        tuple(dict(zip(keys, values, strict=True)) for values in itertools.product(*(grid[key] for key in keys)))
        if keys
        else ()
    )


def _only_known(kind: str, model: dict[str, Any], entry: Mapping[str, Any]) -> dict[str, Any]:
    """A quick run's `change.model.dim` is for models that have one; what an entry itself says is never dropped."""
    from foretell.models.registry import model_options
    from foretell.options import names_of

    known = {"kind", *names_of(model_options(kind))}
    return {key: value for key, value in model.items() if key in known or key in entry.get("model", {})}


def _relative_cost(size: Mapping[str, Any], grid: Sequence[Mapping[str, Any]]) -> float:
    """Of this size against the middle of the grid: layers count in full, dimensions little."""
    if not grid or not size:
        return 1.0

    def cost(one: Mapping[str, Any]) -> float:
        return one.get("layers", 1) * (one.get("dim", 32) + 32)

    return cost(size) / (sum(cost(one) for one in grid) / len(grid))


def _chosen(name: str, models: Sequence[str]) -> bool:
    return not models or slug(name) in {slug(one) for one in models}
