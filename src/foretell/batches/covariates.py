"""Encode covariates of a batch's rows: sequences in, padded tensors out, with the encoding that was fitted to the training data."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from foretell.data import EventSequence
from foretell.data.attributes import AttributeTable
from foretell.data.covariates import CovariateEncoding, EncodedColumns, encoded

log = logging.getLogger("foretell")


@dataclass(frozen=True)
class CovariateRows:
    """Numbers are in standard deviations from the mean, NaN if missing. Codes of categories are 0 if missing. Padding is 0."""

    numbers: Tensor  # float32 [B, N, numbers]
    codes: Tensor  # int64 [B, N, categories]
    static_numbers: Tensor  # float32 [B, numbers]
    static_codes: Tensor  # int64 [B, categories]

    def tensors(self) -> tuple[Tensor, ...]:
        return tuple(getattr(self, one.name) for one in fields(self))


class CovariateEncoder:
    """Encodes the tables that sequences refer to. Each table is encoded once, and the result is kept as long as the table exists."""

    def __init__(self, encoding: CovariateEncoding) -> None:
        self.encoding = encoding
        self._tables: WeakKeyDictionary[AttributeTable, tuple[EncodedColumns, EncodedColumns]] = WeakKeyDictionary()
        self._nothing = AttributeTable({}, {})
        self._told: set[str] = set()

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the encoded tables: weak references cannot be pickled. A copy encodes the tables again."""
        return {name: value for name, value in self.__dict__.items() if name != "_tables"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _tables=WeakKeyDictionary())

    def rows(
        self, chosen: Sequence[EventSequence], width: int, device: torch.device | str, part: range | None = None
    ) -> CovariateRows:
        """Return the covariates of sequences, or of a `part` of their events, padded to `width` events."""
        count = len(chosen)
        events, static = (encoded(one, {}, 0) for one in (self.encoding.events, self.encoding.static))
        numbers = np.zeros((count, width, events.numbers.shape[1]), dtype=np.float32)
        codes = np.zeros((count, width, events.codes.shape[1]), dtype=np.int64)
        own_numbers = np.full((count, static.numbers.shape[1]), np.nan, dtype=np.float32)
        own_codes = np.zeros((count, static.codes.shape[1]), dtype=np.int64)
        for row, sequence in enumerate(chosen):
            events_here = range(len(sequence)) if part is None else range(len(sequence))[part.start : part.stop]
            length, own = len(events_here), sequence.attributes
            if own is None:
                self._tell(self._nothing)
                numbers[row, :length] = np.nan
                continue
            of_events, of_sequences = self._encoded(own.table)
            mine = slice(own.row + events_here.start, own.row + events_here.stop)
            numbers[row, :length] = of_events.numbers[mine] if len(of_events.numbers) else np.nan
            codes[row, :length] = of_events.codes[mine] if len(of_events.codes) else 0
            if len(of_sequences.numbers):
                own_numbers[row], own_codes[row] = of_sequences.numbers[own.place], of_sequences.codes[own.place]
        arrays = numbers, codes, own_numbers, own_codes
        return CovariateRows(*(torch.from_numpy(one).to(device) for one in arrays))

    def _encoded(self, table: AttributeTable) -> tuple[EncodedColumns, EncodedColumns]:
        found = self._tables.get(table)
        if found is None:
            self._tell(table)
            rows, sequences = (
                len(next(iter(columns.values()), ())) for columns in (table.of_events, table.of_sequences)
            )
            found = self._tables[table] = self.encoding.encode(table, rows, sequences)
        return found

    def _tell(self, table: AttributeTable) -> None:
        absent = ", ".join(name for name in self.encoding.absent(table) if name not in self._told)
        if absent:
            log.warning("covariates that the model knows are not in these data, and are taken as missing: %s", absent)
            self._told.update(self.encoding.absent(table))
