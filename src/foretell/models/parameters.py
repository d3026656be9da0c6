"""A model's parameters as JSON under their public names, and back; with them anyone can recompute the model by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from foretell.errors import ForetellError
from foretell.models.attention.anhp import ANHP
from foretell.models.base import IntensityModel
from foretell.models.last_event.last_event import LastEventModel
from foretell.models.recurrent.nhp import NHP
from foretell.models.rules.andtt import ANDTT
from foretell.models.rules.ndtt import NDTT

Waved = ANHP | ANDTT | LastEventModel  # models that embed absolute times
Drifting = NHP | NDTT  # models whose decays count in a unit of their own
FORMAT = 1


def parameters_json(model: IntensityModel) -> dict[str, Any]:
    """Shapes as nested lists; `w` and `τ` in the data's own unit of time."""
    found: dict[str, Any] = {"format": FORMAT, "model": model.kind}
    if isinstance(model, Waved):
        found |= {"dim": model.dim, "layers": model.layers}
        found["time"] = {"dim": model.time_dim, "m": model.time.m, "M": model.time.M}
    if isinstance(model, Drifting):
        found |= {"dim": model.dim, "time": {"scale": model.time_scale}}
    found["parameters"] = {name: array.double().cpu().tolist() for name, array in model.named_arrays().items()}
    return found


def read_parameters(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ForetellError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise ForetellError(f"{path}: not JSON: {error}") from error
    if not isinstance(found, dict) or not isinstance(found.get("parameters"), dict):
        raise ForetellError(
            f'{path}: expected an object with "format" and "parameters", as `foretell params` prints it'
        )
    if found.get("format") != FORMAT:
        raise ForetellError(f'{path}: "format" is {found.get("format")!r}, expected {FORMAT}')
    return found


def load_parameters(model: IntensityModel, found: dict[str, Any], source: str) -> None:
    """Names missing, unknown or of the wrong shape are errors, all of them at once; then nothing is changed."""
    expected, given = model.named_arrays(), found["parameters"]
    problems = [f"{source}: unknown parameter `{name}`" for name in given if name not in expected]
    problems += [f"{source}: parameter `{name}` is missing" for name in expected if name not in given]
    settings = {"model": model.kind}
    if isinstance(model, Waved):
        settings |= {"dim": model.dim, "layers": model.layers}
    if isinstance(model, Drifting):
        settings |= {"dim": model.dim}
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
                made = made.reshape(array.shape)  # a matrix without rows is written []
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
    times = _time_range(model, found["time"], source) if isinstance(model, Waved) and "time" in found else None
    before = model.time_scale
    if isinstance(model, Drifting) and "time" in found:
        model.time_scale = _scale(found["time"], source)  # before `w` and `τ` are counted in it
    try:
        model.load_named_arrays(arrays)
    except ForetellError:
        model.time_scale = before
        raise
    if isinstance(model, Waved) and times is not None:
        model.time.set_range(*times)


def _time_range(model: Waved, time: Any, source: str) -> tuple[float, float]:
    fine = isinstance(time, dict) and all(
        type(time.get(key)) in (int, float) and 0.0 < time[key] < math.inf for key in ("m", "M")
    )
    if not fine or time.get("dim", model.time_dim) != model.time_dim:
        raise ForetellError(f'{source}: "time" is {time!r}: expected dim {model.time_dim} and positive m and M')
    return float(time["m"]), float(time["M"])


def _scale(time: Any, source: str) -> float:
    scale = time.get("scale") if isinstance(time, dict) else None
    if not isinstance(scale, int | float) or isinstance(scale, bool) or not 0.0 < scale < math.inf:
        raise ForetellError(f'{source}: "time" is {time!r}: expected {{"scale": a positive number}}')
    return float(scale)


def _tensor(value: Any, dtype: torch.dtype) -> Tensor | None:
    """Numbers that are finite in the model's precision too."""
    try:
        made = torch.tensor(value, dtype=torch.float64).to(dtype)
    except (ValueError, TypeError, RuntimeError, OverflowError):
        return None
    return made if bool(torch.isfinite(made).all()) else None
