"""Features of events, for models of rules: the columns of numbers that a program names, standardised and padded to a batch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch

from foretell.batches.covariates import CovariateEncoder, CovariateRows
from foretell.data import EventSequence
from foretell.data.covariates import CovariateEncoding, NumberColumn, numbers_of
from foretell.errors import DataError
from foretell.wording import shown


class FeatureEncoder(CovariateEncoder):
    """Reads the named columns. After `fit`, values are standardised by the mean and standard deviation of the training data."""

    def __init__(self, columns: Sequence[NumberColumn]) -> None:
        super().__init__(CovariateEncoding(tuple(columns)))
        self.columns = tuple(columns)

    def use(self, columns: Sequence[NumberColumn]) -> None:
        """Use the scales of these columns from now on."""
        self.columns, self.encoding = tuple(columns), CovariateEncoding(tuple(columns))

    def fit(self, data: Iterable[EventSequence]) -> None:
        """Compute means and standard deviations from all events of the training data; a column without any number is an error."""
        found: list[list[np.ndarray]] = [[] for _ in self.columns]
        for sequence in data:
            for values, one in zip(found, self.columns, strict=True):
                values.append(event_numbers(one.name, sequence))
        whole = [np.concatenate([np.zeros(0), *values]) for values in found]
        named = zip(self.columns, whole, strict=True)
        empty = [one.name for one, values in named if not np.isfinite(values).any()]
        if empty:
            hint = "name a column of the data"
            raise DataError([f"features: {shown(name)} has no number in the training data; {hint}" for name in empty])
        self.use([NumberColumn.fit(one.name, values) for one, values in zip(self.columns, whole, strict=True)])

    def rows(
        self, chosen: Sequence[EventSequence], width: int, device: torch.device | str, part: range | None = None
    ) -> CovariateRows:
        here = slice(None) if part is None else slice(part.start, part.stop)
        numbers = np.zeros((len(chosen), width, len(self.columns)))
        for row, sequence in enumerate(chosen):
            self._tell(self._nothing if sequence.attributes is None else sequence.attributes.table)
            for place, one in enumerate(self.columns):
                values = one.standardised(event_numbers(one.name, sequence))[here]
                numbers[row, : len(values), place] = values
        nothing = np.zeros((len(chosen), 0))
        codes = np.zeros((len(chosen), width, 0), dtype=np.int64)
        arrays = numbers, codes, nothing, nothing.astype(np.int64)
        return CovariateRows(*(torch.from_numpy(one).to(device) for one in arrays))


def event_numbers(name: str, sequence: EventSequence) -> np.ndarray:
    """Return a column of numbers for one sequence's events, float64 [N]; NaN where a number is missing."""
    length, own = len(sequence), sequence.attributes
    attribute = None if own is None else own.table.of_events.get(name)
    if attribute is not None and own is not None:
        return numbers_of(name, attribute.take(slice(own.row, own.row + length)))
    if isinstance(sequence.metadata.get(name), list | tuple):
        message = (
            f"sequence {sequence.id!r}: `{name}` is a list in the metadata, and the program has `features(…, {name})`"
        )
        raise DataError(f'{message}: read it as numbers of events with `covariates=["{name}"]`')
    return np.full(length, np.nan)
