"""What is resampled and permuted: rows of scores, or the sums of the rows of each sequence."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretell.evaluate.bootstrap import ENOUGH_SEQUENCES, Ratio, Resampling, resample_blocks, resample_sequences


@dataclass(frozen=True)
class Units:
    """Rows of scores and the sequences that they belong to."""

    sequence: np.ndarray  # int64 [rows], ascending
    sequences: int  # in the data; some may have no row

    @property
    def whole_sequences(self) -> bool:
        return self.sequences >= ENOUGH_SEQUENCES

    def resampling(self, seed: int) -> Resampling:
        """Over sequences where there are enough, else over blocks of rows."""
        return (
            resample_sequences(self.sequences, seed) if self.whole_sequences else resample_blocks(self.sequence, seed)
        )

    def summed(self, values: np.ndarray) -> np.ndarray:
        """From one number a row to one a unit."""
        values = values.astype(np.float64)
        return np.bincount(self.sequence, weights=values, minlength=self.sequences) if self.whole_sequences else values

    def ratio(
        self, values: np.ndarray, counts: np.ndarray, variances: np.ndarray | None = None, *, root: bool = False
    ) -> Ratio:
        """`Σ values / Σ counts` over rows."""
        spread = None if variances is None or not variances.any() else self.summed(variances)
        return Ratio(self.summed(values), self.summed(counts), spread, root)
