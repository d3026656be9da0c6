"""Many short texts in one array of bytes: ids of sequences, and their metadata as JSON. Texts are decoded on access."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np

from foretell.data.sequence import NO_METADATA
from foretell.errors import DataError, short
from foretell.reading import parse_json


@dataclass(frozen=True, eq=False)
class TextColumn(Sequence[str]):
    """Text `n` is `letters[offsets[n]:offsets[n + 1]]` in UTF-8."""

    letters: np.ndarray  # uint8
    offsets: np.ndarray  # int64 [texts + 1]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[str, ...]: ...
    def __getitem__(self, index: int | slice) -> str | tuple[str, ...]:
        if isinstance(index, slice):
            return tuple(self[place] for place in range(*index.indices(len(self))))
        place = range(len(self))[index]
        return self.letters[self.offsets[place] : self.offsets[place + 1]].tobytes().decode("utf-8")

    def __iter__(self) -> Iterator[str]:
        return (self[place] for place in range(len(self)))


class MetadataRecord(Mapping[str, object]):
    """A mapping from a JSON object, which is parsed on first access."""

    __slots__ = ("_found", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        self._found: dict[str, object] | None = None

    def _parsed(self) -> dict[str, object]:
        if self._found is None:
            try:
                found = parse_json(self._text)
            except ValueError as error:
                raise DataError(f"packed metadata are not JSON: {error}; pack the data again") from None
            if not isinstance(found, dict):
                raise DataError(f"packed metadata are {short(found)}, expected an object; pack the data again")
            self._found = found
        return self._found

    def __getitem__(self, key: str) -> object:
        return self._parsed()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._parsed())

    def __len__(self) -> int:
        return len(self._parsed())


@dataclass(frozen=True, eq=False)
class MetadataColumn(Sequence[Mapping[str, object]]):
    """The metadata of sequences; an empty text means no metadata. `texts=None`: no sequence has metadata."""

    rows: int
    texts: TextColumn | None = None

    def __len__(self) -> int:
        return self.rows

    @overload
    def __getitem__(self, index: int) -> Mapping[str, object]: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Mapping[str, object], ...]: ...
    def __getitem__(self, index: int | slice) -> Mapping[str, object] | tuple[Mapping[str, object], ...]:
        if isinstance(index, slice):
            return tuple(self[place] for place in range(*index.indices(self.rows)))
        place = range(self.rows)[index]
        text = "" if self.texts is None else self.texts[place]
        return MetadataRecord(text) if text else NO_METADATA

    def __iter__(self) -> Iterator[Mapping[str, object]]:
        return (self[place] for place in range(self.rows))
