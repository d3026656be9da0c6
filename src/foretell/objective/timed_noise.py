"""Noise that follows clocks: a Hawkes process and two step functions for every mark, added up; into one file and back."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from foretell.data import Vocabulary
from foretell.data.writing import replacing
from foretell.errors import ForetellError
from foretell.models.base import IntensityModel
from foretell.models.build import FORMAT, describe, load_model, rebuild, save_model
from foretell.models.classical.hawkes import Hawkes
from foretell.models.classical.poisson import Poisson
from foretell.objective.noise_parts import Profile

PROFILES = ("since_start", "since_own")


@dataclass(frozen=True)
class TimedNoise:
    """`λ^q_k(t)` is that of the Hawkes process, plus what its profiles say of mark `k` at two elapsed times."""

    kind: ClassVar[str] = "timed"
    hawkes: Hawkes  # its constant and falling parts, with the weights that they have in the sum; so are the rates below
    since_start: Profile  # of the time since the sequence began
    since_own: Profile  # of the time since the last event of the same mark; there is none before the first

    @property
    def vocabulary(self) -> Vocabulary:
        return self.hawkes.vocabulary


Noise = Hawkes | Poisson | TimedNoise
NoiseKind = Literal["poisson", "hawkes", "timed"]


def save_noise(process: IntensityModel | TimedNoise, path: Path) -> None:
    if not isinstance(process, TimedNoise):
        save_model(process, path)
        return
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in process.hawkes.state_dict().items()}
    for name in PROFILES:
        profile: Profile = getattr(process, name)
        tensors |= {f"{name}.edges": profile.edges.cpu(), f"{name}.rate": profile.rate.cpu()}
    with replacing(path) as temporary:
        temporary.write_bytes(
            save(tensors, {"foretell": json.dumps(describe(process.hawkes) | {"kind": TimedNoise.kind})})
        )


def load_noise(path: Path) -> IntensityModel | TimedNoise:
    """A file that holds none is the user's error."""
    try:
        with safe_open(path, framework="pt") as file:
            description = json.loads((file.metadata() or {})["foretell"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        return _timed_noise(description, tensors) if description["kind"] == TimedNoise.kind else load_model(path)
    except (
        OSError, SafetensorError, LookupError, TypeError, ValueError, ArithmeticError, AttributeError, RuntimeError
    ) as error:  # fmt: skip
        raise ForetellError(f"{path}: not a foretell model ({type(error).__name__}: {error})") from error


def _timed_noise(description: dict[str, Any], tensors: dict[str, Tensor]) -> TimedNoise:
    if description["format"] != FORMAT:
        raise ValueError(f"its format is {description['format']}, this version reads format {FORMAT}")
    types, decays = len(description["types"]), len(tensors["beta"])
    expected = {"mu": (types,), "alpha": (types, types, decays), "beta": (decays,)}
    for name, shape in expected.items():  # a file must not ask for more than it holds
        if tuple(tensors[name].shape) != shape or tensors[name].dtype != torch.float64:
            raise ValueError(f"{name} is {tensors[name].dtype} {list(tensors[name].shape)}, expected {list(shape)}")
    spec = description["spec"] | {"decays": decays, "dtype": "float64"}
    hawkes = rebuild(description | {"kind": Hawkes.kind, "spec": spec})
    assert isinstance(hawkes, Hawkes)
    hawkes.load_state_dict({name: tensors.pop(name) for name in expected})
    profiles = [Profile.of(tensors.pop(f"{name}.edges"), tensors.pop(f"{name}.rate")) for name in PROFILES]
    if tensors or any(len(one.rate) != types for one in profiles):
        raise ValueError(f"step functions are not of {types} types, or there is more: {sorted(tensors)}")
    return TimedNoise(hawkes.eval(), *profiles)
