"""Models of rules without a run: fresh ones from a program, or with parameters from a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretell.cli import flags
from foretell.errors import ForetellError
from foretell.options import names_of

if TYPE_CHECKING:
    from foretell.data import EventData, Vocabulary
    from foretell.models.rules.rule_model import RuleModel
    from foretell.options import Undeclared

KINDS = ("andtt", "ndtt", "s2ndtt")
_KNOWN = f"{', '.join(KINDS[:-1])} or {KINDS[-1]}"


def preset_options(kind: str, preset: str | None) -> dict[str, Any]:
    """Return the options that a preset sets for a kind of model."""
    from foretell.models.registry import model_options
    from foretell.options import check_choice

    if preset is None:
        return {}
    _check_kind(kind)
    known = model_options(kind).presets
    check_choice("--preset", preset, list(known))
    return known[preset]


def fresh_model(
    program: Path,
    data: str | None,
    kind: str,
    sizes: dict[str, Any],
    seed: int,
    dtype: str,
    undeclared: Undeclared = "error",
) -> RuleModel:
    """Return a fresh model with parameters for every group that can ever hold; with `data`, its exogenous events are those in the data."""
    from foretell.cli.input_data import open_data

    _check_kind(kind)
    parts = open_data(data, None, {}) if data is not None else []
    model = _made(program, parts[0].vocabulary if parts else None, kind, sizes, seed, dtype, undeclared)
    model.ground_possible(parts)
    return model


def model_of(
    program: Path,
    params: Path,
    data: list[EventData],
    dtype: str,
    undeclared: Undeclared = "error",
    impossible: flags.Impossible = flags.Impossible.error,
    unseen: flags.UnseenChoice = flags.UnseenChoice.mean,
) -> tuple[RuleModel, list[EventData]]:
    """Return the model that a file of parameters describes, and the data with impossible events treated.

    A parameter group that the file lacks gets the mean of the groups in the file.
    """
    from foretell.cli.open_run import check_unseen, settled
    from foretell.models.parameters import in_present_format, load_parameters, read_parameters

    found = read_parameters(params)
    kind = found.get("model", "andtt")
    if kind not in KINDS:
        raise ForetellError(f'{params}: "model" is {kind!r}: expected {_KNOWN}, which are made of rules')
    model = _made(program, data[0].vocabulary, kind, _sizes(found, kind, params), 0, dtype, undeclared)
    data = [settled(model, part, impossible)[0] for part in data]
    for part in data:
        model.meet(part)
    found = in_present_format(model, found)
    for name in found["parameters"]:
        model.book.admit(name)
    model.rule_network.grow(model.dtype, model.device)
    load_parameters(model, found, str(params))
    for part in data:
        model.ground(part)  # groups that the file lacks get the mean of the others
        check_unseen(model, part, unseen, params)
    return model.eval(), data


def _check_kind(kind: str) -> None:
    if kind not in KINDS:
        raise ForetellError(f"--model {kind}: with --program expected {_KNOWN}, which are made of rules")


def _made(
    program: Path,
    vocabulary: Vocabulary | None,
    kind: str,
    sizes: dict[str, Any],
    seed: int,
    dtype: str,
    undeclared: Undeclared,
) -> RuleModel:
    """Return a fresh model; `sizes` may have options of either kind of model, and those of the other kind are ignored."""
    import torch

    from foretell.lang.program import Program
    from foretell.models.registry import find_model, model_options

    if dtype not in ("float32", "float64"):
        raise ForetellError(f"--dtype {dtype}: expected float32 or float64")
    rules = Program.from_file(program, undeclared=undeclared, dim=sizes["dim"])
    own = {name: size for name, size in sizes.items() if name in names_of(model_options(kind))}
    made: Any = find_model(kind)
    return made(rules, vocabulary, seed=seed, dtype=getattr(torch, dtype), **own)


def _sizes(found: dict[str, Any], kind: str, params: Path) -> dict[str, Any]:
    """Return the kind and sizes of the model in a file of parameters; the kind is detected from its key, or from its names."""
    from foretell.models.registry import find_model

    named = find_model(kind).shown_sizes
    time = found.get("time")
    if not all(type(found.get(name)) is int for name in named) or not isinstance(time, dict):
        listed = ", ".join(f'"{name}"' for name in named)
        raise ForetellError(f'{params}: expected {listed} and "time", as `foretell params` prints them')
    parameters = found["parameters"]
    factors = {
        option: max(
            (len(one) for name, one in parameters.items() if name.endswith(ending) and isinstance(one, list)), default=0
        )
        for option, ending in (("intensity_scales", ".mixture"), ("intensity_shape", ".shape"))
    }
    if kind != "andtt":
        return {**{name: found[name] for name in named}, **factors}
    widths = [len(one) for name, one in parameters.items() if name.endswith(".expand.bias") and isinstance(one, list)]
    sizes = {"dim": found["dim"], "layers": found["layers"], "time_dim": time.get("dim")}
    norm = any(".norms." in name for name in parameters)
    return sizes | {"layer_norm": norm, "feed_forward": max(widths, default=0), **factors}
