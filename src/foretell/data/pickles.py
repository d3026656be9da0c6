"""A pickle → only plain lists, dicts, numbers and text; no code of the file is run.

Only builtin containers and numpy's scalars and arrays are supported. numpy's own unpickling is not used: scalars
become Python numbers and arrays become lists, made here from their raw bytes. Pickles of Python 2 are decoded as
latin1. The unpickler is the one in pure Python, because a few bytes can make the one in C allocate gigabytes for
its memo.
"""

from __future__ import annotations

import collections
import io
import pickle
import re
import struct
import sys
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from foretell.errors import DataError
from foretell.reading import read_bytes

_SAFE_KIND = re.compile(r"[<>=|]?(?:[biuf][1248]|b1|[SU]\d{1,6}|O8?)\Z")


class _Kind:
    """A numpy dtype as stored in a pickle: a name and a byte order."""

    def __init__(self, name: object, *_: object) -> None:
        name = name.decode("latin1") if isinstance(name, bytes) else name
        if not isinstance(name, str) or not _SAFE_KIND.match(name):
            raise pickle.UnpicklingError(f"arrays of type {name!r} are not read")
        self.dtype = np.dtype(name)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        order = state[1]
        if order in ("<", ">"):
            self.dtype = self.dtype.newbyteorder(order)


class _Array(list[Any]):
    """A list in place of a numpy array, filled from the array's pickled state."""

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, kind, fortran, raw = state
        self[:] = _values(raw, kind, shape, "F" if fortran else "C")


def _values(raw: object, kind: object, shape: object, order: Literal["C", "F"]) -> list[Any]:
    assert isinstance(kind, _Kind)
    if kind.dtype.kind == "O":
        if not isinstance(raw, list) or _shape(shape) != (len(raw),):
            raise pickle.UnpicklingError("arrays of objects are read only if they are lists")
        return raw
    values = np.frombuffer(_bytes(raw), dtype=kind.dtype).reshape(_shape(shape), order=order).tolist()
    return values if isinstance(values, list) else [values]


def _bytes(raw: object) -> bytes:
    if isinstance(raw, str):
        return raw.encode("latin1")  # bytes in a pickle of Python 2
    if not isinstance(raw, bytes | bytearray):
        raise pickle.UnpicklingError("an array without its bytes")
    return bytes(raw)


def _shape(shape: object) -> tuple[int, ...]:
    if not isinstance(shape, tuple) or not all(type(size) is int for size in shape):
        raise pickle.UnpicklingError("an array without a shape")
    return shape


def _reconstruct(*_: object) -> _Array:
    return _Array()


def _scalar(kind: object, raw: object = b"") -> object:
    assert isinstance(kind, _Kind)
    if kind.dtype.kind == "O":
        raise pickle.UnpicklingError("numpy objects are not read")
    return np.frombuffer(_bytes(raw), dtype=kind.dtype, count=1)[0].item()


def _from_buffer(raw: object, kind: object, shape: object, order: object = "C") -> _Array:
    return _Array(_values(raw, kind, shape, "F" if order == "F" else "C"))


def _encode(text: object, encoding: object = "latin1") -> bytes:
    if not isinstance(text, str) or encoding != "latin1":
        raise pickle.UnpicklingError(f"encoding {encoding!r} is not read")
    return text.encode("latin1")


def _set(values: object = ()) -> set[Any]:
    return set(values) if isinstance(values, list) else set()


_NUMPY = {"_reconstruct": _reconstruct, "scalar": _scalar}
_KNOWN: dict[tuple[str, str], Any] = {
    **{
        (module, name): made
        for module in ("numpy.core.multiarray", "numpy._core.multiarray")
        for name, made in _NUMPY.items()
    },
    ("numpy.core.numeric", "_frombuffer"): _from_buffer,
    ("numpy._core.numeric", "_frombuffer"): _from_buffer,
    ("numpy", "ndarray"): "numpy.ndarray",  # only used as an argument of _reconstruct
    ("numpy", "dtype"): _Kind,
    ("_codecs", "encode"): _encode,
    ("builtins", "set"): _set,
    ("__builtin__", "set"): _set,
    ("builtins", "frozenset"): _set,
    ("__builtin__", "frozenset"): _set,
    ("collections", "OrderedDict"): collections.OrderedDict,
}


_PurePython: Any = pickle._Unpickler


class _Plain(_PurePython):
    dispatch: ClassVar[dict[int, Any]] = dict(_PurePython.dispatch)

    def load_bytearray8(self) -> None:
        # the inherited method allocates the stated size before it checks the number of bytes
        (size,) = struct.unpack("<Q", self.read(8))
        content = self.read(min(size, sys.maxsize))
        if len(content) != size:
            raise pickle.UnpicklingError("it ends in the middle of an array")
        self.append(content)

    dispatch[pickle.BYTEARRAY8[0]] = load_bytearray8

    def find_class(self, module: str, name: str) -> object:
        try:
            return _KNOWN[module, name]
        except KeyError:
            raise pickle.UnpicklingError(
                f"it asks for {module}.{name}; only lists, dicts, numbers, text and numpy arrays are read"
            ) from None

    def persistent_load(self, pid: object) -> object:
        raise pickle.UnpicklingError("it refers to objects outside the file")


def load(path: Path) -> object:
    """Return the content of a pickle as plain Python values; raise a `DataError` for anything else."""
    content = read_bytes(path)
    if not content:
        raise DataError(f"{path}: the file is empty, expected a pickle")
    try:
        return _Plain(io.BytesIO(content), encoding="latin1").load()
    except pickle.UnpicklingError as error:
        raise DataError(f"{path}: this pickle is refused: {error}") from None
    except Exception as error:
        # every exception in the unpickler means that the file is damaged
        what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise DataError(f"{path}: not a pickle that can be read ({what[:200]})") from None
