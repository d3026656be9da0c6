"""Split an encoded history into its tensors and rebuild it: lists and dataclasses of tensors, batch dimension first."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor


def tensors_of(history: Any) -> list[Tensor]:
    """Return all tensors, in the order of the fields."""
    if isinstance(history, Tensor):
        return [history]
    return [tensor for part in _parts(history) for tensor in tensors_of(part)]


def with_tensors(history: Any, tensors: list[Tensor], rows: slice | Sequence[int] = slice(None)) -> Any:
    """Return a copy of a history with other tensors, which belong to these rows of the batch."""
    return _filled(history, iter(tensors), rows)


def _parts(history: Any) -> list[Any]:
    if hasattr(history, "take_rows"):  # row indices that are on the host
        return []
    if dataclasses.is_dataclass(history):
        return [getattr(history, field.name) for field in dataclasses.fields(history)]
    return list(history) if isinstance(history, list | tuple) else []


def _filled(history: Any, tensors: Iterator[Tensor], rows: slice | Sequence[int]) -> Any:
    if isinstance(history, Tensor):
        return next(tensors)
    if hasattr(history, "take_rows"):
        return history.take_rows(rows)
    if dataclasses.is_dataclass(history) and not isinstance(history, type):
        names = [field.name for field in dataclasses.fields(history)]
        return dataclasses.replace(history, **{name: _filled(getattr(history, name), tensors, rows) for name in names})
    if isinstance(history, list | tuple):
        return type(history)(_filled(part, tensors, rows) for part in history)
    return history
