"""Read a safetensors file from an untrusted source: check that it is regular, complete and finite, with flat JSON as description.

The memory for rebuilding a model from a description is bounded by the size of the file.
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
from foretell.models.units import LARGEST_UNIT, SMALLEST_UNIT
from foretell.reading import MIB, UnreadableFile, check_file, parse_json

HOLES_FROM = 256 * MIB  # a file of at least this size that takes less than half of it on disk has holes
SMALL = 64 * MIB  # a size in bytes that any model may use
LARGER = 16  # a model that is being built may use this many times the size of the file


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
        """The largest size that a description may contain: no tensor dimension and no number of tensors can be larger."""
        return max([len(self.tensors), *(side for one in self.tensors.values() for side in one.shape)])


def read_tensors(path: str | Path, key: str, what: str, missing: str) -> TensorFile:
    """Read the tensors, and the JSON under `key`. Messages say `what` was expected, and `missing` if the file has no such key."""
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
    """A context in which no tensor may use more memory than the size of the file allows."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.most = max(SMALL, LARGER * size)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if isinstance(made, Tensor) and made.untyped_storage().nbytes() > self.most:
            raise ValueError(f"it asks for tensors of more than {self.most:,} bytes")
        return made


def check_numbers(spec: dict[str, Any], sizes: Iterable[str], units: Iterable[str], file: TensorFile) -> None:
    """Check that a description does not need more than its file contains, and that its units are possible numbers."""
    for name in sizes:
        size = spec.get(name)
        if isinstance(size, int) and not (type(size) is int and 0 <= size <= file.largest):
            raise ValueError(f"{name} is {size!r}, with {file.numbers} numbers in the file")
    for name in units:
        value = spec.get(name, 1.0)
        if type(value) not in (int, float) or not SMALLEST_UNIT <= value <= LARGEST_UNIT:
            raise ValueError(f"{name} is {value!r}")
