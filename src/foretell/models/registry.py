"""The registry of models by kind: those of this package, those of other packages, and those registered by a caller.

A model describes itself once, with `@register(ModelSpec(...))` above its class. A package adds a model with an entry point of the group
`foretell.models`: `kind = "module:class"`. A model's module is imported when its kind is first used; nothing here imports torch.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar, get_type_hints

from foretell.errors import ForetellError
from foretell.models import BUILT_IN, TASK_HEADS
from foretell.options import check_choice, names_of, option

if TYPE_CHECKING:
    import torch

    from foretell.data import Vocabulary
    from foretell.models.base import IntensityModel

GROUP = "foretell.models"  # the group of entry points
DEFAULT = "anhp"
M = TypeVar("M", bound=type)


@dataclass(frozen=True)
class ModelOptions:
    """Options of a model, one field each. Constructors, configurations, flags, saved files and searches all read these fields."""

    kind: ClassVar[str]
    earlier: ClassVar[dict[str, Any]] = {}  # values of options for files that were written before these options existed
    presets: ClassVar[dict[str, dict[str, Any]]] = {}  # sets of options by the name of the preset

    def make(self, vocabulary: Vocabulary, *, seed: int, dtype: torch.dtype) -> IntensityModel:
        """Return an untrained model of this kind."""
        return find_model(self.kind).from_options(self, vocabulary, seed=seed, dtype=dtype)

    def mistakes(self) -> list[str]:
        """Return one message per value that has the right type but makes no sense."""
        return []

    def check(self) -> None:
        found = self.mistakes()
        if found:
            raise ForetellError("\n".join(found))


@dataclass(frozen=True)
class EmbeddingOptions(ModelOptions):
    dim: int = option(
        32, flag="Dimension of the embeddings.", tuned=(4, 8, 16, 32, 64, 128)
    )  # the paper's best values: 32, 64

    # For data with absolute times that span more than two weeks
    calendar: bool = option(True, flag="Whether intensities follow the clock: day, week and year.")

    smallest: ClassVar[int] = 1  # the smallest dimension that makes sense
    earlier: ClassVar[dict[str, Any]] = {"calendar": False}

    def mistakes(self) -> list[str]:
        return [f"dim = {self.dim}: expected {self.smallest} or more"] if self.dim < self.smallest else []


@dataclass(frozen=True)
class LayerOptions(EmbeddingOptions):
    """Options of models with layers of attention and waves that embed time."""

    layers: int = option(2, flag="Layers of attention.", tuned=(1, 2, 3, 4, 5, 6))  # the paper's best L is 1 to 3
    layer_norm: bool = option(False, doc="Normalise before and after each sublayer.")
    feed_forward: int | None = option(
        0, doc="Width of the hidden layer of a feed-forward sublayer; 0: none; None: twice `dim`."
    )
    shortest_wave: Literal["quantile", "min"] | float = option(
        "quantile",
        free=True,
        doc="Of the time embedding: a low quantile of the training gaps, the shortest, or a number.",
    )

    def mistakes(self) -> list[str]:
        found = super().mistakes()
        if self.layers < 1:
            found.append(f"layers = {self.layers}: expected 1 or more")
        if self.feed_forward is not None and self.feed_forward < 0:
            found.append(f"feed_forward = {self.feed_forward}: expected 0 (none) or the width of the hidden layer")
        return found


@dataclass(frozen=True)
class HeadOptions(LayerOptions):
    heads: int = option(1, flag="Attention heads.")
    dropout: float = option(0.0, free=True, doc="Share of the components that training drops.")

    def mistakes(self) -> list[str]:
        found = super().mistakes()
        if not 0.0 <= self.dropout < 1.0:
            found.append(f"dropout = {self.dropout}: expected a share from 0 to below 1")
        return found


@dataclass(frozen=True)
class ModelSpec:
    """A model's description of itself."""

    kind: str  # the name in configurations and files
    title: str  # the name in text
    options: type[ModelOptions]
    summary: str  # one line that describes the model
    citation: str

    @property
    def has_rules(self) -> bool:
        return "program" in names_of(self.options)


_registered: dict[str, type[IntensityModel]] = {}


