"""A model's parameters as JSON under their public names, and back. They suffice to recompute the model by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from foretell.errors import ForetellError
from foretell.models.base import IntensityModel
from foretell.models.capabilities import HasNumbers, RenamesParameters
from foretell.models.units import LARGEST_UNIT, SMALLEST_UNIT
from foretell.reading import read_json

FORMAT = 2
EARLIER = 1  # the format in which facts and rules were numbered together


def parameters_json(model: IntensityModel) -> dict[str, Any]:
    """Return all parameters as nested lists in their shapes, with `w` and `τ` in the data's own unit of time."""
    found: dict[str, Any] = {"format": FORMAT, "model": model.kind}
    found |= _sizes(model)
    if model.shown_units:
        units = model.units()
        found["time"] = _time_dim(model) | {shown: units[name] for shown, name in model.shown_units.items()}
    if isinstance(model, HasNumbers) and (scales := model.number_scales.to_json()):
        found["features"] = scales
    found["parameters"] = {name: array.double().cpu().tolist() for name, array in model.named_arrays().items()}
    return found


def read_parameters(path: Path) -> dict[str, Any]:
    found = read_json(path)
    if not isinstance(found, dict) or not isinstance(found.get("parameters"), dict):
        raise ForetellError(
            f'{path}: expected an object with "format" and "parameters", as `foretell params` prints it'
        )
    if found.get("format") not in (FORMAT, EARLIER):
        raise ForetellError(f'{path}: "format" is {found.get("format")!r}, expected {FORMAT} or {EARLIER}')
    return found


def in_present_format(model: IntensityModel, found: dict[str, Any]) -> dict[str, Any]:
    """Return a file's object with the names of the present format."""
    if found.get("format") != EARLIER or not isinstance(model, RenamesParameters):
        return found
    return {**found, "format": FORMAT, "parameters": model.renamed_parameters(found["parameters"])}


def load_parameters(model: IntensityModel, found: dict[str, Any], source: str) -> None:
    """Set a model's parameters. Report all missing and unknown names and wrong shapes at once; then nothing is changed."""
    found = in_present_format(model, found)
    expected, given = model.named_arrays(), found["parameters"]
    problems = [f"{source}: unknown parameter `{name}`" for name in given if name not in expected]
    problems += [f"{source}: parameter `{name}` is missing" for name in expected if name not in given]
    settings = {"model": model.kind, **_sizes(model)}
    problems += [
        f"{source}: `{key}` is {found[key]!r}, but the model has {value!r}"
        for key, value in settings.items()
        if key in found and found[key] != value
    ]
    arrays: dict[str, Tensor] = {}
    for name, array in expected.items():
        if name in given:
            made = _tensor(given[name], array.dtype)
            if made is not None and array.numel() == made.numel() == 0:
                made = made.reshape(array.shape)  # a matrix without rows is written as []
            if made is None or made.shape != array.shape:
                shape = "numbers of one shape" if made is None else f"shape {list(made.shape)}"
                problems.append(
                    f"{source}: `{name}`: found {shape}, expected finite numbers of shape {list(array.shape)}"
                )
            else:
                arrays[name] = made.to(array.device)
    if problems:
        raise ForetellError(
            "\n".join(problems[:20] + ([f"… and {len(problems) - 20} more"] if len(problems) > 20 else []))
        )
    before = model.units()
    units = before | _units(model, found["time"], source) if "time" in found else before  # the units of `w`
    if "features" in found and isinstance(model, HasNumbers):
        model.number_scales.load(found["features"], source)
    model.set_units(units)
    try:
        model.load_named_arrays(arrays)
    except ForetellError:
        model.set_units(before)
        raise


def _sizes(model: IntensityModel) -> dict[str, int]:
    return {name: getattr(model, name) for name in model.shown_sizes}


def _time_dim(model: IntensityModel) -> dict[str, int]:
    return {"dim": getattr(model, "time_dim")} if hasattr(model, "time_dim") else {}  # noqa: B009


def _units(model: IntensityModel, time: Any, source: str) -> dict[str, float]:
    """Return the units in a file of parameters, under the names of the model's attributes."""
    names = list(model.shown_units)
    fine = isinstance(time, dict) and all(
        type(time.get(name)) in (int, float)
        and (SMALLEST_UNIT <= time[name] <= LARGEST_UNIT or (time[name] == 0 and _may_be_none(name)))
        for name in names
    )
    if fine and "short" in names and time["short"] > time["long"]:
        raise ForetellError(f'{source}: "time" has short {time["short"]!r} above long {time["long"]!r}')
    dim = _time_dim(model)
    if not fine or {"dim": time.get("dim", dim.get("dim"))} != {"dim": dim.get("dim")}:
        expected = " and ".join([*(f"{name} {size}" for name, size in dim.items()), f"positive {' and '.join(names)}"])
        raise ForetellError(f'{source}: "time" is {time!r}: expected {expected}')
    return {own: float(time[shown]) for shown, own in model.shown_units.items()}


def _may_be_none(unit: str) -> bool:
    return unit.startswith("period")


def _tensor(value: Any, dtype: torch.dtype) -> Tensor | None:
    """Return the numbers as a tensor; None if one is not finite in the model's precision."""
    try:
        made = torch.tensor(value, dtype=torch.float64).to(dtype)
    except (ValueError, TypeError, RuntimeError, OverflowError):
        return None
    return made if bool(torch.isfinite(made).all()) else None
