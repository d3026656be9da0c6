"""Rows in tiles: every row has a place, every tile has one matrix, and there are few products however many rows."""

from __future__ import annotations

import numpy as np
import pytest

from foretell.plan.deduction import HEIGHTS, pack


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("seed", range(6))
def test_every_row_stands_in_a_tile_of_its_matrix(seed: int, device: str) -> None:
    draw = np.random.default_rng(seed)
    lengths = draw.integers(1, 4 * HEIGHTS[device][1], size=7) // draw.choice([1, 40], size=7) + 1
    matrix = np.repeat(draw.permutation(20)[:7], lengths)
    packed = pack(matrix, device)
    assert len(packed.tilings) <= 2
    row = np.concatenate([tiling.row for tiling in packed.tilings])
    owner = np.concatenate(
        [np.repeat(tiling.matrix, len(tiling.row) // len(tiling.matrix)) for tiling in packed.tilings]
    )
    assert len(row) == packed.size == len(owner)
    np.testing.assert_array_equal(row[packed.place], np.arange(len(matrix)))
    np.testing.assert_array_equal(matrix[row], owner)


def test_rows_of_one_matrix_stay_together_in_their_order() -> None:
    matrix = np.repeat([5, 2], [300, 3])
    place = pack(matrix, "cpu").place
    assert (np.diff(place[:300]) == 1).all() and (np.diff(place[300:]) == 1).all()


def test_padding_is_bounded_by_a_tile_for_each_matrix() -> None:
    for count in (1, 15, 64, 65, 1000):
        assert pack(np.repeat([0, 1], count), "cpu").size <= 2 * count + 2 * max(count, HEIGHTS["cpu"][0])


def test_nothing_is_packed_into_nothing() -> None:
    packed = pack(np.zeros(0, dtype=np.int64), "cpu")
    assert packed.tilings == () and packed.size == 0
