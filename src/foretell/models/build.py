"""A model into one safetensors file, and back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_type_hints

import torch
from safetensors.torch import save

from foretell.data import Vocabulary
from foretell.data.files import replacing
from foretell.errors import ForetellError
from foretell.models.base import IntensityModel
from foretell.models.capabilities import ChecksState
from foretell.models.registry import find_network
from foretell.models.task_heads import TaskHead
from foretell.models.tensor_file import LARGEST_UNIT, BoundedMemory, TensorFile, check_numbers, read_tensors
from foretell.options import ConfigError, coerce, expected, names_of

FORMAT = 1
SIZES = ("dim", "layers", "heads", "time_dim", "feed_forward", "decays")
OTHERWISE_CHECKED = ("program", "undeclared", "edges")  # a program is kept with its tables; edges by the model
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
    file = read_tensors(path, "foretell", "a foretell model", "no such model file")
    description = file.description
    try:
        if description["format"] != FORMAT:
            raise ForetellError(f"{path}: model format {description['format']}: this version reads format {FORMAT}")
        _check(description, file)
        with BoundedMemory(file.size):
            model = rebuild(description)
        model.load_state_dict(file.tensors)
        for part in model.modules():
            if isinstance(part, ChecksState):
                part.check_state()
    except ConfigError as error:
        raise ForetellError(f"{path}: not a foretell model: {error}") from error
    except ForetellError:
        raise
    except Exception as error:  # whatever a description can provoke in a constructor is a mistake of the file
        raise ForetellError(f"{path}: not a foretell model ({type(error).__name__}: {error})") from error
    return model.to(device).eval()


def _check(description: dict[str, Any], file: TensorFile) -> None:
    """Types and sizes of everything but the tensors; a spec's options are checked by their own class."""
    spec, types, longest = description["spec"], description["types"], description["longest"]
    if spec["dtype"] not in ("float32", "float64"):
        raise ValueError(f"dtype is {spec['dtype']!r}")
    check_numbers(spec, SIZES, POSITIVE, file)
    if not isinstance(types, list) or not all(isinstance(one, str) for one in types):
        raise ValueError("its types are no list of names")
    if any(type(one) is not int or not 0 <= one < len(types) for one in description["unseen"]):
        raise ValueError("its unseen types are not among its types")
    if longest is not None and (type(longest) not in (int, float) or not 0.0 <= longest <= LARGEST_UNIT):
        raise ValueError(f"its longest time is {longest!r}")
    if type(spec.get("fitted", True)) is not bool:
        raise ValueError(f"fitted is {spec['fitted']!r}")
    _check_options(description["kind"], spec)


def _check_options(kind: Any, spec: dict[str, Any]) -> None:
    network = find_network(kind)
    if not hasattr(network, "about"):  # a head for another task: its encoder's options are checked as it is built
        return
    for name, hint in get_type_hints(network.about.options).items():
        checked = name in spec and name in names_of(network.about.options) and name not in OTHERWISE_CHECKED
        if checked and not coerce(spec[name], hint)[1]:
            raise ValueError(f"{name} is {str(spec[name])[:80]!r}: expected {expected(hint)}")
