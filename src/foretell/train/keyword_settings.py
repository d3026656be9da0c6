"""Settings given as keywords, such as `epochs=20, dim=32`, completed to the configuration of a run for `Forecaster`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from foretell.data import Dataset
from foretell.models.registry import DEFAULT, model_options
from foretell.options import ConfigError, names_of
from foretell.train.config import DataOptions, RunConfig, TrainOptions, make_config
from foretell.wording import did_you_mean

AUTO = "auto"
SPLIT = (0.9, 0.1, 0.0)  # train, dev, test: a user of a forecaster brings the test data
# These settings are arguments of `fit` or of the constructor.
READING = ("time_format", "timezone", "start", "observed_until", "sorted", "terms", "unknown")
NOT_SETTINGS = ("path", "columns", "program", *READING)


def kind_of(model: str, program: object) -> str:
    """Return the kind of model; with rules, the kind that is made of them."""
    if model != AUTO:
        return model
    return "andtt" if program is not None else DEFAULT


def settings_table(model: str, program: object, settings: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return settings as the tables of a configuration; the error lists all unknown settings."""
    kind = kind_of(model, program)
    homes = {"data": DataOptions, "train": TrainOptions, "model": model_options(kind)}
    section = {name: home for home, options in homes.items() for name in names_of(options) if name not in NOT_SETTINGS}
    table: dict[str, dict[str, Any]] = {"data": {"split": SPLIT}, "model": {"kind": kind}, "train": {}}
    unknown = []
    for name, value in settings.items():
        if name in section:
            table[section[name]][name] = value
        else:
            hint = did_you_mean(name, section, otherwise=f"known are {', '.join(sorted(section))}")
            unknown.append(f"Forecaster: there is no setting {name!r} of {kind}; {hint}")
    if unknown:
        raise ConfigError("\n".join(unknown))
    return table


def settled_config(model: str, program: object, settings: Mapping[str, Any], dataset: Dataset) -> RunConfig:
    """Return the configuration of a run for these data."""
    return make_config(settings_table(model, program, settings), "Forecaster")
