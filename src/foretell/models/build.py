"""A model into one safetensors file, and back."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from foretell.data import Vocabulary
from foretell.data.files import replacing
from foretell.errors import ForetellError
from foretell.models.base import IntensityModel
from foretell.models.registry import find_network
from foretell.models.task_heads import TaskHead
from foretell.options import ConfigError

FORMAT = 1
SIZES = ("dim", "layers", "heads", "time_dim", "feed_forward", "decays")
POSITIVE = ("m", "M", "time_scale", "elapsed_scale")


Network = IntensityModel | TaskHead


def describe(model: Network) -> dict[str, Any]:
    """Everything about a model but its tensors."""
    return {
        "format": FORMAT,
        "kind": model.kind,
        "types": list(model.vocabulary.names),
        "unseen": list(model.unseen),
        "longest": model.longest,
        "spec": model.spec(),
    }


def rebuild(description: dict[str, Any]) -> Network:
    kind = description["kind"]
    network: Network = find_network(kind).from_spec(description["spec"], Vocabulary(tuple(description["types"])))
    model = network.encoder if isinstance(network, TaskHead) else network
    model.unseen = tuple(int(kind) for kind in description["unseen"])
    model.longest = None if description["longest"] is None else float(description["longest"])
    return network


def save_model(model: Network, path: str | Path) -> None:
    """One file, written under another name and then renamed."""
    path = Path(path)
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    with replacing(path) as temporary:
        temporary.write_bytes(save(tensors, {"foretell": json.dumps(describe(model))}))


def load_model(path: str | Path, device: torch.device | str = "cpu") -> IntensityModel:
    """A point process from a `model.safetensors`."""
    network = load_network(path, device)
    if isinstance(network, TaskHead):
        raise ForetellError(f"{path}: this is {network.title}, which has no intensities; {network.purpose}")
    return network


def load_network(path: str | Path, device: torch.device | str = "cpu") -> Network:
    """Whatever a run has learned; a file that is not one is the user's error, never code that runs."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        description = json.loads(metadata["foretell"])
        if description["format"] != FORMAT:
            raise ForetellError(f"{path}: model format {description['format']}: this version reads format {FORMAT}")
        _check_spec(description["spec"], sum(tensor.numel() for tensor in tensors.values()))
        model = rebuild(description)
        model.load_state_dict(tensors)
    except FileNotFoundError as error:
        raise ForetellError(f"{path}: no such model file") from error
    except ConfigError as error:
        raise ForetellError(f"{path}: not a foretell model: {error}") from error
    except (
        OSError, SafetensorError, LookupError, TypeError, ValueError, ArithmeticError, AttributeError, RuntimeError
    ) as error:  # fmt: skip
        raise ForetellError(f"{path}: not a foretell model ({type(error).__name__}: {error})") from error
    return model.to(device).eval()


def _check_spec(spec: dict[str, Any], numbers: int) -> None:
    """A file from elsewhere must not ask for more than it holds, nor for numbers that no model has."""
    if spec["dtype"] not in ("float32", "float64"):
        raise ValueError(f"dtype is {spec['dtype']!r}")
    for name in SIZES:
        size = spec.get(name)
        if size is not None and not (type(size) is int and 0 <= size <= numbers):
            raise ValueError(f"{name} is {size!r}, with {numbers} numbers in the file")
    for name in POSITIVE:
        value = spec.get(name, 1.0)
        if type(value) not in (int, float) or not 0.0 < value < math.inf:
            raise ValueError(f"{name} is {value!r}")
