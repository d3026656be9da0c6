"""Complete a configuration with `kind = "auto"`: add settings that suit its data, with the reason for each."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from foretell.data import Dataset
from foretell.errors import ForetellError
from foretell.train.auto_settings import (
    AUTO,
    ChosenSetting,
    choose_settings,
    setting_of,
    traits_of,
    wants_hawkes,
    with_settings,
)
from foretell.train.config import RunConfig, make_config
from foretell.train.floor_fits import FittedFloor, fit_floors, hawkes_of
from foretell.train.splits import load_splits, read_splits


@dataclass(frozen=True)
class AutoConfig:
    config: RunConfig
    chosen: list[ChosenSetting] = field(default_factory=list)  # the settings chosen by rules; empty if all were fixed
    floors: list[FittedFloor] = field(default_factory=list)  # the fitted floors, if choosing needed them
    loaded: Dataset | None = None  # the data as read from files, so that they are read once

    def lines(self) -> list[str]:
        """Return the choices and their reasons, one line per setting."""
        return [f"{one.key} = {one.value}: {one.why}" for one in self.chosen]

    def sentence(self) -> str:
        return "chosen by rule: " + ", ".join(f"{one.key.split('.')[1]} {one.value}" for one in self.chosen)


def is_auto(table: Mapping[str, Any], from_file: bool) -> bool:
    """Whether rules choose the settings: if requested, or if the command line has only data (and a program)."""
    model, train = table.get("model", {}), table.get("train", {})
    if not isinstance(model, Mapping) or not isinstance(train, Mapping):
        return False  # `make_config` will report the mistake
    kind = model.get("kind")
    if kind == AUTO:
        if "preset" in table or "preset" in model:
            raise ForetellError('model.kind = "auto": a preset fixes what rules would choose; leave out one of the two')
        return True
    taken = "preset" in table or "preset" in model or train.get("init") or "task" in table
    taken = taken or train.get("objective") == "nce"  # the rules know no settings for noise contrast
    return not from_file and kind is None and not taken


def resolve(
    table: Mapping[str, Any],
    source: str,
    *,
    progress: Callable[[str, int, int], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> AutoConfig:
    """Return the automatic configuration for the data of `table`; settings in the table take precedence."""
    given = {key: dict(value) if isinstance(value, Mapping) else value for key, value in table.items()}
    program = bool(given.get("model", {}).get("program"))
    device = given.setdefault("train", {}).get("device") or ("cuda" if torch.cuda.is_available() else "cpu")
    if device == AUTO:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    make_config({**with_settings(given, []), "model": {}}, source)  # reports mistakes in the other tables first
    options = make_config({"data": given.get("data", {})}, source).data
    loaded = read_splits(options, terms=program)
    dataset = load_splits(options, loaded=loaded, level=logging.DEBUG)  # the run that follows logs the messages
    assert dataset.train is not None
    if dataset.train.event_count == 0:
        raise ForetellError(f"{dataset.train.name}: there is no event to learn from")
    traits = traits_of(dataset.train, dataset.dev)
    first = choose_settings(traits, device, program=program)
    floors: list[FittedFloor] = []
    fixed = {"hawkes", "coarse", "edges"} & given.get("model", {}).keys()  # a Hawkes part needs one coarse type
    if not program and wants_hawkes(traits) and not fixed:
        data = with_settings(given, first).get("data", {})
        seen = load_splits(make_config({"data": data}, source).data, loaded=loaded, level=logging.DEBUG)
        assert seen.train is not None
        floors = fit_floors(seen.train, seen.dev, progress=progress, stop=stop)
    hawkes = hawkes_of(floors)
    chosen = choose_settings(traits, device, decays=0 if hawkes is None else hawkes.decays, program=program)
    if device.startswith("cuda"):
        chosen.append(ChosenSetting("train.device", device, "there is a GPU"))
    chosen = [one for one in chosen if setting_of(given, one.key) in (None, AUTO)]
    return AutoConfig(make_config(with_settings(given, chosen), source), chosen, floors, loaded)
