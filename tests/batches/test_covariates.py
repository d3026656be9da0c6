"""Covariates of batches: each row has those of its own sequence, however rows are cut out, taken, copied and padded."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from foretell.batches.batch import Batch, Collator
from foretell.batches.covariates import CovariateEncoder, CovariateRows
from foretell.data import EventData
from foretell.data.covariates import CategoryColumn
from tests.covariate_samples import ENCODING, data_with_covariates, known_history, static_values

LENGTHS = (4, 0, 7, 2)


def batch_of_all(data: EventData, width: int | None = None) -> Batch:
    collator = Collator()
    collator.covariates = CovariateEncoder(ENCODING)
    return collator.batch(data, range(len(data)), width=width)


def rows_of(batch: Batch) -> CovariateRows:
    assert batch.covariates is not None
    return batch.covariates


def test_values_are_those_of_the_sequences_and_padding_is_0():
    data = data_with_covariates(3, LENGTHS)
    rows = rows_of(batch_of_all(data, width=9))
    assert rows.numbers.shape == (4, 9, 2) and rows.codes.shape == (4, 9, 1)
    codes = {None: 0, "fax": 1, "shop": 2, "web": 3, "east": 1, "north": 2, "south": 3}
    for row, length in enumerate(LENGTHS):
        history = known_history(data, row)
        for place in range(length):
            known = dict(history[place].covariates)
            assert int(rows.codes[row, place, 0]) == codes[known["channel"]]  # pyright: ignore[reportArgumentType]
            for column, (name, mean, scale) in enumerate((("amount", 0.5, 2.0), ("size", -1.0, 0.5))):
                value = known[name]
                expected = np.nan if value is None else (float(value) - mean) / scale
                np.testing.assert_equal(rows.numbers[row, place, column].item(), expected)
        assert not rows.numbers[row, length:].any() and not rows.codes[row, length:].any()
        own = static_values(data, row)
        age = own["age"]
        np.testing.assert_equal(rows.static_numbers[row, 0].item(), np.nan if age is None else (float(age) - 1.0) / 4.0)
        assert int(rows.static_codes[row, 0]) == codes[own["region"]]  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("how", ["rows", "take", "clone"])
def test_rows_keep_their_covariates(how: str):
    batch = batch_of_all(data_with_covariates(3, LENGTHS))
    chosen = {"rows": [1, 2], "take": [2, 0, 2], "clone": [0, 1, 2, 3]}[how]
    cut = {
        "rows": lambda: batch.rows(1, 3),
        "take": lambda: batch.take(torch.tensor([2, 0, 2])),
        "clone": batch.clone,
    }[how]()
    for mine, whole in zip(cut.all_tensors(), batch.all_tensors(), strict=True):
        torch.testing.assert_close(mine, whole[chosen], rtol=0.0, atol=0.0, equal_nan=True)
    assert len(batch.all_tensors()) == len(batch.tensors()) + 4


def test_a_prefix_has_the_covariates_of_its_events():
    data = data_with_covariates(3, LENGTHS)
    whole = rows_of(batch_of_all(data))
    part = rows_of(batch_of_all(EventData([data[2].first(3, 9.0)], data.vocabulary)))
    torch.testing.assert_close(part.numbers[0], whole.numbers[2, :3], rtol=0.0, atol=0.0, equal_nan=True)
    assert torch.equal(part.static_codes[0], whole.static_codes[2])


def test_columns_are_encoded_once(monkeypatch: pytest.MonkeyPatch):
    data, calls = data_with_covariates(3, LENGTHS), []
    own = CategoryColumn.encode
    monkeypatch.setattr(CategoryColumn, "encode", lambda self, one: calls.append(self.name) or own(self, one))
    collator = Collator()
    collator.covariates = CovariateEncoder(ENCODING)
    for indices in ([0, 1], [2], [3, 0]):
        collator.batch(data, indices)
    assert sorted(calls) == ["channel", "region"]
