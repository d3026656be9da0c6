"""A safetensors file from anywhere → its tensors and its description, all checked: a regular file, whole, finite, flat JSON.

Rebuilding a model from a description is bounded, too: a file must not ask for more memory than it could fill.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from foretell.errors import ForetellError
from foretell.reading import MIB, UnreadableFile, check_file, parse_json

HOLES_FROM = 256 * MIB  # a file of this size that takes less than half of it on the disk has holes
SMALL = 64 * MIB  # that any model may take
LARGER = 16  # times the file, that a model may take while it is built
SMALLEST_UNIT, LARGEST_UNIT = 1e-100, 1e100  # of time; beyond these, quotients of times leave float64


@dataclass(frozen=True)
class TensorFile:
    path: Path
    tensors: dict[str, Tensor]
    description: Any  # JSON
    size: int

    @property
    def numbers(self) -> int:
        return sum(one.numel() for one in self.tensors.values())

    @property
    def largest(self) -> int:
        """No size that a description names is larger: it would be that of a tensor, or how many there are."""
        return max([len(self.tensors), *(side for one in self.tensors.values() for side in one.shape)])


def read_tensors(path: str | Path, key: str, what: str, missing: str) -> TensorFile:
    """The tensors, and the JSON that the file has under `key`; `what` it should be, and what is said where there is none."""
    path = Path(path)
    try:
        found = check_file(path)
        if found.st_size >= HOLES_FROM and getattr(found, "st_blocks", math.inf) * 1024 < found.st_size:
            raise ValueError("the file has holes: it was not written to its end")
        with safe_open(path, framework="pt") as file:
            description = parse_json((file.metadata() or {})[key])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except UnreadableFile as error:
        if error.missing:
            raise ForetellError(f"{path}: {missing}") from None
        raise ForetellError(f"{path}: not {what}: {error.reason}") from None
    except (OSError, SafetensorError, LookupError, TypeError, ValueError, RuntimeError) as error:
        raise ForetellError(f"{path}: not {what} ({type(error).__name__}: {error})") from error
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise ForetellError(
                f"{path}: not {what}: {name[:100]!r} has numbers that are not finite; training overflowed, or the file is damaged"
            )
    return TensorFile(path, tensors, description, os.stat(path).st_size)


class BoundedMemory(TorchDispatchMode):
    """Inside it, no tensor takes more than a file of that size allows."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.most = max(SMALL, LARGER * size)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if isinstance(made, Tensor) and made.untyped_storage().nbytes() > self.most:
            raise ValueError(f"it asks for tensors of more than {self.most:,} bytes")
        return made


def check_numbers(spec: dict[str, Any], sizes: Iterable[str], units: Iterable[str], file: TensorFile) -> None:
    """Check that a description does not need more than its file holds, and has no impossible numbers."""
    for name in sizes:
        size = spec.get(name)
        if isinstance(size, int) and not (type(size) is int and 0 <= size <= file.largest):
            raise ValueError(f"{name} is {size!r}, with {file.numbers} numbers in the file")
    for name in units:
        value = spec.get(name, 1.0)
        if type(value) not in (int, float) or not SMALLEST_UNIT <= value <= LARGEST_UNIT:
            raise ValueError(f"{name} is {value!r}")
