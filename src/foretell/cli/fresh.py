"""An A-NDTT that no run has: fresh from a program, or with the parameters of a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from foretell.cli.replay import Impossible
from foretell.errors import ForetellError

if TYPE_CHECKING:
    from foretell.data import EventData, Vocabulary
    from foretell.lang.program import Undeclared
    from foretell.models.andtt import ANDTT


def fresh_andtt(
    program: Path,
    data: str | None,
    dim: int,
    layers: int,
    time_dim: int | None,
    seed: int,
    dtype: str,
    undeclared: Undeclared = "error",
) -> ANDTT:
    """With `data`, groups of parameters are those that their events give rise to, too."""
    from foretell.cli.sequences import open_data

    parts = open_data(data) if data is not None else []
    model = _made(program, parts[0].vocabulary if parts else None, dim, layers, time_dim, seed, dtype, undeclared)
    for part in parts:
        model.meet(part)
        model.ground(part)
    return model


def andtt_of(
    program: Path,
    params: Path,
    data: list[EventData],
    dtype: str,
    undeclared: Undeclared = "error",
    impossible: Impossible = Impossible.error,
) -> tuple[ANDTT, list[EventData]]:
    """The model that a file of parameters describes, for given data; and these as it may see them."""
    from foretell.cli.impossible import settled
    from foretell.models.parameters import load_parameters, read_parameters

    found = read_parameters(params)
    sizes = {name: found.get(name) for name in ("dim", "layers")}
    time = found.get("time")
    if not all(type(size) is int for size in sizes.values()) or not isinstance(time, dict):
        raise ForetellError(f'{params}: expected "dim", "layers" and "time", as `foretell params` prints them')
    norm, forward = _sublayers(found["parameters"])
    model = _made(
        program,
        data[0].vocabulary,
        found["dim"],
        found["layers"],
        time.get("dim"),
        0,
        dtype,
        undeclared,
        layer_norm=norm,
        feed_forward=forward,
    )
    data = [settled(model, part, impossible)[0] for part in data]
    for part in data:
        model.meet(part)
        model.ground(part)
    for name in found["parameters"]:
        model.book.admit(name)  # of values that other data had
    model.network.grow(model.dtype, model.device)
    load_parameters(model, found, str(params))
    return model.eval(), data


def _made(
    program: Path,
    vocabulary: Vocabulary | None,
    dim: int,
    layers: int,
    time_dim: int | None,
    seed: int,
    dtype: str,
    undeclared: Undeclared,
    *,
    layer_norm: bool = False,
    feed_forward: int = 0,
) -> ANDTT:
    import torch

    from foretell.lang.program import Program
    from foretell.models.andtt import ANDTT

    if dtype not in ("float32", "float64"):
        raise ForetellError(f"--dtype {dtype}: expected float32 or float64")
    return ANDTT(
        Program.from_file(program, undeclared=undeclared, dim=dim),
        vocabulary,
        dim=dim,
        layers=layers,
        time_dim=time_dim,
        layer_norm=layer_norm,
        feed_forward=feed_forward,
        seed=seed,
        dtype=getattr(torch, dtype),
    )


def _sublayers(parameters: dict[str, object]) -> tuple[bool, int]:
    """Whether there is a LayerNorm, and the width of the feed-forward sublayer, by what is in a file."""
    widths = [len(one) for name, one in parameters.items() if name.endswith(".expand.bias") and isinstance(one, list)]
    return any(".norms." in name for name in parameters), max(widths, default=0)
