"""Options in, a model out; a model into one safetensors file, and back."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from foretell.data import Vocabulary
from foretell.data.writing import replacing
from foretell.errors import ForetellError
from foretell.lang.program import Program
from foretell.models.attention.anhp import ANHP
from foretell.models.attention.structure import parse_edge
from foretell.models.base import IntensityModel
from foretell.models.classical.hawkes import Hawkes
from foretell.models.classical.poisson import Poisson
from foretell.models.last_event.sahp import SAHP
from foretell.models.last_event.thp import THP
from foretell.models.recurrent.nhp import NHP
from foretell.models.rules.andtt import ANDTT
from foretell.models.rules.ndtt import NDTT
from foretell.models.task_heads import Classifier, Headed, MaskedANHP

FORMAT = 1
SIZES = ("dim", "layers", "heads", "time_dim", "feed_forward", "decays")
POSITIVE = ("m", "M", "time_scale", "elapsed_scale")


@dataclass(frozen=True)
class AnhpOptions:
    kind: ClassVar[str] = "anhp"
    dim: int = 32  # the paper's best D is 32 or 64
    layers: int = 2  # and its best L is 1 to 3
    heads: int = 1
    time_dim: int | None = None  # as dim
    coarse: Literal["one", "none"] | Mapping[str, str] | None = None  # "one", or "none" where there are edges
    edges: tuple[str, ...] | None = None  # "e <- f": e sees past f; None: everything sees everything
    layer_norm: bool = False
    feed_forward: int = 0  # width of the hidden layer; 0: none
    bos: bool = False
    dropout: float = 0.0
    shortest_wave: Literal["quantile", "min"] | float = "quantile"
    fading: float = 0.5  # attention starts as a memory that fades like this power of the elapsed time
    echo: float = 2.0  # an event starts by raising its own type this much; 0: not at all

    def make(self, vocabulary: Vocabulary, *, seed: int, dtype: torch.dtype) -> ANHP:
        return ANHP(
            vocabulary,
            dim=self.dim,
            layers=self.layers,
            heads=self.heads,
            time_dim=self.time_dim,
            coarse=self.coarse,
            edges=None if self.edges is None else [parse_edge(edge) for edge in self.edges],
            layer_norm=self.layer_norm,
            feed_forward=self.feed_forward,
            bos=self.bos,
            dropout=self.dropout,
            shortest_wave=self.shortest_wave,
            fading=self.fading,
            echo=self.echo,
            seed=seed,
            dtype=dtype,
        )


@dataclass(frozen=True)
class NhpOptions:
    kind: ClassVar[str] = "nhp"
    dim: int = 32

    def make(self, vocabulary: Vocabulary, *, seed: int, dtype: torch.dtype) -> NHP:
        return NHP(vocabulary, dim=self.dim, seed=seed, dtype=dtype)


@dataclass(frozen=True)
class TransformerOptions:
    """Of a model that looks at the last event alone, which a transformer has embedded."""

    dim: int = 32
    layers: int = 2
    heads: int = 1  # of dim / heads components each
    layer_norm: bool = True
    feed_forward: int | None = None  # width of the hidden layer: twice dim; 0: none
    dropout: float = 0.0
    shortest_wave: Literal["quantile", "min"] | float = "quantile"


@dataclass(frozen=True)
class ThpOptions(TransformerOptions):
    kind: ClassVar[str] = "thp"

    def make(self, vocabulary: Vocabulary, *, seed: int, dtype: torch.dtype) -> THP:
        return THP(vocabulary, **asdict(self), seed=seed, dtype=dtype)


@dataclass(frozen=True)
class SahpOptions(TransformerOptions):
    kind: ClassVar[str] = "sahp"

    def make(self, vocabulary: Vocabulary, *, seed: int, dtype: torch.dtype) -> SAHP:
        return SAHP(vocabulary, **asdict(self), seed=seed, dtype=dtype)


@dataclass(frozen=True)
class HawkesOptions:
    kind: ClassVar[str] = "hawkes"
    decays: int = 2

    def make(self, vocabulary: Vocabulary, *, seed: int, dtype: torch.dtype) -> Hawkes:
        return Hawkes(vocabulary, decays=self.decays)


@dataclass(frozen=True)
class PoissonOptions:
    kind: ClassVar[str] = "poisson"

    def make(self, vocabulary: Vocabulary, *, seed: int, dtype: torch.dtype) -> Poisson:
        return Poisson(vocabulary)


@dataclass(frozen=True)
class AndttOptions:
    kind: ClassVar[str] = "andtt"
    program: str = ""  # a file of rules, P.ndtt
    dim: int = 32  # of functors that the program does not declare
    layers: int = 2
    time_dim: int | None = None  # as dim
    layer_norm: bool = False
    feed_forward: int = 0  # width of the hidden layer; 0: none
    shortest_wave: Literal["quantile", "min"] | float = "quantile"
    undeclared: Literal["error", "exogenous"] = "error"  # events of the data that the program does not declare

    def make(self, vocabulary: Vocabulary, *, seed: int, dtype: torch.dtype) -> ANDTT:
        if not self.program:
            raise ForetellError('model.program: A-NDTT needs a program: give --program P.ndtt, or program = "P.ndtt"')
        return ANDTT(
            Program.from_file(self.program, undeclared=self.undeclared, dim=self.dim),
            vocabulary,
            dim=self.dim,
            layers=self.layers,
            time_dim=self.time_dim,
            layer_norm=self.layer_norm,
            feed_forward=self.feed_forward,
            shortest_wave=self.shortest_wave,
            seed=seed,
            dtype=dtype,
        )


@dataclass(frozen=True)
class NdttOptions:
    kind: ClassVar[str] = "ndtt"
    program: str = ""  # a file of rules, P.ndtt
    dim: int = 32  # of functors that the program does not declare
    undeclared: Literal["error", "exogenous"] = "error"  # events of the data that the program does not declare

    def make(self, vocabulary: Vocabulary, *, seed: int, dtype: torch.dtype) -> NDTT:
        if not self.program:
            raise ForetellError('model.program: NDTT needs a program: give --program P.ndtt, or program = "P.ndtt"')
        program = Program.from_file(self.program, undeclared=self.undeclared, dim=self.dim)
        return NDTT(program, vocabulary, dim=self.dim, seed=seed, dtype=dtype)


CLASSES: dict[str, type[IntensityModel]] = {
    model.kind: model for model in (ANHP, ANDTT, NDTT, NHP, THP, SAHP, Hawkes, Poisson)
}
Options = (
    AnhpOptions | AndttOptions | NdttOptions | NhpOptions | ThpOptions | SahpOptions | HawkesOptions | PoissonOptions
)
OPTIONS: dict[str, type[Options]] = {
    options.kind: options
    for options in (
        AnhpOptions,
        AndttOptions,
        NdttOptions,
        NhpOptions,
        ThpOptions,
        SahpOptions,
        HawkesOptions,
        PoissonOptions,
    )
}


# An encoder with a head for another task than intensities is saved and read in the same way.
HEADED: dict[str, type[Headed]] = {model.kind: model for model in (MaskedANHP, Classifier)}
Network = IntensityModel | Headed


def model_options(kind: str) -> type[Options] | None:
    return OPTIONS.get(kind)


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
    made = HEADED[kind] if kind in HEADED else CLASSES[kind]
    network = made.from_spec(description["spec"], Vocabulary(tuple(description["types"])))
    model = network.encoder if isinstance(network, Headed) else network
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
    if isinstance(network, Headed):
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
