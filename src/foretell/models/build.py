"""Write a model into one safetensors file, and read it back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_type_hints

import torch
from safetensors.torch import save

from foretell.data import Vocabulary
from foretell.data.calendar import Calendar
from foretell.data.covariates import CovariateEncoding
from foretell.data.files import replacing
from foretell.errors import ForetellError
from foretell.models.base import IntensityModel
from foretell.models.capabilities import ChecksState
from foretell.models.covariates import KEPT, add_covariates
from foretell.models.registry import find_network
from foretell.models.task_heads import TaskHead
from foretell.models.tensor_file import BoundedMemory, TensorFile, check_numbers, read_tensors
from foretell.models.units import LARGEST_UNIT
from foretell.options import ConfigError, coerce, expected, names_of

FORMAT = 1
SIZES = ("dim", "layers", "heads", "time_dim", "feed_forward", "decays")
OTHERWISE_CHECKED = ("program", "undeclared", "edges")  # programs are stored with their tables; models check edges
POSITIVE = ("m", "M", "time_scale", "elapsed_scale")


Network = IntensityModel | TaskHead


def describe(model: Network) -> dict[str, Any]:
    """Return everything about a model but its tensors, as JSON."""
    return {
        "format": FORMAT,
        "kind": model.kind,
        "types": list(model.vocabulary.names),
        "unseen": list(model.unseen),
        "longest": model.longest,
        "spec": model.spec(),
        **_columns(model),
    }


def _columns(model: Network) -> dict[str, Any]:
    """Return the description of the model's covariates, how many training events it keeps covariates of, and its calendar, if any."""
    found: dict[str, Any] = {}
    if isinstance(model, TaskHead):
        return found
    if model.covariates is not None:
        found |= {"covariates": model.covariates.encoding.to_json(), "kept": len(model.covariates.kept_numbers)}
    return found if model.followed is None else found | {"calendar": model.followed.to_json()}


def rebuild(description: dict[str, Any]) -> Network:
    kind = description["kind"]
    network: Network = find_network(kind).from_spec(description["spec"], Vocabulary(tuple(description["types"])))
    model = network.encoder if isinstance(network, TaskHead) else network
    model.unseen = tuple(int(kind) for kind in description["unseen"])
    model.longest = None if description["longest"] is None else float(description["longest"])
    if description.get("covariates") is not None:
        add_covariates(model, CovariateEncoding.from_json(description["covariates"]), description["kept"])
    if description.get("calendar") is not None:
        model.follow_calendar(Calendar.from_json(description["calendar"]))
    return network


def save_model(model: Network, path: str | Path) -> None:
    """Write a model into one file, `model.safetensors`, with all that is needed to rebuild it.

    The file only appears once it is complete.

    Args:
        model: a model, a pretrained encoder or a classifier.
        path: the file.

    Example:
        >>> model = ft.NHP(2, dim=4)
        >>> ft.save_model(model, "nhp.safetensors")
        >>> ft.load_model("nhp.safetensors").title
        'NHP'
    """
    path = Path(path)
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    with replacing(path) as temporary:
        temporary.write_bytes(save(tensors, {"foretell": json.dumps(describe(model))}))


def load_model(path: str | Path, device: torch.device | str = "cpu") -> IntensityModel:
    """Read a model from a file that `save_model` or a training run wrote. Code in a file is never executed.

    Args:
        path: the file.
        device: the device of its tensors.

    Returns:
        The model.

    Raises:
        ForetellError: the file is not a model, or is damaged.

    Example:
        >>> ft.save_model(ft.NHP(2, dim=4), "nhp.safetensors")
        >>> ft.load_model("nhp.safetensors").options.dim
        4
    """
    network = load_network(path, device)
    if isinstance(network, TaskHead):
        raise ForetellError(f"{path}: this is {network.title}, which has no intensities; {network.purpose}")
    return network


def load_network(path: str | Path, device: torch.device | str = "cpu") -> Network:
    """Read any network that a run has trained. An invalid file raises a `ForetellError`; its content is never executed."""
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
    except Exception as error:  # any exception that a description causes in a constructor is an error of the file
        raise ForetellError(f"{path}: not a foretell model ({type(error).__name__}: {error})") from error
    return model.to(device).eval()


def _check(description: dict[str, Any], file: TensorFile) -> None:
    """Check types and sizes of everything but the tensors. The options of a spec are checked by their own class."""
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
    trained, names = spec.get("trained"), spec.get("names", [])
    if trained is not None and not (type(trained) is int and isinstance(names, list) and 0 <= trained <= len(names)):
        raise ValueError(f"trained is {str(trained)[:80]!r}: expected how many of its names were trained")
    if "covariates" in description and not (type(description["kept"]) is int and 0 <= description["kept"] <= KEPT):
        raise ValueError(f"it keeps the covariates of {description['kept']!r} events")
    _check_options(description["kind"], spec)


def _check_options(kind: Any, spec: dict[str, Any]) -> None:
    network = find_network(kind)
    if not hasattr(network, "about"):  # a task head: the options of its encoder are checked when it is built
        return
    for name, hint in get_type_hints(network.about.options).items():
        checked = name in spec and name in names_of(network.about.options) and name not in OTHERWISE_CHECKED
        if checked and not coerce(spec[name], hint)[1]:
            raise ValueError(f"{name} is {str(spec[name])[:80]!r}: expected {expected(hint)}")