def register(spec: ModelSpec) -> Callable[[M], M]:
    """Decorate the class of a model: `find_model` then finds it by its kind, and its constructor's signature lists all options."""

    def decorate(model: M) -> M:
        home = f"{model.__module__}:{model.__qualname__}"
        if BUILT_IN.get(spec.kind, home) != home:
            raise ForetellError(f"model kind {spec.kind!r} is one of foretell's own: {home} needs another name")
        spec.options.kind = spec.kind
        found: Any = model
        found.about, found.kind, found.title = spec, spec.kind, spec.title
        found.__signature__ = _signature(model, spec.options)
        found.__doc__ = _docstring(model, spec.options)
        _registered[spec.kind] = found
        return model

    return decorate


# Parameters of constructors that are not options.
CONSTRUCTOR = {
    "vocabulary": "The event types, or their number.",
    "program": "The rules: a `Program`, a file, or the name of one in the package.",
    "options": "All options as one record, in place of single ones.",
    "seed": "Of the starting values.",
    "dtype": "Of the parameters; times are float64 in any case.",
}


def _docstring(model: type, options: type[ModelOptions]) -> str:
    """Return the class's docstring with an entry per argument, inserted before the example. Options bring their own help texts."""
    text, mark, example = inspect.cleandoc(model.__doc__ or "").partition("Example:")
    told = CONSTRUCTOR | {one.name: one.metadata.get("doc", "") for one in fields(options) if one.name != "program"}
    names = inspect.signature(model).parameters
    lines = [f"    {name}: {told[name]}" for name in names if told.get(name)]
    return f"{text.rstrip()}\n\nArgs:\n" + "\n".join(lines) + (f"\n\n{mark}{example}" if mark else "\n")


def _signature(model: type, options: type[ModelOptions]) -> inspect.Signature:
    """Return the constructor's signature with every option by name in place of `**changes`."""
    own = [one for one in inspect.signature(model.__init__).parameters.values() if one.name != "self"]
    plain = [one for one in own if one.kind is not inspect.Parameter.VAR_KEYWORD]
    hints, taken = get_type_hints(options), {one.name for one in plain}
    named = [
        inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=one.default, annotation=hints[one.name])
        for one in fields(options)
        if one.name not in taken and one.default is not MISSING
    ]
    first = [one for one in plain if one.kind is not inspect.Parameter.KEYWORD_ONLY]
    return inspect.Signature([*first, *named, *(one for one in plain if one not in first)])


def model_kinds() -> list[str]:
    """Return all kinds of models without importing them."""
    return [*dict.fromkeys([*BUILT_IN, *_registered, *sorted(one.name for one in _entries())])]


def find_model(kind: Any) -> type[IntensityModel]:
    """Return the class of a kind of model."""
    if kind not in [*_registered, *BUILT_IN]:
        check_choice("model.kind", kind, model_kinds(), repr)
        _load_entry(kind)
    elif kind not in _registered:
        _load(BUILT_IN[kind])
    return _registered[kind]


def find_network(kind: str) -> Any:
    """Return the class of a kind of model, or of a task head."""
    return _load(TASK_HEADS[kind]) if kind in TASK_HEADS else find_model(kind)


def model_options(kind: Any) -> type[ModelOptions]:
    return find_model(kind).about.options


def model_specs() -> list[ModelSpec]:
    """Return the descriptions of foretell's own models."""
    return [find_model(kind).about for kind in BUILT_IN]


def _entries() -> tuple[EntryPoint, ...]:
    return tuple(one for one in entry_points(group=GROUP) if one.name not in BUILT_IN)


def _load(home: str) -> Any:
    module, _, name = home.partition(":")
    return getattr(importlib.import_module(module), name)


def _load_entry(kind: str) -> None:
    """Import the package that provides a model of this kind. Every error message names the package."""
    found = {(one.value, _package(one)): one for one in _entries() if one.name == kind}
    if len(found) > 1:
        packages = " and ".join(sorted(package for _, package in found))
        raise ForetellError(f"model.kind = {kind!r}: both {packages} have one; uninstall all but one of them")
    entry = next(iter(found.values()))
    told = f"model.kind = {kind!r}: the package {_package(entry)} should have it, as {entry.value}, but"
    try:
        entry.load()
    except Exception as error:
        raise ForetellError(f"{told} that cannot be imported: {type(error).__name__}: {error}") from error
    if kind not in _registered:
        raise ForetellError(f"{told} that registers no model of this kind: see `foretell.models.registry.register`")


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else entry.value.partition(":")[0]
